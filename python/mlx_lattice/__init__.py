"""Sparse tensors and point clouds on MLX."""

from ._build import VERSION as __version__
from ._load import load_extension

_ext = load_extension()

from . import core, ops  # noqa: E402
from ._ext import backend_info  # noqa: E402
from .core import SparseTensor, SparseTensorComponents  # noqa: E402

__all__ = ["SparseTensor", "SparseTensorComponents", "__version__", "backend_info", "core", "ops"]
