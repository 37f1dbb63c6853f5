"""Coordinate sets, the operations on them, and what those return."""

import mlx.core as mx

from .. import _ext
from .._ext import (  # noqa: F401
    CoordinateOrdering,
    CoordinateSet,
    OccupancyExpansion,
    SparseAlignment,
    SparseOccupancy,
    build_sparse_alignment,
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

# The other names are those of the older package; they are the same objects as elsewhere.
__all__ = [
    "CoordinateOrdering",
    "CoordinateSet",
    "OccupancyExpansion",
    "SparseAlignment",
    "SparseOccupancy",
]


def child_coords_from_indices(
    coords: mx.array,
    parent_rows: mx.array,
    child_indices: mx.array | None = None,
    *,
    stream: mx.Stream | mx.Device | None = None,
) -> mx.array:
    """Child child_indices[m], 0..7, of parent row parent_rows[m].

    With two arguments, child_coords_from_indices(parents, indices): row m is child indices[m] of
    parents[m].
    """
    if child_indices is None:
        if not isinstance(coords, (mx.array, CoordinateSet)):
            raise TypeError(
                "[child_coords_from_indices] coords must be an array (N, 4), "
                f"found a {type(coords).__name__}"
            )
        n = coords.shape[0]
        return _ext.child_coords_from_indices(
            coords, mx.arange(n, dtype=mx.int32), parent_rows, stream=stream
        )
    return _ext.child_coords_from_indices(coords, parent_rows, child_indices, stream=stream)
