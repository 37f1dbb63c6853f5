"""Entropy coders from Python: values against the formula, streams, errors."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlx_lattice import ops


def table(prob):
    """The formula of the contract in float64."""
    rows, alphabet = prob.shape
    sums = np.cumsum(np.clip(prob.astype(np.float64), 0, 1), 1)[:, :-1]
    j = np.arange(1, alphabet)
    inner = np.clip(np.rint(sums * (65536 - alphabet)) + j, j, 65536 - alphabet + j)
    return np.concatenate([np.zeros((rows, 1)), inner, np.full((rows, 1), 65536)], 1).astype(
        np.int64
    )


@pytest.mark.parametrize("rows, alphabet", [(0, 2), (1, 2), (5, 3), (4, 256), (2, 5000)])
def test_normalized_cdf(rows, alphabet):
    prob = (
        np.random.default_rng(rows).random((rows, alphabet)) * 3 / alphabet - 0.1 / alphabet
    ).astype(np.float32)
    got = np.array(ops.normalized_cdf(mx.array(prob))).view(np.uint16).astype(np.int64)
    assert np.array_equal(got, table(prob) % 65536)


@given(st.integers(0, 60), st.integers(2, 40), st.integers(0, 2**31 - 1), st.booleans())
def test_round_trip(rows, alphabet, seed, shared):
    random = np.random.default_rng(seed)
    prob = mx.array(
        random.dirichlet(np.full(alphabet, 0.3), 1 if shared else rows)
        .astype(np.float32)
        .reshape(-1, alphabet)
    )
    symbols = mx.array(random.integers(0, alphabet, rows).astype(np.int32))
    cdf = ops.normalized_cdf(prob)
    data = ops.range_encode(cdf, symbols)
    assert isinstance(data, bytes)
    assert ops.range_decode(cdf, data).tolist() == symbols.tolist()
    assert (
        ops.range_decode_from_prob(prob, ops.range_encode_from_prob(prob, symbols)).tolist()
        == symbols.tolist()
    )
    data = ops.rans_encode_from_prob(prob, symbols)
    assert ops.rans_decode_from_prob(prob, data, stream=mx.cpu).tolist() == symbols.tolist()
    for bad in (data[:-1], data + b"\0", data[:9] + bytes([data[9] ^ 1]) + data[10:], b""):
        with pytest.raises(ValueError, match=r"^\[rans_decode_from_prob\] data"):
            ops.rans_decode_from_prob(prob, bad)


def test_bad_arguments():
    prob, symbols = mx.full((2, 4), 0.25), mx.array([0, 3])
    with pytest.raises(ValueError, match="finite"):
        ops.normalized_cdf(mx.array([[0.5, float("nan")]]))
    with pytest.raises(ValueError, match=r"symbols\[1\] = 4"):
        ops.rans_encode_from_prob(prob, mx.array([0, 4]))
    with pytest.raises(ValueError, match="must hold integers"):
        ops.rans_encode_from_prob(prob, mx.array([0.0, 1.0]))
    with pytest.raises(TypeError):
        ops.range_decode_from_prob(prob, "text")
    with pytest.raises(ValueError, match="rows"):
        ops.range_decode_from_prob(mx.full((3, 4), 0.25), ops.range_encode_from_prob(prob, symbols))
