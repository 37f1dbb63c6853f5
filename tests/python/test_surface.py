"""Samples, normals and graphs of points against NumPy in float64."""

import mlx.core as mx
import numpy as np
import pytest
from mlx_lattice import ops
from threads import with_threads


def farthest(points, count, start=0):
    """The same float32 arithmetic, all points compared with every sample."""
    p = points.astype(np.float32)
    d2, rows = np.full(len(p), np.inf, np.float32), [start]
    for _ in range(count - 1):
        d = p - p[rows[-1]]
        d2 = np.minimum(d2, (d[:, 0] * d[:, 0] + d[:, 1] * d[:, 1]) + d[:, 2] * d[:, 2])
        rows.append(int(d2.argmax()))  # the first of equal ones
    return rows


@pytest.mark.parametrize("n, count", [(1, 1), (5, 5), (33, 10), (1000, 300), (4097, 257)])
@pytest.mark.parametrize("kind", ["normal", "grid", "line"])
def test_farthest_points(n, count, kind):
    rng = np.random.default_rng(n)
    points = rng.normal(size=(n, 3)).astype(np.float32)
    if kind == "grid":  # many equal distances
        points = rng.integers(0, 6, (n, 3)).astype(np.float32)
    if kind == "line":
        points[:, 1:] = 0
    for start in (0, n - 1):
        found = ops.farthest_point_sample(mx.array(points), count, start=start)
        assert found.tolist() == farthest(points, count, start)


def test_farthest_points_of_any_thread_count():
    points = mx.array(np.random.default_rng(1).normal(size=(5000, 3)).astype(np.float32))
    found = [ops.farthest_point_sample(points, 500).tolist() for _ in with_threads(1, 4)]
    assert found[0] == found[1]
    assert ops.farthest_point_sample(points, 0).shape == (0,)


def normals(points, k):
    """(normal, curvature, gap of the two smallest eigenvalues) of each point in float64."""
    p = points.astype(np.float64)
    d2 = ((p[:, None] - p[None]) ** 2).sum(-1)
    rows = np.argsort(d2, axis=1, kind="stable")[:, :k]
    q = p[rows] - p[rows].mean(axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(np.einsum("nki,nkj->nij", q, q) / rows.shape[1])
    total = np.maximum(values.sum(1), 1e-300)
    return vectors[:, :, 0], values[:, 0] / total, (values[:, 1] - values[:, 0]) / total


@pytest.mark.parametrize("k", [3, 8, 16])
def test_normals(k):
    rng = np.random.default_rng(k)
    points = rng.normal(size=(400, 3))
    points[:200, 2] *= 0.01
    points = (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)
    found, bend = (np.array(a) for a in ops.estimate_normals(mx.array(points), k=k))
    truth, curvature, gap = normals(points, k)
    clear = gap > 1e-3
    assert clear.sum() > 300
    assert np.abs(np.abs((found * truth).sum(1)[clear]) - 1).max() < 1e-5
    assert np.abs(bend - curvature).max() < 1e-5
    assert np.abs(np.linalg.norm(found, axis=1) - 1).max() < 1e-6
    toward = (-points * found).sum(1)
    assert (toward >= -1e-6).all()  # they face the viewpoint, here the origin


def test_normals_of_a_plane_far_away():
    """Coordinates of a map in float32: the covariance is taken around a neighbor."""
    rng = np.random.default_rng(0)
    points = np.stack([*rng.uniform(0, 100, (2, 2000)), np.zeros(2000)], 1) + [5000, 5000, 100]
    found, bend = ops.estimate_normals(
        mx.array(points.astype(np.float32)), k=12, viewpoint=(0, 0, 1e4)
    )
    assert np.abs(np.array(found) - [0, 0, 1]).max() < 1e-6 and np.array(bend).max() < 1e-9


def test_normals_of_few_points():
    for n in (1, 2):
        found, bend = ops.estimate_normals(mx.zeros((n, 3)), k=3, viewpoint=(0, 0, -1))
        assert found.tolist() == [[0, 0, -1]] * n and bend.tolist() == [0] * n
    same, bend = ops.estimate_normals(mx.ones((9, 3)), k=5)
    assert np.isfinite(np.array(same)).all() and not np.array(bend).any()
    assert ops.estimate_normals(mx.zeros((0, 3)), k=3)[0].shape == (0, 3)


@pytest.mark.parametrize("width", [1, 2, 3, 5, 64])
@pytest.mark.parametrize("n, k", [(1, 1), (40, 40), (300, 7)])
def test_knn_in_any_dimension(width, n, k):
    rng = np.random.default_rng(width)
    feats = rng.integers(-4, 5, (n, width)).astype(np.float32)  # exact; many equal distances
    asked = rng.integers(-4, 5, (23, width)).astype(np.float32)
    for queries in (None, asked):
        q = feats if queries is None else queries
        d2 = ((q[:, None].astype(np.float64) - feats[None]) ** 2).sum(-1)
        order = np.argsort(d2, axis=1, kind="stable")[:, :k]
        rows, found = ops.knn_rows(
            mx.array(feats), k, queries=None if queries is None else mx.array(queries)
        )
        assert np.array_equal(np.array(rows), order)
        assert np.array_equal(np.array(found), np.take_along_axis(d2, order, 1))


def test_half_precision_and_empty_queries():
    x = mx.array(np.random.default_rng(0).normal(size=(50, 8)), dtype=mx.bfloat16)
    rows, _ = ops.knn_rows(x, 3)
    assert rows[:, 0].tolist() == list(range(50))
    rows, d2 = ops.knn_rows(x, 3, queries=mx.zeros((0, 8)))
    assert rows.shape == d2.shape == (0, 3)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: ops.farthest_point_sample(mx.zeros((3, 2)), 1), r"shape \(N, 3\), got \(3, 2\)"),
        (lambda: ops.farthest_point_sample(mx.zeros((3, 3)), 4), r"count must be in 0\.\.3, got 4"),
        (
            lambda: ops.farthest_point_sample(mx.zeros((3, 3)), 1, start=3),
            r"start must be in 0\.\.2",
        ),
        (lambda: ops.farthest_point_sample(mx.full((2, 3), float("nan")), 1), "finite.* row 0"),
        (lambda: ops.farthest_point_sample(mx.zeros((3, 3), mx.int32), 1), "float32, float16"),
        (lambda: ops.estimate_normals(mx.zeros((9, 3)), k=2), "k must be at least 3, got 2"),
        (lambda: ops.knn_rows(mx.zeros((3, 4)), 4), r"k must be in 1\.\.3, got 4"),
        (lambda: ops.knn_rows(mx.zeros((3, 4)), 1, queries=mx.zeros((2, 5))), r"queries.*\(2, 5\)"),
        (lambda: ops.knn_rows(mx.zeros((3, 0)), 1), r"feats must have shape \(N, C\)"),
    ],
)
def test_mistakes(call, message):
    with pytest.raises(ValueError, match=message):
        call()
