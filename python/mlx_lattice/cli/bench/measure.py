"""The measurements of `bench`: the best of several runs, compared with a dense product."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import mlx.core as mx
import numpy as np

from ...core import set_thread_count, thread_count
from ...samples.streets import sweep
from ...training.progress import progress


def best(repeat: int, work: Callable[[], object], quiet: bool = False) -> tuple[float, float]:
    """CPU seconds of all threads and elapsed seconds, the best of each.

    quiet: without a line of progress.
    """
    cpu, wall = [], []
    runs = range(repeat + 1)  # the first one warms up
    for _ in runs if quiet else progress(runs, "measuring", unit="runs"):
        c, w = time.process_time(), time.perf_counter()
        work()
        cpu.append(time.process_time() - c)
        wall.append(time.perf_counter() - w)
    return min(cpu[1:]), min(wall[1:])


def gemm_rate(repeat: int) -> float:
    """GFLOP/s of a large square float32 product of NumPy's BLAS, by CPU time of all its threads."""
    n = 2048
    a = np.ones((n, n), np.float32)
    return 2 * n**3 / best(repeat, lambda: a @ a)[0] * 1e-9


def sweep_coords(voxel: float) -> mx.array:
    """Voxels (N, 4) of a LiDAR-like sweep, in random order."""
    cells = np.unique(np.floor(sweep(1) / voxel).astype(np.int32), axis=0)
    np.random.default_rng(0).shuffle(cells)
    return mx.array(np.concatenate([np.zeros((len(cells), 1), np.int32), cells], 1))


@contextmanager
def threads_restored() -> Iterator[None]:
    """Sets the number of threads back when the block ends."""
    before = thread_count()
    try:
        yield
    finally:
        set_thread_count(before)
