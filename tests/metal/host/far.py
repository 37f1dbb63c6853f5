"""Launches whose arrays are larger than this machine's memory.

Indices beyond 2^31 and 2^32 are then real. The memory is mapped without reserve, only the ends of
arrays hold numbers, and only the last groups of the grid run.
"""

from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from .compiler import version_of
from .entry import entry
from .host import CudaHost, MetalError, MetalHost, _explain, toolchain
from .symbols import with_lines
from .worker import Crash, Worker


class Far:
    """An array of `rows` rows of which only the last ones, `tail`, are not zero."""

    def __init__(self, rows, tail):
        self.tail = np.ascontiguousarray(tail)
        self.shape = (rows, *self.tail.shape[1:])
        self.itemsize, self.dtype = self.tail.itemsize, self.tail.dtype
        self.nbytes = rows * (self.tail.nbytes // len(self.tail))


@dataclass
class Recorded:
    """A kernel as the library launches it."""

    backend: str
    name: str
    text: str
    more: str | None  # of CUDA: the function that calls the kernel, and the names of its buffers
    names: list | None
    threadgroup: tuple  # threads of a group along three axes


class Recorder(MetalHost):
    """Keeps what the library launches, and computes nothing."""

    def __init__(self, **options):
        super().__init__(**options)
        self.recorded = []

    def run(self, launch, _inputs):
        what = (launch.name, launch.text, None, None, tuple(launch.threadgroup))
        self.recorded.append(Recorded("metal", *what))
        return [mx.zeros(shape, dtype) for shape, dtype in launch.outputs]


class CudaRecorder(CudaHost, Recorder):
    """The same for CUDA; `launch`, the last input, holds the threads of a group."""

    def run(self, launch, inputs):
        what = (*self._kernel(launch, inputs), tuple(inputs[-1].tolist()[3:]))
        self.recorded.append(Recorded("cuda", *what))
        return [mx.zeros(shape, dtype) for shape, dtype in launch.outputs]


def record(call, kernel, tier=None, backend="metal"):
    """The first launch of `call` whose name holds `kernel`."""
    with (CudaRecorder if backend == "cuda" else Recorder)(tier=tier) as host:
        mx.eval(call())
    return next(launch for launch in host.recorded if kernel in launch.name)


def _on_cuda(launch, arrays, grid):
    """Grid, group and arrays as gpu_call makes them: groups along x, shapes of ten numbers."""
    size = launch.threadgroup
    groups = np.prod([-(-n // k) for n, k in zip(grid, size, strict=True)])
    made = {
        name: np.pad(array, (0, 10 - len(array))) if name.endswith("_shape") else array
        for name, array in arrays.items()
    }
    made["launch"] = np.array([*grid, *size], np.int32)
    threads = int(np.prod(size))
    return (int(groups), threads, 1), (1, threads, 1), made


def run_far(launch, arrays, grid, last, variant="fast", change=None, layout=1):
    """Runs the last groups of `launch` on a larger grid.

    Every buffer of the kernel has an entry in `arrays` by its name: a Far or a NumPy array. The
    last array is the result; its tail is returned.
    """
    text = change(launch.text) if change else launch.text
    result, group = list(arrays)[-1], launch.threadgroup
    more, names = launch.more, launch.names
    if launch.backend == "cuda":
        grid, group, arrays = _on_cuda(launch, arrays, grid)
    else:
        more, names = entry(launch.name, text)
    tools = toolchain(variant, version_of(text), launch.backend)
    file, names, threadgroup = tools.compile(launch.name, text, more, names)
    buffers = [(name, arrays[name], name == result, True) for name in names]
    worker = Worker(toolchain(variant).worker)
    try:
        outputs, mistakes, _ = worker.run(
            file, grid, group, buffers, threadgroup, 60, layout=layout, last=last
        )
    except Crash as crash:
        raise MetalError(_explain(launch.name, str(crash).splitlines(), text)) from None
    finally:
        worker.close()
    if mistakes:
        raise MetalError(_explain(launch.name, with_lines(file, mistakes), text))
    return outputs[0]
