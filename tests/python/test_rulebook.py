"""Rulebooks, searches and their corners, against NumPy."""

import mlx.core as mx
import numpy as np
import point_oracle
import pytest
from mlx_lattice import points


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


@pytest.mark.parametrize("at", [0.0, -40.0, 1e6])
@pytest.mark.parametrize("shape", ["ball", "cube"])
def test_places(at, shape):
    """Multiples of a quarter.

    Every border, every half-way offset and every distance of 2 is met exactly, also where float32
    has steps of 1/16.
    """
    steps = np.random.default_rng(0).integers(-12, 13, (300, 3))
    p = (at + steps * 0.25).astype(np.float32)
    lengths = [120, 0, 180]
    set_ = points.PointSet(mx.array(p), mx.array(lengths), grid=1.0)
    rows, counts, _, _ = point_oracle.downsample(p, lengths, 2.0)
    coarse, kept = set_.downsample(2)
    assert kept.tolist() == rows.tolist() and coarse.lengths.tolist() == list(counts)
    book = set_.rulebook(coarse, 3, shape=shape, radius=2.0)
    found = sorted(zip(*(v.tolist() for v in book.triplets()[:3])))
    i, j, k = point_oracle.edges(p, lengths, p[rows], counts, 3, 1.0, 2.0, shape)
    assert found == sorted(zip(i.tolist(), j.tolist(), k.tolist()))
    d = np.abs(p[j] - p[rows][i])
    assert ((d * 2) % 2 == 1).any() and ((d**2).sum(1) == 4).any()  # the case is what it says
