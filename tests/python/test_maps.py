"""Sparse maps: dense layers on all cells against MLX, sums over an axis, merged levels."""

import mlx.core as mx
import numpy as np
import pytest
from mlx_lattice import SparseTensor, explain, ops


@pytest.mark.parametrize("stride, padding, size", [(1, 1, 3), (2, 1, 3), (2, 0, 2), (3, 2, 5)])
def test_dense_convolution(stride, padding, size):
    rng = np.random.default_rng(size)
    x = mx.array(rng.normal(size=(2, 9, 12, 4)).astype(np.float32))
    w = mx.array(rng.normal(size=(5, size, size, 4)).astype(np.float32))
    options = {"stride": stride, "padding": padding}

    def ours(x, w):
        return ops.to_map(ops.conv2d(ops.from_map(x), w, **options))

    def theirs(x, w):
        return mx.conv2d(x, w, **options)

    assert mx.allclose(ours(x, w), theirs(x, w), atol=1e-4)
    for a, b in zip(*(mx.grad(lambda x, w, f=f: (f(x, w) ** 2).sum(), argnums=(0, 1))(x, w)
                      for f in (ours, theirs))):  # fmt: skip
        assert mx.allclose(a, b, rtol=1e-4, atol=1e-2)


def test_dense_transposed_convolution():
    rng = np.random.default_rng(0)
    x = mx.array(rng.normal(size=(2, 4, 5, 3)).astype(np.float32))
    w = mx.array(rng.normal(size=(6, 2, 2, 3)).astype(np.float32))
    y = ops.to_map(ops.conv_transpose2d(ops.from_map(x, stride=2), w, stride=2))
    assert mx.allclose(y, mx.conv_transpose2d(x, w, stride=2), atol=1e-5)


def test_dilation_of_the_ways_back():
    rng = np.random.default_rng(3)
    x = mx.array(rng.normal(size=(1, 4, 5, 3)).astype(np.float32))
    w = mx.array(rng.normal(size=(6, 2, 3, 3)).astype(np.float32))
    options = {"stride": (2, 1), "dilation": (3, 2)}
    y = ops.to_map(ops.conv_transpose2d(ops.from_map(x, stride=2), w, **options))
    assert mx.allclose(y, mx.conv_transpose2d(x, w, **options), atol=1e-5)
    fine = ops.from_map(mx.array(rng.normal(size=(1, 9, 8, 6)).astype(np.float32)))
    # The way back is the adjoint of the way down: <conv(a), b> = <a, inverse(b)>.
    down = ops.conv2d(fine, mx.moveaxis(w, 3, 0).swapaxes(1, 3).swapaxes(1, 2), **options)
    b = down.with_feats(mx.array(rng.normal(size=down.shape).astype(np.float32)))
    back = ops.inverse_conv2d(b, w, fine, **options)
    assert back.same_coords(fine)
    assert np.isclose((down.feats * b.feats).sum().item(), (fine.feats * back.feats).sum().item(),
                      rtol=1e-4)  # fmt: skip


def test_map_of_missing_rows():
    x = ops.planar([[0, 1, 2], [1, 0, 0]], mx.array([[1.0, 2], [3, 4]]), shape=(2, 3))
    expected = np.zeros((2, 2, 3, 2), np.float32)
    expected[0, 1, 2], expected[1, 0, 0] = [1, 2], [3, 4]
    assert np.array_equal(ops.to_map(x), expected)
    assert np.array_equal(ops.to_map(x, channels_first=True), expected.transpose(0, 3, 1, 2))
    with pytest.raises(ValueError, match=r"\[to_map\] shape"):
        ops.to_map(x, (1, 2, 3))


def test_explain_says_what_runs():
    x, w = mx.ones((1, 8, 8, 16)), mx.ones((16, 3, 3, 16))
    text = str(explain(lambda: ops.subm_conv2d(ops.from_map(x), w)))
    assert "cpu.tiles" in text


def test_sum_over_and_merge():
    rng = np.random.default_rng(1)
    rows = np.unique(rng.integers(0, 5, (60, 4)), axis=0).astype(np.int32)
    rows = rng.permutation(rows)
    feats = rng.integers(-8, 8, (len(rows), 3)).astype(np.float32)
    x = SparseTensor(mx.array(rows), mx.array(feats)).with_bounds(((0, 0, 0), (5, 5, 5)))
    for axis in range(3):
        y = ops.sum_over(x, axis)
        flat = rows.copy()
        flat[:, axis + 1] = 0
        expected, inverse = np.unique(flat, axis=0, return_inverse=True)
        total = np.zeros((len(expected), 3), np.float32)
        np.add.at(total, inverse.reshape(-1), feats)
        assert np.array_equal(y.coords, expected)
        assert np.array_equal(y.feats, total)
        assert y.bounds[1][axis] == 1
    grad = mx.grad(lambda f: ops.sum_over(x.with_feats(f), 0).feats.sum())(x.feats)
    assert np.array_equal(grad, np.ones_like(feats))
    coarse = SparseTensor(mx.array([[0, 1, 1, 1]]), mx.ones((1, 3)), stride=2)
    merged = ops.merge_levels([x, coarse])
    assert merged.coords[-1].tolist() == [0, 2, 2, 2]
    assert merged.active_count == len(rows) + 1
    with pytest.raises(ValueError, match="no multiple"):
        ops.merge_levels([coarse, x])
    with pytest.raises(ValueError, match="axis must be"):
        ops.sum_over(x, 3)
    none = ops.sum_over(ops.planar(mx.zeros((0, 3), mx.int32), mx.zeros((0, 2))), 1)
    assert none.shape == (0, 2)


def test_to_map_of_as_many_rows_as_cells():
    """Rows outside of the shape were taken for the cells of the map."""
    x = ops.planar([[0, 0, 0], [0, 0, 1], [0, 5, 5], [0, 9, 9]], mx.ones((4, 2)))
    with pytest.raises(ValueError, match="outside"):
        ops.to_map(x, (2, 2))


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda x: ops.conv2d(x.feats, mx.ones((1, 3, 3, 4))), r"\[conv2d\] x"),
        (lambda x: ops.conv2d(x, mx.ones((1, 3, 3, 4)), stride="2"), r"\[conv2d\] stride"),
        (lambda x: ops.pool2d(x, kernel_size=(1, 2, 3)), r"\[pool2d\] kernel_size"),
        (lambda x: ops.sum_over(x, "x"), r"\[sum_over\] axis"),
        (lambda x: ops.to_map(x, shape=3.5), r"\[to_map\] shape"),
        (lambda x: ops.from_map("map"), r"\[from_map\] dense"),
        (lambda x: ops.merge_levels(x), r"\[merge_levels\] levels"),
    ],
)
def test_wrong_kinds_are_named(call, text):
    x = ops.planar([[0, 1, 2], [0, 1, 3]], mx.ones((2, 4)))
    with pytest.raises((TypeError, ValueError), match=text):
        call(x)
