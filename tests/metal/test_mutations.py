"""Mistakes planted in the library's own kernels.

Each must be found, and the message must name its kind.

A plant replaces a piece of the text that MLX would compile. Where a kernel no longer has that piece
the test says so.
"""

import re

import mlx.core as mx
import mlx_lattice as ml
import numpy as np
import pytest
from metal.host import CompileError, MetalError, MetalHost
from metal.host.capture import run
from mlx_lattice import ops

pytestmark = pytest.mark.usefixtures("needs_host")

ROWS, C_IN, C_OUT = 70, 20, 12  # two tiles, two steps of channels, two words of offsets
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
BEGIN = "constexpr int kRows = 64, kDepth = 16, kThreads = 128;"


def convolution(dtype=mx.float32, apart=False):
    """Result of the CPU, and a call that takes the tiles of conv.metal.

    Apart: no row has a neighbor, and its own offset is not in the first word.
    """
    random = np.random.default_rng(0)
    places = random.permutation(np.stack(np.meshgrid(*[np.arange(6)] * 3), -1).reshape(-1, 3))[
        :ROWS
    ]
    size = (9, 3, 3) if apart else (5, 3, 3)
    coords = np.concatenate([np.zeros((ROWS, 1)), places * (9 if apart else 1)], 1).astype(np.int32)
    feats = mx.array(random.standard_normal((ROWS, C_IN)).astype(np.float32)).astype(dtype)
    weight = mx.array(
        random.standard_normal((np.prod(size), C_IN, C_OUT)).astype(np.float32)
    ).astype(dtype)
    x = ml.SparseTensor(mx.array(coords), feats)
    call = lambda: ops.subm_conv3d(x, weight, kernel_size=size).feats
    return forced("cpu.reference", call)(), forced("metal.tiles", call)


def reduction():
    """A segment sum of segments.metal; two of five segments are empty."""
    x = mx.array(np.random.default_rng(0).standard_normal((40, 5)).astype(np.float32))
    call = lambda: ml.points.segment_reduce(x, mx.array([10, 25, 0, 5, 0]), "sum")
    want = call()
    mx.eval(want)
    return want, call


def plant(old, new, nth=0):
    """Replaces the n-th occurrence of `old`."""

    def change(text):
        parts = text.split(old)
        assert len(parts) > nth + 1, f"the kernel has no place {nth} for this mistake: {old}"
        return old.join(parts[: nth + 1]) + new + old.join(parts[nth + 1 :])

    return change


def found(case, change, variant="check", order="forward"):
    """What the host says of the kernel with the mistake in it."""
    _, call = case
    with pytest.raises(Exception) as error, MetalHost(variant, order, change=change):
        mx.eval(call())
    assert isinstance(error.value, (CompileError, MetalError)), error.value
    return str(error.value)


def forced(route, call):
    """The call, while the convolution is made to take a route."""

    def inside():
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LATTICE_ROUTE", f"conv={route}")
            result = call()
            mx.eval(result)
            return result

    return inside


@pytest.mark.parametrize("variant", ["fast", "check", "asan"])
@pytest.mark.parametrize("case", [convolution, reduction])
def test_the_kernels_as_they_are(case, variant):
    want, call = case()
    with MetalHost(variant) as host:
        result = call()
        mx.eval(result)
    assert host.launches
    np.testing.assert_allclose(np.array(result), np.array(want), rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def conv():
    return convolution()


@pytest.fixture(scope="module")
def apart():
    return convolution(apart=True)


# ------------------------------------------------------------------------------- before it runs
STATIC = {
    "wrong address space": (
        "threadgroup float* strips",
        "device float* strips",
        "no matching function",
    ),
    "constant taken for device": (
        "W w, X x, B bias, S sizes",
        "W w, X x, B bias, const device int* sizes",
        "no matching function",
    ),
    "no address space": ("clear(thread Sums* sums)", "clear(Sums* sums)", "without address space"),
    "write to an input": (
        "const int first = rows.first(",
        "sizes[0] = 1; const int first = rows.first(",
        "not assignable",
    ),
    "threadgroup memory in a function": (BEGIN, BEGIN + " threadgroup float t[4];", ""),
    "double": ("float sum = 0.0f;", "double sum = 0.0;", "'double' does not exist in MSL"),
    "unknown function": ("ctz(left)", "count_trailing_zeros(left)", "undeclared identifier"),
    "mixed types": (
        "rows.in_row(first + t, k) : -1",
        "min(rows.in_row(first + t, k), 1u) : -1",
        "ambiguous",
    ),
    "matrix of integers": (
        "simdgroup_matrix<float, 8, 8>;",
        "simdgroup_matrix<int, 8, 8>;",
        "no matching function",
    ),
}


@pytest.mark.parametrize("name", STATIC)
def test_text_that_is_no_msl(name, conv):
    old, new, message = STATIC[name]
    text = found(conv, plant(old, new), "fast")
    assert message in text and text.startswith("line ")


def test_implicit_conversion_to_bfloat():
    case = convolution(mx.bfloat16)
    mistake = plant("= T(sum + float(bias[m]));", "= sum + float(bias[m]);")
    assert "implicit conversion" in found(case, mistake, "fast")


# ------------------------------------------------------------------------------- while it runs
@pytest.mark.parametrize("nth", range(4))
@pytest.mark.parametrize(
    "instead",
    [
        "",
        "simdgroup_barrier(mem_flags::mem_threadgroup);",
        "threadgroup_barrier(mem_flags::mem_device);",
    ],
    ids=["missing barrier", "barrier of a simdgroup", "barrier of other memory"],
)
def test_barriers(nth, instead, conv, apart):
    """The last one matters where a word of offsets has no edge."""
    assert "race: " in found(apart if nth == 3 else conv, plant(BARRIER, instead, nth))


@pytest.mark.parametrize("nth", range(2))
def test_threads_of_a_simdgroup_do_not_run_in_step(nth, conv):
    assert "race: " in found(conv, plant("simdgroup_barrier(mem_flags::mem_threadgroup);", "", nth))


CHECKED = {
    "row past the end": (
        "if (row >= rows.end() || column >= out) return;",
        "if (column >= out) return;",
        "out of bounds: write",
    ),
    "no neighbor": ("from >= 0 && c < in ? load", "c < in ? load", "out of bounds: read"),
    "small threadgroup memory": (
        "threadgroup int ids[64];",
        "threadgroup int ids[48];",
        "out of bounds: ",
    ),
    "rows on each other": (
        "size_t(rows.out_row(row))",
        "size_t(rows.out_row(row) % 16)",
        "race: two writes of device y",
    ),
    "uninitialized": (
        "if (t < kRows) ids[t] =",
        "if (t < kRows - 1) ids[t] =",
        "uninitialized read of threadgroup ids",
    ),
    "output left out": (
        "if (row >= rows.end() ||",
        "if (row + 1 >= rows.end() ||",
        "unwritten output: 12 of 840 elements of y",
    ),
    "return before a barrier": (
        BEGIN,
        BEGIN + " if (int(group.x) * 64 + int(thread_id) > sizes[0]) return;",
        "divergent barrier",
    ),
    "matrices of half a simdgroup": (
        "if (mine >> bit & 1u) {",
        "if (mine >> bit & 1u && lane < 16) {",
        "divergent simdgroup operation",
    ),
    "too much threadgroup memory": ("strips[1024]", "strips[8000]", "threadgroup memory: "),
}


@pytest.mark.parametrize("name", CHECKED)
def test_accesses(name, conv):
    old, new, message = CHECKED[name]
    text = found(conv, plant(old, new))
    assert message in text
    if not message.startswith(("unwritten", "threadgroup memory")):
        assert re.search(
            r"line \d+.*\n    \S", text
        )  # the line of the MSL text stands below the message


ASAN = {
    "row past the end": (*CHECKED["row past the end"][:2], "heap-buffer-overflow"),
    "no neighbor": (*CHECKED["no neighbor"][:2], "overflowed to"),
    "small threadgroup memory": (*CHECKED["small threadgroup memory"][:2], "use-after-poison"),
    "numbers too large": (
        "t = int(thread_id);",
        "t = int(thread_id) + 2147483647 - 2147483647;",
        "signed integer overflow",
    ),
}


@pytest.mark.parametrize("name", ASAN)
def test_accesses_under_address_sanitizer(name, conv):
    old, new, message = ASAN[name]
    assert message in found(conv, plant(old, new), "asan")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "offsets[at.y + 1];\n  float value = kMode",
            "offsets[at.y + 2];\n  float value = kMode",
            "out of bounds: read",
        ),
        (
            "out[size_t(at.y) * channels + at.x] = static_cast<Out>(first",
            "if (first < last) out[size_t(at.y) * channels + at.x] = static_cast<Out>(first",
            "unwritten output: 10 of 25",
        ),
        (
            "out[size_t(at.y) * channels + at.x] = static_cast<Out>(first",
            "out[at.x] = static_cast<Out>(first",
            "race: two writes of device",
        ),
        (
            "int channels, Offsets offsets, Rows rows,\n"
            "                                Weights weights, uint2 at) {\n"
            "  const int first",
            "int channels, const threadgroup int* offsets, Rows rows,\n"
            "                                Weights weights, uint2 at) {\n"
            "  const int first",
            "no matching function",
        ),
    ],
    ids=["segment past the end", "empty segment", "segments on each other", "wrong address space"],
)
def test_reductions(old, new, message):
    assert message in found(reduction(), plant(old, new))


def test_wrong_numbers_are_the_oracles(conv):
    """A mistake that breaks no rule of the language: the result differs."""
    want, call = conv
    with MetalHost(change=plant("V(w.at(k, g, c, m)) : V(0)", "V(w.at(k, g, c, m)) : V(1)")):
        same = np.allclose(np.array(call()), np.array(want), rtol=1e-5, atol=1e-5)
    with MetalHost(change=plant("from >= 0 && c < in ? load", "from > 0 && c < in ? load")):
        other = np.allclose(np.array(call()), np.array(want), rtol=1e-5, atol=1e-5)
    assert same and not other  # weights past the channels meet zeros; row 0 does count


# ------------------------------------------------------------------------------- atomics
INSERT = """
    device atomic_uint* table = (device atomic_uint*)slots;
    const uint key = x[thread_position_in_grid.x];
    uint at = key %% 64u;
    for (uint tries = 0; tries < 64u; ++tries) {
      uint seen = 0u;
      %s
      at = (at + 1u) %% 64u;
    }
"""
SWAP = (
    "atomic_compare_exchange_weak_explicit(&table[at], &seen, key, memory_order_relaxed, "
    "memory_order_relaxed)"
)


def insert(body, order="random", seed=0, variant="check"):
    keys = mx.array(np.arange(1, 33).repeat(4).astype(np.uint32) * 7)
    host = MetalHost(variant, order, seed=seed, fails=3)
    (slots,) = run(
        INSERT % body, {"x": keys}, {"slots": ((64,), mx.uint32)}, 128, init_value=0, host=host
    )
    slots = np.array(slots)
    return sorted(slots[slots > 0].tolist()) == [7 * k for k in range(1, 33)]


def test_a_weak_exchange_that_failed_is_not_a_full_slot():
    right = f"while (!{SWAP} && seen == 0u) {{}} if (seen == 0u || seen == key) break;"
    assert all(insert(right, seed=s) for s in range(5))
    assert not all(insert(f"if ({SWAP} || seen == key) break;", seed=s) for s in range(5))


def test_a_plain_store_beside_atomics():
    with pytest.raises(MetalError, match="race: "):
        insert("if (slots[at] == 0u) { slots[at] = key; break; }")
