"""Segment reductions from Python: NumPy float64, dtypes, index dtypes, NaN, errors."""

import itertools

import mlx.core as mx
import numpy as np
import pytest
from mlx_lattice import points

REDUCE = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}
EMPTY = {"sum": 0, "mean": 0, "max": -np.inf, "min": np.inf}
TOLERANCE = {mx.float32: 1e-6, mx.float16: 1e-3, mx.bfloat16: 8e-3}


def expected(x, rows, operation):
    shape = x.shape[1:]
    return np.stack(
        [
            REDUCE[operation](x[r], axis=0) if len(r) else np.full(shape, EMPTY[operation])
            for r in rows
        ]
    )


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("operation", REDUCE)
@pytest.mark.parametrize("shape", [(50,), (50, 1), (50, 17), (50, 3, 5)])
def test_values(shape, operation, dtype):
    rng = np.random.default_rng(0)
    x = mx.array(rng.normal(size=shape)).astype(dtype)
    exact = np.array(x.astype(mx.float32), dtype=np.float64)
    lengths = np.array([0, 7, 1, 0, 30, 12, 0])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    spans = [np.arange(a, b) for a, b in itertools.pairwise(offsets)]
    indices = rng.integers(0, 50, 50)
    cases = [
        (points.segment_reduce(x, mx.array(lengths), operation), spans),
        (points.segment_reduce_offsets(x, mx.array(offsets).astype(mx.uint32), operation), spans),
        (
            points.indexed_segment_reduce(x, mx.array(indices), mx.array(lengths), operation),
            [indices[s] for s in spans],
        ),
        (
            points.scatter_reduce(x, mx.array(indices // 4), 14, operation),
            [np.nonzero(indices // 4 == i)[0] for i in range(14)],
        ),
    ]
    for y, rows in cases:
        assert y.dtype == dtype
        y = np.array(y.astype(mx.float32), dtype=np.float64)
        np.testing.assert_allclose(
            y, expected(exact, rows, operation), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype]
        )


def test_nan_and_overflow():
    x = mx.array([[1.0], [float("nan")], [2.0], [3.0]])
    for operation in ("max", "min", "sum"):
        y = points.segment_reduce(x, mx.array([2, 2]), operation)
        assert np.isnan(y[0, 0].item()) and not np.isnan(y[1, 0].item())
    big = mx.full((4, 1), 60000.0).astype(mx.float16)
    assert points.segment_reduce(big, mx.array([4])).item() == float("inf")  # no clamping
    assert points.segment_reduce(big, mx.array([4]), "mean").item() == 60000.0  # summed in float32


def test_compile_and_second_derivative():
    x, lengths = mx.random.normal((6, 2)), mx.array([2, 0, 4])
    loss = lambda a: (points.segment_reduce(a, lengths, "mean") ** 2).sum()
    assert mx.allclose(mx.compile(mx.grad(loss))(x), mx.grad(loss)(x))
    hessian_v = mx.grad(lambda a: (mx.grad(loss)(a) * x).sum())(x)
    assert mx.allclose(hessian_v, mx.grad(loss)(x), atol=1e-5)


def test_errors():
    x = mx.zeros((3, 2))
    with pytest.raises(ValueError, match=r"\[segment_reduce\] lengths must sum to 3 rows, got 2"):
        points.segment_reduce(x, mx.array([2]))
    with pytest.raises(ValueError, match="sum, mean, max or min, got 'median'"):
        points.segment_reduce(x, mx.array([3]), "median")
    with pytest.raises(ValueError, match="split, all or first"):
        points.segment_reduce(x, mx.array([3]), "max", ties="none")
    with pytest.raises(ValueError, match=r"outside 0..2"):
        points.indexed_segment_reduce(x, mx.array([0, -1]), mx.array([2]))
    with pytest.raises(ValueError, match="traced"):
        mx.compile(lambda n: points.segment_reduce(x, n))(mx.array([3]))
