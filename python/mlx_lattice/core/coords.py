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
    union_coords,
)
from ._older_names import active, with_active_rows

occupancy_downsample = with_active_rows(_ext.occupancy_downsample)

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
        if not isinstance(coords, (mx.array, CoordinateSet)) or not coords.shape:
            raise TypeError(
                "[child_coords_from_indices] coords must be an array (N, 4), "
                f"found a {type(coords).__name__}"
            )
        n = coords.shape[0]
        return _ext.child_coords_from_indices(
            coords, mx.arange(n, dtype=mx.int32), parent_rows, stream=stream
        )
    return _ext.child_coords_from_indices(coords, parent_rows, child_indices, stream=stream)


def occupancy_expand(
    coords: mx.array,
    occupancy: mx.array,
    active_rows: mx.array | None = None,
    *,
    stream: mx.Stream | mx.Device | None = None,
) -> OccupancyExpansion:
    """Children that the masks name, by parent, then by bit. Masks are uint8, or integers 0..255.

    active_rows: the prefix of parents that counts.
    """
    name = "occupancy_expand"
    if isinstance(occupancy, mx.array) and mx.issubdtype(occupancy.dtype, mx.integer):
        if occupancy.dtype != mx.uint8 and occupancy.size:
            low, high = int(occupancy.min()), int(occupancy.max())
            if low < 0 or high > 255:
                raise ValueError(f"[{name}] occupancy must hold 0..255, found {low}..{high}")
        occupancy = occupancy.astype(mx.uint8)
    if active_rows is not None:
        coords, occupancy = (active(a, active_rows, name) for a in (coords, occupancy))
    return _ext.occupancy_expand(coords, occupancy, stream=stream)
