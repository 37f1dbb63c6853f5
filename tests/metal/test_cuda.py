"""Mistakes planted in the CUDA text, each of which must be found and named, and the words of CUDA.

A plant replaces a piece of the text that MLX would hand to NVRTC.
"""

import sys
from pathlib import Path
from types import SimpleNamespace

import mlx.core as mx
import numpy as np
import pytest
from metal.host import CompileError, CudaHost, MetalError
from mlx_lattice import _ext

ROOT = Path(__file__).resolve().parents[2]
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
pytestmark = pytest.mark.usefixtures("needs_host")


def plant(old, new, nth=0):
    def change(text):
        parts = text.split(old)
        if len(parts) <= nth + 1:
            return text
        change.planted = True
        return old.join(parts[: nth + 1]) + new + old.join(parts[nth + 1 :])

    change.planted = False
    return change


def rows(route, change, variant="fast", every=16):
    """Rows of the self test of one route, with a mistake in its kernels."""
    with CudaHost(variant, change=change):
        found = _ext.selftest_rows("gpu", route, every)
    assert change.planted, "the kernels have no place for this mistake"
    return found


WRONG_FRAGMENTS = {
    "rows of a exchanged": ("mma(c, left[r], left[r + 1],", "mma(c, left[r + 1], left[r],"),
    "rows of b exchanged": (
        "pair(b[column * b_stride + 8 * j + row], b[(column + 1) * b_stride + 8 * j + row])",
        "pair(b[(column + 1) * b_stride + 8 * j + row], b[column * b_stride + 8 * j + row])",
    ),
    "b as if it were a": (
        "pair(b[column * b_stride + 8 * j + row], b[(column + 1) * b_stride + 8 * j + row])",
        "pair(b[row * b_stride + 8 * j + column], b[row * b_stride + 8 * j + column + 1])",
    ),
    "sums of other rows": ("low.v[0] = c[2], low.v[1] = c[3]", "low.v[0] = c[3], low.v[1] = c[2]"),
    "the lane of a simdgroup matrix": (
        "int(threadIdx.y % 32 / 4)",
        "int((threadIdx.y % 32 / 4 & 4) + threadIdx.y % 32 / 2 % 4)",
    ),
    "bits of another type": (".f32.f16.f16.f32", ".f32.bf16.bf16.f32"),
}


@pytest.mark.parametrize("name", WRONG_FRAGMENTS)
def test_wrong_fragments_disagree_with_the_oracle(name):
    """The rows that are wrong are named; those of float32, which has no mma, stay right."""
    found = rows("cuda.sorted", plant(*WRONG_FRAGMENTS[name]), every=8)
    bad = [r for r in found if not r.ok]
    assert bad and all(r.route == "cuda.sorted" and r.error > 1 for r in bad)
    if "mma(c" in WRONG_FRAGMENTS[name][0] or "bits" in name:
        assert not any("float32" in r.label for r in bad)


def test_an_unknown_instruction_is_named():
    bad = rows("cuda.sorted", plant("m16n8k8.row.col", "m16n8k8.col.row"))[0]
    assert "unknown PTX instruction: mma.sync.aligned.m16n8k8.col.row" in bad.failure


@pytest.mark.parametrize("nth", range(3))
def test_a_missing_barrier_is_a_race(nth):
    found = rows("cuda.sorted", plant(BARRIER, "", nth), "check")
    bad = [r.failure for r in found if not r.ok]
    assert any("race: " in text and "line " in text for text in bad), bad[:1]


def test_a_barrier_of_a_warp_is_not_one_of_a_block():
    found = rows("cuda.sorted", plant("__syncthreads();", "__syncwarp();"), "check")
    assert any("race: " in r.failure for r in found)


OUTSIDE = {
    "threads beyond the grid go on": ("if (!lattice_place.inside) return;", ""),
    "groups of one axis taken for another": (
        "split(blockIdx.x, groups.x, groups.y)",
        "split(blockIdx.x, groups.y, groups.x)",
    ),
    "threads of one axis taken for another": (
        "split(threadIdx.y, size.x, size.y)",
        "split(threadIdx.y, size.y, size.x)",
    ),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_wrong_place_is_found(name):
    found = rows("cuda.rows", plant(*OUTSIDE[name]), "check", every=40)
    bad = [r for r in found if not r.ok]
    assert bad and all(
        any(kind in r.failure for kind in ("out of bounds", "unwritten", "race")) or r.error > 1
        for r in bad
    )
    if "beyond" in name:
        assert any("out of bounds" in r.failure for r in bad)


def test_text_that_is_no_cuda():
    bad = rows("cuda.sorted", plant("__syncthreads();", "__syncthread();"))[0]
    assert "CompileError" in bad.failure and "__syncthread" in bad.failure


# ------------------------------------------------------------------------------- words of CUDA
def prelude():
    sys.path.insert(0, str(ROOT / "cmake"))
    try:
        import embed_metal
    finally:
        sys.path.pop(0)
    lines = embed_metal.expand(ROOT / embed_metal.PRELUDE, ROOT, set(), cuda=True)
    return "\n".join(lines) + "\n"


def run(source, inputs, outputs, threads=32, groups=1, variant="check"):
    """Outputs of a kernel with this body; threads lie along y."""
    arrays = [mx.array(a) for a in inputs.values()]
    launch = SimpleNamespace(
        name="test",
        text=prelude(),
        source=source,
        input_names=list(inputs),
        output_names=list(outputs),
        outputs=list(outputs.values()),
        template_args=[],
        shape_info=[(f"{n}_shape" in source, False, False) for n in inputs],
        grid=(groups, threads, 1),
        threadgroup=(1, threads, 1),
        init_value=None,
    )
    return CudaHost(variant, "random", seed=3).run(launch, arrays)


LANES = {
    "simd_sum": (np.sum, np.float32),
    "simd_max": (np.max, np.float32),
    "simd_min": (np.min, np.float32),
    "simd_or": (np.bitwise_or.reduce, np.int32),
    "simd_and": (np.bitwise_and.reduce, np.int32),
}


@pytest.mark.parametrize("name", LANES)
def test_values_over_lanes(name):
    function, dtype = LANES[name]
    x = (np.random.default_rng(0).standard_normal(64) * 99).astype(dtype)
    source = f"const int i = int(threadIdx.y); y[i] = {name}(x[i]);"
    out = {"y": ((64,), mx.float32 if dtype == np.float32 else mx.int32)}
    (y,) = run(source, {"x": x}, out, 64)
    want = np.repeat([function(x[:32]), function(x[32:])], 32)
    np.testing.assert_allclose(np.array(y), want, rtol=1e-5)


SHUFFLES = {
    "simd_shuffle(v, ushort(31 - i))": lambda i: 31 - i,
    "simd_shuffle_xor(v, 5)": lambda i: i ^ 5,
    "simd_shuffle_down(v, 3)": lambda i: np.where(i < 29, i + 3, i),
    "simd_shuffle_up(v, 2)": lambda i: np.where(i >= 2, i - 2, i),
    "simd_broadcast(v, 7)": lambda i: np.full_like(i, 7),
}


@pytest.mark.parametrize("call", SHUFFLES)
def test_shuffles(call):
    x = np.arange(32, dtype=np.int32) * 3
    source = f"const int i = int(threadIdx.y), v = x[i]; y[i] = {call};"
    (y,) = run(source, {"x": x}, {"y": ((32,), mx.int32)})
    np.testing.assert_array_equal(np.array(y), x[SHUFFLES[call](np.arange(32))])


def test_words():
    source = """
      if (threadIdx.y != 0) return;
      y[0] = int(ctz(8u)) + 100 * int(clz(1u)) + 10000 * int(popcount(255u));
      y[1] = as_type<int>(1.5f);
      y[2] = int(clamp(7.5f, 1.0f, 3.0f)) + 10 * int(select(1, 2, true)) + 100 * min(3, 4);
      const float4 v = float4(1.0f, 2.0f, 3.0f, 4.0f) * 2.0f + float4(1.0f);
      y[3] = int(v.x + 10 * v.y + 100 * v.z + 1000 * v[3]);
      y[4] = int(sqrt(16.0f)) + 10 * int(exp(0.0f)) + 100 * int(isnan(INFINITY - INFINITY));
      y[5] = int(lattice_any);
    """.replace("y[5] = int(lattice_any);", "")
    (y,) = run(source, {"x": np.zeros(8, np.float32)}, {"y": ((5,), mx.int32)})
    assert y.tolist() == [83103, 0x3FC00000, 323, 9 * 1000 + 700 + 50 + 3, 114]


def test_atomics():
    source = """
      atomic_int* at = (atomic_int*)y;
      const int i = int(threadIdx.y);
      if (i == 0) y[0] = 100, y[1] = 0, y[2] = 0, y[3] = 0, y[4] = -1;
      threadgroup_barrier(mem_flags::mem_device);
      atomic_fetch_min_explicit(at, i + 5, memory_order_relaxed);
      atomic_fetch_max_explicit(at + 1, i, memory_order_relaxed);
      atomic_fetch_add_explicit(at + 2, 1, memory_order_relaxed);
      atomic_fetch_or_explicit(at + 3, i, memory_order_relaxed);
      int found = -1;
      atomic_compare_exchange_weak_explicit(at + 4, &found, 9, memory_order_relaxed,
                                            memory_order_relaxed);
    """
    (y,) = run(source, {"x": np.zeros(8, np.float32)}, {"y": ((5,), mx.int32)}, 64)
    assert y.tolist() == [5, 63, 64, 63, 9]


def test_places_of_threads():
    """Groups along one axis are taken apart; threads beyond the grid return."""
    grid, size = (7, 5, 3), (4, 2, 3)
    groups = int(np.prod([-(-n // k) for n, k in zip(grid, size, strict=True)]))
    source = """
      LATTICE_PLACE(launch)
      if (!lattice_place.inside) return;
      const uint3 p = thread_position_in_grid;
      const uint i = p.x + 7 * (p.y + 5 * p.z);
      y[2 * i] = int(threadgroup_position_in_grid.x + 10 * threadgroup_position_in_grid.y +
                     100 * thread_position_in_threadgroup.z + 1000 * threadgroups_per_grid.x);
      y[2 * i + 1] = int(thread_position_in_grid.xy.x + 10 * thread_position_in_grid.xy.y);
    """
    launch = np.array([*grid, *size], np.int32)
    (y,) = run(source, {"launch": launch}, {"y": ((105, 2), mx.int32)}, 24, groups)
    z, b, a = (v.reshape(-1) for v in np.meshgrid(range(3), range(5), range(7), indexing="ij"))
    want = np.stack([a // 4 + 10 * (b // 2) + 100 * z + 2000, a + 10 * b], 1)
    np.testing.assert_array_equal(np.array(y), want)


@pytest.mark.parametrize(("kind", "ptx"), [("__half", "f16"), ("__nv_bfloat16", "bf16")])
def test_the_matrix_instruction(kind, ptx):
    """Fragments as the PTX manual numbers them, loaded without tiles.cuh."""
    dtype = mx.float16 if ptx == "f16" else mx.bfloat16
    random = np.random.default_rng(1)
    a, b = (mx.array(random.standard_normal(s).astype(np.float32)) for s in [(16, 8), (8, 8)])
    source = f"""
      const int group = int(threadIdx.y) / 4, t = int(threadIdx.y) % 4;
      const auto word = [](float low, float high) {{
        return uint(as_type<ushort>({kind}(low))) | uint(as_type<ushort>({kind}(high))) << 16;
      }};
      const uint a0 = word(a[group * 8 + 2 * t], a[group * 8 + 2 * t + 1]);
      const uint a1 = word(a[(group + 8) * 8 + 2 * t], a[(group + 8) * 8 + 2 * t + 1]);
      const uint b0 = word(b[2 * t * 8 + group], b[(2 * t + 1) * 8 + group]);
      float c[4] = {{0, 0, 0, 0}};
      asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.{ptx}.{ptx}.f32 {{%0,%1,%2,%3}}, "
                   "{{%4,%5}}, {{%6}}, {{%0,%1,%2,%3}};"
                   : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                   : "r"(a0), "r"(a1), "r"(b0));
      for (int i = 0; i < 4; ++i) y[(group + i / 2 * 8) * 8 + 2 * t + i % 2] = c[i];
    """
    (y,) = run(source, {"a": a, "b": b}, {"y": ((16, 8), mx.float32)})
    want = a.astype(dtype).astype(mx.float32) @ b.astype(dtype).astype(mx.float32)
    np.testing.assert_allclose(np.array(y), np.array(want), rtol=1e-5, atol=1e-5)


def test_mistakes_have_their_own_kinds():
    with pytest.raises(CompileError, match="line "):
        run("y[0] = no_such_word;", {"x": np.zeros(8, np.float32)}, {"y": ((1,), mx.float32)}, 1)
    with pytest.raises(MetalError, match="divergent barrier"):
        source = "if (threadIdx.y < 3) __syncthreads(); y[threadIdx.y] = 1;"
        run(source, {"x": np.zeros(8, np.float32)}, {"y": ((32,), mx.float32)})
