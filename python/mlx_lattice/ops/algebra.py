"""Joins, element-wise operations, concatenation, selection and collation; docs/ops/algebra.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import mlx.core as mx

from .. import _ext
from .._ext import (
    SparseTensor,
    align_sparse,
    crop,
    gather_aligned_features,
    prune,
    prune_mask,
    reindex_sparse,
    replace_feature,
    sparse_add,
    sparse_binary,
    sparse_binary_op,
    sparse_cat_aligned,
    sparse_collate,
    sparse_from_coordinates,
    sparse_maximum,
    sparse_minimum,
    sparse_mul,
    sparse_sub,
    topk_rows,
)

__all__ = [
    "align_sparse",
    "cat",
    "crop",
    "gather_aligned_features",
    "prune",
    "prune_mask",
    "reindex_sparse",
    "replace_feature",
    "sparse_add",
    "sparse_binary",
    "sparse_binary_op",
    "sparse_cat_aligned",
    "sparse_collate",
    "sparse_from_coordinates",
    "sparse_maximum",
    "sparse_minimum",
    "sparse_mul",
    "sparse_sub",
    "topk_rows",
]


def cat(
    *tensors: SparseTensor | Sequence[SparseTensor],
    join: str = "inner",
    stream: mx.Stream | mx.Device | None = None,
) -> SparseTensor:
    """Channels side by side on joined rows: `cat(a, b)` or `cat([a, b])`.

    Args:
        tensors: Sparse tensors of one stride and dtype, or one list of them.
        join: "inner" (rows that all have), "left", "right" or "outer" (rows that any has).
        stream: The stream or device.

    Returns:
        A `SparseTensor` with the sum of the channels. Tensors with shared coordinates need no join.

    Raises:
        ValueError: No tensor, or tensors that differ in stride or dtype.
    """
    one = len(tensors) == 1 and isinstance(tensors[0], (list, tuple))
    given = cast("Sequence[SparseTensor]", tensors[0] if one else tensors)
    return _ext.cat(list(given), join=join, stream=stream)
