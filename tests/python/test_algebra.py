"""Algebra of sparse tensors from Python.

Values against dictionaries, operators, identity, dtypes, gradients, errors.
"""

import mlx.core as mx
import mlx_lattice as ml
import numpy as np
import pytest
import scenes
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lattice import SparseTensor, ops

DTYPES = [mx.float32, mx.float16, mx.bfloat16]
JOINS = ["inner", "left", "right", "outer"]
count = ml._ext.alignment_count


def tensor(seed=0, n=40, channels=3, **options):
    return scenes.tensor(n, channels, seed=seed, **{"extent": 3, "exact": True, **options})


def table(x):
    return dict(zip(map(tuple, x.coords.tolist()), x.feats.astype(mx.float32).tolist()))


def joined(a, b, join):
    if join == "inner":
        return [k for k in a if k in b]
    if join == "right":
        return list(b)
    return list(a) + ([k for k in b if k not in a] if join == "outer" else [])


OPS = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
}


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 99),
    st.integers(0, 99),
    st.sampled_from(JOINS),
    st.sampled_from(sorted(OPS)),
    st.sampled_from(DTYPES),
)
def test_binary(i, j, join, op, dtype):
    x, y = tensor(i, n=1 + i, dtype=dtype), tensor(100 + j, n=1 + j, dtype=dtype)
    a, b = table(x), table(y)
    z = ops.sparse_binary_op(x, y, op, join=join, lhs_fill=0.5, rhs_fill=-2.0)
    expected = {
        k: OPS[op](a.get(k, [0.5] * 3), b.get(k, [-2.0] * 3)).tolist() for k in joined(a, b, join)
    }
    found = table(z)
    assert list(found) == list(expected)  # the order of rows too
    wanted = np.array(list(expected.values()), np.float32).reshape(-1, 3)
    rounded = mx.array(wanted).astype(dtype).astype(mx.float32)
    assert np.array_equal(
        np.array(rounded), np.array(list(found.values()), np.float32).reshape(-1, 3)
    )
    assert z.dtype == dtype and mx.array_equal(
        ops.sparse_binary(x, y, op, join=join, lhs_fill=0.5, rhs_fill=-2.0).feats, z.feats
    )


def test_named_operations_and_operators():
    x, y = tensor(1), tensor(2)
    for op, join, named, operator in (
        ("add", "outer", ops.sparse_add, lambda a, b: a + b),
        ("sub", "outer", ops.sparse_sub, lambda a, b: a - b),
        ("mul", "inner", ops.sparse_mul, lambda a, b: a * b),
        ("maximum", "inner", ops.sparse_maximum, None),
        ("minimum", "inner", ops.sparse_minimum, None),
    ):
        expected = table(ops.sparse_binary(x, y, op, join=join))
        assert table(named(x, y)) == expected
        if operator:
            assert table(operator(x, y)) == expected
    assert table(x & y) == table(x * y)  # the product on the intersection
    for bad in (lambda: x + "1", lambda: x * mx.ones(7), lambda: x & None):
        with pytest.raises((TypeError, ValueError)):  # mx.array answers for itself
            bad()


def test_shared_identity_does_no_alignment():
    x = tensor(1)
    y = x.replace(feats=x.feats * 2)
    before = count()
    results = [
        x + y,
        x - y,
        x * y,
        x & y,
        ops.cat([x, y, x]),
        ops.sparse_cat_aligned(x, y),
        ops.reindex_sparse(x, y),
    ]
    assert ops.align_sparse(x, y).lhs_rows.tolist() == list(range(x.capacity))
    assert all(r.same_coords(x) for r in results) and count() == before
    assert mx.array_equal((x + y).feats, x.feats * 3)
    x + tensor(2)
    assert count() == before + 1


def test_cat():
    x, y = tensor(1), tensor(2, channels=2)
    a, b = table(x), table(y)
    for join in JOINS:
        z = ops.cat([x, y], join=join)
        assert table(z) == {
            k: a.get(k, [0.0] * 3) + b.get(k, [0.0] * 2) for k in joined(a, b, join)
        }
    z = ops.sparse_cat_aligned(x, y, join="outer", lhs_fill=7, rhs_fill=8)
    assert table(z) == {k: a.get(k, [7.0] * 3) + b.get(k, [8.0] * 2) for k in joined(a, b, "outer")}
    assert ops.cat([x, y, tensor(3)]).channels == 8 and ops.cat([x]).same_coords(x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gather_and_reindex(dtype):
    x, y = tensor(1, dtype=dtype), tensor(2)
    rows = mx.array([3, -1, 0, 3])
    found = ops.gather_aligned_features(x, rows, fill=1.5)
    assert found.tolist() == [
        x.feats[3].tolist(),
        [1.5] * 3,
        x.feats[0].tolist(),
        x.feats[3].tolist(),
    ]
    assert mx.array_equal(ops.gather_aligned_features(x.feats, rows, fill=1.5), found)
    grad = mx.grad(lambda f: ops.gather_aligned_features(f, rows).sum())(x.feats)
    assert grad[:4].tolist() == [[1.0] * 3, [0.0] * 3, [0.0] * 3, [2.0] * 3]
    z = ops.reindex_sparse(x, y, fill=-1)
    assert table(z) == {k: table(x).get(k, [-1.0] * 3) for k in table(y)}
    assert ops.reindex_sparse(x, y.coords).feats.shape == (y.capacity, 3)


def test_prune_and_crop():
    x = tensor(1, batch_counts=None)
    kept = ops.prune(x, mx.array([5, 2]))
    assert (
        kept.coords.tolist() == [x.coords[5].tolist(), x.coords[2].tolist()]
        and kept.stride == x.stride
    )
    mask = x.feats[:, 0] > 0
    assert table(ops.prune_mask(x, mask)) == {k: v for k, v in table(x).items() if v[0] > 0}
    inside = ops.crop(x, min_coord=(-1, -2, 0), max_coord=1)
    assert set(table(inside)) == {
        k for k in table(x) if -1 <= k[1] <= 1 and -2 <= k[2] <= 1 and 0 <= k[3] <= 1
    }
    assert ops.crop(x, min_coord=-9, max_coord=9).same_coords(x)
    assert ops.crop(x, min_coord=5, max_coord=4).capacity == 0
    counted = SparseTensor(
        x.coords, x.feats, batch_counts=np.bincount(np.array(x.coords)[:, 0], minlength=3)
    )
    assert (
        sum(ops.prune(counted, mx.array([1])).batch_counts) == 1
        and len(ops.prune(counted, mx.array([1])).batch_counts) == 3
    )
    grad = mx.grad(lambda f: ops.prune(x.replace(feats=f), mx.array([5, 2])).feats.sum())(x.feats)
    assert grad.sum().item() == 6 and grad[5].tolist() == [1] * 3
    assert ops.replace_feature(x, x.feats * 2).same_coords(x)


def test_topk_rows():
    x = tensor(1, n=60)
    batch, score = np.array(x.coords)[:, 0], np.array(x.feats)[:, 0]
    rows = ops.topk_rows(x, [10, 4], rho=0.5)
    expected = []
    for b, k in ((0, 5), (1, 2)):
        mine = np.flatnonzero(batch == b)
        expected += mine[np.argsort(-score[mine], kind="stable")][:k].tolist()
    assert rows.tolist() == sorted(expected)
    assert ops.topk_rows(x, mx.array([999, 0])).tolist() == np.flatnonzero(batch == 0).tolist()


@pytest.mark.parametrize("mode", ["first", "sum", "mean", "max"])
def test_duplicates(mode):
    rng = np.random.default_rng(3)
    coords = np.concatenate([rng.integers(0, 2, (200, 1)), rng.integers(0, 3, (200, 3))], 1).astype(
        np.int32
    )
    feats = mx.array((rng.integers(-8, 9, (200, 2)) / 4).astype(np.float32))
    x = ops.sparse_from_coordinates(mx.array(coords), feats, duplicate_reduction=mode, stride=2)
    groups = {}
    for c, f in zip(map(tuple, coords.tolist()), feats.tolist()):
        groups.setdefault(c, []).append(f)
    run = {
        "first": lambda v: v[0],
        "sum": lambda v: np.sum(v, 0),
        "mean": lambda v: np.mean(v, 0),
        "max": lambda v: np.max(v, 0),
    }
    assert list(table(x)) == list(groups) and x.stride == (2, 2, 2)
    np.testing.assert_allclose(
        np.array(x.feats), [run[mode](v) for v in groups.values()], rtol=1e-6
    )
    ops.max_pool3d(x)  # free of duplicates
    plain = ops.sparse_from_coordinates(mx.array(coords), feats)
    with pytest.raises(ValueError, match="duplicate_reduction="):
        ops.max_pool3d(plain)


def test_collate():
    items = [np.array([[1, 2, 3], [4, 5, 6]]), np.zeros((0, 3), int), np.array([[1, 2, 3]])]
    x = ops.sparse_collate(
        [mx.array(i.astype(np.int32)) for i in items],
        [mx.ones((len(i), 2)) * k for k, i in enumerate(items)],
    )
    assert x.batch_counts == (2, 0, 1)
    assert x.coords.tolist() == [[0, 1, 2, 3], [0, 4, 5, 6], [2, 1, 2, 3]]
    assert x.feats.tolist() == [[0, 0], [0, 0], [2, 2]]
    again = ops.sparse_collate(x.decomposed_coordinates, x.decomposed_features)
    assert again.coords.tolist() == x.coords.tolist() and again.batch_counts == x.batch_counts


def test_no_rows():
    none = SparseTensor(mx.zeros((0, 4), mx.int32), mx.zeros((0, 3)))
    x = tensor(1)
    assert table(none + x) == table(x) and (x * none).capacity == 0 and (none & none).capacity == 0
    assert ops.cat([none, x], join="outer").shape == (x.capacity, 6)
    assert ops.prune(none, mx.zeros((0,), mx.int32)).capacity == 0
    assert ops.topk_rows(none, []).shape == (0,)
    assert (
        ops.sparse_from_coordinates(none.coords, none.feats, duplicate_reduction="max").capacity
        == 0
    )


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda x: ops.sparse_add(x, tensor(2, channels=2)), ValueError, "channels"),
        (
            lambda x: ops.sparse_add(x, tensor(2, dtype=mx.float16)),
            ValueError,
            "float32 and float16",
        ),
        (lambda x: ops.sparse_add(x, tensor(2, stride=2)), ValueError, "coordinate stride"),
        (
            lambda x: ops.sparse_add(x, x.replace(coords=x.coords.astype(mx.int64))),
            ValueError,
            "int32 and int64",
        ),
        (lambda x: ops.sparse_add(x, tensor(2), join="cross"), ValueError, r"\[sparse_add\] join"),
        (lambda x: ops.sparse_binary(x, x, "div"), ValueError, r"\[sparse_binary\] op"),
        (lambda x: ops.cat([]), ValueError, "at least one"),
        (lambda x: ops.cat(3), TypeError, r"\[cat\]"),
        (
            lambda x: ops.gather_aligned_features(x, mx.array([x.capacity])),
            ValueError,
            r"rows\[0\]",
        ),
        (lambda x: ops.gather_aligned_features(x, mx.array([1.0])), ValueError, "integers"),
        (
            lambda x: ops.gather_aligned_features(3, mx.array([1])),
            TypeError,
            "SparseTensor or an array",
        ),
        (lambda x: ops.reindex_sparse(x, None), TypeError, "target"),
        (lambda x: ops.reindex_sparse(x, tensor(2, stride=2)), ValueError, "stride"),
        (lambda x: ops.prune(x, mx.array([-1])), ValueError, r"\[prune\] rows\[0\]"),
        (lambda x: ops.prune(x, mx.array([[1]])), ValueError, r"\[prune\] rows must have shape"),
        (lambda x: ops.prune_mask(x, mx.array([True])), ValueError, "mask must be bool"),
        (lambda x: ops.prune_mask(x, mx.ones((x.capacity,))), ValueError, "mask must be bool"),
        (lambda x: ops.crop(x, min_coord=0.5, max_coord=1), TypeError, "min_coord"),
        (lambda x: ops.topk_rows(x, [1]), ValueError, "counts"),
        (lambda x: ops.topk_rows(x, [1, 1], rho=float("nan")), ValueError, "rho"),
        (
            lambda x: ops.sparse_from_coordinates(x.coords, x.feats, duplicate_reduction="last"),
            ValueError,
            "duplicate_reduction",
        ),
        (lambda x: ops.sparse_collate([x.coords], [x.feats]), ValueError, r"\(N, 3\)"),
        (lambda x: ops.sparse_collate([], []), ValueError, "at least one"),
        (lambda x: ops.replace_feature(x, mx.ones((1, 1))), ValueError, "feats"),
    ],
)
def test_bad_input(call, error, text):
    with pytest.raises(error, match=text):
        call(tensor(1))
