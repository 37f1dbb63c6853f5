"""Attention over ragged segments and along edges, rotary positions; docs/ops/attention.md."""

from .._ext import PositionBias, attention, neighbor_attention, rotary

__all__ = ["PositionBias", "attention", "neighbor_attention", "rotary"]
