"""Weights of other libraries.

A float64 convolution in each library's own terms against ours with converted weights.
"""

from itertools import product

import mlx.core as mx
import numpy as np
import pytest
from mlx_lattice import SparseTensor, ops, points
from mlx_lattice.models import convert

C_IN, C_OUT = 3, 4


def fixture(size, seed=0):
    """Rows in a box, their features, and one weight per offset (ix, iy, iz), all float64."""
    rng = np.random.default_rng(seed)
    rows = np.unique(rng.integers(0, 6, (150, 3)), axis=0)
    rng.shuffle(rows)
    return (
        rows,
        rng.standard_normal((len(rows), C_IN)),
        rng.standard_normal((int(np.prod(size)), C_IN, C_OUT)),
    )


def convolve(rows, feats, size, weight_at):
    """y[c] = sum over the kernel of x[c + index - center] W(index).

    Even sizes have their center at 0.
    """
    at = {tuple(r): f for r, f in zip(rows.tolist(), feats)}
    center = [n // 2 if n % 2 else 0 for n in size]
    y = np.zeros((len(rows), C_OUT))
    for i, row in enumerate(rows.tolist()):
        for index in product(*map(range, size)):
            source = at.get(tuple(r + j - c for r, j, c in zip(row, index, center)))
            if source is not None:
                y[i] += source @ weight_at(*index)
    return y


def ours(rows, feats, weight, size):
    coords = mx.array(np.concatenate([np.zeros((len(rows), 1)), rows], 1).astype(np.int32))
    x = SparseTensor(coords, mx.array(feats.astype(np.float32)))
    return np.array(ops.conv3d(x, weight, kernel_size=size, coordinates=x).feats)


SIZES = [(3, 3, 3), (2, 2, 2), (3, 1, 5), (2, 4, 1), (1, 1, 1)]


def place(size, first_fastest):
    """Row of an offset in a kernel-major array."""
    if first_fastest:
        return lambda x, y, z: x + size[0] * (y + size[1] * z)
    return lambda x, y, z: (x * size[1] + y) * size[2] + z


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("library", ["minkowski", "torchsparse"])
def test_kernel_major(library, size):
    rows, feats, w = fixture(size)
    fastest = library == "minkowski" or np.prod(size) % 2 == 1
    k = place(size, fastest)
    expected = convolve(rows, feats, size, lambda x, y, z: w[k(x, y, z)])
    given = w.astype(np.float32) if w.shape[0] > 1 else w[0].astype(np.float32)
    got = getattr(convert, f"from_{library}")(given, kernel_size=size)
    assert got.shape == (C_OUT, *size, C_IN)
    np.testing.assert_allclose(ours(rows, feats, got, size), expected, atol=2e-5)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("axes", ["zyx", "xyz", "yzx"])
@pytest.mark.parametrize("version", [1, 2])
def test_spconv(version, axes, size):
    """The fixture convolves in spconv's own axes: columns of its indices are `axes`."""
    rows, feats, w = fixture(size)
    order = ["xyz".index(a) for a in axes]
    theirs = [size[a] for a in order]  # kernel along its own axes
    weight = w.reshape(*theirs, C_IN, C_OUT)
    expected = convolve(rows[:, order], feats, theirs, lambda a, b, c: weight[a, b, c])
    given = (weight if version == 1 else weight.transpose(4, 0, 1, 2, 3)).astype(np.float32)
    # A strided 1x1x1 layer of spconv 2 means what its shape says; test_goldens.py has the others.
    options = {"stride": 2} if version == 2 else {}
    got = getattr(convert, f"from_spconv{version}")(mx.array(given), axes=axes, **options)
    assert got.shape == (C_OUT, *size, C_IN)
    np.testing.assert_allclose(ours(rows, feats, got, size), expected, atol=2e-5)


def test_errors():
    with pytest.raises(
        ValueError, match=r"\[from_minkowski\] weight must have shape \(27, C_in, C_out\)"
    ):
        convert.from_minkowski(mx.zeros((8, 3, 4)))
    with pytest.raises(ValueError, match=r"\[from_torchsparse\]"):
        convert.from_torchsparse(mx.zeros((3, 4)), kernel_size=2)
    with pytest.raises(ValueError, match=r"\[from_spconv1\] weight must have shape"):
        convert.from_spconv1(mx.zeros((27, 3, 4)))
    with pytest.raises(
        ValueError, match=r"\[from_spconv2\] axes must be an order of 'xyz', found 'zzx'"
    ):
        convert.from_spconv2(mx.zeros((4, 3, 3, 3, 3)), axes="zzx")


@pytest.mark.parametrize("groups", [1, 2])
def test_legacy_points(groups, tmp_path):
    """A checkpoint with (C_in, C_out / G, K) against the convolution in its own terms."""
    rng = np.random.default_rng(0)
    old = rng.standard_normal((6, 4 // groups, 27)).astype(np.float32)
    mx.save_safetensors(str(tmp_path / "old.safetensors"), {"conv.weight": mx.array(old)})
    loaded = mx.load(str(tmp_path / "old.safetensors"))["conv.weight"]
    conv = points.PointConv3d(6, 4, 3, groups, bias=False)
    conv.load_weights([("weight", convert.from_legacy_points(loaded, groups))])
    set_ = points.PointSet(mx.array(rng.random((50, 3)).astype(np.float32)), grid=0.2)
    x = rng.standard_normal((50, 6)).astype(np.float32)
    expected = np.zeros((50, 4))
    for i, j, k in zip(*(a.tolist() for a in set_.rulebook().triplets()[:3])):
        for c in range(6):
            for m in range(4 // groups):
                expected[i, c // (6 // groups) * (4 // groups) + m] += float(x[j, c]) * float(
                    old[c, m, k]
                )
    np.testing.assert_allclose(np.array(conv(mx.array(x), set_)[0]), expected, atol=1e-4)
    with pytest.raises(ValueError, match="groups must divide"):
        convert.from_legacy_points(old, 4)
    with pytest.raises(ValueError, match="must have shape"):
        convert.from_legacy_points(old[0])
