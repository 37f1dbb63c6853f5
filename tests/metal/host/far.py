"""Launches whose arrays are larger than this machine's memory.

Indices beyond 2^31 and 2^32 are then real. The memory is mapped without reserve, only the ends of
arrays hold numbers, and only the last groups of the grid run.
"""

import mlx.core as mx
import numpy as np

from .compiler import version_of
from .host import MetalError, MetalHost, _explain, toolchain
from .symbols import with_lines
from .worker import Crash, Worker


class Far:
    """An array of `rows` rows of which only the last ones, `tail`, are not zero."""

    def __init__(self, rows, tail):
        self.tail = np.ascontiguousarray(tail)
        self.shape = (rows, *self.tail.shape[1:])
        self.itemsize, self.dtype = self.tail.itemsize, self.tail.dtype
        self.nbytes = rows * (self.tail.nbytes // len(self.tail))


class Recorder(MetalHost):
    """Keeps what the library launches, and computes nothing."""

    def __init__(self, **options):
        super().__init__(**options)
        self.recorded = []

    def run(self, launch, inputs):
        self.recorded.append(launch)
        return [mx.zeros(shape, dtype) for shape, dtype in launch.outputs]


def record(call, kernel, tier=None):
    """The first launch of `call` whose name holds `kernel`."""
    with Recorder(tier=tier) as host:
        mx.eval(call())
    return next(launch for launch in host.recorded if kernel in launch.name)


def run_far(launch, arrays, grid, last, variant="fast", change=None, layout=1):
    """Runs the last groups of `launch` on a larger grid.

    Every buffer of the kernel has an entry in `arrays` by its name: a Far or a NumPy array. The
    last array is the result; its tail is returned.
    """
    text = change(launch.text) if change else launch.text
    file, names, threadgroup = toolchain(variant, version_of(text)).compile(launch.name, text)
    result = list(arrays)[-1]
    buffers = [(name, arrays[name], name == result, True) for name in names]
    worker = Worker(toolchain(variant).worker)
    try:
        outputs, mistakes, _ = worker.run(
            file, grid, launch.threadgroup, buffers, threadgroup, 60, layout=layout, last=last
        )
    except Crash as crash:
        raise MetalError(_explain(launch.name, str(crash).splitlines(), text)) from None
    finally:
        worker.close()
    if mistakes:
        raise MetalError(_explain(launch.name, with_lines(file, mistakes), text))
    return outputs[0]
