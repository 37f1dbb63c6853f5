"""Values of attention: layouts of slots, and poolings of blocks."""

from .._ext import AttentionLayout, GridPooling

__all__ = ["AttentionLayout", "GridPooling"]
