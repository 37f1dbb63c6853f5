"""The host itself: kernels that say one thing each, against NumPy."""

import mlx.core as mx
import numpy as np
import pytest
from metal.host import MetalHost
from metal.host.capture import run

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
    (y,) = run(source, {"x": x}, {"y": ((200,), mx.float32)}, 200, host=MetalHost(variant, order, seed=3))
    groups = [np.array(x)[i : i + 64][::-1] for i in range(0, 200, 64)]
    np.testing.assert_array_equal(np.array(y), np.concatenate(groups))
