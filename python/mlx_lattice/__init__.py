"""Sparse tensors and point clouds on MLX."""

from __future__ import annotations

import sys as _sys
from typing import Any

from ._build import VERSION as __version__
from ._load import load_extension

_ext = load_extension()
_ext.backend_info()  # a wrong LATTICE_SIMD is an error here, not inside the first operation

from . import _boundary  # noqa: E402

_boundary.install(_ext)

from . import (  # noqa: E402
    _error_names,
    _help,
    core,
    models,
    nn,
    ops,
    points,
    samples,
)
from . import notebook as _notebook  # noqa: E402
from ._explain import explain, selftest  # noqa: E402
from ._ext import backend_info, routes  # noqa: E402
from .core import QuantizedWeight, SparseTensor, SparseTensorComponents  # noqa: E402
from .devices import async_eval, on, supported_on  # noqa: E402
from .ops import dequantize_weight, quantize_weight  # noqa: E402

_notebook.install(core)

__all__ = [
    "QuantizedWeight",
    "SparseTensor",
    "SparseTensorComponents",
    "__version__",
    "async_eval",
    "backend_info",
    "core",
    "dequantize_weight",
    "explain",
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

for _prefix, _package in (
    ("ml", _sys.modules[__name__]),
    ("core", core),
    ("ops", ops),
    ("nn", nn),
    ("points", points),
    ("models", models),
):
    _error_names.guard(vars(_package))
    _help.install(_package, _prefix)
for _package in (models.convert, samples):  # their help is written where they stand
    _error_names.guard(vars(_package))

# Loaded at first use: the package itself needs only MLX.
_WITH_NUMPY = ("datasets", "io", "training", "transforms", "viewer")


def __getattr__(name: str) -> Any:
    if name in _WITH_NUMPY:
        import importlib

        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
