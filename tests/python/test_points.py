"""Points and voxels against NumPy: voxels, reductions, interpolation, dtypes, errors."""

import mlx.core as mx
import mlx_lattice as ml
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lattice import core, ops

ORIGIN = (0.1, -2.0, 0.05)
SIZE = (0.5, 0.25, 1.0)


def cloud(n, seed=0, batches=3):
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=(n, 3)).astype(np.float32),
        rng.integers(0, batches, n).astype(np.int32),
        rng.normal(size=(n, 5)).astype(np.float32),
    )


def scaled(points, size=SIZE, origin=ORIGIN):
    return (points - np.float32(origin)) / np.float32(size)


def voxel_rows(points, batch, **kw):
    return np.concatenate([batch[:, None], np.floor(scaled(points, **kw)).astype(np.int32)], 1)


def first_seen(rows):
    if len(rows) == 0:
        return rows.reshape(0, 4), np.zeros(0, int)
    _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    return rows[np.sort(first)], rank[inverse.reshape(-1)]


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 200), st.integers(0, 1000))
def test_quantization(n, seed):
    points, batch, _ = cloud(n, seed)
    q = ops.sparse_quantize(mx.array(points), SIZE, batch_indices=mx.array(batch), origin=ORIGIN)
    want, inverse = first_seen(voxel_rows(points, batch))
    assert (
        (np.array(q.coords) == want).all()
        and q.coords.shape == want.shape
        and q.coords.dtype == mx.int32
    )
    assert (np.array(q.inverse_rows) == inverse).all() and q.inverse_rows.dtype == mx.int32
    assert (np.array(q.counts) == np.bincount(inverse, minlength=len(want))).all()
    assert q.active_rows.tolist() == [len(want)]


@pytest.mark.parametrize(
    "dtype, unit", [(mx.float32, 2**-23), (mx.float16, 2**-10), (mx.bfloat16, 2**-7)]
)
@pytest.mark.parametrize("reduction", ["sum", "mean", "max"])
@pytest.mark.parametrize("n", [0, 1, 37, 3000])
def test_voxelize(dtype, unit, reduction, n):
    points, batch, feats = cloud(n, n)
    x = mx.array(feats).astype(dtype)
    t = ops.voxelize(
        mx.array(points),
        x,
        SIZE,
        batch_indices=mx.array(batch),
        origin=ORIGIN,
        reduction=reduction,
        stride=2,
    )
    want_coords, inverse = first_seen(voxel_rows(points, batch))
    assert (np.array(t.coords) == want_coords).all() and t.stride == (2, 2, 2) and t.dtype == dtype
    exact = np.array(x.astype(mx.float32)).astype(np.float64)
    want = np.full((len(want_coords), 5), -np.inf if reduction == "max" else 0.0)
    (np.maximum if reduction == "max" else np.add).at(want, inverse, exact)
    size = np.zeros_like(want)
    np.add.at(size, inverse, np.abs(exact))
    if reduction == "mean":
        want /= np.bincount(inverse, minlength=len(want))[:, None]
    assert (
        np.abs(np.array(t.feats.astype(mx.float32)) - want) <= unit * np.abs(want) + 2**-20 * size
    ).all()
    q = ops.sparse_quantize(mx.array(points), SIZE, batch_indices=mx.array(batch), origin=ORIGIN)
    again = ops.voxelize_with_quantization(q, x, reduction=reduction, template=t)
    assert again.same_coords(t) and mx.array_equal(again.feats, t.feats)
    own = core.SparseQuantization(q.coords, q.active_rows, q.inverse_rows, q.counts)
    assert mx.array_equal(
        ops.voxelize_with_quantization(own, x, reduction=reduction).feats, t.feats
    )


def plain_map(points, batch, voxels, interpolation):
    rows, weights = np.full((len(points), 8), -1), np.zeros((len(points), 8), np.float32)
    at = {tuple(v): r for r, v in enumerate(voxels.tolist())}
    q = scaled(points)
    for p in range(len(points)):
        if interpolation == "nearest":
            rows[p, 0] = at.get((batch[p], *np.floor(q[p] + np.float32(0.5)).astype(int)), -1)
            weights[p, 0] = rows[p, 0] >= 0
            continue
        low = np.floor(q[p])
        f = q[p] - low
        for c in range(8):
            bits = np.array([c & 1, c >> 1 & 1, c >> 2])
            rows[p, c] = at.get((batch[p], *(low.astype(int) + bits)), -1)
            w = np.where(bits, f, np.float32(1) - f)
            weights[p, c] = (w[0] * w[1]) * w[2] if rows[p, c] >= 0 else 0
    return rows, weights


@pytest.mark.parametrize("interpolation", ["linear", "nearest"])
def test_interpolation(interpolation):
    points, batch, feats = cloud(400, 3)
    kw = {"batch_indices": mx.array(batch), "origin": ORIGIN}
    t = ops.voxelize(mx.array(points), mx.array(feats), SIZE, **kw)
    kw["interpolation"] = interpolation
    voxels = np.array(t.coords)
    got = ops.build_point_voxel_map(mx.array(points), t.coords, None, SIZE, **kw)
    rows, weights = plain_map(points, batch, voxels, interpolation)
    assert (np.array(got.rows) == rows).all() and (np.array(got.weights) == weights).all()
    want = (np.array(t.feats)[rows] * weights[:, :, None].astype(np.float64)).sum(1)
    y = ops.interpolate_point_features(t.feats, got)
    assert np.allclose(np.array(y), want, atol=1e-5)
    assert mx.array_equal(ops.devoxelize(mx.array(points), t, SIZE, **kw), y)
    active = mx.array([10], mx.int32)
    few = ops.build_point_voxel_map(mx.array(points), t.coords, active, SIZE, **kw)
    rows, weights = plain_map(points, batch, voxels[:10], interpolation)
    assert (np.array(few.rows) == rows).all() and (np.array(few.weights) == weights).all()
    g = mx.grad(lambda f: (ops.interpolate_point_features(f, got) ** 2).sum())(t.feats)
    rows, weights = np.array(got.rows), np.array(got.weights)
    dense = np.zeros((len(points), len(voxels)))
    for c in range(8):
        np.add.at(dense, (np.arange(len(points)), np.maximum(rows[:, c], 0)), weights[:, c])
    assert np.allclose(np.array(g), 2 * dense.T @ dense @ np.array(t.feats), atol=1e-4)


def test_a_linear_field_is_restored():
    """On a full lattice linear interpolation is exact for linear functions."""
    grid = np.stack(np.meshgrid(*[np.arange(-3, 4)] * 3, indexing="ij"), -1).reshape(-1, 3)
    coords = np.concatenate([np.zeros((len(grid), 1), int), grid], 1).astype(np.int32)
    field = (grid @ np.array([[1.0], [-2.0], [0.5]])).astype(np.float32)
    points = np.random.default_rng(1).uniform(-1.4, 1.4, (100, 3)).astype(np.float32)
    y = ops.devoxelize(mx.array(points), ml.SparseTensor(mx.array(coords), mx.array(field)), 0.5)
    assert np.allclose(np.array(y)[:, 0], points @ np.array([2.0, -4.0, 1.0]), atol=1e-5)


def test_active_rows_and_float16_points():
    points, batch, feats = cloud(50)
    active = mx.array([20], mx.int32)
    t = ops.voxelize(
        mx.array(points), mx.array(feats), 0.5, batch_indices=mx.array(batch), active_rows=active
    )
    want = ops.voxelize(
        mx.array(points[:20]), mx.array(feats[:20]), 0.5, batch_indices=mx.array(batch[:20])
    )
    assert mx.array_equal(t.coords, want.coords) and mx.array_equal(t.feats, want.feats)
    half = mx.array(points).astype(mx.float16)
    assert mx.array_equal(
        ops.sparse_quantize(half, 0.5).coords,
        ops.sparse_quantize(half.astype(mx.float32), 0.5).coords,
    )


def test_the_far_corner_of_int32():
    corner = mx.array([[0, 2**31 - 1, 2**31 - 1, 2**31 - 1]], mx.int32)
    points = mx.array([[2147483520.0] * 3])
    assert ops.build_point_voxel_map(points, corner, None, 1.0).rows.tolist() == [[-1] * 8]
    assert ops.sparse_quantize(mx.array([[-2147483648.0, 0, 0]])).coords.tolist() == [
        [0, -(2**31), 0, 0]
    ]


def test_routes():
    points, _, feats = cloud(50)
    told = ml.explain(ops.voxelize, mx.array(points), mx.array(feats), 0.5)
    assert "map_rows -> cpu.segments" in str(told) and "mean of rows" in str(told)
    assert {r.name for r in ml.routes() if r.operation == "map_rows"} == {
        "cpu.segments",
        "cpu.reference",
        "metal.rows",
        "cuda.rows",
        "gpu.mlx",
    }


P, F = mx.array(cloud(4)[0]), mx.array(cloud(4)[2])
Q = ops.sparse_quantize(P, 0.5)


def spoiled(row, value):
    points = np.array(P)
    points[row, 1] = value
    return mx.array(points)


# ValueErrors by their text, and errors of other kinds.
REFUSED = {
    r"\[sparse_quantize\] points .* row 2 ": lambda: ops.sparse_quantize(spoiled(2, np.nan)),
    r"\[voxelize\] points .* row 1 ": lambda: ops.voxelize(spoiled(1, np.inf), F, 1.0),
    r"\[devoxelize\] points .* row 3 ": lambda: ops.devoxelize(
        spoiled(3, -1e30), ops.voxelize(P, F, 1.0), 1.0
    ),
    "row 0": lambda: ops.sparse_quantize(spoiled(0, 1.0), 1e-12),
    "voxel_size must be finite and > 0": lambda: ops.sparse_quantize(P, 0.0),
    "voxel_size": lambda: ops.sparse_quantize(P, -1),
    "voxel_size must be a number or three numbers, found 2": lambda: ops.sparse_quantize(P, (1, 2)),
    "origin must be finite": lambda: ops.sparse_quantize(P, origin=float("inf")),
    r"points must have shape \(N, 3\), got \(4, 2\)": lambda: ops.sparse_quantize(P[:, :2]),
    "points must be float64, float32, float16 or bfloat16, got int32": lambda: ops.sparse_quantize(
        P.astype(mx.int32)
    ),
    r"batch_indices must have shape \(4,\)": lambda: ops.sparse_quantize(
        P, batch_indices=mx.array([0, 1])
    ),
    r"batch_indices\[2\] = -1": lambda: ops.sparse_quantize(
        P, batch_indices=mx.array([0, 1, -1, 0])
    ),
    "integers": lambda: ops.sparse_quantize(P, batch_indices=mx.zeros((4,))),
    "active_rows must be in 0..4": lambda: ops.sparse_quantize(
        P, active_rows=mx.array([5], mx.int32)
    ),
    r"feats must have shape \(4, C\), got \(3, 5\)": lambda: ops.voxelize(P, F[:3], 1.0),
    "float32, float16 or bfloat16": lambda: ops.voxelize(P, F.astype(mx.int32), 1.0),
    "reduction must be sum, mean .avg. or max, got 'median'": lambda: ops.voxelize(
        P, F, 1.0, reduction="median"
    ),
    r"feats must have shape \(4, C\)": lambda: ops.voxelize_with_quantization(Q, F[:3]),
    "template": lambda: ops.voxelize_with_quantization(Q, F, template=ops.voxelize(P + 9, F, 0.5)),
    "linear or nearest": lambda: ops.build_point_voxel_map(
        P, Q.coords, None, 1.0, interpolation="cubic"
    ),
    "voxel_coords must be int32": lambda: ops.build_point_voxel_map(
        P, Q.coords.astype(mx.int64), None, 1.0
    ),
    "duplicates": lambda: ops.build_point_voxel_map(P, mx.zeros((2, 4), mx.int32), None, 1.0),
    r"voxel_coords must have shape \(N, 4\)": lambda: ops.build_point_voxel_map(
        P, mx.zeros((2, 3), mx.int32), None, 1.0
    ),
    r"map.rows\[0, 0\] = 4 is outside -1..3": lambda: ops.interpolate_point_features(
        F, core.PointVoxelMap(mx.full((1, 8), 4, mx.int32), mx.zeros((1, 8)))
    ),
    r"rows must be int32 of shape \(P, 8\)": lambda: core.PointVoxelMap(
        mx.zeros((1, 7), mx.int32), mx.zeros((1, 7))
    ),
    "inverse_rows": lambda: core.SparseQuantization(
        Q.coords, Q.active_rows, Q.inverse_rows + 1, Q.counts
    ),
    "counts": lambda: core.SparseQuantization(
        Q.coords, Q.active_rows, Q.inverse_rows, Q.counts + 1
    ),
    "traced": lambda: mx.compile(lambda p: ops.sparse_quantize(p).counts)(P),
}
BAD = [(call, ValueError, text) for text, call in REFUSED.items()]
BAD += [
    (lambda: ops.sparse_quantize(P, float("nan")), ValueError, "voxel_size"),
    (lambda: ops.sparse_quantize(P, True), TypeError, "voxel_size"),
    (lambda: ops.sparse_quantize(P, "1"), TypeError, "voxel_size"),
]


def test_float64_points_keep_their_meaning():
    """On a map: voxels, linear and nearest weights are those of the points near the origin."""
    rng, offset = np.random.default_rng(4), np.array([5e5, 5.4e6, 40.0])
    p, size = rng.integers(0, 400, (500, 3)) / 64 + 1 / 128, 0.25  # exact on the map too
    feats = mx.array(rng.normal(size=(500, 3)).astype(np.float32))
    for near, far in ((p, p + offset), (p, p[:, ::-1].copy()[:, ::-1] + offset)):
        a, b = ops.voxelize(near, feats, size), ops.voxelize(far, feats, size, origin=tuple(offset))
        assert mx.array_equal(a.coords, b.coords) and mx.array_equal(a.feats, b.feats)
        for how in ("linear", "nearest"):
            found = [
                ops.devoxelize(near, a, size, interpolation=how),
                ops.devoxelize(far, b, size, origin=tuple(offset), interpolation=how),
            ]
            assert mx.array_equal(*found)
    wide = ops.sparse_quantize(np.array([[1e8, 0, 0], [1e8 + 0.06, 0, 0], [0, 0, 0]]), 0.05)
    assert wide.coords[:, 1].tolist() == [2000000000, 2000000001, 0]
    with pytest.raises(ValueError, match="row 1"):
        ops.sparse_quantize(np.array([[0, 0, 0], [np.nan, 0, 0]]), 1.0)
    with pytest.raises(ValueError, match="voxel_size must be finite and > 0"):
        ops.sparse_quantize(np.zeros((1, 3)), 0.0)


@pytest.mark.parametrize("call, error, text", BAD)
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call()
