"""What threads do together: simdgroups, matrices, atomics, barriers.

Each operation against NumPy.
"""

import mlx.core as mx
import numpy as np
import pytest
from metal.host import MetalHost
from metal.host.capture import run

pytestmark = pytest.mark.usefixtures("needs_host")

KINDS = {"char": mx.int8, "uchar": mx.uint8, "short": mx.int16, "ushort": mx.uint16}
KINDS |= {"int": mx.int32, "uint": mx.uint32}
KINDS |= {"half": mx.float16, "float": mx.float32, "bfloat": mx.bfloat16}
LANES = 32


def lanes(calls, x, kind, group=64, out=None, **more):
    """Row r of the result is calls[r] of v = x[i], where thread i is one of a group."""
    n = x.shape[0]
    body = "\n".join(f"out[{r * n}u + i] = {call};" for r, call in enumerate(calls))
    source = f"const uint i = thread_position_in_grid.x; const {kind} v = x[i];\n{body}"
    (result,) = run(source, {"x": x}, {"out": ((len(calls), n), out or x.dtype)}, n, group, **more)
    return np.array(result.astype(mx.float32) if result.dtype == mx.bfloat16 else result)


def numbers(kind, n=LANES * 2):
    values = np.random.default_rng(1).integers(0, 3, n)
    return mx.array(values).astype(KINDS[kind]), values


def simdgroups(values, group):
    """The lanes that stand together."""
    for start in range(0, len(values), group):
        for first in range(start, min(start + group, len(values)), LANES):
            yield slice(first, min(first + LANES, start + group, len(values)))


REDUCTIONS = {"simd_sum": np.add, "simd_max": np.maximum, "simd_min": np.minimum}
OF_INTEGERS = {"simd_and": np.bitwise_and, "simd_or": np.bitwise_or, "simd_xor": np.bitwise_xor}


@pytest.mark.parametrize("kind", KINDS)
def test_reductions_of_whole_and_partial_simdgroups(kind):
    """77 threads in a group: simdgroups of 32, 32, 13; the last group has 46."""
    group = 77
    x, values = numbers(kind, group + 46)
    operations = REDUCTIONS | (OF_INTEGERS if kind[-4:] not in ("half", "loat") else {})
    found = lanes([f"{name}(v)" for name in operations], x, kind, group)
    for row, (name, operation) in zip(found, operations.items()):
        for part in simdgroups(values, group):
            np.testing.assert_array_equal(row[part], operation.reduce(values[part]), err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_products_and_prefixes(kind):
    group = 77
    signs = (
        np.where(np.random.default_rng(2).random(group) < 0.5, -1, 1)
        if kind[0] not in "u"
        else np.ones(group, int)
    )
    names = ["simd_product", "simd_prefix_inclusive_product", "simd_prefix_exclusive_product"]
    found = lanes(
        [f"{name}(v)" for name in names], mx.array(signs).astype(KINDS[kind]), kind, group
    )
    for part in simdgroups(signs, group):
        np.testing.assert_array_equal(found[0, part], signs[part].prod())
        np.testing.assert_array_equal(found[1, part], signs[part].cumprod())
        np.testing.assert_array_equal(
            found[2, part], np.concatenate([[1], signs[part].cumprod()[:-1]])
        )
    x, values = numbers(kind, group)
    found = lanes(["simd_prefix_inclusive_sum(v)", "simd_prefix_exclusive_sum(v)"], x, kind, group)
    for part in simdgroups(values, group):
        np.testing.assert_array_equal(found[0, part], values[part].cumsum())
        np.testing.assert_array_equal(found[1, part], values[part].cumsum() - values[part])


@pytest.mark.parametrize("kind", KINDS)
def test_shuffles(kind):
    values = np.arange(LANES * 2) % LANES + LANES * (np.arange(LANES * 2) >= LANES)
    me = np.arange(LANES)
    source = {
        "simd_broadcast(v, ushort(7))": 7 + 0 * me,
        "simd_shuffle(v, ushort(31 - thread_index_in_simdgroup))": 31 - me,
        "simd_shuffle_down(v, ushort(3))": np.where(me + 3 < LANES, me + 3, me),
        "simd_shuffle_up(v, ushort(3))": np.where(me >= 3, me - 3, me),
        "simd_shuffle_xor(v, ushort(5))": me ^ 5,
        "simd_shuffle_rotate_down(v, ushort(9))": (me + 9) % LANES,
        "simd_shuffle_rotate_up(v, ushort(9))": (me - 9) % LANES,
    }
    if kind != "bfloat":
        source |= {
            "simd_broadcast_first(v)": 0 * me,
            "quad_broadcast(v, ushort(2))": me // 4 * 4 + 2,
            "quad_shuffle(v, ushort(3 - thread_index_in_quadgroup))": me // 4 * 4 + 3 - me % 4,
            "quad_shuffle_xor(v, ushort(1))": me ^ 1,
        }
    found = lanes(list(source), mx.array(values).astype(KINDS[kind]), kind)
    for row, (call, lane) in zip(found, source.items()):
        np.testing.assert_array_equal(
            row, values.reshape(2, LANES)[:, lane].reshape(-1), err_msg=call
        )


@pytest.mark.parametrize("kind", ["int", "half", "float"])
def test_shuffles_that_fill(kind):
    values = np.arange(LANES)
    x = mx.array(values).astype(KINDS[kind])
    names = ("simd_shuffle_and_fill_up", "simd_shuffle_and_fill_down")
    calls = [f"{name}(v, {kind}(v + {kind}(100)), ushort(3), ushort(8))" for name in names]
    found = lanes(calls, x, kind, LANES)
    eights = values.reshape(4, 8)
    up = np.concatenate([eights[:, -3:] + 100, eights[:, :-3]], axis=1)
    down = np.concatenate([eights[:, 3:], eights[:, :3] + 100], axis=1)
    np.testing.assert_array_equal(found, [up.reshape(-1), down.reshape(-1)])


@pytest.mark.parametrize("kind", ["int", "half", "float"])
def test_quads(kind):
    x, values = numbers(kind)
    names = {"quad_sum": np.add, "quad_product": np.multiply}
    names |= {"quad_max": np.maximum, "quad_min": np.minimum}
    found = lanes([f"{name}(v)" for name in names], x, kind)
    for row, operation in zip(found, names.values()):
        np.testing.assert_array_equal(
            row, operation.reduce(values.reshape(-1, 4), axis=1).repeat(4)
        )


def test_votes():
    x, values = numbers("int", 45)
    calls = (
        "simd_any(v == 2); simd_all(v < 3); simd_all(v == 2); int(ulong(simd_ballot(v == 2))); "
        "simd_ballot(v == 2).any(); simd_ballot(v < 3).all(); "
        "int(ulong(simd_active_threads_mask())); simd_is_first()"
    )
    found = lanes(calls.split("; "), x, "int", out=mx.int32)
    for part in simdgroups(values, 64):
        two = values[part] == 2
        everyone = (1 << len(two)) - 1
        ballot = sum(1 << i for i in np.flatnonzero(two))
        rows = [
            two.any(),
            True,
            two.all(),
            np.uint32(ballot).view(np.int32),
            two.any(),
            len(two) == LANES,
        ]
        for row, expected in zip(found, [*rows, np.uint32(everyone).view(np.int32)]):
            np.testing.assert_array_equal(row[part], expected)
        np.testing.assert_array_equal(found[7, part], np.arange(len(two)) == 0)


@pytest.mark.parametrize("kind", ["float", "half", "bfloat"])
@pytest.mark.parametrize("memory", ["device", "threadgroup"])
def test_matrices(kind, memory):
    """d = a @ b + c and e = a.T @ b, read at an origin, stored turned.

    A diagonal and a filled matrix.
    """
    dtype = KINDS[kind]
    a, b, c = (mx.random.randint(-4, 5, (16, 16)).astype(dtype) for _ in range(3))
    load, store = ("as", "out") if memory == "device" else ("tile", "tile")
    source = f"""
        threadgroup {kind} tile[256];
        const uint i = thread_index_in_threadgroup;
        for (uint k = i; k < 256; k += 32) tile[k] = as[k];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        simdgroup_matrix<{kind}, 8, 8> a, turned, b, c, d, e;
        simdgroup_load(a, {load} + 8, 16);
        simdgroup_load(turned, {load}, 16, ulong2(8, 0), true);
        simdgroup_load(b, bs, 16, ulong2(0, 8));
        simdgroup_load(c, cs + 16 * 8 + 8, 16);
        simdgroup_multiply_accumulate(d, a, b, c);
        simdgroup_multiply(e, turned, b);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        simdgroup_store(d, {store}, 16);
        simdgroup_store(e, {store}, 16, ulong2(8, 0), true);
        simdgroup_store(simdgroup_matrix<{kind}, 8, 8>({kind}(3)), {store} + 128, 16);
        simdgroup_store(make_filled_simdgroup_matrix<{kind}, 8, 8>({kind}(5)), {store} + 136, 16);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        {"for (uint k = i; k < 256; k += 32) out[k] = tile[k];" if memory == "threadgroup" else ""}
    """
    inputs = {"as": a, "bs": b, "cs": c}
    (out,) = run(source, inputs, {"out": ((16, 16), dtype)}, 32, 32, host=MetalHost("check"))
    x, y, z = (np.array(v.astype(mx.float32)) for v in (a, b, c))
    left, right = x[:8, 8:], y[8:, :8]
    expected = np.block(
        [[left @ right + z[8:, 8:], (left.T @ right).T], [3 * np.eye(8), np.full((8, 8), 5.0)]]
    )
    np.testing.assert_array_equal(np.array(out.astype(mx.float32)), expected)


def test_elements_of_a_matrix():
    """Each thread may change its two elements; all 64 belong to someone."""
    source = """
        simdgroup_float8x8 a;
        simdgroup_load(a, x, 8);
        a.thread_elements()[0] += 100.0f;
        a.thread_elements()[1] *= -1.0f;
        simdgroup_store(a, out, 8);
    """
    x = mx.arange(64).astype(mx.float32)
    (out,) = run(source, {"x": x}, {"out": ((64,), mx.float32)}, 32, 32, host=MetalHost(layout=0))
    expected = np.arange(64) + 100.0
    expected[1::2] = -np.arange(1, 64, 2)
    np.testing.assert_array_equal(np.array(out), expected)
    (other,) = run(source, {"x": x}, {"out": ((64,), mx.float32)}, 32, 32, host=MetalHost(layout=3))
    other = np.array(other)
    first = other == np.arange(64) + 100.0
    assert first.sum() == 32 and not np.array_equal(other, expected)
    np.testing.assert_array_equal(other[~first], -np.arange(64)[~first])


@pytest.mark.parametrize("layout", [3, 4, 5])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_products_of_tensors(layout, turned, dtype):
    """matmul2d on threadgroup memory: sums that are already there, each sum at its own place."""
    source = f"""
        threadgroup T left[16 * 32];
        threadgroup T right[32 * 32];
        const uint t = thread_index_in_threadgroup;
        for (uint i = t; i < 512; i += 32) left[i] = a[i];
        for (uint i = t; i < 1024; i += 32) right[i] = b[i];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        constexpr auto descriptor = mpp::tensor_ops::matmul2d_descriptor(16, 32, 32,
            {str(turned).lower()}, false, false,
            mpp::tensor_ops::matmul2d_descriptor::mode::multiply_accumulate);
        mpp::tensor_ops::matmul2d<descriptor, execution_simdgroup> product;
        using L = extents<int32_t, {"16, 32" if turned else "32, 16"}>;
        using R = extents<int32_t, 32, 32>;
        auto x = tensor<threadgroup T, L, tensor_inline>(left, L());
        auto y = tensor<threadgroup T, R, tensor_inline>(right, R());
        auto sums =
            product.template get_destination_cooperative_tensor<decltype(x), decltype(y), float>();
        for (uint16_t i = 0; i < sums.get_capacity(); ++i)
          if (sums.is_valid_element(i)) sums[i] = 1.0f;
        product.run(x, y, sums);
        for (uint16_t i = 0; i < sums.get_capacity(); ++i) {{
          if (!sums.is_valid_element(i)) continue;
          const auto at = sums.get_multidimensional_index(i);
          out[at[1] * 32 + at[0]] = sums[i];
        }}
    """
    header = "#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>\n"
    random = np.random.default_rng(1)
    a, b = (
        mx.array(random.integers(-9, 9, shape).astype(np.float32)).astype(dtype)
        for shape in ((32, 16) if turned else (16, 32), (32, 32))
    )
    (out,) = run(
        source,
        {"a": a, "b": b},
        {"out": ((16, 32), mx.float32)},
        32,
        32,
        header=header,
        template=[("T", dtype)],
        host=MetalHost("check", layout=layout),
    )
    x, y = (np.array(v.astype(mx.float32)) for v in (a, b))
    np.testing.assert_array_equal(np.array(out), 1 + (x.T if turned else x) @ y)


FETCHES = {"add": np.add, "sub": lambda a, b: a - b, "and": np.bitwise_and}
FETCHES |= {"or": np.bitwise_or, "xor": np.bitwise_xor, "min": np.minimum, "max": np.maximum}


@pytest.mark.parametrize("kind", ["int", "uint"])
@pytest.mark.parametrize("memory", ["device", "threadgroup"])
@pytest.mark.parametrize("order", ["forward", "random"])
def test_atomics(kind, memory, order):
    """All threads fetch. The last value is the reduction; every fetched value was once stored."""
    x = mx.array(np.random.default_rng(3).integers(1, 1000, 64)).astype(KINDS[kind])
    shared = "threadgroup atomic<{0}> at[9];"
    memory_text = (
        shared if memory == "threadgroup" else "device atomic<{0}>* at = (device atomic<{0}>*)out;"
    )
    body = "\n".join(
        f"atomic_fetch_{name}_explicit(&at[{slot}], {kind}(x[i]), memory_order_relaxed);"
        for slot, name in enumerate(FETCHES)
    )
    source = f"""
        {memory_text.format(kind)}
        const uint i = thread_position_in_grid.x;
        if (i < 9) atomic_store_explicit(&at[i], {kind}(i == 2 ? 1023 : 500), memory_order_relaxed);
        threadgroup_barrier(mem_flags::mem_{memory});
        {body}
        if (atomic_exchange_explicit(&at[7], {kind}(i), memory_order_relaxed) == {kind}(500))
          atomic_store_explicit(&at[8], {kind}(1), memory_order_relaxed);
        threadgroup_barrier(mem_flags::mem_{memory});
        {kind} v = i < 9 ? atomic_load_explicit(&at[i], memory_order_relaxed) : {kind}(0);
        threadgroup_barrier(mem_flags::mem_{memory});
        if (i < 9) out[i] = v;
    """
    (out,) = run(
        source, {"x": x}, {"out": ((9,), KINDS[kind])}, 64, host=MetalHost("check", order, seed=5)
    )
    start = np.full(7, 500)
    start[2] = 1023
    expected = [
        _fold(operation, first, np.array(x)) for operation, first in zip(FETCHES.values(), start)
    ]
    np.testing.assert_array_equal(
        np.array(out)[:7].astype(np.int32), np.array(expected).astype(np.int32)
    )
    assert np.array(out)[7] < 64 and np.array(out)[8] == 1


def _fold(operation, value, values):
    for v in values:
        value = operation(value, v)
    return value


def test_atomic_floats_and_wide_integers():
    source = """
        const uint i = thread_position_in_grid.x;
        atomic_fetch_add_explicit((device atomic_float*)sum, x[i], memory_order_relaxed);
        atomic_min_explicit((device atomic_ulong*)ends, ulong(x[i]) << 40, memory_order_relaxed);
        device atomic_ulong* end = (device atomic_ulong*)ends + 1;
        atomic_max_explicit(end, ulong(x[i]) << 40, memory_order_relaxed);
    """
    x = mx.array(np.random.default_rng(3).integers(1, 1000, 100)).astype(mx.float32)
    outputs = {"sum": ((1,), mx.float32), "ends": ((2,), mx.uint64)}
    total, ends = run(source, {"x": x}, outputs, 100, init_value=1 << 45)
    assert total.item() == _fold(np.add, np.float32(1 << 45), np.array(x))
    values = np.array(x).astype(np.uint64) << np.uint64(40)
    np.testing.assert_array_equal(
        np.array(ends), [min(values.min(), 1 << 45), max(values.max(), 1 << 45)]
    )


@pytest.mark.parametrize("fails", [0, 2])
def test_a_weak_compare_exchange_fails_for_no_reason(fails):
    source = """
        device atomic_uint* at = (device atomic_uint*)out;
        const uint i = thread_position_in_grid.x;
        uint tries = 0, seen = atomic_load_explicit(at, memory_order_relaxed);
        do { ++tries; } while (!atomic_compare_exchange_weak_explicit(
            at, &seen, seen + i, memory_order_relaxed, memory_order_relaxed));
        atomic_fetch_add_explicit(at + 1, tries, memory_order_relaxed);
    """
    host = MetalHost(fails=fails)
    (out,) = run(
        source, {"x": mx.zeros(8)}, {"out": ((2,), mx.uint32)}, 100, host=host, init_value=0
    )
    total, tries = np.array(out)
    assert total == 99 * 50
    assert (tries == 100) == (fails == 0)


def test_threads_interleave_at_atomics_in_random_order():
    """Who comes first is open: a schedule where thread 0 is always first proves too little."""
    source = """
        const uint i = thread_position_in_grid.x;
        out[i] = atomic_fetch_add_explicit((device atomic_uint*)count, 1u, memory_order_relaxed);
    """
    outputs = {"out": ((64,), mx.uint32), "count": ((1,), mx.uint32)}
    x = {"x": mx.zeros(8)}
    tickets = {}
    for order in ("forward", "reverse", "random"):
        out, _ = run(source, x, outputs, 64, host=MetalHost(order=order, seed=1), init_value=0)
        tickets[order] = np.array(out)
    np.testing.assert_array_equal(tickets["forward"], np.arange(64))
    np.testing.assert_array_equal(tickets["reverse"], np.arange(64)[::-1])
    assert sorted(tickets["random"]) == list(range(64)) and tickets["random"].tolist() != list(
        range(64)
    )


def test_simdgroup_barrier_orders_one_simdgroup():
    source = """
        threadgroup float t[64];
        const uint i = thread_index_in_threadgroup;
        t[i] = x[thread_position_in_grid.x];
        simdgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
        out[thread_position_in_grid.x] = t[i ^ 1];
    """
    x = mx.arange(128).astype(mx.float32)
    (out,) = run(source, {"x": x}, {"out": ((128,), mx.float32)}, 128, host=MetalHost("check"))
    np.testing.assert_array_equal(np.array(out), np.arange(128) ^ 1)
