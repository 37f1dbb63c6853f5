"""The host itself: kernels that say one thing each, against NumPy."""

import re
import uuid
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from metal.host import MetalError, MetalHost
from metal.host.capture import run
from metal.host.compiler import Toolchain

HERE = Path(__file__).parent
pytestmark = pytest.mark.usefixtures("needs_host")


@pytest.mark.parametrize("variant", ["fast", "check", "asan"])
@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
def test_threads_exchange_through_threadgroup_memory(variant, order):
    x = mx.random.normal((200,))
    source = """
        threadgroup float seen[64];
        const uint i = thread_index_in_threadgroup;
        const uint n = threads_per_threadgroup.x;
        seen[i] = x[thread_position_in_grid.x];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        y[thread_position_in_grid.x] = seen[n - 1 - i];
    """
    (y,) = run(
        source, {"x": x}, {"y": ((200,), mx.float32)}, 200, host=MetalHost(variant, order, seed=3)
    )
    groups = [np.array(x)[i : i + 64][::-1] for i in range(0, 200, 64)]
    np.testing.assert_array_equal(np.array(y), np.concatenate(groups))


def test_places_of_threads_in_three_dimensions():
    """The last groups of an axis are smaller.

    A group larger than the grid shrinks to it, as in MLX.
    """
    grid, group = (7, 5, 3), (4, 2, 8)
    source = """
        const uint3 p = thread_position_in_grid;
        const uint i = p.x + 7 * (p.y + 5 * p.z);
        out[8 * i] = thread_position_in_threadgroup.x + 10 * threadgroup_position_in_grid.x;
        out[8 * i + 1] = thread_position_in_threadgroup.y + 10 * threadgroup_position_in_grid.y;
        out[8 * i + 2] = thread_position_in_threadgroup.z + 10 * threadgroup_position_in_grid.z;
        const uint3 size = threads_per_threadgroup, groups = threadgroups_per_grid;
        out[8 * i + 3] = size.x * 100 + size.y * 10 + size.z;
        out[8 * i + 4] = groups.x * 100 + groups.y * 10 + groups.z;
        out[8 * i + 5] = thread_index_in_threadgroup;
        out[8 * i + 6] = simdgroup_index_in_threadgroup * 100 + thread_index_in_simdgroup;
        out[8 * i + 7] = threads_per_grid.x * 100 + threads_per_grid.y * 10 + threads_per_grid.z;
    """
    (out,) = run(
        source,
        {"x": mx.zeros(8)},
        {"out": ((105, 8), mx.uint32)},
        grid,
        group,
        host=MetalHost("check"),
    )
    z, y, x = (a.reshape(-1) for a in np.meshgrid(range(3), range(5), range(7), indexing="ij"))
    size = np.stack(
        [np.minimum(4, 7 - x // 4 * 4), np.minimum(2, 5 - y // 2 * 2), np.full(105, 3)], 1
    )
    index = x % 4 + size[:, 0] * (y % 2 + size[:, 1] * z)
    rows = [x % 4 + x // 4 * 10, y % 2 + y // 2 * 10, z, size @ [100, 10, 1], 0 * x + 231, index]
    np.testing.assert_array_equal(
        np.array(out).T, [*rows, index // 32 * 100 + index % 32, 0 * x + 753]
    )


def test_small_arrays_are_constant_and_shapes_are_arguments():
    """Fewer than 8 elements come in the address space `constant`, a scalar as a reference."""
    source = """
        const constant float* few_numbers = few;
        const device float* many_numbers = many;
        out[0] = few_numbers[6] + one + many_numbers[3];
        out[1] = many_shape[0] * 100 + many_shape[1] * 10 + many_ndim;
        out[2] = many_strides[0] * 10 + many_strides[1];
    """
    inputs = {
        "few": mx.arange(7).astype(mx.float32),
        "one": mx.array(0.5),
        "many": mx.arange(8.0).reshape(2, 4),
    }
    (out,) = run(source, inputs, {"out": ((3,), mx.float32)}, 1)
    assert out.tolist() == [6 + 0.5 + 3, 242, 41]


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16, mx.int32])
def test_outputs_start_with_the_initial_value(dtype):
    source = "if (thread_position_in_grid.x == 2) out[2] = x[2];"
    x = mx.full((9,), 7, dtype)
    (out,) = run(
        source, {"x": x}, {"out": ((9,), dtype)}, 9, init_value=-1, host=MetalHost("check")
    )
    assert out.dtype == dtype
    assert out.astype(mx.float32).tolist() == [-1, -1, 7, *[-1] * 6]


def test_memory_of_a_new_group_is_not_that_of_the_last():
    source = """
        threadgroup float t[32];
        out[thread_position_in_grid.x] = isnan(t[thread_index_in_threadgroup]) ? 1.0f : 0.0f;
        t[thread_index_in_threadgroup] = 5.0f;
    """
    (out,) = run(source, {"x": mx.zeros(8)}, {"out": ((64,), mx.float32)}, 64, 32)
    assert out.tolist() == [1.0] * 64


def test_the_same_text_is_compiled_once(monkeypatch):
    compiled = []
    original = Toolchain._compile
    monkeypatch.setattr(Toolchain, "_compile", lambda *all: [compiled.append(all), original(*all)])
    host = MetalHost()
    x = mx.random.normal((100,))
    source = (
        f"out[thread_position_in_grid.x] = 3 * x[thread_position_in_grid.x];  // {uuid.uuid4()}"
    )
    for _ in range(4):
        run(source, {"x": x}, {"out": ((100,), mx.float32)}, 100, host=host)
    assert [ran.grid for ran in host.launches] == [(100, 1, 1)] * 4
    assert len(compiled) == 1


def test_accesses_are_counted():
    source = """
        threadgroup float t[64];
        const uint i = thread_position_in_grid.x;
        t[i] = x[i / 2];
        simdgroup_float8x8 a = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);
        simdgroup_multiply_accumulate(a, a, a, a);
        out[i] = half(t[i] + a.thread_elements()[0]);
    """
    host = MetalHost("check")
    run(source, {"x": mx.zeros(100)}, {"out": ((64,), mx.float16)}, 64, host=host)
    (ran,) = host.launches
    assert (ran.device_bytes, ran.touched_bytes) == (64 * 4 + 64 * 2, 32 * 4 + 64 * 2)
    assert (ran.accessed_threadgroup_bytes, ran.threadgroup_bytes) == (2 * 64 * 4, 256)
    assert ran.matrix_flop == 2 * 1024  # of two simdgroups


def test_a_kernel_that_does_not_end_is_stopped():
    source = """
        device atomic_uint* at = (device atomic_uint*)out;
        while (atomic_load_explicit(at, memory_order_relaxed) == 0) {}
    """
    with pytest.raises(MetalError, match="no end after 1 s"):
        run(
            source,
            {"x": mx.zeros(8)},
            {"out": ((1,), mx.uint32)},
            1,
            init_value=0,
            host=MetalHost(timeout=1),
        )
    (out,) = run("out[0] = 5;", {"x": mx.zeros(8)}, {"out": ((1,), mx.uint32)}, 1)
    assert out.item() == 5  # the host goes on


def shim_functions():
    """Names of all functions in the shim that a kernel can call."""
    text = "".join(
        p.read_text() for p in (HERE / "host/shim").glob("*.h") if p.name != "builtins.h"
    )
    text = re.sub(r"namespace shim \{.*?\n\}  // namespace shim", "", text, flags=re.DOTALL)
    names = set(
        re.findall(
            r"^MSL_(?:MATH2?|TEST|EACH|REDUCE|SCAN|SHUFFLE|FILL|QUAD)\((?:MSL_\w+, )?(\w+),",
            text,
            re.MULTILINE,
        )
    )
    names |= {
        f"atomic_fetch_{n}_explicit" for n in re.findall(r"MSL_FETCH\(space, (\w+),", text)
    } - {"atomic_fetch_name_explicit"}
    names |= set(re.findall(r"\b(atomic_\w+_explicit)\b", text)) | set(
        re.findall(r"(simdgroup_\w+)\(", text)
    )
    names |= set(
        re.findall(
            r"(?:METAL_FUNC|MSL_GEOMETRY|MSL_LANES) (?:constexpr )?[\w:<>, ]+? (\w+)\(", text
        )
    )
    return sorted(names - {"name", "operator", "msl_make", "__attribute__"})


def test_every_function_of_the_shim_is_tested():
    tests = "".join(p.read_text() for p in HERE.glob("test_shim_*.py"))
    tests += " ".join(f"atomic_fetch_{name}_explicit" for name in re.findall(r'"(\w+)": ', tests))
    assert len(shim_functions()) > 120
    assert [name for name in shim_functions() if not re.search(rf"\b{name}\b", tests)] == []
