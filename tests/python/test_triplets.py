"""MVMR, VVOR, distances and rulebooks from Python: NumPy float64, dtypes, compile, errors."""

import mlx.core as mx
import mlx_lattice as ml
import numpy as np
import pytest
from mlx_lattice import points
from mlx_lattice.core import set_thread_count, thread_count

TOLERANCE = {mx.float32: 1e-5, mx.float16: 5e-3, mx.bfloat16: 1.5e-2}


def problem(t=300, n_a=7, n_b=50, n_o=40, groups=2, m=5, c=17, seed=0, dtype=mx.float32):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(n_a, groups, m, c)), rng.normal(size=(n_b, groups, c))
    idx = [mx.array(rng.integers(0, n, t).astype(np.int32)) for n in (n_a, n_b, n_o)]
    return mx.array(a).astype(dtype), mx.array(b).astype(dtype), *idx, n_o


def exact(x):
    return np.array(x.astype(mx.float32), dtype=np.float64)


def numpy_mvmr(a, k, b, i, o, n_o):
    y = np.zeros((n_o, a.shape[1], a.shape[2]))
    np.add.at(
        y, np.array(o), np.einsum("tgmc,tgc->tgm", exact(a)[np.array(k)], exact(b)[np.array(i)])
    )
    return y


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    "t, n_a, groups, m, c",
    [(300, 7, 2, 5, 17), (64, 64, 1, 16, 32), (400, 1, 8, 3, 1), (1, 3, 1, 127, 5)],
)
def test_mvmr_and_vvor(t, n_a, groups, m, c, dtype):
    a, b, k, i, o, n_o = problem(t, n_a, groups=groups, m=m, c=c, dtype=dtype)
    y = points.sparse_matrix_vector_multiplication_reduction(a, k, b, i, o, n_o)
    want = numpy_mvmr(a, k, b, i, o, n_o)
    scale = np.abs(want).max()
    assert y.dtype == dtype
    np.testing.assert_allclose(exact(y), want, atol=TOLERANCE[dtype] * scale)
    gcm = points.mvmr(
        mx.swapaxes(a, 2, 3), k.astype(mx.int64), b, i.astype(mx.uint32), o, n_o, layout="gcm"
    )
    np.testing.assert_allclose(exact(gcm), want, atol=TOLERANCE[dtype] * scale)
    again = points.mvmr_on(a, b, points.triplet_relation(k, i, o, n_a=n_a, n_b=50, n_o=n_o))
    assert mx.array_equal(again, y)
    u = points.sparse_vector_vector_outer_product_reduction(y, o, b, i, k, n_a)
    want_u = np.zeros((n_a, groups, m, c))
    np.add.at(
        want_u,
        np.array(k),
        np.einsum("tgm,tgc->tgmc", exact(y)[np.array(o)], exact(b)[np.array(i)]),
    )
    np.testing.assert_allclose(
        exact(u), want_u, atol=TOLERANCE[dtype] * max(1, np.abs(want_u).max())
    )


def test_gradients_against_float64():
    a, b, k, i, o, n_o = problem(seed=3)
    y = numpy_mvmr(a, k, b, i, o, n_o)
    ga, gb = mx.grad(lambda x, v: (points.mvmr(x, k, v, i, o, n_o) ** 2).sum(), argnums=(0, 1))(
        a, b
    )
    k, i, o = (np.array(v) for v in (k, i, o))
    want_a, want_b = np.zeros(a.shape), np.zeros(b.shape)
    np.add.at(want_a, k, np.einsum("tgm,tgc->tgmc", 2 * y[o], exact(b)[i]))
    np.add.at(want_b, i, np.einsum("tgm,tgmc->tgc", 2 * y[o], exact(a)[k]))
    np.testing.assert_allclose(exact(ga), want_a, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(exact(gb), want_b, rtol=1e-4, atol=1e-3)


def test_compile_views_and_empty():
    a, b, k, i, o, n_o = problem()
    f = lambda x, v: points.mvmr(x, k, v, i, o, n_o)
    assert mx.allclose(mx.compile(f)(a, b), f(a, b))
    strided = mx.concatenate([b, b], axis=2)[:, :, :17]
    assert mx.array_equal(f(a, strided), f(a, b))
    none = mx.zeros((0,), dtype=mx.int32)
    assert mx.array_equal(points.mvmr(a, none, b, none, none, 3), mx.zeros((3, 2, 5)))
    assert points.mvmr(a, none, mx.zeros((0, 2, 17)), none, none, 0).shape == (0, 2, 5)
    nan = mx.where(mx.arange(50).reshape(-1, 1, 1) == i[0], float("nan"), b)
    y = np.array(f(a, nan))
    rows = set(np.array(o)[np.array(i) == i[0].item()])
    assert {r for r in range(n_o) if np.isnan(y[r]).any()} == rows  # only where it was read


def test_same_bits_for_any_number_of_threads():
    a, b, k, i, o, n_o = problem(t=30000, n_b=3000, n_o=3000, groups=1, m=32, c=32)
    before, found = thread_count(), []
    for n in (1, 2):
        set_thread_count(n)
        found.append(mx.grad(lambda x: points.mvmr(x, k, b, i, o, n_o).square().sum())(a))
        mx.eval(found)
    set_thread_count(before)
    assert mx.array_equal(*found)


def test_errors():
    a, b, k, i, o, n_o = problem()
    with pytest.raises(ValueError, match=r"a_idx.* is outside 0..6"):
        points.mvmr(a, k + 1, b, i, o, n_o)
    with pytest.raises(ValueError, match="o_idx"):
        points.mvmr(a, k, b, i, o - 1, n_o)
    with pytest.raises(ValueError, match="layout must be gmc or gcm"):
        points.mvmr(a, k, b, i, o, n_o, layout="mgc")
    with pytest.raises(ValueError, match=r"b must have shape \(N, 2, 17\)"):
        points.mvmr(a, k, b[:, :, :3], i, o, n_o)
    with pytest.raises(ValueError, match="euclidean, squared_euclidean or cosine, got 'l1'"):
        points.indexed_distance(mx.zeros((2, 3)), mx.zeros((2, 3)), metric="l1")


@pytest.mark.parametrize("metric", ["euclidean", "squared_euclidean", "cosine"])
def test_distances(metric):
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(9, 4)), rng.normal(size=(7, 4))
    d2 = ((a[:, None] - b[None]) ** 2).sum(-1)
    norms = np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(b, axis=1)
    want = {"euclidean": np.sqrt(d2), "squared_euclidean": d2, "cosine": 1 - a @ b.T / norms}[
        metric
    ]
    x, y = mx.array(a.astype(np.float32)), mx.array(b.astype(np.float32))
    np.testing.assert_allclose(points.indexed_distance(x, y, metric=metric), want, atol=1e-5)
    np.testing.assert_allclose(
        points.indexed_distance_blocked(x, y, 2, metric=metric), want, atol=1e-5
    )
    i, j = mx.array([8, 0, 8]), mx.array([6, 6, 1])
    np.testing.assert_allclose(
        points.indexed_distance(x, y, i, j, metric), want[[8, 0, 8]][:, [6, 6, 1]], atol=1e-5
    )
    np.testing.assert_allclose(
        points.indexed_pair_distance(x, i, y, j, metric), want[[8, 0, 8], [6, 6, 1]], atol=1e-5
    )


def test_distances_are_in_the_table():
    names = [r.name for r in ml.routes() if r.operation == "distance"]
    assert names == ["cpu.tiles", "cpu.reference", "metal.tiles", "cuda.tiles", "gpu.mlx"]
    a = mx.random.normal((5, 3))
    told = str(ml.explain(mx.grad(lambda u: points.indexed_distance(u, a).sum()), a))
    assert (
        told.count("distance -> cpu.tiles") >= 2 and "mode euclidean" in told
    )  # the gradient needs it again


def test_rulebook_and_point_convolution():
    rng = np.random.default_rng(2)
    xyz = mx.array(rng.random((300, 3)).astype(np.float32))
    fine = points.PointSet(xyz, mx.array([120, 0, 180]), grid=0.15)
    coarse, picked, cell_of = points.grid_downsample(fine, 0.3)
    assert coarse.lengths.tolist()[1] == 0 and coarse.lengths.sum().item() == len(coarse)
    assert mx.array_equal(coarse.positions, xyz[picked]) and cell_of.shape == (300,)
    book = points.build_rulebook(fine, coarse)
    i, j, k, begins = book.triplets()
    assert (
        len(book) == i.size == begins[-1].item()
        and book.n_out == len(coarse)
        and book.n_kernels == 27
    )
    d = xyz[j] - coarse.positions[i]
    assert mx.array_equal(points.voxel_tap(d, 0.15, 3), k)
    assert mx.max(mx.linalg.norm(d, axis=1)).item() <= book.radius + 1e-6
    x, w, bias = mx.random.normal((300, 8)), mx.random.normal((27, 2, 4, 3)), mx.random.normal((6,))
    y = points.point_conv(x, w, book.relation, bias)
    want = (
        points.mvmr(w, k, x.reshape(300, 2, 4), j, i, len(coarse), layout="gcm").reshape(-1, 6)
        + bias
    )
    assert mx.allclose(y, want, atol=1e-4)
    up = points.point_conv(y, mx.random.normal((27, 1, 6, 5)), book.transposed().relation)
    assert up.shape == (300, 5)
    part, targets = points.build_partition_rulebook(fine, 2.0, 2)
    assert len(part) == 300 and part.n_out == len(targets)
    rows, counts, distances = points.radius_search(
        xyz, coarse.positions, book.radius, fine.lengths, coarse.lengths
    )
    assert (
        rows.size == len(book)
        and counts.sum().item() == len(book)
        and distances.shape == rows.shape
    )
    with pytest.raises(ValueError, match="increase the radius"):
        points.build_rulebook(fine, points.PointSet(xyz + 9, fine.lengths, grid=0.15))


def test_clipped_and_nearest_neighbors():
    rng = np.random.default_rng(3)
    p, q = (
        rng.integers(0, 5, (60, 3)).astype(np.float32),
        rng.integers(0, 5, (30, 3)).astype(np.float32),
    )  # many ties
    lengths, query_lengths = [0, 40, 20, 0], [5, 10, 0, 15]
    rows, counts, far = points.radius_search(
        mx.array(p), mx.array(q), 2.5, mx.array(lengths), mx.array(query_lengths)
    )
    near = points.nearest_neighbors(
        mx.array(p), mx.array(q), mx.array(lengths), mx.array(query_lengths)
    )
    for most in (0, 1, 4, 1000):
        some, kept, distances = points.clip_neighbors(rows, counts, far, most)
        at, to = 0, 0
        for n in counts.tolist():
            best = sorted(zip(far[at : at + n].tolist(), rows[at : at + n].tolist()))[:most]
            best = sorted((r, d) for d, r in best)
            assert (
                list(
                    zip(some[to : to + len(best)].tolist(), distances[to : to + len(best)].tolist())
                )
                == best
            )
            at, to = at + n, to + len(best)
        assert to == some.size and kept.tolist() == [min(n, most) for n in counts.tolist()]
    clouds, own = np.repeat(range(4), lengths), np.repeat(range(4), query_lengths)
    for i in range(30):
        d = np.where(clouds == own[i], np.sqrt(((p - q[i]) ** 2).sum(1)), np.inf)
        row = int(d.argmin()) if np.isfinite(d).any() else -1
        assert near[0][i].item() == row and near[1][i].item() == pytest.approx(float(d.min()))
    with pytest.raises(ValueError, match="most must be >= 0"):
        points.clip_neighbors(rows, counts, far, -1)
    with pytest.raises(ValueError, match="rows and distances"):
        points.clip_neighbors(rows, counts, far[:-1], 2)
    with pytest.raises(ValueError, match="counts"):
        points.clip_neighbors(rows, counts + 1, far, 2)
    nothing = points.nearest_neighbors(mx.zeros((0, 3)), mx.zeros((2, 3)))
    assert nothing[0].tolist() == [-1, -1] and mx.isinf(nothing[1]).all().item()


def test_rulebook_of_triplets():
    i, j, k = mx.array([2, 0, 2]), mx.array([1, 1, 0]), mx.array([26, 13, 0])
    book = points.rulebook_from_triplets(i, j, k, n_out=3, n_in=2, n_kernels=27)
    assert (book.kernel_size, book.n_out, book.n_in, len(book)) == (3, 3, 2, 3)
    assert [v.tolist() for v in book.triplets()[:3]] == [[2, 0, 2], [0, 1, 1], [0, 13, 26]]
    x, w = mx.random.normal((2, 4)), mx.random.normal((27, 1, 4, 5))
    conv = points.PointConv3d(4, 5, bias=False)
    conv.weight = w
    assert mx.allclose(conv(x, book)[0], x[1] @ w[13, 0], atol=1e-5)
    with pytest.raises(ValueError, match="kernel_ids"):
        points.rulebook_from_triplets(i, j, k + 1, n_out=3, n_in=2, n_kernels=27)
