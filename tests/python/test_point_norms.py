"""Ragged norms against NumPy float64: values, gradients, one point, empty clouds, dtypes."""

import mlx.core as mx
import mlx.nn
import numpy as np
import pytest
from mlx_lattice import points
from mlx_lattice.points.norms import make_norm

LENGTHS = [4, 0, 1, 7, 0]
ROWS = np.repeat(np.arange(5), LENGTHS)
EPS = 1e-5


def oracle(kind, x):
    """x (T, 6) float64; statistics over the named part."""
    y = np.empty_like(x)
    for b in range(len(LENGTHS)):
        rows = b == ROWS
        if kind == "batch":
            m, v = x.mean(0), x.var(0)
        elif kind == "row":
            m, v = x[rows].mean(1, keepdims=True), x[rows].var(1, keepdims=True)
        elif not rows.any():
            continue
        elif kind == "instance":
            m, v = x[rows].mean(0), x[rows].var(0)
        elif kind == "layer":
            m, v = x[rows].mean(), x[rows].var()
        else:
            part = x[rows].reshape(-1, 2, 3)
            m, v = (np.repeat(f(part, axis=(0, 2)), 3) for f in (np.mean, np.var))
        y[rows] = (x[rows] - m) / np.sqrt(v + EPS)
    return y


@pytest.mark.parametrize(
    "dtype, tolerance", [(mx.float32, 2e-5), (mx.float16, 5e-3), (mx.bfloat16, 4e-2)]
)
@pytest.mark.parametrize("kind", ["batch", "row", "instance", "layer", "group"])
def test_values_and_gradients(kind, dtype, tolerance):
    x = mx.array(np.random.default_rng(1).normal(2, 3, size=(12, 6))).astype(dtype)
    norm = points.RaggedGroupNorm(channels=6, groups=2) if kind == "group" else make_norm(kind, 6)
    lengths = mx.array(LENGTHS)
    exact = np.array(x.astype(mx.float32), dtype=np.float64)
    y = norm(x, lengths)
    assert y.dtype == dtype
    np.testing.assert_allclose(
        np.array(y.astype(mx.float32)), oracle(kind, exact), rtol=tolerance, atol=tolerance
    )
    if dtype != mx.float32:
        return
    w = np.random.default_rng(2).normal(size=(12, 6))
    grad = mx.grad(lambda a: (norm(a, lengths) * mx.array(w.astype(np.float32))).sum())(x)
    for r, c in [(0, 0), (4, 1), (5, 2), (11, 5)]:
        h = np.zeros_like(exact)
        h[r, c] = 1e-5
        expected = ((oracle(kind, exact + h) - oracle(kind, exact - h)) * w).sum() / 2e-5
        assert abs(grad[r, c].item() - expected) < 2e-4 * max(1, abs(expected)), (kind, r, c)


@pytest.mark.parametrize("kind", ["batch", "row", "instance", "layer", "group"])
def test_one_point_and_none(kind):
    norm = make_norm(kind, 8)
    norm.bias = mx.arange(8).astype(mx.float32)
    x = mx.full((1, 8), 5.0)
    assert mx.allclose(norm(x, mx.array([0, 1])), norm.bias[None], atol=1e-5) or kind == "group"
    assert norm(mx.zeros((0, 8)), mx.array([0, 0])).shape == (0, 8)
    gradient = mx.grad(lambda a: norm(a, mx.array([1, 0])).sum())(x)
    assert mx.isfinite(gradient).all().item() and mx.abs(gradient).max().item() < 1e-3


def test_running_statistics():
    norm = points.RaggedBatchNorm(3)
    x = mx.random.normal((50, 3)) + 4
    for _ in range(60):
        norm(x)
    norm(x[:1])  # one row changes nothing
    norm.eval()
    assert mx.abs(norm(x).mean(axis=0)).max().item() < 0.02
    plain = mlx.nn.BatchNorm(3)
    for _ in range(60):
        plain(x)
    plain.eval()
    assert mx.allclose(plain(x), norm(x), atol=1e-4)


def test_errors():
    with pytest.raises(ValueError, match="divide 6 channels"):
        points.RaggedGroupNorm(channels=6, groups=4)
    with pytest.raises(ValueError, match="one of batch, row, instance"):
        make_norm("weight", 4)
