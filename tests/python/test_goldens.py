"""Layers of other libraries, end to end.

Their stored weights through the converters, their outputs within 2e-6.

goldens/*.npz were made by running MinkowskiEngine 0.5.4, spconv 2.3.8 and TorchSparse 1.4.0 on the
CPU on random inputs; no code of theirs is here. Coordinates are (batch, axis 0, axis 1, axis 2);
rows are compared by coordinate.
"""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx_lattice import SparseTensor, ops
from mlx_lattice.models import convert

FOLDER = Path(__file__).with_name("goldens")
FILES = {name: np.load(FOLDER / f"{name}.npz") for name in ("minkowski", "spconv2", "torchsparse")}
TOLERANCE = 2e-6


def cases(library):
    return [str(name) for name in FILES[library]["names"]]


class Case:
    """One case of a file: arrays by name, in the library's own terms."""

    def __init__(self, library, name):
        self.data, self.name, self.kind = FILES[library], name, name.split("_")[0]

    def __getitem__(self, key):
        return self.data[f"{self.name}/{key}"]

    def get(self, key, default=None):
        full = f"{self.name}/{key}"
        return self.data[full] if full in self.data.files else default

    def triple(self, key, default=1):
        return tuple(int(v) for v in self.get(key, np.full(3, default)))

    def tensor(self):
        """The input at lattice coordinates, and its tensor stride."""
        stride = self.triple("in_stride")
        coords, feats = self.get("in_coords", self.data["coords"]), self.get("in_feats")
        feats = self.data["feats"] if feats is None else feats
        return SparseTensor(lattice(coords, stride), mx.array(feats), stride=stride)


def lattice(coords, stride):
    coords = coords.copy()
    coords[:, 1:] //= np.array(stride, np.int32)
    return mx.array(coords.astype(np.int32))


def compare(got, coords, feats):
    """Rows by coordinate; relative to the largest value."""
    at = {tuple(row): i for i, row in enumerate(np.array(got.coords).tolist())}
    assert len(at) == len(coords)
    rows = [at[tuple(row)] for row in np.array(coords).tolist()]
    error = np.abs(np.array(got.feats, np.float64)[rows] - feats).max() / np.abs(feats).max()
    assert error <= TOLERANCE, error


def check_layer(case, layer, x, stride, coordinates):
    y = layer(x, coordinates) if coordinates is not None else layer(x)
    compare(y, lattice(case["out_coords"], stride), case["out_feats"])


@pytest.mark.parametrize("name", cases("minkowski"))
def test_minkowski(name):
    case = Case("minkowski", name)
    x = case.tensor()
    size, step = case.triple("kernel_size"), case.triple("stride")
    out = case.triple("out_stride")
    if case.kind in ("conv", "transpose", "generative"):
        layer = convert.minkowski_layer(
            case["weight"],
            case.get("bias"),
            kind="conv" if case.kind == "conv" else "transpose",
            kernel_size=size,
            stride=step,
            dilation=case.triple("dilation"),
        )
        wanted = lattice(case["out_coords"], out) if case.kind == "transpose" else None
        check_layer(case, layer, x, out, wanted)
    elif case.kind.endswith("pool"):
        y = ops.pool3d(x, mode=case.kind[:3], kernel_size=size, stride=step)
        compare(y, lattice(case["out_coords"], out), case["out_feats"])
    elif case.kind in ("gsum", "gavg", "gmax"):
        y = np.array(ops.global_pool(x, mode=case.kind[1:]))[case["out_coords"][:, 0]]
        error = np.abs(y - case["out_feats"]).max() / np.abs(case["out_feats"]).max()
        assert error <= TOLERANCE
    else:
        assert case.kind == "instancenorm"
        f, batch = np.array(x.feats, np.float64), np.array(x.coords)[:, 0]
        for b in np.unique(batch):
            part = f[batch == b]
            f[batch == b] = (part - part.mean(0)) / np.sqrt(part.var(0) + 1e-8)
        got = SparseTensor(x.coords, _instance_norm(x))
        compare(got, lattice(case["out_coords"], out), case["out_feats"])
        np.testing.assert_allclose(np.array(got.feats), f, atol=1e-5)


def _instance_norm(x):
    from mlx_lattice import points

    sorted_, order = x.sorted()
    lengths = mx.array([len(rows) for rows in x.batch_rows])
    y = points.RaggedInstanceNorm(x.channels, eps=1e-8)(sorted_.feats, lengths)
    return y[mx.argsort(order)]


@pytest.mark.parametrize("name", cases("torchsparse"))
def test_torchsparse(name):
    case = Case("torchsparse", name)
    layer = convert.torchsparse_layer(
        case["weight"],
        kind=case.kind,
        kernel_size=case.triple("kernel_size"),
        stride=case.triple("stride"),
        dilation=case.triple("dilation"),
    )
    out = case.triple("out_stride")
    check_layer(case, layer, case.tensor(), out, lattice(case["out_coords"], out))


def test_torchsparse_global_pools():
    data = FILES["torchsparse"]
    x = SparseTensor(mx.array(data["coords"]), mx.array(data["feats"]))
    for mode in ("avg", "max"):
        expected = data[f"global_{mode}_pool"]
        got = np.array(ops.global_pool(x, mode=mode))
        assert np.abs(got - expected).max() <= TOLERANCE * np.abs(expected).max()


@pytest.mark.parametrize("axes", ["xyz", "zyx"])
@pytest.mark.parametrize("layout", ["krsc", "native"])
@pytest.mark.parametrize("name", cases("spconv2"))
def test_spconv2(name, axes, layout):
    """axes zyx: the columns of the file are called z, y, x.

    Native: the layout of spconv 2.0 and 2.1.
    """
    case = Case("spconv2", name)
    order = [0, 1, 2, 3] if axes == "xyz" else [0, 3, 2, 1]
    moved = lambda coords: mx.array(np.ascontiguousarray(coords[:, order]))
    feats = case.get("in_feats")
    stride = 2 if case.kind in ("inverse", "transpose") else 1  # of the tensor: it must divide
    step, padding = case.triple("stride"), case.triple("padding", 0)
    if case.kind in ("inverse", "transpose"):
        stride = tuple(step[::-1] if axes == "zyx" else step)
    x = SparseTensor(
        moved(case.get("in_coords", case.data["coords"])),
        mx.array(case.data["feats"] if feats is None else feats),
        stride=stride,
    )
    wanted = moved(case["out_coords"])
    if case.kind == "maxpool":
        if axes != "xyz" or layout != "krsc":
            return
        size = case.triple("kernel_size")
        # spconv's padding counts from tap 0, ours from the center of odd kernels.
        shifted = tuple(p - k // 2 if k % 2 else p for p, k in zip(padding, size))
        relation = ops.build_target_kernel_relation(x.coords, wanted, size, step, shifted)
        rows = np.full((len(wanted), x.channels), -np.inf)
        edges = relation.edges
        np.maximum.at(rows, np.array(edges.out_rows), np.array(x.feats)[np.array(edges.in_rows)])
        expected = case["out_feats"]  # the CPU code of spconv begins at 0
        assert np.abs(np.maximum(rows, 0) - expected).max() <= TOLERANCE * np.abs(expected).max()
        return
    weight = case["weight"]
    layer = convert.spconv2_layer(
        weight if layout == "krsc" else weight.transpose(1, 2, 3, 0, 4),
        kind=case.kind,
        stride=step,
        padding=padding,
        dilation=case.triple("dilation"),
        axes=axes,
        layout=layout,
    )
    subm = layer.kind in ("subm", "pointwise")
    y = layer(x) if subm else layer(x, wanted)
    compare(y, wanted, case["out_feats"])


def test_spconv2_layouts_are_told_apart_by_shape():
    w = mx.random.normal((3, 3, 3, 16, 32))
    assert convert.from_spconv2(w).shape == (16, 3, 3, 3, 32)
    assert convert.from_spconv2(w.transpose(3, 0, 1, 2, 4)).shape == (16, 3, 3, 3, 32)
    with pytest.raises(ValueError, match=r"\[from_spconv2\].*both.*give layout="):
        convert.from_spconv2(mx.zeros((3, 3, 3, 3, 8)))
    assert convert.from_spconv2(mx.zeros((3, 3, 3, 3, 8)), layout="krsc").shape == (3, 3, 3, 3, 8)
    with pytest.raises(ValueError, match="neither"):
        convert.from_spconv2(mx.zeros((8, 3, 3, 3, 8)), kernel_size=5)


def test_minkunet14():
    """The example network of MinkowskiEngine with converted weights, in evaluation mode."""
    data = np.load(FOLDER / "minkunet14_tiny.npz")
    parameter = {k[6:]: data[k] for k in data.files if k.startswith("param/")}

    def norm(x, name):
        p = [
            mx.array(parameter[f"{name}.bn.{k}"])
            for k in ("weight", "bias", "running_mean", "running_var")
        ]
        return ops.batch_norm(x, p[0], p[1], mean=p[2], var=p[3], eps=1e-5)

    def conv(x, name, size=3, stride=1, to=None, kind="conv"):
        layer = convert.minkowski_layer(
            parameter[f"{name}.kernel"],
            parameter.get(f"{name}.bias"),
            kind=kind,
            kernel_size=size,
            stride=stride,
        )
        if kind == "conv" and stride == 1 and size > 1:
            return layer(x, x)  # MinkowskiEngine keeps the coordinates at stride 1
        return layer(x, to) if to is not None else layer(x)

    def block(x, name):
        y = ops.relu(norm(conv(x, f"{name}.conv1"), f"{name}.norm1"))
        y = norm(conv(y, f"{name}.conv2"), f"{name}.norm2")
        if f"{name}.downsample.0.kernel" in parameter:
            x = norm(conv(x, f"{name}.downsample.0", size=1), f"{name}.downsample.1")
        return ops.relu(y + x)

    x = SparseTensor(mx.array(data["coords"]), mx.array(data["feats"]))
    x = ops.relu(norm(conv(x, "conv0p1s1", 5), "bn0"))
    skips = [x]
    for level in range(1, 5):
        x = ops.relu(norm(conv(x, f"conv{level}p{2 ** (level - 1)}s2", 2, 2), f"bn{level}"))
        x = block(x, f"block{level}.0")
        skips.append(x)
    skips.pop()
    for level in range(4, 8):
        skip = skips.pop()
        name = f"convtr{level}p{2 ** (8 - level)}s2"
        x = ops.relu(norm(conv(x, name, 2, 2, skip, "transpose"), f"bntr{level}"))
        x = block(ops.cat([x, skip]), f"block{level + 1}.0")
    y = conv(x, "final", 1)
    error = np.abs(np.array(y.feats) - data["logits"]).max() / np.abs(data["logits"]).max()
    assert error <= TOLERANCE, error
