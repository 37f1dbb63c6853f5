"""Reached supports against recordings of spconv 2.3.8 on the CPU: all values are dyadic, so ==.

goldens/spconv_support.npz holds inputs, rows, values and gradients of its layers; no code of theirs
is here. A 2D case has coordinates (batch, y, x), which become (batch, 0, y, x).
"""

from functools import lru_cache
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx_lattice import SparseTensor, nn, ops

DATA = np.load(Path(__file__).parent / "goldens" / "spconv_support.npz")
NAMES = [str(name) for name in DATA["names"]]


class Case:
    """One recorded layer."""

    def __init__(self, name):
        self.name, self.kind = name, str(DATA[f"{name}/kind"])
        self.set = f"set_{DATA[f'{name}/input']}"
        self.flat = DATA[f"{self.set}/indices"].shape[1] == 3
        self.spec = {
            "kernel_size": self.triple("kernel_size", 1),
            "stride": self.triple("stride", 1),
            "padding": self.triple("padding", 0),
            "dilation": self.triple("dilation", 1),
        }
        shape = [int(v) for v in DATA[f"{self.set}/spatial_shape"]]
        self.bounds = ((0, 0, 0), tuple([1] * self.flat + shape))

    def get(self, key):
        found = DATA.get(f"{self.name}/{key}")
        return found.astype(np.float32) if found is not None and found.dtype.kind == "f" else found

    def triple(self, key, fill):
        found = self.get(key)
        given = [fill] * (2 if self.flat else 3) if found is None else found.tolist()
        return tuple([fill] * self.flat + given)

    def rows(self, key):
        rows = (DATA[key] if key in DATA else self.get(key)).astype(np.int32)
        return np.insert(rows, 1, 0, axis=1) if self.flat else rows

    @lru_cache  # noqa: B019
    def fine(self):
        stride = self.spec["stride"] if self.kind == "transpose" else 1
        feats = mx.array(DATA[f"{self.set}/feats"].astype(np.float32))
        x = SparseTensor(mx.array(self.rows(f"{self.set}/indices")), feats, stride=stride)
        return x.with_bounds(self.bounds)

    @lru_cache  # noqa: B019
    def coarse(self):
        spec = {k: v for k, v in self.spec.items() if k != "dilation"}
        return ops.max_pool3d(self.fine(), **spec, support="reached", order="spconv")

    def weight(self):
        w = self.get("weight")
        return None if w is None else mx.array(w[:, None] if self.flat else w)

    def turned(self, w):
        """Kernels of one cell read the memory of the weight as (C_in, C_out)."""
        one = self.kind == "subm" or self.spec["stride"] == (1, 1, 1)
        if np.prod(self.spec["kernel_size"]) > 1 or not one:
            return w
        return mx.transpose(w.reshape(w.shape[-1], w.shape[0])).reshape(w.shape)

    def run(self, feats, weight, bias):
        spec, options = self.spec, {"support": "reached", "order": "spconv"}
        if self.kind == "inverse":
            down = {k: v for k, v in spec.items() if k != "dilation"}
            x = self.coarse().with_feats(feats)
            return ops.inverse_conv3d(x, weight, self.fine(), bias, **down)
        x = self.fine().with_feats(feats)
        if self.kind == "conv":
            return ops.conv3d(x, self.turned(weight), bias, **spec, **options)
        if self.kind == "transpose":
            return ops.conv_transpose3d(x, weight, bias, **spec, **options)
        if self.kind == "subm":
            size, by = spec["kernel_size"], spec["dilation"]
            return ops.subm_conv3d(x, self.turned(weight), bias, kernel_size=size, dilation=by)
        y = ops.max_pool3d(x, **spec, **options, ties="all")
        return y.with_feats(mx.where(y.feats >= 0, y.feats, 0))  # its maximum begins at 0


@pytest.mark.parametrize("name", NAMES)
def test_as_recorded(name):
    case = Case(name)
    feats = case.get("in_feats") if case.kind == "inverse" else case.fine().feats
    weight, bias = case.weight(), case.get("bias")
    inputs = [mx.array(feats)] + [w for w in (weight,) if w is not None]
    inputs += [] if bias is None else [mx.array(bias)]

    def run(*given):
        rest = list(given[1:]) + [None, None]
        return case.run(given[0], *rest[:2]) if weight is not None else case.run(*given, None, None)

    y = run(*inputs)
    if case.kind == "inverse":
        assert np.array_equal(case.coarse().coords, case.rows("in_indices"))
    assert np.array_equal(y.coords, case.rows("out_indices"))
    assert np.array_equal(y.feats, case.get("out_feats"))
    assert y.bounds[1][case.flat :] == tuple(case.get("out_shape").tolist())
    if case.get("grad_out") is None:
        return
    ct = mx.array(case.get("grad_out"))
    loss = mx.grad(lambda *g: (run(*g).feats * ct).sum(), argnums=list(range(len(inputs))))
    grads = loss(*inputs) if len(inputs) > 1 else [loss(*inputs)]
    for found, key in zip(grads, ("d_feats", "d_weight", "d_bias")):
        expected = case.get(key)
        assert np.array_equal(np.array(found).reshape(expected.shape), expected), key


def test_sorted_rows_are_the_same_rows():
    case = Case("conv3d_b_k2x3x4_s1x2x3_p1x0x2_d1")
    y = ops.conv3d(case.fine(), case.weight(), **case.spec, support="reached")
    rows = case.rows("out_indices")
    order = np.lexsort(rows.T[::-1])
    assert np.array_equal(y.coords, rows[order])
    assert np.array_equal(y.feats, case.get("out_feats")[order])


def test_layers_pass_bounds_on_and_share_relations():
    x = SparseTensor(mx.array([[0, 0, 0, 0], [0, 3, 2, 1]]), mx.ones((2, 4)))
    assert x.bounds is None
    bounded = x.with_bounds(((0, 0, 0), (5, 5, 5)))
    assert bounded.bounds == ((0, 0, 0), (5, 5, 5))
    assert x.bounds is None
    assert bounded.same_coords(x.with_bounds(((0, 0, 0), (5, 5, 5))))
    down = nn.Conv3d(4, 8, 3, 2, 1, support="reached")
    y = nn.SubmConv3d(8, 8)(down(bounded))
    assert y.bounds == ((0, 0, 0), (3, 3, 3))
    before = bounded.coord_manager.stats()
    assert down(bounded).bounds == y.bounds
    assert bounded.coord_manager.stats()["misses"] == before["misses"]
    assert down(bounded).same_coords(y)
    assert down(x).active_count >= y.active_count


def test_bad_reach():
    x = SparseTensor(mx.array([[0, 0, 0, 0]]), mx.ones((1, 4)))
    w = mx.ones((8, 3, 3, 3, 4))
    with pytest.raises(ValueError, match="leave no output cell on axis 0"):
        ops.conv3d(x, w, support="reached", bounds=((0, 0, 0), (2, 9, 9)))
    with pytest.raises(ValueError, match='support must be "floor" or "reached"'):
        ops.conv3d(x, w, support="all")
    with pytest.raises(ValueError, match='bounds are for support="reached"'):
        ops.conv3d(x, w, bounds=((0, 0, 0), (9, 9, 9)))
    with pytest.raises(ValueError, match="first corner below the second"):
        x.with_bounds(((0, 0, 0), (0, 1, 1)))
    with pytest.raises(ValueError, match="order must be"):
        ops.conv3d(x, w, support="reached", order="random")
    none = SparseTensor(mx.zeros((0, 4), mx.int32), mx.zeros((0, 4)))
    assert ops.conv3d(none, w, support="reached").shape == (0, 8)
