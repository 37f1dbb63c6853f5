"""Pooling from Python: values against NumPy, derivatives, dtypes, empty batches, errors."""

import functools

import mlx.core as mx
import mlx_lattice as ml
import numpy as np
import pytest
import scenes
from mlx_lattice import ops

DTYPES = [mx.float32, mx.float16, mx.bfloat16]
TOLERANCE = {mx.float32: 1e-6, mx.float16: 1e-3, mx.bfloat16: 8e-3}


tensor = functools.partial(scenes.tensor, exact=True)


def exact(a):
    return np.array(a.astype(mx.float32), dtype=np.float64)


def by_edges(relation, x, mode, weights=None):
    edges = [
        np.array(a)
        for a in (relation.edges.in_rows, relation.edges.out_rows, relation.edges.kernel_ids)
    ]
    y = np.zeros((relation.n_out, x.shape[1]))
    for o in range(relation.n_out):
        mine = edges[1] == o
        if not mine.any():
            continue
        rows, w = (
            x[edges[0][mine]],
            np.ones(mine.sum()) if weights is None else weights[edges[2][mine]],
        )
        y[o] = rows.max(0) if mode == "max" else w @ rows / (w.sum() if mode == "avg" else 1)
    return y


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", ["sum", "avg", "max"])
@pytest.mark.parametrize(
    "kernel", [{}, {"kernel_size": 3, "stride": 2, "padding": 1}, {"kernel_size": 1, "stride": 3}]
)
def test_local_pooling(mode, kernel, dtype):
    x = tensor(dtype=dtype)
    y = ops.pool3d(x, mode=mode, **kernel)
    spec = {"kernel_size": 2, "stride": 2, **kernel}
    expected = by_edges(ops.kernel_relation(x, **spec), exact(x.feats), mode)
    assert y.dtype == dtype and y.stride == (spec["stride"],) * 3
    np.testing.assert_allclose(
        exact(y.feats), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype]
    )
    named = {"sum": ops.sum_pool3d, "avg": ops.avg_pool3d, "max": ops.max_pool3d}[mode](x, **kernel)
    assert mx.array_equal(named.feats, y.feats) and named.same_coords(y)


def test_empty_windows_are_zero():
    x = ml.SparseTensor(mx.array([[0, 1, 1, 1], [0, 4, 4, 4]]), mx.array([[-3.0], [-2.0]]))
    for mode in ("sum", "avg", "max"):  # size 1, stride 2 drops the odd row
        assert ops.pool3d(x, mode=mode, kernel_size=1, stride=2).feats.tolist() == [[0.0], [-2.0]]


def test_transposed_and_trilinear():
    x = tensor(stride=(4, 4, 4))
    y = ops.pool_transpose3d(x, kernel_size=3, stride=2)
    relation = ops.transposed_kernel_relation(x, kernel_size=3, stride=2)
    np.testing.assert_allclose(exact(y.feats), by_edges(relation, exact(x.feats), "avg"), atol=1e-6)
    assert y.stride == (2, 2, 2)
    stride = (2, 1, 4)
    y = ops.trilinear_upsample3d(x, stride=stride)
    sizes, padding = [2 * s - 1 for s in stride], [s - 1 for s in stride]
    relation = ops.transposed_kernel_relation(x, kernel_size=sizes, stride=stride, padding=padding)
    axes = [1 - np.abs(np.arange(k) - p) / s for k, p, s in zip(sizes, padding, stride)]
    weights = np.einsum("i,j,k->ijk", *axes).reshape(-1)
    np.testing.assert_allclose(
        exact(y.feats), by_edges(relation, exact(x.feats), "avg", weights), atol=1e-6
    )


def test_trilinear_reproduces_linear_functions_inside_a_block():
    grid = np.stack(np.meshgrid(*[np.arange(4)] * 3, indexing="ij"), -1).reshape(-1, 3)
    coords = np.concatenate([np.zeros((64, 1), int), grid], 1).astype(np.int32)
    feats = grid @ np.array([1.0, 2.0, -3.0])
    x = ml.SparseTensor(mx.array(coords), mx.array(feats[:, None].astype(np.float32)), stride=2)
    y = ops.trilinear_upsample3d(x)
    at = np.array(y.coords)[:, 1:]
    inside = ((at >= 0) & (at <= 6)).all(1)
    assert inside.sum() == 7**3
    expected = at @ np.array([1.0, 2.0, -3.0]) / 2
    np.testing.assert_allclose(exact(y.feats)[inside, 0], expected[inside], atol=1e-5)


def test_targets_in_all_forms_keep_identity():
    x = tensor()
    down = ops.avg_pool3d(x)
    for up in (ops.pool_transpose3d(down, x), ops.trilinear_upsample3d(down, x)):
        assert up.same_coords(x)
    by_array = ops.trilinear_upsample3d(down, x.coords)
    assert mx.array_equal(by_array.feats, ops.trilinear_upsample3d(down, x.coord_key).feats)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", ["sum", "avg", "max"])
def test_global_pooling(mode, dtype):
    x = tensor(dtype=dtype, batches=3)
    batch, feats = np.array(x.coords)[:, 0], exact(x.feats)
    run = {"sum": np.sum, "avg": np.mean, "max": np.max}[mode]
    expected = np.stack([run(feats[batch == b], 0) for b in range(3)])
    y = ops.global_pool(x, mode=mode)
    assert y.shape == (3, 5) and y.dtype == dtype
    np.testing.assert_allclose(exact(y), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    named = {"sum": ops.global_sum_pool, "avg": ops.global_avg_pool, "max": ops.global_max_pool}[
        mode
    ]
    assert mx.array_equal(named(x), y)


def test_empty_batches():
    x = ml.SparseTensor(mx.array([[0, 0, 0, 0], [2, 0, 0, 0]]), mx.array([[-1.0], [-2.0]]))
    assert ops.global_sum_pool(x, batch_size=4).tolist() == [[-1], [0], [-2], [0]]
    assert ops.global_avg_pool(x).tolist() == [[-1], [0], [-2]]
    with pytest.raises(ValueError, match="empty batches"):
        ops.global_max_pool(x)
    counted = ml.SparseTensor(x.coords, x.feats, batch_counts=[1, 0, 1, 0, 0])
    assert ops.global_sum_pool(counted).shape == (5, 1)
    none = ml.SparseTensor(mx.zeros((0, 4), mx.int32), mx.zeros((0, 3)))
    assert ops.global_avg_pool(none, batch_size=2).tolist() == [[0, 0, 0]] * 2
    assert ops.global_max_pool(none).shape == (0, 3)
    assert ops.max_pool3d(none).feats.shape == (0, 3) and ops.trilinear_upsample3d(
        none.replace(stride=2)
    ).shape == (0, 3)
    assert mx.grad(lambda f: ops.max_pool3d(none.replace(feats=f)).feats.sum())(
        none.feats
    ).shape == (0, 3)


def test_broadcast():
    x = tensor()
    batch = np.array(x.coords)[:, 0]
    per_batch = mx.array(np.random.default_rng(1).standard_normal((2, 5)).astype(np.float32))
    rows = np.array(per_batch)[batch]
    feats = np.array(x.feats)
    assert np.array_equal(np.array(ops.broadcast_add(x, per_batch).feats), feats + rows)
    assert np.array_equal(np.array(ops.broadcast_mul(x, per_batch).feats), feats * rows)
    assert np.array_equal(
        np.array(ops.broadcast_cat(x, per_batch).feats), np.concatenate([feats, rows], 1)
    )
    grad = mx.grad(lambda p: (ops.broadcast_mul(x, p).feats).sum())(per_batch)
    np.testing.assert_allclose(
        np.array(grad), [feats[batch == b].sum(0) for b in range(2)], rtol=1e-5
    )


CALLS = {
    "sum": ops.sum_pool3d,
    "avg": lambda x: ops.avg_pool3d(x, kernel_size=3, stride=2, padding=1),
    "max": lambda x: ops.max_pool3d(x, kernel_size=3, stride=2, padding=1),
    "transposed": ops.pool_transpose3d,
    "trilinear": ops.trilinear_upsample3d,
    "global": lambda x: x.replace(feats=ops.broadcast_add(x, ops.global_max_pool(x)).feats),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_vjp_and_jvp_agree(name, dtype):
    # vjp and jvp decide ties differently. 200 whole numbers are distinct in bfloat16 too.
    x = tensor(n=40, stride=2)
    rng = np.random.default_rng(5)
    feats = mx.array(rng.permutation(x.feats.size).reshape(x.feats.shape) / 64).astype(dtype)
    v = mx.array(rng.integers(-2, 3, feats.shape)).astype(dtype)

    def run(f):
        return CALLS[name](x.replace(feats=f)).feats

    y, (tangent,) = mx.jvp(run, [feats], [v])
    g = mx.array(rng.integers(-2, 3, y[0].shape)).astype(dtype)
    _, (grad,) = mx.vjp(run, [feats], [g])
    left, right = (exact(g) * exact(tangent)).sum(), (exact(v) * exact(grad)).sum()
    assert (
        abs(left - right)
        <= {mx.float32: 1e-5, mx.float16: 2e-3, mx.bfloat16: 2e-2}[dtype] * np.abs(exact(g)).sum()
    )
    compiled = mx.compile(lambda f: run(f).sum())
    assert mx.allclose(compiled(feats), run(feats).sum())


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda x: ops.pool3d(x, mode="median"), ValueError, r"\[pool3d\] mode"),
        (lambda x: ops.max_pool3d(x, stride=0), ValueError, r"\[max_pool3d\] stride"),
        (lambda x: ops.max_pool3d(x, kernel_size=1.5), TypeError, r"\[max_pool3d\] kernel_size"),
        (
            lambda x: ops.pool3d(x.replace(feats=x.feats.astype(mx.int32)), mode="sum"),
            ValueError,
            r"\[pool3d\] dtype",
        ),
        (
            lambda x: ops.pool_transpose3d(x),
            ValueError,
            r"\[pool_transpose3d\].*must divide|\[pool_transpose3d\]",
        ),
        (lambda x: ops.trilinear_upsample3d(x, "x"), TypeError, r"\[trilinear_upsample3d\] target"),
        (
            lambda x: ops.trilinear_upsample3d(x, stride=0),
            ValueError,
            r"\[trilinear_upsample3d\] stride",
        ),
        (
            lambda x: ops.trilinear_upsample3d(x.replace(stride=2), x.replace(stride=2)),
            ValueError,
            "stride",
        ),
        (lambda x: ops.global_pool(x, mode="mode"), ValueError, r"\[global_pool\] mode"),
        (lambda x: ops.global_sum_pool(x, batch_size=1), ValueError, r"batch_size must be 2"),
        (lambda x: ops.global_sum_pool(x, batch_size=2.0), TypeError, r"batch_size"),
        (lambda x: ops.broadcast_add(x, mx.zeros((2, 4))), ValueError, r"\(B, 5\), got \(2, 4\)"),
        (lambda x: ops.broadcast_mul(x, mx.zeros((1, 5))), ValueError, "2 batch items"),
        (
            lambda x: ops.broadcast_cat(x, mx.zeros((2, 5), mx.float16)),
            ValueError,
            "float16 and float32",
        ),
        (lambda x: ops.sum_pool3d(x.feats), TypeError, "found mlx.core.array"),
    ],
)
def test_bad_input(call, error, text):
    with pytest.raises(error, match=text):
        call(tensor())


def test_explain_and_forced_route(monkeypatch):
    x = tensor()
    assert ml.explain(ops.max_pool3d, x).routes == [("relate", "cpu.sorted"), ("pool", "cpu.tiles")]
    fast = ops.avg_pool3d(x).feats
    monkeypatch.setenv("LATTICE_ROUTE", "pool=cpu.reference")
    before = ml._ext.run_count("pool", "cpu.reference")
    assert mx.allclose(ops.avg_pool3d(x).feats, fast)
    assert ml._ext.run_count("pool", "cpu.reference") == before + 1
