"""Types that many signatures share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import mlx.core as mx

from ._ext import CoordinateMapKey, CoordinateSet, SparseTensor

if TYPE_CHECKING:
    import numpy as np

# The same kind comes back: a sparse tensor, or an array of rows (N, C).
Rows = TypeVar("Rows", mx.array, SparseTensor)
# What becomes an array at the edge: of MLX, of NumPy, or nested lists of numbers.
ArrayLike: TypeAlias = "mx.array | np.ndarray | list[Any] | tuple[Any, ...]"
# One integer, or one per axis (x, y, z).
Triple: TypeAlias = "int | tuple[int, int, int]"
# Output coordinates: of a tensor, of a key, or rows (N, 4).
Target: TypeAlias = SparseTensor | CoordinateMapKey | CoordinateSet | mx.array
