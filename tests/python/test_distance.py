"""Distances of all pairs and of given pairs, against NumPy."""

import mlx.core as mx
import mlx_lattice as ml
import numpy as np
import pytest
from mlx_lattice import points


@pytest.mark.parametrize("metric", ["euclidean", "squared_euclidean", "cosine"])
def test_distances(metric):
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(9, 4)), rng.normal(size=(7, 4))
    d2 = ((a[:, None] - b[None]) ** 2).sum(-1)
    norms = np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(b, axis=1)
    want = {"euclidean": np.sqrt(d2), "squared_euclidean": d2, "cosine": 1 - a @ b.T / norms}[
        metric
    ]
    x, y = mx.array(a.astype(np.float32)), mx.array(b.astype(np.float32))
    np.testing.assert_allclose(points.indexed_distance(x, y, metric=metric), want, atol=1e-5)
    np.testing.assert_allclose(
        points.indexed_distance_blocked(x, y, 2, metric=metric), want, atol=1e-5
    )
    i, j = mx.array([8, 0, 8]), mx.array([6, 6, 1])
    np.testing.assert_allclose(
        points.indexed_distance(x, y, i, j, metric), want[[8, 0, 8]][:, [6, 6, 1]], atol=1e-5
    )
    np.testing.assert_allclose(
        points.indexed_pair_distance(x, i, y, j, metric), want[[8, 0, 8], [6, 6, 1]], atol=1e-5
    )


def test_distances_are_in_the_table():
    names = [r.name for r in ml.routes() if r.operation == "distance"]
    assert names == ["cpu.tiles", "cpu.reference", "metal.tiles", "cuda.tiles", "gpu.mlx"]
    a = mx.random.normal((5, 3))
    told = str(ml.explain(mx.grad(lambda u: points.indexed_distance(u, a).sum()), a))
    assert (
        told.count("distance -> cpu.tiles") >= 2 and "mode euclidean" in told
    )  # the gradient needs it again


def test_an_unknown_metric_lists_the_choices():
    with pytest.raises(ValueError, match="euclidean, squared_euclidean or cosine, got 'l1'"):
        points.indexed_distance(mx.zeros((2, 3)), mx.zeros((2, 3)), metric="l1")
