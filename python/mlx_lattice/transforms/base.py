"""What every transform is: cloud in, cloud out, all randomness from one generator.

    t = Compose([Flip("xy"), Rotate("z"), Jitter(0.01)])
    cloud = t(cloud, rng_of(seed, epoch, index))

A transform moves points and picks rows; every column follows its row, normals turn with the points.
The same seed, epoch and index give the same bits. `draw(rng)` gives another cloud of the data set
to transforms that mix two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..io import PointCloud

Draw = Callable[[np.random.Generator], PointCloud]


def rng_of(seed: int, epoch: int, index: int) -> np.random.Generator:
    """The generator of one item in one epoch: it does not depend on workers, ranks or order."""
    return np.random.default_rng([seed, epoch, index])


class Transform:
    """Base class of the transforms, which are called with (cloud, rng, draw).

    Subclasses are frozen dataclasses with `apply`; their repr names all settings.
    """

    def __call__(
        self, cloud: PointCloud, rng: np.random.Generator, draw: Draw | None = None
    ) -> PointCloud:
        return self.apply(cloud, rng, draw)

    def apply(self, cloud: PointCloud, rng: np.random.Generator, draw: Draw | None) -> PointCloud:
        raise NotImplementedError

    def _second(self, rng: np.random.Generator, draw: Draw | None) -> PointCloud:
        if draw is None:
            raise ValueError(
                f"[{type(self).__name__}] needs a second cloud: pass draw, which returns one"
            )
        return draw(rng)


@dataclass(frozen=True)
class Compose(Transform):
    """One transform after the other."""

    transforms: tuple[Transform, ...]

    def __init__(self, transforms: Sequence[Transform]) -> None:
        object.__setattr__(self, "transforms", tuple(transforms))

    def apply(self, cloud: PointCloud, rng: np.random.Generator, draw: Draw | None) -> PointCloud:
        for transform in self.transforms:
            cloud = transform(cloud, rng, draw)
        return cloud


@dataclass(frozen=True)
class Sometimes(Transform):
    """`transform` with probability p."""

    transform: Transform
    p: float = 0.5

    def __post_init__(self) -> None:
        check(self, "p", 0 <= self.p <= 1, "0 to 1")

    def apply(self, cloud: PointCloud, rng: np.random.Generator, draw: Draw | None) -> PointCloud:
        return self.transform(cloud, rng, draw) if rng.random() < self.p else cloud


@dataclass(frozen=True)
class OneOf(Transform):
    """One of the transforms, each as likely as the others."""

    transforms: tuple[Transform, ...]

    def __init__(self, transforms: Sequence[Transform]) -> None:
        object.__setattr__(self, "transforms", tuple(transforms))
        check(self, "transforms", len(self.transforms) > 0, "one or more")

    def apply(self, cloud: PointCloud, rng: np.random.Generator, draw: Draw | None) -> PointCloud:
        return self.transforms[rng.integers(len(self.transforms))](cloud, rng, draw)


def check(transform: Any, key: str, good: bool, expected: str) -> None:
    if not good:
        raise ValueError(
            f"[{type(transform).__name__}] {key}: found {getattr(transform, key)!r}, "
            f"expected {expected}"
        )


def axes_of(transform: Any, key: str) -> list[int]:
    """Column numbers of letters such as "xy"."""
    letters = getattr(transform, key)
    good = len(set(letters)) == len(letters) > 0 and set(letters) <= set("xyz")
    check(transform, key, good, "some of the letters x, y and z")
    return ["xyz".index(letter) for letter in letters]


def moved(cloud: PointCloud, points: np.ndarray, matrix: np.ndarray | None = None) -> PointCloud:
    """The cloud with other points; `matrix` (3, 3) also turns its normals, of length 1."""
    columns = dict(cloud.columns)
    normal = columns.get("normal")
    if matrix is not None and normal is not None and normal.ndim == 2 and normal.shape[1] == 3:
        # Normals follow the inverse transpose; for turns and mirrors that is the matrix itself.
        turned = normal.astype(np.float64) @ np.linalg.inv(matrix)
        length = np.linalg.norm(turned, axis=1, keepdims=True)
        turned = np.divide(turned, length, out=np.zeros_like(turned), where=length > 0)
        columns["normal"] = turned.astype(normal.dtype)
    return PointCloud(points.astype(cloud.points.dtype, copy=False), columns, dict(cloud.meta))


def linear(cloud: PointCloud, matrix: np.ndarray) -> PointCloud:
    """Every point times a matrix (3, 3), in the precision of the points.

    Written out by columns: a product of BLAS wakes all threads for three columns, 17 ms of CPU time
    per 120,000 points against 1.
    """
    points = np.empty_like(cloud.points)
    for i in range(3):
        terms = [
            cloud.points[:, j] if m == 1 else cloud.points[:, j] * cloud.points.dtype.type(m)
            for j, m in enumerate(matrix[i])
            if m != 0
        ]
        points[:, i] = sum(terms[1:], terms[0]) if terms else 0
    return moved(cloud, points, matrix)


def join(first: PointCloud, second: PointCloud, what: str) -> PointCloud:
    """Both clouds, which must have the same columns; objects of the second get new numbers."""
    if set(first.columns) != set(second.columns):
        raise ValueError(
            f"[{what}] columns: found {sorted(second.columns)} in the second cloud, "
            f"expected {sorted(first.columns)} as in the first"
        )
    columns = {}
    for name, values in first.columns.items():
        other = second.columns[name]
        if name == "instance" and values.size and other.size:
            values = values.astype(np.int64)
            other = np.where(other > 0, other.astype(np.int64) + max(int(values.max()), 0), other)
        columns[name] = np.concatenate([values, other])
    points = np.concatenate([first.points, second.points.astype(first.points.dtype, copy=False)])
    return PointCloud(points, columns, dict(first.meta))
