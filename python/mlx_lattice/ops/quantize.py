"""Weights to packed codes and back; docs/ops/quantize.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _ext

if TYPE_CHECKING:
    import mlx.core as mx

    from .._ext import QuantizedWeight
    from ..core.types import ArrayLike, StreamOrDevice

__all__ = ["dequantize_weight", "quantize_weight"]


def quantize_weight(
    weight: ArrayLike,
    *,
    group_size: int | None = None,
    bits: int = 4,
    stream: StreamOrDevice = None,
) -> QuantizedWeight:
    """A weight as codes of 4 or 8 bits along C_in, as `mx.quantize(mode="affine")` makes them.

    Args:
        weight: (C_out, C_in), (K, C_in, C_out) or (C_out, Kx, Ky, Kz, C_in), float.
        group_size: Input channels that share a scale and a bias: 32, 64 or 128; by default 64 if
            C_in >= 64, else 32. C_in is padded with 0 to a multiple.
        bits: 4 or 8.
        stream: Stream or device of MLX.

    Examples:
        >>> import mlx.core as mx
        >>> import mlx_lattice as ml
        >>> ml.quantize_weight(mx.ones((8, 3, 3, 3, 32)), bits=4).nbytes < 8 * 27 * 32 * 4 / 4
        True
    """
    return _ext.quantize_weight(weight, group_size, bits, stream)


def dequantize_weight(weight: QuantizedWeight, *, stream: StreamOrDevice = None) -> mx.array:
    """`scale * code + bias` in the dense layout, rounded once to the dtype of the scales."""
    return _ext.dequantize_weight(weight, stream)
