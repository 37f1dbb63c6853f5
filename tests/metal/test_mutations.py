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
from metal.planted import outcome, plant
from mlx_lattice import ops

pytestmark = pytest.mark.usefixtures("needs_host")

ROWS, C_IN, C_OUT = 70, 20, 12  # two tiles, two steps of channels, two words of offsets
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
BEGIN = "using Product = ConvMatrices<kColumns, kDepth, V>;"


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
        "threadgroup float4* tiles;",
        "device float4* tiles;",
        "converts between",
    ),
    "constant taken for device": (
        "read_fields(const device int* words)",
        "read_fields(const constant int* words)",
        "no matching function",
    ),
    "no address space": ("clear(thread Sums* sums)", "clear(Sums* sums)", "without address space"),
    "write to an input": (
        "const int first = rows.first(",
        "arrays.x[0] = 1; const int first = rows.first(",
        "not assignable",
    ),
    "threadgroup memory in a function": (BEGIN, BEGIN + " threadgroup float t[4];", ""),
    "double": ("float sum = 0.0f;", "double sum = 0.0;", "'double' does not exist in MSL"),
    "unknown function": ("ctz(left)", "count_trailing_zeros(left)", "undeclared identifier"),
    "mixed types": (
        "int(rows.in_row(at.p, offset)) : -1",
        "min(rows.in_row(at.p, offset), 1u) : -1",
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
    mistake = plant(
        "y[at] = T(norm.of(sum + float(bias[m]), m, at));",
        "y[at] = norm.of(sum + float(bias[m]), m, at);",
    )
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
        "if (row >= rows.end() || column >= sizes.out) return;",
        "if (column >= sizes.out) return;",
        "out of bounds: write",
    ),
    "no neighbor": (
        "at.from = at.row < 0 ? 0 : size_t(at.row) * size_t(at.stride) + size_t(at.first);",
        "at.from = size_t(at.row) * size_t(at.stride); at.row = max(at.row, 0);",
        "out of bounds: read",
    ),
    "small threadgroup memory": (
        "conv_blocks<T>(32, 16)]",
        "conv_blocks<T>(32, 16) - 4]",
        "out of bounds: ",
    ),
    "rows on each other": (
        "size_t(rows.out_row(row))",
        "size_t(rows.out_row(row) % 16)",
        "race: two writes of device y",
    ),
    "uninitialized": (
        "if (has_row(i)) store_eight",
        "if (has_row(i) && line() + kLines * i < kDepth - 1) store_eight",
        "uninitialized read of threadgroup memory",
    ),
    "output left out": (
        "if (row >= rows.end() ||",
        "if (row + 1 >= rows.end() ||",
        "unwritten output: 12 of 840 elements of y",
    ),
    "return before a barrier": (
        BEGIN,
        BEGIN + " if (int(place.group.x) * 64 + int(place.id) > sizes.n_out) return;",
        "divergent barrier",
    ),
    "matrices of half a simdgroup": (
        "if (counts) product",
        "if (counts && place.lane < 16) product",
        "divergent simdgroup operation",
    ),
    "too much threadgroup memory": (
        "conv_blocks<T>(32, 16)]",
        "conv_blocks<T>(32, 16) + 1700]",
        "threadgroup memory: ",
    ),
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
        "{first + int(id / 2u), 0,",
        "{first + int(id / 2u) + 2147483647 - 2147483647, 0,",
        "signed integer overflow",
    ),
}


@pytest.mark.parametrize("name", ASAN)
def test_accesses_under_address_sanitizer(name, conv):
    old, new, message = ASAN[name]
    assert message in found(conv, plant(old, new), "asan")


PUT = "put_values(out + place<kWide>(int(at.y), channels, at), result);"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "offsets[at.y + 1];\n  float value[kWide];",
            "offsets[at.y + 2];\n  float value[kWide];",
            "out of bounds: read",
        ),
        (
            PUT,
            f"if (first < last) {PUT}",
            "unwritten output: 10 of 25",
        ),
        (
            PUT,
            PUT.replace("int(at.y)", "0"),
            "race: two writes of device",
        ),
        (
            "struct Entries {\n  Offsets offsets;",
            "struct Entries {\n  const threadgroup int* offsets;",
            "cannot initialize a member",
        ),
    ],
    ids=["segment past the end", "empty segment", "segments on each other", "wrong address space"],
)
def test_reductions(old, new, message):
    assert message in found(reduction(), plant(old, new))


def test_wrong_numbers_are_the_oracles(conv):
    """A mistake that breaks no rule of the language: the result differs."""
    want, call = conv
    with MetalHost(change=plant("c < min(kDepth, channels); c += 8", "c < kDepth; c += 8")):
        same = np.allclose(np.array(call()), np.array(want), rtol=1e-5, atol=1e-5)
    with MetalHost(change=plant("at.row < 0 ? 0 : sizes.in - c", "at.row <= 0 ? 0 : sizes.in - c")):
        other = np.allclose(np.array(call()), np.array(want), rtol=1e-5, atol=1e-5)
    assert same and not other  # channels past the end are zeros; row 0 does count


# ------------------------------------------------------------------------------- tensors, outer
def forward_and_gradient(tier=None):
    """Result of the CPU, and a call, in float16: 45 -> 24 channels in steps of 32."""
    random = np.random.default_rng(0)
    places = random.permutation(np.stack(np.meshgrid(*[np.arange(5)] * 3), -1).reshape(-1, 3))[
        :ROWS
    ]
    coords = np.concatenate([np.zeros((ROWS, 1)), places], 1).astype(np.int32)
    feats, weight, g = (
        mx.array(random.standard_normal(shape).astype(np.float16))
        for shape in ((ROWS, 45), (27, 45, 24), (ROWS, 24))
    )
    x = ml.SparseTensor(mx.array(coords), feats)
    convolve = lambda w: ops.subm_conv3d(x, w).feats

    def forward():
        return [convolve(weight)]

    def gradient():
        return mx.vjp(convolve, [weight], [g])[1]

    return forward, gradient


ASKED = "const auto at = sums.get_multidimensional_index(i);"
VALID = "if (!sums.is_valid_element(i)) continue;"
TENSOR = {
    "a lane layout is assumed": (
        ASKED,
        "const uint at[2] = {uint(i) % 8u, uint(i) / 8u};",
        "race: ",
    ),
    "elements that are not valid": (VALID, "", "race: two writes|wrong numbers"),
    "sums that start anywhere": ("sums[i] = 0.0f;", "(void)sums;", "wrong numbers"),
    "rows and columns exchanged": ("int(at[1])", "int(at[0])", "race: |unwritten output"),
    "a step that waits for nobody": (f"{BARRIER}\n      c0 +=", "c0 +=", "race: "),
    "a tile that is written too early": (f"{BARRIER}  // the last step is done", "", "race: "),
    "extents of another tile": (
        "extents<int32_t, kN, kK>()",
        "extents<int32_t, kM, kK>()",
        "no matching",
    ),
}


@pytest.mark.parametrize("name", TENSOR)
def test_tensors(name):
    old, new, message = TENSOR[name]
    text = outcome(forward_and_gradient()[0], "conv_tensor", plant(old, new))
    assert re.search(message, text)


OUTER = {
    "a tile that nobody waits for": (
        f"{BARRIER}\n    if (p + kEdges < end)",
        "if (p + kEdges < end)",
        "race: ",
    ),
    "a tile that is written too early": (f"{BARRIER}  // the tiles are read", "", "race: "),
    "edges past the end": (
        "there = e < end && has_edge(i);",
        "there = true;",
        "wrong|out of",
    ),
}


@pytest.mark.parametrize("name", OUTER)
@pytest.mark.parametrize("kernel", ["outer_tiles", "outer_tensor"])
def test_weight_gradients(name, kernel):
    old, new, message = OUTER[name]
    tier = "neural_accelerator" if kernel == "outer_tensor" else "gpu"
    gradient = forward_and_gradient()[1]
    assert re.search(message, outcome(gradient, kernel, plant(old, new), tier=tier))


def test_halves_of_a_tile_at_the_wrong_place():
    change = plant("c / kHalf * (kEdges * kHalf)", "(1 - c / kHalf) * (kEdges * kHalf)")
    assert outcome(forward_and_gradient()[1], "outer_tensor", change) == "wrong numbers"


@pytest.mark.parametrize("layout", [0, 1, 2])
def test_every_layout_of_tensors_is_right(layout):
    for call, kernel in zip(forward_and_gradient(), ("conv_tensor", "outer_tensor"), strict=True):
        assert outcome(call, kernel, variant="fast", layout=layout) == "right"


def test_a_layout_of_matrices_is_assumed(conv):
    """Sums that leave through thread_elements() are right in the layout of MLX's kernels only."""
    old = "simdgroup_store(sums[r * kColumns + j + i], strip + 8 * i, 8 * kWide);"
    new = (
        "{ const uint row = (lane / 4 & 4) + lane / 2 % 4, at = (lane / 4 & 2) * 2 + lane % 2 * 2;"
        " threadgroup float* to = strip + 8 * i + row * 8 * kWide + at;"
        " to[0] = sums[r * kColumns + j + i].thread_elements()[0];"
        " to[1] = sums[r * kColumns + j + i].thread_elements()[1]; }"
    )
    want, call = conv
    right = []
    for layout in (0, 3):
        with MetalHost(change=plant(old, new), layout=layout):
            right.append(np.allclose(np.array(call()), np.array(want), rtol=1e-5, atol=1e-5))
    assert right == [True, False]


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
