"""SparseTensor as a Python user sees it."""

import copy
import pickle

import mlx.core as mx
import mlx_lattice
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lattice import SparseTensor, SparseTensorComponents, core, ops, samples
from strategies import coordinate_sets

COORDS = [[0, 0, 0, 0], [0, 1, 0, 0], [1, 0, 2, 3]]


def make(dtype=mx.float32, **kwargs):
    feats = mx.arange(6, dtype=mx.float32).reshape(3, 2).astype(dtype)
    return SparseTensor(mx.array(COORDS, mx.int32), feats, **kwargs)


def test_fields():
    t = make(stride=(2, 1, 1), batch_counts=[2, 1])
    assert mlx_lattice.SparseTensor is core.SparseTensor
    assert t.coords is t.coords and t.coords.tolist() == COORDS
    assert t.stride == (2, 1, 1) and t.batch_counts == (2, 1) and t.active_rows.tolist() == [3]
    assert (
        t.capacity == t.active_count == 3
        and t.channels == 2
        and t.shape == (3, 2)
        and t.dtype == mx.float32
    )
    assert t.coord_manager.owns(t.coord_key) and t.coord_key.stride == t.stride
    assert t.batch_indices.tolist() == [0, 0, 1]
    assert [r.tolist() for r in t.batch_rows] == [[0, 1], [2]]
    assert make().batch_counts is None
    assert len(repr(t)) < 120 and "\n" not in repr(t)


@pytest.mark.parametrize("counts", [(2, 1), [2, 1, 0], np.array([2, 1]), mx.array([2, 1])])
def test_batch_counts_may_be_any_integers(counts):
    assert make(batch_counts=counts).batch_counts[:2] == (2, 1)


def test_features_are_never_evaluated():
    t = make()

    def loss(f):  # traced features: evaluating them inside compile would raise
        x = t.with_feats(f).astype(mx.float16).replace(feats=f * 2)
        x = SparseTensor(x.coords, x.feats, active_rows=mx.array([3], mx.int32))
        assert x.decomposed_features[1].shape == (1, 2)
        return x.feats.sum() + x.sorted()[0].feats.sum() + x.to_dense().sum()

    assert mx.compile(loss)(mx.ones((3, 2))).item() == 36


def test_nothing_can_be_changed():
    coords, feats = mx.array(COORDS, mx.int32), mx.zeros((3, 2))
    t = SparseTensor(coords, feats)
    for name in (
        "coords",
        "feats",
        "stride",
        "coord_key",
        "coord_manager",
        "batch_counts",
        "active_rows",
    ):
        with pytest.raises(AttributeError):
            setattr(t, name, None)
    coords[0] = 9
    feats += 1
    t.coords[0] = 9
    shown = t.feats
    shown += 1
    assert t.coords.tolist() == COORDS and t.feats.tolist() == [[0, 0]] * 3


def test_active_rows_keep_the_prefix():
    t = make(active_rows=mx.array([2], mx.int32), batch_counts=[2])
    assert t.shape == (2, 2) and t.active_rows.tolist() == [2] and t.coords.tolist() == COORDS[:2]
    assert make(active_rows=mx.array([0], mx.int32)).shape == (0, 2)


def test_identity():
    t = make()
    assert not t.same_coords(make()) and t.same_coords(t)
    assert t.same_coords(t.replace(feats=mx.zeros((3, 7)))) and t.same_coords(t.astype(mx.bfloat16))
    assert t.replace(feats=mx.zeros((3, 7))).coords is t.coords
    coarse = t.replace(stride=2)
    assert coarse.stride == (2, 2, 2) and not t.same_coords(coarse) and coarse.coords is t.coords
    moved = t.replace(coords=t.coords + 1)
    assert moved.coord_manager is t.coord_manager and not t.same_coords(moved)
    assert make().reuse_coords_from(t).same_coords(t)
    shared = SparseTensor(t.coords, mx.zeros((3, 1)), coord_manager=t.coord_manager)
    assert shared.same_coords(t)
    keyed = SparseTensor(
        t.coords, mx.zeros((3, 1)), coord_key=t.coord_key, coord_manager=t.coord_manager
    )
    assert keyed.same_coords(t)


def test_components():
    t = make(stride=2, batch_counts=[2, 1])
    parts = t.export_components()
    assert isinstance(parts, SparseTensorComponents)
    again = SparseTensor.from_components(parts)
    assert (
        again.same_coords(t) and again.batch_counts == t.batch_counts and again.stride == t.stride
    )
    plain = SparseTensorComponents(
        parts.coords, parts.feats, parts.stride, batch_counts=parts.batch_counts
    )
    assert not SparseTensor.from_components(plain).same_coords(t)


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
@pytest.mark.parametrize("coord_dtype", [mx.int32, mx.int64])
def test_pickle(dtype, coord_dtype):
    t = SparseTensor(
        mx.array(COORDS, coord_dtype),
        mx.arange(6).reshape(3, 2).astype(dtype),
        2,
        batch_counts=(2, 1),
    )
    u = pickle.loads(pickle.dumps(t))
    assert u.coords.tolist() == COORDS and u.coords.dtype == coord_dtype and u.stride == (2, 2, 2)
    assert u.feats.dtype == dtype and mx.array_equal(u.feats, t.feats) and u.batch_counts == (2, 1)
    assert not u.same_coords(t)
    assert copy.copy(t) is t and copy.deepcopy([t])[0] is t


def test_decomposition_of_mixed_rows():
    t = SparseTensor(
        mx.array([[1, 5, 0, 0], [0, 6, 0, 0], [1, 7, 0, 0]]), mx.array([[1.0], [2.0], [3.0]])
    )
    coords, feats = t.decomposed_coordinates_and_features
    assert [c.tolist() for c in coords] == [[[6, 0, 0]], [[5, 0, 0], [7, 0, 0]]]
    assert [f.tolist() for f in feats] == [[[2.0]], [[1.0], [3.0]]]
    assert [c.tolist() for c in t.decomposed_coordinates] == [c.tolist() for c in coords]
    assert [f.tolist() for f in t.decomposed_features] == [f.tolist() for f in feats]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([np.int32, np.int64]).flatmap(coordinate_sets))
def test_sorted(coords):
    t = SparseTensor(mx.array(coords), mx.arange(len(coords), dtype=mx.float32).reshape(-1, 1))
    s, order = t.sorted()
    expected = sorted(range(len(coords)), key=lambda r: tuple(int(v) for v in coords[r]))
    assert order.tolist() == expected and s.feats[:, 0].tolist() == expected
    np.testing.assert_array_equal(np.array(s.coords), coords[expected])


@settings(max_examples=60, deadline=None)
@given(coordinate_sets(ends=False))
def test_dense_there_and_back(coords):
    feats = np.arange(1, 2 * len(coords) + 1, dtype=np.float32).reshape(-1, 2)
    t = SparseTensor(mx.array(coords), mx.array(feats))
    dense = t.to_dense((9, 9, 9), min_coord=-4)
    expected = np.zeros((t.batch_size, 9, 9, 9, 2), np.float32)
    for (b, x, y, z), f in zip(coords, feats):
        expected[b, x + 4, y + 4, z + 4] = f
    np.testing.assert_array_equal(np.array(dense), expected)
    back = SparseTensor.from_dense(dense, min_coord=(-4, -4, -4))
    s, _ = t.sorted()
    np.testing.assert_array_equal(np.array(back.coords), np.array(s.coords))
    np.testing.assert_array_equal(np.array(back.feats), np.array(s.feats))


def test_dense_shapes_and_gradient():
    t = make()
    assert t.to_dense().shape == (2, 2, 3, 4, 2)
    assert t.to_dense((2, 3, 4)).shape == (2, 2, 3, 4, 2)
    assert t.to_dense((5, 2, 3, 4)).shape == (5, 2, 3, 4, 2)
    assert t.to_dense((5, 2, 3, 4, 2)).shape == (5, 2, 3, 4, 2)
    gradient = mx.grad(lambda f: (t.with_feats(f).to_dense() ** 2).sum())(t.feats)
    assert mx.array_equal(gradient, 2 * t.feats)
    mask = mx.zeros((2, 2, 3, 4), mx.bool_)
    mask[1, 0, 0, 0] = True
    only = SparseTensor.from_dense(t.to_dense(), mask=mask, stride=2)
    assert (
        only.coords.tolist() == [[1, 0, 0, 0]]
        and only.stride == (2, 2, 2)
        and only.batch_counts == (0, 1)
    )


def test_values_are_frozen_and_hashable():
    spec = core.KernelSpec(3, stride=(1, 2, 1))
    assert (
        spec == core.KernelSpec((3, 3, 3), (1, 2, 1)) and spec != core.KernelSpec(3) and spec != 3
    )
    assert len({spec, core.KernelSpec((3, 3, 3), (1, 2, 1))}) == 1
    assert (spec.size, spec.stride, spec.padding, spec.dilation) == (
        (3, 3, 3),
        (1, 2, 1),
        (0, 0, 0),
        (1, 1, 1),
    )
    assert spec.volume == 27 and not spec.is_pointwise and not spec.is_centered_submanifold
    assert core.KernelSpec().is_centered_submanifold and core.KernelSpec(1).is_pointwise
    assert pickle.loads(pickle.dumps(spec)) == spec
    with pytest.raises(AttributeError):
        spec.size = 2


def test_other_coordinates_keep_empty_items_at_the_end():
    x = SparseTensor(mx.array(COORDS[:2], mx.int32), mx.ones((2, 1)), batch_counts=[2, 0])
    assert x.replace(coords=mx.array([[0, 5, 5, 5], [0, 6, 6, 6]], mx.int32)).batch_counts == (2, 0)


def test_the_largest_batch():
    x = SparseTensor(mx.array([[2**63 - 1, 0, 0, 0]], mx.int64), mx.ones((1, 1)))
    assert x.batch_size == 2**63 - 1  # one more does not fit
    with pytest.raises(ValueError, match="cells"):
        x.to_dense()


def test_dense_sizes_are_not_cut_off():
    empty = SparseTensor(mx.zeros((0, 4), mx.int32), mx.zeros((0, 3)))
    assert empty.to_dense((0, 5, 3)).shape == (0, 0, 5, 3, 3)
    with pytest.raises(ValueError, match="cells"):
        empty.to_dense((0, 2**32 + 5, 3))


def test_tensors_are_easy():
    x = samples.tensor()
    assert len(x) == 6 and bool(ops.prune(x, mx.array([], mx.int32)))
    for value, expected in (
        (-x, -x.feats),
        (x * 2, x.feats * 2),
        (2 * x, x.feats * 2),
        (x / 2, x.feats / 2),
        (1 - x, 1 - x.feats),
        (x + mx.ones(4), x.feats + 1),
        (x > 2, x.feats > 2),
        (x <= 2, x.feats <= 2),
        (abs(-x), x.feats),
    ):
        assert value.same_coords(x) and mx.array_equal(value.feats, expected)
    assert mx.array_equal((x / x).feats[1:], mx.ones((5, 4)))
    assert ops.cat(x, x).shape == ops.cat([x, x]).shape == (6, 8)
    with pytest.raises(ValueError, match="does not broadcast to"):
        x * mx.ones((2, 6, 4))
    assert not hasattr(x, "nothing")
    for theirs, ours in (
        ("F", "feats"),
        ("C", "coords"),
        ("features", "feats"),
        ("indices", "coords"),
    ):
        with pytest.raises(AttributeError, match=f"{theirs}.*`{ours}`"):
            getattr(x, theirs)
