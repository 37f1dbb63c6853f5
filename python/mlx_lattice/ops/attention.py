"""Attention over ragged segments; docs/ops/attention.md."""

from .._ext import PositionBias, attention

__all__ = ["PositionBias", "attention"]
