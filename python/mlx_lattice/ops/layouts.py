"""Who attends to whom: orders, patches, windows and blocks of voxels; docs/ops/layouts.md."""

from .._ext import (
    attention_patches,
    attention_windows,
    curve_codes,
    curve_sort_coords,
    grid_pool,
    grid_pooling,
    grid_unpool,
    to_rows,
    to_slots,
)

__all__ = [
    "attention_patches",
    "attention_windows",
    "curve_codes",
    "curve_sort_coords",
    "grid_pool",
    "grid_pooling",
    "grid_unpool",
    "to_rows",
    "to_slots",
]
