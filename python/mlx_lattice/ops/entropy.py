"""Entropy coding of symbols with given probabilities; docs/ops/entropy.md.

Probabilities reach the coder only as the integers of `normalized_cdf`, so that a stream decodes on
every machine. Symbols are integers (R,) from 0 to A - 1. Tables have one row per symbol, or one row
for all. A stream that is truncated, extended or damaged is a ValueError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _ext

if TYPE_CHECKING:
    import mlx.core as mx

    from ..core.types import ArrayLike, StreamOrDevice

__all__ = [
    "normalized_cdf",
    "range_decode",
    "range_decode_from_prob",
    "range_encode",
    "range_encode_from_prob",
    "rans_decode_from_prob",
    "rans_encode_from_prob",
]


def normalized_cdf(prob: ArrayLike, *, stream: StreamOrDevice = None) -> mx.array:
    """(R, A) probabilities -> (R, A + 1) int16 with uint16 bits: 0 = c[0] < ... < c[A] = 65536.

    The last one is stored as 0. Every symbol gets at least one of the 65536 parts. ValueError for
    probabilities that are not finite.

    >>> from mlx_lattice import ops
    >>> ops.normalized_cdf([[0.25, 0.75]]).tolist()
    [[0, 16385, 0]]
    """
    return _ext.normalized_cdf(prob, stream)


def range_encode(cdf: ArrayLike, symbols: ArrayLike, *, stream: StreamOrDevice = None) -> bytes:
    """Symbols (R,) with tables (R, A + 1) or (1, A + 1) of `normalized_cdf` as bytes.

    >>> import mlx.core as mx
    >>> from mlx_lattice import ops
    >>> cdf = ops.normalized_cdf(mx.full((3, 2), 0.5))
    >>> ops.range_decode(cdf, ops.range_encode(cdf, [0, 1, 1])).tolist()
    [0, 1, 1]
    """
    return _ext.range_encode(cdf, symbols, stream)


def range_encode_from_prob(
    prob: ArrayLike, symbols: ArrayLike, *, stream: StreamOrDevice = None
) -> bytes:
    """`range_encode` with `normalized_cdf(prob)`."""
    return _ext.range_encode_from_prob(prob, symbols, stream)


def rans_encode_from_prob(
    prob: ArrayLike, symbols: ArrayLike, *, stream: StreamOrDevice = None
) -> bytes:
    """Symbols (R,) with `normalized_cdf(prob)` as a rANS stream.

    One row of prob for all symbols decodes fastest.

    >>> import mlx.core as mx
    >>> from mlx_lattice import ops
    >>> prob = mx.array([[0.9, 0.1]])
    >>> data = ops.rans_encode_from_prob(prob, [0, 1, 0])
    >>> ops.rans_decode_from_prob(mx.repeat(prob, 3, axis=0), data).tolist()
    [0, 1, 0]
    """
    return _ext.rans_encode_from_prob(prob, symbols, stream)


def _data(
    data: bytes | None, stream: bytes | StreamOrDevice, operation: str
) -> tuple[bytes, StreamOrDevice]:
    """(data, stream): bytes under the older name `stream` are data."""
    if isinstance(stream, bytes):
        if data is not None:
            raise TypeError(f"[{operation}] stream must be a stream or device, found bytes")
        return stream, None
    if data is None:
        raise TypeError(f"[{operation}] data must be bytes, found None")
    return data, stream


def range_decode(
    cdf: ArrayLike, data: bytes | None = None, *, stream: bytes | StreamOrDevice = None
) -> mx.array:
    """The symbols of `range_encode`, (R,) int32. Bytes given as `stream` are data."""
    return _ext.range_decode(cdf, *_data(data, stream, "range_decode"))


def range_decode_from_prob(
    prob: ArrayLike, data: bytes | None = None, *, stream: bytes | StreamOrDevice = None
) -> mx.array:
    """The symbols of `range_encode_from_prob`, (R,) int32. Bytes given as `stream` are data."""
    return _ext.range_decode_from_prob(prob, *_data(data, stream, "range_decode_from_prob"))


def rans_decode_from_prob(
    prob: ArrayLike, data: bytes | None = None, *, stream: bytes | StreamOrDevice = None
) -> mx.array:
    """The symbols of `rans_encode_from_prob`, (R,) int32. Bytes given as `stream` are data."""
    return _ext.rans_decode_from_prob(prob, *_data(data, stream, "rans_decode_from_prob"))
