"""How `bench` measures: the best of several runs, and the rate of a dense product in one run."""

from __future__ import annotations

import time
from typing import Any


def best(repeat: Any, work: Any) -> tuple[Any, ...]:
    """CPU seconds of all threads and elapsed seconds, the best of each."""
    cpu, wall = [], []
    for _ in range(repeat + 1):  # the first run warms up
        c, w = time.process_time(), time.perf_counter()
        work()
        cpu.append(time.process_time() - c)
        wall.append(time.perf_counter() - w)
    return min(cpu[1:]), min(wall[1:])


def gemm_rate(repeat: Any) -> Any:
    """GFLOP/s of a large square float32 product of NumPy's BLAS, by CPU time of all its threads."""
    import numpy as np

    n = 2048
    a = np.ones((n, n), np.float32)
    return 2 * n**3 / best(repeat, lambda: a @ a)[0] * 1e-9
