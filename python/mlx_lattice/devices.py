"""Devices: what there is, a scope for the default device, threads, and work started early."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import mlx.core as mx

from . import _ext
from ._ext import start_on_gpu

_thread = threading.local()  # planning: whether nothing may start
Lazy = TypeVar("Lazy")  # anything that holds arrays


def backend_info() -> dict[str, Any]:
    """What this build can do on this machine, by name.

    version, mlx (built for, running), capabilities (cpu, metal, cuda), simd (the instruction set
    that runs), threads, tensor_ops (unavailable, gpu or neural_accelerator), the checks that Metal
    and CUDA passed, launches (kernels of a GPU that this process launched) and starts (evaluations
    that the library started without waiting for them).

    >>> import mlx_lattice as ml
    >>> info = ml.backend_info()
    >>> info["version"] == ml.__version__, info["capabilities"]["cpu"]
    (True, True)
    """
    return _ext.backend_info()


def thread_count() -> int:
    """Threads that one operation may use."""
    return _ext.thread_count()


def set_thread_count(n: int) -> None:
    """Sets how many threads one operation may use; results do not depend on it.

    ValueError for n < 1.
    """
    _ext.set_thread_count(n)


@contextlib.contextmanager
def on(device: mx.Device | mx.DeviceType) -> Iterator[None]:
    """Makes `device` the default inside a `with` block; the old default always comes back."""
    before = mx.default_device()
    mx.set_default_device(device)
    try:
        yield
    finally:
        mx.set_default_device(before)


def keep_memory(limit: int = 4 << 30) -> None:
    """Lets MLX keep up to `limit` bytes of freed memory for reuse; a larger limit stays.

    On the CPU, MLX keeps 32 MB by default. A network then gets fresh pages from the system in every
    layer, which costs 7 % of an inference of MinkUNet-18 and more in training. Call this once when
    a program starts. The trainer and the command line do.
    """
    before = mx.set_cache_limit(limit)
    if before > limit:
        mx.set_cache_limit(before)


def clear_cache() -> None:
    """Returns the memory that MLX and the kernels keep for reuse to the system.

    Arrays keep what they hold. `mx.clear_cache()` gives back the memory of results; this also gives
    back the working memory of kernels, which the next operation takes anew, and the relations of
    dense maps, which `ops.from_map` shares between calls.

    Examples:
        >>> import mlx_lattice as ml
        >>> ml.clear_cache()
    """
    _ext.release_memory()


def arrays_of(value: object) -> list[mx.array]:
    """The arrays that a value holds: of tensors, lists and dicts."""
    if isinstance(value, mx.array):
        return [value]
    if hasattr(value, "feats"):
        return [value.feats]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [a for v in value for a in arrays_of(v)]
    return []


def async_eval(x: Lazy) -> Lazy:
    """Starts to compute the features of `x` on the GPU while the program continues; returns `x`.

    Geometry is made at once, on the CPU. A network that calls this after each level lets the CPU
    build the relations of the next level while the GPU computes this one. Where the default device
    is the CPU the call does nothing, because kernels and geometry share the same threads. Inside
    `mx.compile` and `mx.vmap`, where there are no values yet, the call does nothing either. The
    same holds inside a gradient, and while a network is planned.
    """
    if not getattr(_thread, "planning", False):
        start_on_gpu(arrays_of(x))
    return x


@contextlib.contextmanager
def planning() -> Iterator[None]:
    """A network that is called in this context, in this thread, starts nothing on the GPU."""
    before = getattr(_thread, "planning", False)
    _thread.planning = True
    try:
        yield
    finally:
        _thread.planning = before


def supported_on(
    device: mx.Device | mx.DeviceType, fn: Callable[..., object], *args: object, **kwargs: object
) -> bool:
    """Whether `fn(*args, **kwargs)` runs on `device`.

    `fn` is called, and its result is evaluated. Any exception means that it does not run there.

    >>> import mlx.core as mx
    >>> import mlx_lattice as ml
    >>> ml.supported_on(mx.cpu, ml.ops.relu, ml.samples.tensor())
    True
    """
    try:
        with on(mx.Device(device) if isinstance(device, mx.DeviceType) else device):
            mx.eval(*arrays_of(fn(*args, **kwargs)))
    except Exception:  # whatever the exception was, the call did not run
        return False
    return True
