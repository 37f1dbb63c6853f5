"""Convolutions, weight gradients, packed weights and products per edge on the host.

Each result is compared with the routes of the CPU.
"""

import mlx.core as mx
import mlx_lattice as ml
import numpy as np
import pytest
from metal.host import MetalHost
from mlx_lattice import ops, points

pytestmark = pytest.mark.usefixtures("needs_host")

DTYPES = [mx.float32, mx.float16, mx.bfloat16]
# Relative to the largest value. Sums of float32 may differ by their order, and then by one unit in
# the last place of the dtype.
TOLERANCE = {mx.float32: 2e-6, mx.float16: 2e-3, mx.bfloat16: 1.6e-2}
# Sizes around a strip of 16 rows, a tile of 64, a simdgroup matrix of 8 and arrays of fewer than 8
# elements.
ROWS = [0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65]
CHANNELS = [1, 3, 7, 8, 9, 16, 17, 32, 33, 64]
THREADGROUP_MEMORY = 32768
REACHED = {"kernel_size": 3, "stride": 2, "padding": 1, "support": "reached"}


def numbers(shape, dtype=mx.float32, seed=0):
    return mx.array(np.random.default_rng(seed).standard_normal(shape).astype(np.float32)).astype(
        dtype
    )


def scene(rows, channels, dtype=mx.float32, seed=1):
    """Rows in no order, dense enough that most have neighbors."""
    random = np.random.default_rng(seed)
    side = int(np.ceil((1.4 * rows) ** (1 / 3))) + 1
    places = (
        random.permutation(np.stack(np.meshgrid(*[np.arange(side)] * 3), -1).reshape(-1, 3))[:rows]
        - side // 2
    )
    coords = np.concatenate([np.zeros((rows, 1)), places], 1).astype(np.int32)
    return ml.SparseTensor(
        mx.array(coords.reshape(-1, 4)), numbers((rows, channels), dtype, seed), stride=2
    )


def kinds(groups=1):
    """name -> (offsets, the convolution of a tensor with weights and a bias)."""
    return {
        "submanifold": (27, lambda x, w, b: ops.subm_conv3d(x, w, b, groups=groups)),
        "strided": (8, lambda x, w, b: ops.conv3d(x, w, b, kernel_size=2, stride=2, groups=groups)),
        "transposed": (
            27,
            lambda x, w, b: ops.conv_transpose3d(x, w, b, kernel_size=3, stride=2, groups=groups),
        ),
        "generative": (8, lambda x, w, b: ops.generative_conv_transpose3d(x, w, b, groups=groups)),
        "reached": (27, lambda x, w, b: ops.conv3d(x, w, b, **REACHED, groups=groups)),
        "reached transposed": (
            27,
            lambda x, w, b: ops.conv_transpose3d(x, w, b, **REACHED, groups=groups),
        ),
    }


def with_gradients(kind, x, weight, bias, groups=1):
    """The result and the gradients of features, weights and bias."""
    convolution = kinds(groups)[kind][1]

    def function(v, w, b):
        return convolution(x.replace(feats=v), w, b).feats

    def run():
        y = function(x.feats, weight, bias)
        return [y, *mx.vjp(function, [x.feats, weight, bias], [numbers(y.shape, y.dtype, 4)])[1]]

    return run


def case(kind, rows, c_in, c_out, dtype=mx.float32, groups=1):
    weight = numbers((kinds()[kind][0], c_in // groups, c_out), dtype, 2)
    return with_gradients(
        kind, scene(rows, c_in, dtype), weight, numbers((c_out,), dtype, 3), groups
    )


def on_host(run, **options):
    """Results of the host, and the routes that were taken."""
    with MetalHost(**options) as host, ml._ext.DecisionLog() as log:
        found = run()
        mx.eval(found)
    assert all(launch.threadgroup_bytes <= THREADGROUP_MEMORY for launch in host.launches)
    beside = ("relate", "sum_rows")  # geometry, and the gradient of the bias
    return found, {f"{d.operation} {d.route}" for d in log.decisions if d.operation not in beside}


def check(run, *, routes=None, tolerance=None):
    """The CPU and the host agree; `routes`, when given, were taken and no others."""
    want = run()
    mx.eval(want)
    found, taken = on_host(run)
    if routes is not None:
        assert taken == routes
    for a, b in zip(want, found, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        limit = tolerance or TOLERANCE[a.dtype]
        a, b = (np.array(v.astype(mx.float32)) for v in (a, b))
        np.testing.assert_allclose(
            b, a, rtol=limit, atol=limit * max(1.0, np.abs(a).max(initial=0))
        )


SORTED = {"conv metal.sorted", "conv metal.mirrored", "outer metal.outer"}
# Forward and gradient of the features.
KINDS = {
    "submanifold": SORTED,
    "strided": {"conv metal.sorted", "conv metal.lists", "outer metal.outer"},
    "transposed": {"conv metal.sorted", "outer metal.outer"},
    "generative": {"conv metal.lists", "conv metal.sorted", "outer metal.outer"},
    "reached": {"conv metal.sorted", "outer metal.outer"},
    "reached transposed": {"conv metal.sorted", "outer metal.outer"},
}
BY_ROWS = {"conv metal.rows", "outer metal.rows"}


@pytest.mark.parametrize("rows", ROWS)
def test_rows_around_tiles(rows):
    # With one edge per row at most there is nothing to sort.
    forward = "conv metal.sorted" if rows > 1 else "conv metal.lists"
    check(
        case("submanifold", rows, 16, 8),
        routes={forward, "conv metal.mirrored", "outer metal.outer"},
    )


@pytest.mark.parametrize("rows", ROWS)
def test_rows_a_thread_an_element(rows):
    check(case("submanifold", rows, 3, 2), routes=BY_ROWS)


@pytest.mark.parametrize(
    "c_in, c_out", [*zip(CHANNELS, reversed(CHANNELS), strict=True), (64, 64), (9, 65), (65, 9)]
)
def test_channels_around_tiles(c_in, c_out):
    check(case("submanifold", 33, c_in, c_out), routes=SORTED)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", kinds())
def test_whole_gradients(kind, dtype):
    check(case(kind, 60, 9, 17, dtype), routes=KINDS[kind])
    check(case(kind, 20, 2, 3, dtype), routes=BY_ROWS)


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 16, 17])
def test_lists_around_tiles(rows):
    """8 * rows output rows with one edge each.

    The list of an offset has `rows` edges or, of the strided one, fewer.
    """
    check(case("generative", rows, 8, 40), routes=KINDS["generative"])
    check(case("strided", 8 * rows, 33, 8), routes=KINDS["strided"])


@pytest.mark.parametrize("groups", [2, 3, 24])
def test_groups(groups):
    check(case("submanifold", 40, 24, 48, groups=groups), routes=SORTED if groups < 24 else BY_ROWS)


@pytest.mark.parametrize("route", ["metal.rows", "metal.tiles", "metal.sorted"])
def test_one_convolution_on_every_route(route, monkeypatch):
    x, weight, bias = scene(70, 10), numbers((27, 10, 33), seed=2), numbers((33,), seed=3)

    def run():
        return [ops.subm_conv3d(x, weight, bias).feats, ops.subm_conv3d(x, weight).feats]

    want = run()
    mx.eval(want)
    monkeypatch.setenv("LATTICE_ROUTE", f"conv={route}")
    found, taken = on_host(run)
    assert taken == {f"conv {route}"}
    for a, b in zip(want, found, strict=True):
        np.testing.assert_allclose(np.array(b), np.array(a), rtol=2e-6, atol=4e-5)


def test_masks_of_many_words():
    x, weight = scene(70, 8), numbers((125, 8, 8), seed=2)
    check(lambda: [ops.subm_conv3d(x, weight, kernel_size=5).feats], routes={"conv metal.tiles"})


@pytest.mark.parametrize("edges", [1023, 1024, 1025, 2049])
def test_weight_gradient_of_long_lists(edges):
    """Lists of more than 1,024 edges are summed in parts.

    One offset is long, one short, one has none.
    """
    random = np.random.default_rng(4)
    kernel = mx.array(np.concatenate([np.zeros(edges), np.full(40, 2)]).astype(np.int32))
    i, o = (mx.array(random.integers(0, n, kernel.size).astype(np.int32)) for n in (50, 30))
    for c, m in ((8, 9), (2, 1)):
        a, b = numbers((3, 1, m, c), seed=5), numbers((50, 1, c), seed=6)
        g = numbers((30, 1, m), seed=7)

        def function(a, b):
            return points.sparse_matrix_vector_multiplication_reduction(a, kernel, b, i, o, 30)

        outer = "per_edge_outer metal.outer" if m > 1 else "per_edge_outer metal.rows"
        conv = "per_edge_apply metal.buckets" if m > 1 else "per_edge_apply metal.rows"
        check(
            lambda function=function, a=a, b=b, g=g: mx.vjp(function, [a, b], [g])[1],
            routes={conv, outer},
        )


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 63, 64, 65, 129])
@pytest.mark.parametrize("dtype", DTYPES)
def test_edges_that_share_a_matrix(rows, dtype):
    """A rulebook: many edges, in no order, of 40 matrices, several of one matrix in a row."""
    random = np.random.default_rng(12)
    kernel, i, o = (
        mx.array(random.integers(0, n, 12 * rows + 80).astype(np.int32)) for n in (40, 9, rows)
    )
    a, b, g = (numbers(s, dtype, j) for j, s in enumerate([(40, 1, 9, 8), (9, 1, 8), (rows, 1, 9)]))

    def function(a, b):
        return points.sparse_matrix_vector_multiplication_reduction(a, kernel, b, i, o, rows)

    def run():
        return [function(a, b), *mx.vjp(function, [a, b], [g])[1]]

    check(run, routes={"per_edge_apply metal.buckets", "per_edge_outer metal.outer"})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("groups, c, m", [(1, 1, 1), (2, 5, 3), (1, 33, 9)])
def test_a_matrix_an_edge(groups, c, m, dtype):
    random = np.random.default_rng(8)
    a, b = numbers((40, groups, m, c), dtype, 9), numbers((12, groups, c), dtype, 10)
    i, o = (mx.array(random.integers(0, n, 40).astype(np.int32)) for n in (12, 11))
    g = numbers((11, groups, m), dtype, 11)

    def function(a, b):
        return points.sparse_matrix_vector_multiplication_reduction(a, None, b, i, o, 11)

    def run():
        return [function(a, b), *mx.vjp(function, [a, b], [g])[1]]

    check(run, routes={"per_edge_apply metal.rows", "per_edge_outer metal.rows"})


@pytest.mark.parametrize(
    "bits, group, dtype", [*((4, 32, dtype) for dtype in DTYPES), (8, 64, mx.float16)]
)
def test_packed_weights(bits, group, dtype):
    """Forward reads the codes, the gradient of the features their transpose."""
    for kind, c_in, c_out in (("submanifold", 40, 17), ("generative", 9, 33), ("strided", 3, 5)):
        weight = numbers((kinds()[kind][0], c_in, c_out), dtype, 2)
        packed = ml.quantize_weight(weight, bits=bits, group_size=group)
        x, bias = scene(40, c_in, dtype), numbers((c_out,), dtype, 3)

        def function(v, x=x, kind=kind, packed=packed, bias=bias):
            return kinds()[kind][1](x.replace(feats=v), packed, bias).feats

        def run(x=x, function=function):
            y = function(x.feats)
            return [y, *mx.vjp(function, [x.feats], [numbers(y.shape, y.dtype, 4)])[1]]

        views = {"submanifold": ("sorted", "mirrored"), "generative": ("lists", "sorted")}
        names = [f"packed_{view}" for view in views[kind]] if kind in views else ["rows"]
        check(run, routes={f"conv metal.{name}" for name in names})


@pytest.mark.parametrize("rows", [1, 63, 64, 65])
@pytest.mark.parametrize("dtype", DTYPES)
def test_packed_linear(rows, dtype):
    x = numbers((rows, 35), dtype)
    packed, bias = (
        ml.quantize_weight(numbers((9, 35), dtype, 2), bits=4, group_size=32),
        numbers((9,), dtype, 3),
    )

    def function(v):
        return ops.linear_features(v, packed, bias)

    def run():
        return [function(x), *mx.vjp(function, [x], [numbers((rows, 9), dtype, 4)])[1]]

    check(run, routes={"linear metal.packed"})


def small_calls():
    """Every kernel once, with sizes that fill no tile."""
    packed = ml.quantize_weight(numbers((27, 9, 11), seed=2), bits=4, group_size=32)
    x = scene(70, 9)
    random = np.random.default_rng(8)
    i, o = (mx.array(random.integers(0, n, 30).astype(np.int32)) for n in (12, 11))
    kernel = mx.array((np.arange(1100) % 1099 == 0).astype(np.int32))
    rows = mx.array(random.integers(0, 12, 1100).astype(np.int32))

    def pairs(a, b):
        return points.sparse_matrix_vector_multiplication_reduction(a, None, b, i, o, 11)

    def long(a, b):
        return points.sparse_matrix_vector_multiplication_reduction(a, kernel, b, rows, rows, 12)

    yield case("submanifold", 70, 9, 11)
    yield case("submanifold", 20, 33, 40)
    yield case("submanifold", 20, 3, 2)
    yield case("generative", 66, 8, 8)
    yield lambda: [
        ops.subm_conv3d(x, packed).feats,
        ops.linear_features(x.feats, ml.quantize_weight(numbers((5, 9)), bits=8)),
    ]
    yield lambda: mx.vjp(
        pairs, [numbers((30, 1, 3, 2)), numbers((12, 1, 2))], [numbers((11, 1, 3))]
    )[1]
    yield lambda: mx.vjp(long, [numbers((2, 1, 8, 8)), numbers((12, 1, 8))], [numbers((12, 1, 8))])[
        1
    ]


@pytest.mark.parametrize("variant", ["check", "asan"])
def test_no_mistake_and_same_bits_in_any_order(variant):
    """No access outside an array, no race, no unwritten value, no barrier that threads miss."""
    for run in small_calls():
        results = [
            on_host(run, variant=variant, order=order, seed=7)[0]
            for order in ("forward", "reverse", "random")
        ]
        for other in results[1:]:
            for a, b in zip(results[0], other, strict=True):
                np.testing.assert_array_equal(
                    np.array(a).view(np.uint32), np.array(b).view(np.uint32)
                )
