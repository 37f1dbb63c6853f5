"""Operations on points against PyTorch's.

A record of its formulas in float64 (torch_reference.py), and torch itself where it is installed.
"""

import mlx.core as mx
import numpy as np
import pytest
import torch_reference as reference
from mlx_lattice import points

RECORD = np.load(reference.FILE)


def recorded(name):
    return [RECORD[key] for key in sorted(k for k in RECORD.files if k.split(".")[0] == name)]


def ints(a):
    return mx.array(np.asarray(a, dtype=np.int32))


def conv_with(x, weight, bias, *edges):
    conv = points.PointConv3d(8, 12, 3, 4)
    conv.weight, conv.bias = weight, bias
    return conv(
        x,
        points.PointSet(
            mx.array(reference.POSITIONS), ints(reference.LENGTHS), grid=reference.GRID
        ),
    )[0]


def norm_with(kind):
    def run(x, weight, bias):
        norm = kind(6)
        norm.weight, norm.bias = weight, bias
        return norm(x)

    return run


def pointcnn_with(x, w1, b1, w2, b2, idx):
    conv = points.PointCNNConv(3, 5, hidden=8)
    first, _, second = conv.mlp.layers
    first.weight, first.bias, second.weight, second.bias = w1, b1, w2, b2
    return conv(x, mx.zeros((20, 3)), ints(idx), mx.zeros((20, 4, 3)))


OURS = {
    "mvmr": lambda a, b, k, i, o, n: points.mvmr(a, ints(k), b, ints(i), ints(o), n),
    "vvor": lambda x, y, i, j, o, n: points.vvor(x, ints(i), y, ints(j), ints(o), n),
    "point_conv": conv_with,
    "segment_sum": lambda x, lengths: points.segment_reduce(x, ints(lengths), "sum"),
    "segment_mean": lambda x, lengths: points.segment_reduce(x, ints(lengths), "mean"),
    "segment_max": lambda x, lengths: points.segment_reduce(x, ints(lengths), "max"),
    "segment_min": lambda x, lengths: points.segment_reduce(x, ints(lengths), "min"),
    "cdist": points.indexed_distance,
    "cosine": lambda a, b, i, j: points.indexed_pair_distance(a, ints(i), b, ints(j), "cosine"),
    "batch_norm": norm_with(points.RaggedBatchNorm),
    "layer_norm": norm_with(points.RowNorm),
    "pointcnn": pointcnn_with,
}


def test_every_case_is_recorded():
    assert set(OURS) == set(reference.CASES) == {k.split(".")[0] for k in RECORD.files} - {"source"}


@pytest.mark.parametrize("name", OURS)
def test_library(name):
    case, expected = reference.CASES[name], recorded(name)
    arrays, constants = case.inputs()
    assert len(expected) == 1 + len(arrays)
    inputs = [mx.array(a.astype(np.float32)) for a in arrays]
    g = mx.array(case.cotangent(expected[0]).astype(np.float32))
    value, grads = mx.vjp(lambda *a: OURS[name](*a, *constants), inputs, [g])
    for found, want in zip([value[0], *grads], expected):
        np.testing.assert_allclose(np.array(found), want, atol=2e-5 * max(1, np.abs(want).max()))


@pytest.mark.parametrize("name", OURS)
def test_record_is_torch(name):
    torch = pytest.importorskip(
        "torch", reason="PyTorch is not installed; the record is a restatement of its formulas"
    )
    for found, want in zip(reference.CASES[name].by_torch(torch), recorded(name), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-9)
