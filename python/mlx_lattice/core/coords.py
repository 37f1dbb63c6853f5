"""Coordinate sets, the operations on them, and what those return."""

from .._ext import (
    CoordinateOrdering,
    CoordinateSet,
    OccupancyExpansion,
    SparseAlignment,
    SparseOccupancy,
)
from ..ops.coords import (  # noqa: F401
    build_sparse_alignment,
    child_coords_from_indices,
    contains_coords,
    difference_coords,
    downsample_coords,
    hilbert_order,
    intersection_coords,
    inverse_map,
    lookup_coords,
    morton_codes,
    morton_order,
    morton_sort_coords,
    occupancy_downsample,
    occupancy_expand,
    union_coords,
)

# The functions are shown here for the older package; they are those of `ops`.
__all__ = [
    "CoordinateOrdering",
    "CoordinateSet",
    "OccupancyExpansion",
    "SparseAlignment",
    "SparseOccupancy",
]
