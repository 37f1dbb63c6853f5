"""Coordinate sets by value: set operations, look-up, joins, curve orders, occupancy."""

from ..core.coords import (
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

__all__ = [
    "build_sparse_alignment",
    "child_coords_from_indices",
    "contains_coords",
    "difference_coords",
    "downsample_coords",
    "hilbert_order",
    "intersection_coords",
    "inverse_map",
    "lookup_coords",
    "morton_codes",
    "morton_order",
    "morton_sort_coords",
    "occupancy_downsample",
    "occupancy_expand",
    "union_coords",
]
