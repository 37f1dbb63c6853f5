"""Neighbors against brute force in NumPy, and the index."""

import itertools

import mlx.core as mx
import mlx_lattice as ml
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lattice import core, ops
from mlx_lattice import points as pts
from threads import run_together, with_threads


def brute(source, query, source_batch, query_batch, limit, reach=None):
    """[(d2, row), ...] of each query, and how many were cut off."""
    out, cut = [], 0
    for q, b in zip(query, query_batch):
        d = source - q
        if np.issubdtype(source.dtype, np.integer):
            d2 = (
                (d.astype(object) ** 2).sum(1).astype(np.float64).astype(np.float32)
                if len(d)
                else np.zeros(0, np.float32)
            )
        else:
            d2 = (d[:, 0] * d[:, 0] + d[:, 1] * d[:, 1]) + d[:, 2] * d[:, 2]
        near = [
            (float(v), int(r))
            for r, v in enumerate(d2)
            if source_batch[r] == b and (reach is None or v <= reach)
        ]
        near.sort()
        if reach is not None:
            cut += max(0, len(near) - limit)
        out.append(near[:limit])
    return out, cut


@pytest.mark.parametrize("squared, count", [(1, 7), (2, 19), (3, 27)])
def test_within_a_radius_means_one_thing(squared, count):
    """The middle of a lattice 3 x 3 x 3 has its neighbors at the roots of 1, 2 and 3."""
    lattice = np.array(list(itertools.product(range(3), repeat=3)), np.float32)
    p, radius = mx.array(lattice), squared**0.5
    coords = mx.array(np.concatenate([np.zeros((27, 1)), lattice], 1).astype(np.int32))
    found = [
        ops.build_radius_relation(p, radius=radius).query_counts[13],
        ops.build_radius_relation(coords, radius=radius).query_counts[13],
        core.NeighborIndex(p).radius(p, radius=radius).query_counts[13],
        ops.radius_relation(ml.SparseTensor(coords, p), radius=radius).query_counts[13],
        pts.radius_search(p, p, radius)[1][13],
    ]
    assert [int(n) for n in found] == [count] * 5
    for least in (count - 1, count):
        assert pts.radius_inliers(lattice, radius, least)[13] == (least < count)


def test_float64_points_on_a_map():
    rng, offset = np.random.default_rng(9), np.array([5e5, 5.4e6, 40.0])
    p, q = rng.integers(0, 1024, (300, 3)) / 256, rng.integers(0, 1024, (50, 3)) / 256
    for build in (
        lambda *rows: ops.build_knn_relation(*rows, k=4),
        lambda *rows: ops.build_radius_relation(*rows, radius=0.5),
    ):
        for near, far in (((p,), (p + offset,)), ((p, q), (p + offset, q + offset))):
            a, b = build(*near), build(*far)
            assert a.edges.source_rows.tolist() == b.edges.source_rows.tolist()
            assert mx.array_equal(a.distances, b.distances)
    with pytest.raises(ValueError, match="in row 1"):
        ops.build_knn_relation(np.array([[5e6, 0, 0], [np.nan, 0, 0]]), k=1)
    coarse = mx.array([[1.0, 2, 3]], dtype=mx.bfloat16)  # NumPy has no such format
    assert ops.build_knn_relation(np.array([[1.0, 2, 3.5]]), coarse, k=1).distances.item() == 0.25


def edges_of(r):
    offsets, rows, d = r.row_offsets.tolist(), r.edges.source_rows.tolist(), r.distances.tolist()
    assert r.query_counts.tolist() == [b - a for a, b in itertools.pairwise(offsets)]
    assert r.edges.query_rows.tolist() == [
        q for q, n in enumerate(r.query_counts.tolist()) for _ in range(n)
    ]
    assert r.edges.neighbor_ids.tolist() == [i for n in r.query_counts.tolist() for i in range(n)]
    return [list(zip(d[a:b], rows[a:b])) for a, b in itertools.pairwise(offsets)]


def points(n, seed, kind):
    rng = np.random.default_rng(seed)
    p = rng.normal(size=(n, 3))
    if kind == "ties":
        p = np.round(p)
    if kind == "line":
        p[:, 1:] = 0
    return p.astype(np.float32), rng.integers(0, 2, n).astype(np.int32)


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 120),
    st.integers(0, 40),
    st.integers(1, 20),
    st.sampled_from(["normal", "ties", "line"]),
    st.integers(0, 99),
)
def test_points(n, m, k, kind, seed):
    (s, sb), (q, qb) = points(n, seed, kind), points(m, seed + 1, kind)
    batches = {"batch_indices": mx.array(sb), "query_batch_indices": mx.array(qb)}
    r = ops.build_knn_relation(mx.array(s), mx.array(q), k=k, **batches)
    assert edges_of(r) == brute(s, q, sb, qb, k)[0] and r.max_neighbors == k
    r = ops.build_radius_relation(mx.array(s), mx.array(q), radius=0.9, max_neighbors=k, **batches)
    want, cut = brute(s, q, sb, qb, k, np.float32(0.9) * np.float32(0.9))
    assert edges_of(r) == want and r.truncated == cut
    assert (r.n_query, r.n_source) == (m, n)


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 60),
    st.integers(1, 12),
    st.sampled_from([3, 5000, 2**31 - 1]),
    st.sampled_from([np.int32, np.int64]),
    st.integers(0, 99),
)
def test_coordinates(n, k, extent, dtype, seed):
    rng = np.random.default_rng(seed)
    c = np.concatenate(
        [rng.integers(0, 2, (n, 1)), rng.integers(-extent - 1, extent, (n, 3), endpoint=True)], 1
    ).astype(dtype)
    r = ops.build_knn_relation(mx.array(c), k=k)
    wide = c[:, 1:].astype(np.int64)
    want = brute(wide, wide, c[:, 0], c[:, 0], k)[0]
    assert [[row for _, row in e] for e in edges_of(r)] == [[row for _, row in e] for e in want]
    assert edges_of(r) == want


def test_tensors_and_features():
    x = ml.SparseTensor(
        mx.array([[0, 0, 0, 0], [0, 1, 0, 0], [0, 5, 0, 0]], mx.int32),
        mx.array([[1.0], [2.0], [4.0]]),
    )
    r = ops.knn_relation(x, k=2)
    assert r.edges.source_rows.tolist() == [0, 1, 1, 0, 2, 1]
    for source in (x, x.feats):
        assert ops.gather_neighbor_features(source, r).tolist() == [
            [1.0],
            [2.0],
            [2.0],
            [1.0],
            [4.0],
            [2.0],
        ]
    g = mx.grad(lambda f: (ops.gather_neighbor_features(f, r) * mx.arange(6.0)[:, None]).sum())(
        x.feats
    )
    assert g.tolist() == [[3.0], [8.0], [4.0]]
    r = ops.radius_relation(x, x, radius=1)
    assert r.edges.source_rows.tolist() == [0, 1, 1, 0, 2] and "5 edges" in repr(r)


def test_index_serves_many_queries_and_threads():
    s, sb = points(5000, 0, "normal")
    index = core.NeighborIndex(mx.array(s), batch_indices=mx.array(sb))
    assert len(index) == 5000 and repr(index) == "NeighborIndex(5000 points)"
    q, qb = points(300, 1, "normal")
    queries, batches = mx.array(q), mx.array(qb)
    mx.eval(queries, batches)
    want = brute(s, q, sb, qb, 4)[0]

    def work():
        assert edges_of(index.knn(queries, k=4, query_batch_indices=batches)) == want

    for _ in with_threads(1, 2):
        run_together(work, 3)
    assert index.radius(radius=0.0).query_counts.tolist() == [1] * 5000
    assert index.knn(k=1).edges.source_rows.tolist() == list(range(5000))


P, C = mx.array(points(4, 0, "normal")[0]), mx.zeros((4, 4), mx.int32)
# ValueErrors by their text, and errors of other kinds.
REFUSED = {
    r"\[build_knn_relation\] k must be >= 1, got 0": lambda: ops.build_knn_relation(P, k=0),
    "radius must be >= 0": lambda: ops.build_radius_relation(P, radius=-1),
    "radius must be >= 0, got nan": lambda: ops.build_radius_relation(P, radius=float("nan")),
    "max_neighbors must be >= 1": lambda: ops.build_radius_relation(P, radius=1, max_neighbors=0),
    r"floats of shape \(N, 3\), got float32 of shape \(4, 2\)": lambda: ops.build_knn_relation(
        P[:, :2], k=1
    ),
    r"source_coords must have shape \(N, 4\)": lambda: ops.build_knn_relation(C[:, :3], k=1),
    "batch >= 0": lambda: ops.build_knn_relation(C - 1, k=1),
    "both be": lambda: ops.build_knn_relation(P, C, k=1),
    "equal dtypes": lambda: ops.build_knn_relation(C, C.astype(mx.int64), k=1),
    "batch_indices must come with float": lambda: ops.build_knn_relation(
        C, k=1, batch_indices=mx.zeros((4,), mx.int32)
    ),
    "query_batch_indices": lambda: ops.build_knn_relation(
        P, k=1, query_batch_indices=mx.zeros((4,), mx.int32)
    ),
    r"batch_indices must have shape \(4,\)": lambda: ops.build_knn_relation(
        P, k=1, batch_indices=mx.zeros((3,), mx.int32)
    ),
    "finite, got inf in row 1": lambda: ops.build_knn_relation(
        mx.array([[0.0, 0, 0], [0, float("inf"), 0]]), k=1
    ),
    r"source must have shape \(4, C\)": lambda: ops.gather_neighbor_features(
        P[:3], ops.build_knn_relation(P, k=1)
    ),
    "traced": lambda: mx.compile(lambda p: ops.build_knn_relation(p, k=1).distances)(P),
}
BAD = [(call, ValueError, text) for text, call in REFUSED.items()]
BAD += [
    (lambda: ops.build_knn_relation(P, k=1.5), TypeError, "k must be an integer"),
    (lambda: ops.build_radius_relation(P, radius="1"), TypeError, "radius"),
]


@pytest.mark.parametrize("call, error, text", BAD)
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call()
