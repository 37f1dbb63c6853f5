"""Entropy coding of symbols with given probabilities; docs/ops/entropy.md."""

from .._ext import (
    normalized_cdf,
    range_decode,
    range_decode_from_prob,
    range_encode,
    range_encode_from_prob,
    rans_decode_from_prob,
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
