"""Weights that are more than an array: codes of 4 or 8 bits, and kernels packed for the CPU."""

from .._ext import PackedKernel, QuantizedWeight
from ..compat import QuantizedWeightLayout  # noqa: F401
from ..ops.quantize import dequantize_weight, quantize_weight  # noqa: F401

__all__ = ["PackedKernel", "QuantizedWeight"]  # the others are names of the older package
