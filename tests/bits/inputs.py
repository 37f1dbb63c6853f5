"""Inputs that every build gets with the same bits: NumPy makes them from fixed seeds."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx_lattice as ml
import numpy as np
from mlx.utils import tree_map
from mlx_lattice import points

DTYPES = {"float32": mx.float32, "float16": mx.float16, "bfloat16": mx.bfloat16}


def numbers(*shape: int, seed: int = 0, dtype: Any = mx.float32) -> mx.array:
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return mx.array(values).astype(dtype)


def surface(n: int, seed: int, side: int = 40) -> mx.array:
    """Distinct voxels (b, x, y, z) near a wavy surface, two batch items, in a random order."""
    rng = np.random.default_rng(seed)
    xy = rng.integers(-side, side, (n, 2))
    z = np.round(6 * np.sin(xy[:, 0] / 7) + 4 * np.cos(xy[:, 1] / 5)).astype(int)
    z += rng.integers(0, 2, n)
    batch = np.sort(rng.integers(0, 2, n))
    rows = np.unique(np.column_stack([batch, xy, z]).astype(np.int32), axis=0)
    parts = [rows[rows[:, 0] == b] for b in (0, 1)]
    return mx.array(np.concatenate([rng.permutation(part) for part in parts]))


def tensor(n: int = 4000, channels: int = 16, seed: int = 1, dtype: Any = mx.float32) -> Any:
    coords = surface(n, seed)
    return ml.SparseTensor(coords, numbers(coords.shape[0], channels, seed=seed + 1, dtype=dtype))


def cloud_of(n: int = 1500, seed: int = 3, grid: float = 0.1) -> Any:
    rng = np.random.default_rng(seed)
    xyz = rng.uniform(-1, 1, (n, 3)).astype(np.float32)
    xyz[:, 2] = 0.3 * np.sin(3 * xyz[:, 0]) + 0.02 * xyz[:, 2]
    return points.PointSet(mx.array(xyz), mx.array([n // 3, n - n // 3]), grid=grid)


def weights_of(module: Any) -> Any:
    """The module with parameters that do not depend on its own initialization."""
    count = iter(range(10**6))
    values = tree_map(
        lambda p: 0.2 * numbers(*p.shape, seed=next(count) + 77).astype(p.dtype),
        module.parameters(),
    )
    module.update(values)
    return module


def with_gradient(name: str, run: Any, *args: mx.array) -> Any:
    """run(*args), and the gradient of each argument for the sum of squares."""
    made: list[Any] = []

    def loss(*a: mx.array) -> mx.array:
        return mx.square(run(*a).astype(mx.float32)).sum()

    yield name, lambda: run(*args)

    def gradient(i: int) -> Any:
        if not made:
            made.extend(mx.grad(loss, argnums=tuple(range(len(args))))(*args))
        return made[i]

    for i in range(len(args)):
        yield f"{name}/gradient of argument {i}", lambda i=i: gradient(i)
