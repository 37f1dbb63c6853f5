"""Weights to packed codes and back; docs/ops/quantize.md."""

from .._ext import dequantize_weight, quantize_weight

__all__ = ["dequantize_weight", "quantize_weight"]
