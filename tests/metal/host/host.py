"""MetalHost: takes what MLX would launch, runs it, tells what is wrong with it."""

import functools
import random
import time
from dataclasses import dataclass, field

import mlx.core as mx
import numpy as np

from .compiler import Toolchain, quote_line, version_of
from .cuda_compiler import CudaToolchain
from .cuda_text import entry as cuda_entry
from .cuda_text import kernel_name, parameters, text_of
from .entry import entry
from .launch import standing_in
from .symbols import with_lines
from .worker import Crash, Worker


class MetalError(Exception):
    """A mistake in a kernel. The text begins with its kind and names the line."""


@dataclass
class Ran:
    """One launch: kernel, threads, seconds to compile and to run, bytes of threadgroup memory."""

    name: str
    grid: tuple
    threadgroup: tuple
    compile_seconds: float
    run_seconds: float
    threadgroup_bytes: int
    outputs: list  # their shapes
    text: str = field(repr=False)
    # The check variant counts all accesses of device memory, each element of it once, and all
    # accesses of threadgroup memory.
    device_bytes: int = 0
    touched_bytes: int = 0
    accessed_threadgroup_bytes: int = 0
    matrix_flop: int = 0


@functools.cache
def toolchain(variant, version=310, backend="metal"):
    return (CudaToolchain if backend == "cuda" else Toolchain)(variant, version)


@functools.cache
def worker(variant):
    return Worker(toolchain(variant).worker)


class MetalHost:
    """Stands in for the GPU while it lasts.

    The variant "fast" only runs the kernels, and "contract" also fuses products with sums. The
    variant "check" watches every access, and "asan" runs under AddressSanitizer and UBSan. Threads
    and groups run in the order "forward", "reverse" or "random" (by seed). Of every `fails` weak
    compare-exchanges one fails without a reason, as the language allows. The tier is what the
    machine answers when it is asked for the tensor API; None means "gpu". The layout says which
    lane of a simdgroup holds which element of a matrix. Layout 0 is the one that MLX's kernels rely
    on; with None every run has another one. With `probe` a small case runs before a kernel is first
    used. With `tf32` MLX's own products round float32 to TF32.
    """

    backend = "metal"

    def __init__(
        self,
        variant="fast",
        order="forward",
        seed=0,
        fails=5,
        timeout=60,
        change=None,
        tier=None,
        layout=None,
        probe=False,
        tf32=False,
    ):
        self.variant, self.order, self.seed, self.fails, self.timeout = (
            variant,
            order,
            seed,
            fails,
            timeout,
        )
        self.change = change  # text -> text: plants a mistake
        self.tier, self.probe, self.tf32 = tier, probe, tf32
        self.layout = random.randrange(1, 1 << 31) if layout is None else layout
        self.launches = []

    def __enter__(self):
        self.block = standing_in(self.run, self.backend, self.tier, self.probe, self.tf32)
        self.block.__enter__()
        return self

    def __exit__(self, *raised):
        return self.block.__exit__(*raised)

    def _kernel(self, launch, inputs):
        """Name and text of the kernel, a function that calls it, names of its buffers."""
        text = self.change(launch.text) if self.change else launch.text
        return launch.name, text, *entry(launch.name, text)

    def run(self, launch, inputs):
        start = time.perf_counter()
        name, text, more, names = self._kernel(launch, inputs)
        tools = toolchain(self.variant, version_of(text), self.backend)
        file, names, threadgroup = tools.compile(name, text, more, names)
        compiled = time.perf_counter()
        buffers = [*self._inputs(launch, inputs), *_outputs(launch)]
        buffers = [(name, *rest) for name, rest in zip(names, buffers, strict=True)]
        how = {"order": self.order, "seed": self.seed, "fails": self.fails, "layout": self.layout}
        try:
            outputs, mistakes, counts = worker(self.variant).run(
                file, launch.grid, launch.threadgroup, buffers, threadgroup, self.timeout, **how
            )
        except Crash as crash:
            raise MetalError(_explain(launch.name, str(crash).splitlines(), text)) from None
        if mistakes:
            raise MetalError(_explain(launch.name, with_lines(file, mistakes), text))
        seconds = (compiled - start, time.perf_counter() - compiled)
        size = sum(-(-n // 16) * 16 for _, _, n in threadgroup)
        shapes = [tuple(shape) for shape, _ in launch.outputs]
        self.launches.append(
            Ran(
                launch.name,
                tuple(launch.grid),
                tuple(launch.threadgroup),
                *seconds,
                size,
                shapes,
                text,
                *counts,
            )
        )
        return [_array(out, dtype) for out, (_, dtype) in zip(outputs, launch.outputs, strict=True)]

    def _inputs(self, launch, inputs):
        """Values, whether they are written, whether they are there: arrays, then their shapes."""
        for array, (shape, strides, ndim) in zip(inputs, launch.shape_info, strict=True):
            view = _bytes(array)
            steps = [n // view.itemsize for n in view.strides]
            # As it lies in memory: MLX hands a view over without a copy.
            yield view.transpose(sorted(range(view.ndim), key=lambda a: -steps[a])), False, True
            if array.ndim == 0:
                continue
            if shape:
                yield self._axes(array.shape, np.int32), False, True
            if strides:
                yield self._axes(steps, np.int64), False, True
            if ndim:
                yield np.array([array.ndim], np.int32), False, True

    def _axes(self, numbers, dtype):
        return np.array(numbers, dtype)


class CudaHost(MetalHost):
    """The same for the text of CUDA."""

    backend = "cuda"

    def _kernel(self, launch, inputs):
        text = text_of(launch, inputs)
        text = self.change(text) if self.change else text
        names = [name for _, name in parameters(launch, inputs)]
        return kernel_name(launch), text, cuda_entry(launch, inputs), names

    def _axes(self, numbers, dtype):
        """Ten numbers, of which an array has its own."""
        return np.array([*numbers, *[-1] * (10 - len(numbers))], dtype)


def _bytes(array):
    return np.array(array.view(mx.uint16) if array.dtype == mx.bfloat16 else array, copy=False)


def _outputs(launch):
    for shape, dtype in launch.outputs:
        value = mx.full(shape, launch.init_value or 0).astype(dtype)  # full ignores its dtype
        yield _bytes(value), True, launch.init_value is not None


def _array(values, dtype):
    return mx.array(values).view(dtype) if dtype == mx.bfloat16 else mx.array(values)


def _explain(name, mistakes, text):
    """The mistakes with their lines.

    Of a sanitizer's report the line that says what it is comes first.
    """
    lines = text.splitlines()
    kind = next((m for m in mistakes if "ERROR: " in m or "runtime error: " in m), mistakes[0])
    rest = [m for m in mistakes if m is not kind]
    return "\n".join(
        [quote_line(kind, lines), f"  in kernel {name}", *(quote_line(m, lines) for m in rest[:12])]
    )
