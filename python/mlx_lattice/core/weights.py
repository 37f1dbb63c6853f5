"""Packed weights."""

from .._ext import QuantizedWeight

__all__ = ["QuantizedWeight"]
