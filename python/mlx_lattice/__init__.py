"""Sparse tensors and point clouds on MLX.

core      sparse tensors, coordinates, relations
ops       operations, as functions
nn        layers, as modules of mlx.nn
models    networks
points    point clouds without voxels
samples   small made-up data
programs  networks as files that C++ and C run

datasets, encoders, io, training, transforms and viewer need NumPy and are loaded when they are
used.
"""

from __future__ import annotations

from types import ModuleType as _ModuleType

from ._build import VERSION as __version__
from ._load import load_or_explain as _load_or_explain

_ext: _ModuleType = _load_or_explain()
_ext.backend_info()  # a wrong LATTICE_SIMD is an error here, not inside the first operation

from . import core, models, nn, ops, points, samples  # noqa: E402
from ._explain import explain, routes, selftest  # noqa: E402
from .core import QuantizedWeight, SparseTensor, SparseTensorComponents  # noqa: E402
from .devices import async_eval, backend_info, clear_cache, on, supported_on  # noqa: E402
from .ops import dequantize_weight, quantize_weight  # noqa: E402
from .programs import Program, export  # noqa: E402

__all__ = [
    "Program",
    "QuantizedWeight",
    "SparseTensor",
    "SparseTensorComponents",
    "__version__",
    "async_eval",
    "backend_info",
    "clear_cache",
    "core",
    "dequantize_weight",
    "explain",
    "export",
    "models",
    "nn",
    "on",
    "ops",
    "points",
    "quantize_weight",
    "routes",
    "samples",
    "selftest",
    "supported_on",
]

_WITH_NUMPY = ("datasets", "encoders", "io", "training", "transforms", "viewer")


def __getattr__(name: str) -> _ModuleType:
    if name in _WITH_NUMPY:
        import importlib

        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
