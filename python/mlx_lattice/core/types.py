"""Types that many signatures share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import mlx.core as mx

from .._ext import (
    CoordinateMapKey,
    CoordinateSet,
    KernelSpec,
    PackedKernel,
    QuantizedWeight,
    SparseTensor,
)

if TYPE_CHECKING:
    import os

    import numpy as np

# The function returns the kind that it gets: a sparse tensor, or an array of rows (N, C).
Rows = TypeVar("Rows", mx.array, SparseTensor)
# What functions accept as an array: of MLX, of NumPy, coordinates, or nested lists of numbers.
ArrayLike: TypeAlias = "mx.array | np.ndarray | CoordinateSet | list[Any] | tuple[Any, ...]"
# One integer, or one per axis (x, y, z).
Triple: TypeAlias = "int | tuple[int, int, int]"
# One number, or one per axis (x, y, z).
Numbers: TypeAlias = "float | tuple[float, float, float]"
# The corners of a box of cells: the first cell, and the one after the last.
Bounds: TypeAlias = "tuple[Triple, Triple]"
# The size of a kernel, or all of its numbers.
Kernel: TypeAlias = "int | tuple[int, int, int] | KernelSpec"
# A dense weight, a weight packed for the CPU, or codes of 4 or 8 bits.
Weight: TypeAlias = "ArrayLike | PackedKernel | QuantizedWeight"
# Output coordinates: of a tensor, of a key, or rows (N, 4).
Target: TypeAlias = "SparseTensor | CoordinateMapKey | ArrayLike"
# The name of a file.
FilePath: TypeAlias = "str | os.PathLike[str]"
# Where an operation runs; None is the default of MLX.
StreamOrDevice: TypeAlias = "mx.Stream | mx.Device | None"
