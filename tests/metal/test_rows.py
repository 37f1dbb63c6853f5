"""Reductions over rows on the host.

Segments, pooling, gathers and maps against the routes of the CPU.
"""

import mlx.core as mx
import mlx_lattice as ml
import numpy as np
import pytest
from metal.host import MetalHost
from mlx_lattice import ops, points

pytestmark = pytest.mark.usefixtures("needs_host")

DTYPES = [mx.float32, mx.float16, mx.bfloat16]
# Of the last place of the dtype; sums of float32 may differ by their order.
TOLERANCE = {mx.float32: 2e-6, mx.float16: 1e-3, mx.bfloat16: 8e-3}
# Around a piece (128), the longest segment in one piece (256), and pieces of pieces (128 * 256).
LENGTHS = [0, 1, 127, 128, 129, 255, 256, 257, 0, 513, 33000]


def numbers(shape, dtype=mx.float32, seed=0):
    """Quarters, so that maxima have ties."""
    values = np.round(np.random.default_rng(seed).standard_normal(shape) * 4) / 4
    return mx.array(values.astype(np.float32)).astype(dtype)


def both(function, *arrays, host=None):
    """Results of the CPU and of the host, and which routes the host took."""
    want = function(*arrays)
    mx.eval(want)
    with host or MetalHost() as used:
        with ml._ext.DecisionLog() as log:
            found = function(*arrays)
            mx.eval(found)
        taken = {(d.operation, d.route) for d in log.decisions}
    assert used.launches
    assert {route for _, route in taken} <= {"metal.rows", "cpu.unified"}, taken
    return want, found


def close(want, found, scale=1.0):
    want, found = (v if isinstance(v, (list, tuple)) else [v] for v in (want, found))
    for a, b in zip(want, found, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        a, b = (np.array(v.astype(mx.float32)) for v in (a, b))
        tolerance = TOLERANCE[want[0].dtype]
        np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance * scale)


def with_gradient(function, *more):
    """The result, and the gradient of a weighted sum of it."""

    def run(x):
        y = function(x, *more)
        g = mx.cos(mx.arange(y.size, dtype=mx.float32)).reshape(y.shape).astype(y.dtype)
        return y, mx.vjp(lambda v: function(v, *more), [x], [g])[1][0]

    return run


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", ["sum", "mean", "max", "min"])
def test_segments_around_pieces(mode, dtype):
    lengths = mx.array(LENGTHS[:-1])
    x = numbers((sum(LENGTHS[:-1]), 3), dtype)
    want, found = both(with_gradient(lambda v: points.segment_reduce(v, lengths, mode)), x)
    close(want, found, scale=30)


def test_segments_in_pieces_of_pieces():
    x = numbers((sum(LENGTHS), 1))
    lengths = mx.array(LENGTHS)
    for mode in ("sum", "max"):
        close(*both(lambda v, mode=mode: points.segment_reduce(v, lengths, mode), x), scale=300)


@pytest.mark.parametrize("channels", [1, 2, 7, 8, 31, 33, 255, 256, 257, 300])
def test_channels(channels):
    x = numbers((9, channels))
    ids = mx.array([2, 0, 2, 2, 5, 0, 1, 1, 5])
    close(*both(with_gradient(lambda v: points.scatter_reduce(v, ids, 6, "sum")), x))


@pytest.mark.parametrize("rows", [0, 1, 2, 7, 8])
@pytest.mark.parametrize("dtype", DTYPES)
def test_few_rows(rows, dtype):
    """Arrays of fewer than 8 elements lie in another address space."""
    x = numbers((rows, 1), dtype)
    lengths = mx.array([rows // 2, 0, rows - rows // 2])

    def function(v):
        y = [points.segment_reduce(v, lengths, mode) for mode in ("sum", "mean", "max", "min")]
        return [*y, points.segment_expand(y[1], lengths)]

    want = function(x)
    mx.eval(want)
    with MetalHost():
        close(want, function(x))


def test_ties_and_nan():
    x = mx.array([[1.0, 2.0], [1.0, float("nan")], [0.0, 5.0], [1.0, 1.0]])
    lengths = mx.array([3, 1])
    for ties in ("split", "all"):
        run = with_gradient(
            lambda v, ties=ties: points.segment_reduce(v, lengths, "max", ties=ties)
        )
        for a, b in zip(*both(run, x), strict=True):
            np.testing.assert_array_equal(np.array(a), np.array(b))
    with MetalHost():
        assert mx.isnan(points.segment_reduce(x, lengths, "max"))[0, 1].item()


def scene(channels, dtype=mx.float32, n=90, seed=1):
    random = np.random.default_rng(seed)
    coords = np.unique(
        random.integers(-4, 5, (n, 4)) * [0, 1, 1, 1]
        + random.integers(0, 2, (n, 1)) * [1, 0, 0, 0],
        axis=0,
    )
    return mx.array(coords.astype(np.int32)), numbers((len(coords), channels), dtype, seed)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", ["sum", "avg", "max"])
def test_pooling(mode, dtype):
    coords, feats = scene(5, dtype)
    x = ml.SparseTensor(coords, feats)

    def function(v):
        return ops.pool3d(x.replace(feats=v), mode=mode, kernel_size=3, stride=2, padding=1).feats

    close(*both(with_gradient(function), feats), scale=5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_upsampling(dtype):
    coords, feats = scene(4, dtype, n=20)
    x = ml.SparseTensor(coords, feats, stride=2)
    for function in (
        lambda v: ops.pool_transpose3d(x.replace(feats=v), kernel_size=3).feats,
        lambda v: ops.trilinear_upsample3d(x.replace(feats=v)).feats,
    ):
        close(*both(with_gradient(function), feats), scale=5)


@pytest.mark.parametrize("mode", ["sum", "avg", "max"])
def test_global_pooling(mode):
    coords, feats = scene(3, n=600)
    x = ml.SparseTensor(coords, feats)
    close(
        *both(with_gradient(lambda v: ops.global_pool(x.replace(feats=v), mode=mode)), feats),
        scale=30,
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduction", ["sum", "mean", "max"])
def test_voxels(reduction, dtype):
    place = mx.array(np.random.default_rng(2).uniform(-2, 2, (70, 3)).astype(np.float32))
    feats = numbers((70, 3), dtype)
    close(
        *both(
            with_gradient(lambda v: ops.voxelize(place, v, 1.0, reduction=reduction).feats), feats
        ),
        scale=5,
    )
    voxels = ops.voxelize(place, feats, 1.0)
    for kind in ("linear", "nearest"):
        run = with_gradient(
            lambda v, kind=kind: ops.devoxelize(
                place, voxels.replace(feats=v), 1.0, interpolation=kind
            )
        )
        close(*both(run, voxels.feats), scale=5)


def test_neighbor_features():
    place = mx.array(np.random.default_rng(3).uniform(0, 1, (40, 3)).astype(np.float32))
    relation = ops.build_knn_relation(place, k=3)
    run = with_gradient(lambda v: ops.gather_neighbor_features(v, relation))
    close(*both(run, numbers((40, 5))), scale=5)


def test_indexed_segments():
    """A relation whose edges the user gave, one row with many of them."""
    random = np.random.default_rng(4)
    indices, lengths = mx.array(random.integers(0, 50, 700)), mx.array([1, 0, 400, 299])
    for mode in ("sum", "mean", "max", "min"):
        run = with_gradient(
            lambda v, mode=mode: points.indexed_segment_reduce(v, indices, lengths, mode)
        )
        close(*both(run, numbers((50, 3))), scale=100)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_maxima(dtype):
    """What tangents of max and ties="first" read: the smallest row that has it."""
    lengths = mx.array([257, 0, 1, 42])
    x, t = numbers((300, 3), dtype), numbers((300, 3), dtype, seed=1)
    coords, feats = scene(5, dtype)
    tensor = ml.SparseTensor(coords, feats)

    def function(v, dv):
        found = []
        for mode in ("max", "min"):
            found += mx.jvp(
                lambda w, mode=mode: points.segment_reduce(w, lengths, mode), [v], [dv]
            )[1]
            found.append(
                with_gradient(
                    lambda w, mode=mode: points.segment_reduce(w, lengths, mode, ties="first")
                )(v)[1]
            )
        pool = [
            lambda w: ops.max_pool3d(tensor.replace(feats=w), kernel_size=3).feats,
            [feats],
            [feats],
        ]
        return found + mx.jvp(*pool)[1]

    for a, b in zip(*both(function, x, t), strict=True):
        np.testing.assert_array_equal(
            np.array(b.astype(mx.float32)), np.array(a.astype(mx.float32))
        )


@pytest.mark.parametrize("metric", ["euclidean", "squared_euclidean", "cosine"])
@pytest.mark.parametrize("shape", [(0, 3, 2), (1, 1, 1), (15, 17, 16), (16, 16, 15), (17, 33, 40)])
def test_distances(shape, metric):
    n, m, c = shape
    a, b = (
        mx.array(np.random.default_rng(k).standard_normal((k, c)).astype(np.float32))
        for k in (n, m)
    )
    want = points.indexed_distance(a, b, metric=metric)
    mx.eval(want)
    with MetalHost("check", "random") as host:
        found = points.indexed_distance(a, b, metric=metric)
    np.testing.assert_allclose(np.array(found), np.array(want), rtol=2e-6, atol=1e-6)
    assert bool(host.launches) == (n > 0)


def test_a_step_of_adamw():
    arrays = [numbers((7, 3), seed=k) for k in range(3)]
    arrays.append(mx.abs(numbers((7, 3), seed=3)))
    rates = mx.array([0.99, 1e-3, 1.1])
    want = ops.adamw_step(*arrays, rates)
    mx.eval(want)
    with MetalHost():
        found = ops.adamw_step(*arrays, rates)
    for a, b in zip(want, found, strict=True):
        np.testing.assert_allclose(np.array(b), np.array(a), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("variant", ["check", "asan"])
def test_same_bits_in_any_order(variant):
    """And no access outside an array, no race, no value that nobody wrote."""
    coords, feats = scene(5)
    x = ml.SparseTensor(coords, feats)
    lengths = mx.array([257, 3, 0, 40])
    long = numbers((300, 2), seed=5)

    def function():
        pooled = [ops.pool3d(x, mode=mode, kernel_size=3).feats for mode in ("sum", "avg", "max")]
        run = with_gradient(
            lambda v: ops.pool3d(x.replace(feats=v), mode="max", kernel_size=3).feats
        )
        return [
            *pooled,
            run(feats)[1],
            points.segment_reduce(long, lengths, "mean"),
            ops.global_pool(x, mode="sum"),
        ]

    results = []
    for order in ("forward", "reverse", "random"):
        with MetalHost(variant, order, seed=7):
            results.append([np.array(v) for v in function()])
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a.view(np.uint32), b.view(np.uint32))
