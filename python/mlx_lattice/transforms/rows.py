"""Transforms that pick rows: dropout, crops by box, sphere and range, one point per voxel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..io.downsample import downsample
from .base import Transform, check

if TYPE_CHECKING:
    from mlx_lattice.io.cloud import PointCloud

    from .base import Draw


@dataclass(frozen=True)
class Dropout(Transform):
    """Leaves out each point with a probability that is drawn between 0 and `most`."""

    most: float = 0.2

    def __post_init__(self) -> None:
        check(self, "most", 0 <= self.most < 1, "0 or more and below 1")

    def apply(self, cloud: PointCloud, rng: np.random.Generator, draw: Draw | None) -> PointCloud:
        share = rng.uniform(0, self.most)
        return kept(cloud, rng.random(len(cloud)) >= share)


@dataclass(frozen=True)
class CropBox(Transform):
    """The points of an upright box of side lengths `size` around a random point."""

    size: tuple[float, ...] = (10.0, 10.0, 100.0)

    def __post_init__(self) -> None:
        good = np.shape(self.size) == (3,) and min(self.size) > 0
        check(self, "size", good, "three numbers above 0")

    def apply(self, cloud: PointCloud, rng: np.random.Generator, draw: Draw | None) -> PointCloud:
        if not len(cloud):
            return cloud
        away = np.abs(cloud.points - cloud.points[rng.integers(len(cloud))])
        return kept(cloud, (away <= np.asarray(self.size) / 2).all(axis=1))


@dataclass(frozen=True)
class CropSphere(Transform):
    """The `points` points nearest to a random one; all where there are fewer."""

    points: int = 80_000

    def __post_init__(self) -> None:
        check(self, "points", self.points >= 1, "1 or more")

    def apply(self, cloud: PointCloud, rng: np.random.Generator, draw: Draw | None) -> PointCloud:
        if len(cloud) <= self.points:
            return cloud
        center = cloud.points[rng.integers(len(cloud))].astype(np.float64)
        d2 = ((cloud.points - center) ** 2).sum(axis=1)
        mask = np.zeros(len(cloud), bool)
        mask[np.argpartition(d2, self.points - 1)[: self.points]] = True
        return kept(cloud, mask)


@dataclass(frozen=True)
class CropRange(Transform):
    """The points with low <= (x, y, z) < high: the range that a detector or a network sees."""

    low: tuple[float, ...] = (-50.0, -50.0, -4.0)
    high: tuple[float, ...] = (50.0, 50.0, 2.0)

    def __post_init__(self) -> None:
        good = np.shape(self.low) == np.shape(self.high) == (3,)
        good = good and all(a < b for a, b in zip(self.low, self.high, strict=True))
        check(self, "high", good, f"three numbers above low = {self.low}")

    def apply(self, cloud: PointCloud, rng: np.random.Generator, draw: Draw | None) -> PointCloud:
        p = cloud.points
        return kept(cloud, ((p >= np.asarray(self.low)) & (p < np.asarray(self.high))).all(axis=1))


@dataclass(frozen=True)
class Voxelize(Transform):
    """One point per voxel of side `size`: means of floats and colors, votes of labels."""

    size: float = 0.05
    points: str = "mean"

    def __post_init__(self) -> None:
        check(self, "size", 0 < self.size < float("inf"), "a positive number")
        check(self, "points", self.points in ("mean", "center", "first"), "mean, center or first")

    def __call__(
        self, cloud: PointCloud, rng: np.random.Generator | None = None, draw: Draw | None = None
    ) -> PointCloud:
        return self.apply(cloud, rng, draw)

    def apply(
        self, cloud: PointCloud, rng: np.random.Generator | None, draw: Draw | None
    ) -> PointCloud:
        return downsample(cloud, self.size, self.points)[0]


def kept(cloud: PointCloud, mask: Any) -> Any:
    """Rows of a mask; at least one row is kept, so that a network always has something to see."""
    if not len(cloud) or mask.all():
        return cloud
    if not mask.any():
        mask = np.arange(len(cloud)) == 0
    return cloud[mask]
