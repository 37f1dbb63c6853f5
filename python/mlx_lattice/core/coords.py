"""Coordinate sets and what operations on them return."""

from .._ext import (
    CoordinateOrdering,
    CoordinateSet,
    OccupancyExpansion,
    SparseAlignment,
    SparseOccupancy,
)

__all__ = [
    "CoordinateOrdering",
    "CoordinateSet",
    "OccupancyExpansion",
    "SparseAlignment",
    "SparseOccupancy",
]
