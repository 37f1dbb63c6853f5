"""Mistakes that a beginner makes: each gets an error of the right kind that names the cure."""

import mlx.core as mx
import mlx.nn
import mlx_lattice as ml
import numpy as np
import pytest
from mlx_lattice import io, models, nn, ops, points, samples, training, viewer

X = samples.tensor()
C, F = X.coords, X.feats
W = mx.ones((8, 3, 3, 3, 4))
P = mx.random.uniform(shape=(20, 3))

# (what was typed, kind of error, words of the message)
MISTAKES = [
    # Making a tensor.
    (
        lambda: ml.SparseTensor(C[:, 1:], F),
        ValueError,
        r"rows are \(batch, x, y, z\).*sparse_collate adds",
    ),
    (lambda: ml.SparseTensor(F, C), ValueError, "coordinates come first and features second"),
    (lambda: ml.SparseTensor(C.astype(mx.float32), F), ValueError, "int32 or int64.*voxelize"),
    (lambda: ml.SparseTensor(C, F[:3]), ValueError, r"feats must have shape \(6, C\)"),
    (lambda: ml.SparseTensor(C, F[:, 0]), ValueError, r"feats must have shape \(6, C\)"),
    (lambda: ml.SparseTensor(C), TypeError, "feats|incompatible"),
    (
        lambda: ml.SparseTensor("scan.ply", F),
        TypeError,
        "an mx.array, a NumPy array or nested lists",
    ),
    (lambda: ml.SparseTensor([[0, 0, 0, 0], [0, 1]], F), TypeError, "rows of one length"),
    (lambda: ml.SparseTensor(-C - 1, F), ValueError, "batch >= 0"),
    (lambda: ml.SparseTensor(C, F, stride=0), ValueError, "stride must be >= 1"),
    (lambda: ml.SparseTensor(C, F, batch_counts=[1, 1]), ValueError, "batch_counts"),
    (lambda: ops.sparse_collate([C], [F]), ValueError, r"\(N, 3\)"),
    (lambda: ops.sparse_collate([], []), ValueError, "at least one"),
    # Names of other libraries.
    (lambda: X.F, AttributeError, "this library calls it `feats`"),
    (lambda: X.C, AttributeError, "this library calls it `coords`"),
    (lambda: X.features, AttributeError, "this library calls it `feats`"),
    (lambda: X.indices, AttributeError, "this library calls it `coords`"),
    (lambda: X.dense(), AttributeError, r"to_dense\(\)"),
    (lambda: X.tensor_stride, AttributeError, "`stride`"),
    # Convolutions.
    (
        lambda: ops.subm_conv3d(F, W),
        TypeError,
        r"x: found mlx.core.array.*SparseTensor\(coords, feats\)",
    ),
    (lambda: nn.SubmConv3d(4, 8)(F), TypeError, r"\[SubmConv3d\].*SparseTensor\(coords, feats\)"),
    (lambda: nn.SubmConv3d(8, 4)(X), ValueError, r"\[SubmConv3d\] x has 4 channels.*takes 8"),
    (lambda: nn.Linear(8, 4)(X), ValueError, r"\[Linear\] x has 4 channels.*takes 8"),
    (lambda: nn.SubmConv3d(4, 8, kernel_size=2), ValueError, "odd kernel_size"),
    (lambda: nn.Conv3d(4, 8, kernel_size=0), ValueError, "kernel_size must be 1"),
    (lambda: nn.Conv3d(4, 8, kernel_size=(3, 3)), ValueError, "three integers"),
    (lambda: nn.Conv3d(4, 8, stride=1.5), TypeError, "stride must be"),
    (lambda: nn.Conv3d(4, 8, groups=3), ValueError, "groups must divide"),
    (lambda: nn.Conv3d(4.0, 8), TypeError, "in_channels must be an integer"),
    (lambda: nn.Conv3d(4, 8, size=3), TypeError, "size"),
    (lambda: ops.conv3d(X, W, kernel=3), TypeError, "unexpected keyword argument 'kernel'"),
    (lambda: ops.conv3d(X, W, None, 3, 2), TypeError, "takes from 2 to 3 positional arguments"),
    (lambda: ops.conv3d(X), TypeError, "weight"),
    (
        lambda: ops.conv3d(X, W.astype(mx.float16)),
        ValueError,
        "convert the features, or the weight, with astype",
    ),
    (
        lambda: ops.conv3d(X, mx.ones((8, 5, 5, 5, 4))),
        ValueError,
        r"weight must have shape \(C_out, 3, 3, 3, 4\)",
    ),
    (lambda: nn.ConvTranspose3d(4, 8)(X), ValueError, "finest level"),
    (lambda: ops.relu(F), TypeError, r"\[relu\] x: found mlx.core.array"),
    (lambda: ops.relu_features(X), TypeError, r"\[relu_features\] x.*`x.feats`"),
    (lambda: ops.cat(X, nn.MaxPool3d()(X)), ValueError, "stride"),
    (lambda: nn.MaxPool3d(2, 2)(X.feats), TypeError, r"\[MaxPool3d\] x: found an mx.array"),
    (lambda: nn.GlobalAvgPool()(X.feats), TypeError, r"\[GlobalAvgPool\] x: found an mx.array"),
    (lambda: X + "1", TypeError, "unsupported operand"),
    # What MLX says itself; the FAQ explains these three.
    (lambda: mlx.nn.ReLU()(X), (TypeError, ValueError), "SparseTensor"),
    (lambda: mx.compile(lambda x: x)(X), (TypeError, ValueError), "SparseTensor"),
    (lambda: mx.grad(lambda x: x.feats.sum())(X), ValueError, "only arrays"),
    # Points, files and pictures.
    (lambda: ops.sparse_quantize(P, 0.0), ValueError, "voxel_size"),
    (lambda: ops.sparse_quantize(mx.array([[float("nan"), 0, 0]]), 1.0), ValueError, "row 0"),
    (lambda: points.radius_search(P, P, -1.0), ValueError, "radius"),
    (
        lambda: models.load("nothing.safetensors"),
        FileNotFoundError,
        r"nothing.safetensors does not exist.*save",
    ),
    (lambda: models.load("nothing.pt"), ValueError, "must end in .safetensors"),
    (lambda: io.read("nothing.ply"), FileNotFoundError, "nothing.ply"),
    (lambda: io.read("scan.xyzzy"), ValueError, "expected one of ply"),
    (lambda: viewer.page(np.zeros((5, 3)), color="rgb"), ValueError, "expected one of height"),
    (lambda: training.Confusion(["a"]).add([0, 1], [0]), ValueError, "found 1 rows, expected 2"),
]


@pytest.mark.parametrize("typed, error, words", MISTAKES)
def test_a_mistake_is_explained(typed, error, words):
    with pytest.raises(error, match=f"(?s){words}"):
        typed()


@pytest.mark.parametrize(
    "name, ours",
    [
        ("SubMConv3d", "SubmConv3d"),
        ("MinkowskiConvolution", "SubmConv3d at stride 1, Conv3d otherwise"),
        ("SparseInverseConv3d", "called with the fine tensor"),
    ],
)
def test_names_of_other_libraries_get_a_hint(name, ours):
    with pytest.raises(AttributeError, match=f"{name}'; here it is .*{ours}"):
        getattr(nn, name)
