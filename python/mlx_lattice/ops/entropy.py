"""Entropy coding of symbols with given probabilities; docs/ops/entropy.md."""

from __future__ import annotations

import mlx.core as mx

from .. import _ext
from .._ext import (
    normalized_cdf,
    range_encode,
    range_encode_from_prob,
    rans_encode_from_prob,
)

__all__ = [
    "normalized_cdf",
    "range_decode",
    "range_decode_from_prob",
    "range_encode",
    "range_encode_from_prob",
    "rans_decode_from_prob",
    "rans_encode_from_prob",
]


def _data(
    data: bytes | None, stream: bytes | mx.Stream | mx.Device | None, operation: str
) -> tuple[bytes, mx.Stream | mx.Device | None]:
    """(data, stream): bytes under the older name `stream` are data."""
    if isinstance(stream, bytes):
        if data is not None:
            raise TypeError(f"[{operation}] stream must be a stream or device, found bytes")
        return stream, None
    if data is None:
        raise TypeError(f"[{operation}] data must be bytes, found None")
    return data, stream


def range_decode(
    cdf: mx.array, data: bytes | None = None, *, stream: bytes | mx.Stream | mx.Device | None = None
) -> mx.array:
    """The symbols of range_encode, (R,) int32. Bytes given as `stream` are data."""
    given, where = _data(data, stream, "range_decode")
    return _ext.range_decode(cdf, given, stream=where)


def range_decode_from_prob(
    prob: mx.array,
    data: bytes | None = None,
    *,
    stream: bytes | mx.Stream | mx.Device | None = None,
) -> mx.array:
    """The symbols of range_encode_from_prob, (R,) int32. Bytes given as `stream` are data."""
    given, where = _data(data, stream, "range_decode_from_prob")
    return _ext.range_decode_from_prob(prob, given, stream=where)


def rans_decode_from_prob(
    prob: mx.array,
    data: bytes | None = None,
    *,
    stream: bytes | mx.Stream | mx.Device | None = None,
) -> mx.array:
    """The symbols of rans_encode_from_prob, (R,) int32. Bytes given as `stream` are data."""
    given, where = _data(data, stream, "rans_decode_from_prob")
    return _ext.rans_decode_from_prob(prob, given, stream=where)
