"""Reductions over segments of rows; docs/ops/segments.md."""

from .._ext import (
    indexed_segment_reduce,
    scatter_reduce,
    segment_expand,
    segment_reduce,
    segment_reduce_offsets,
    segment_softmax,
)

__all__ = [
    "indexed_segment_reduce",
    "scatter_reduce",
    "segment_expand",
    "segment_reduce",
    "segment_reduce_offsets",
    "segment_softmax",
]
