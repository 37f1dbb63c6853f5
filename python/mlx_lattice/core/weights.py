"""Packed weights."""

from .._ext import QuantizedWeight, dequantize_weight, quantize_weight  # noqa: F401
from ._older_names import QuantizedWeightLayout  # noqa: F401

__all__ = ["QuantizedWeight"]  # the others are names of the older package
