"""Transforms that select points: dropout, crops by box, sphere and range, one point per voxel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..core._checks import integer, one_of, positive, share
from ..io.cloud import check_cloud
from ..io.downsample import downsample
from .base import Transform, check, check_numbers

if TYPE_CHECKING:
    from ..io import PointCloud
    from .base import Draw


@dataclass(frozen=True)
class Dropout(Transform):
    """Leaves out each point with a probability that is drawn between 0 and `most`."""

    most: float = 0.2

    def __post_init__(self) -> None:
        share(self, "most", self.most)

    def apply(self, cloud: PointCloud, rng: np.random.Generator, draw: Draw | None) -> PointCloud:
        share = rng.uniform(0, self.most)
        return kept(cloud, rng.random(len(cloud)) >= share)


@dataclass(frozen=True)
class CropBox(Transform):
    """The points of an upright box of side lengths `size` around a random point."""

    size: tuple[float, ...] = (10.0, 10.0, 100.0)

    def __post_init__(self) -> None:
        expected = "three numbers above 0"
        check(self, "size", min(check_numbers(self, "size", expected)) > 0, expected)

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
        integer(self, "points", self.points, most=2**63 - 1)

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
        low = check_numbers(self, "low", "three numbers")
        expected = f"three numbers above low = {low}"
        high = check_numbers(self, "high", expected)
        check(self, "high", all(a < b for a, b in zip(low, high)), expected)

    def apply(self, cloud: PointCloud, rng: np.random.Generator, draw: Draw | None) -> PointCloud:
        above, below = cloud.points >= np.asarray(self.low), cloud.points < np.asarray(self.high)
        inside: np.ndarray = np.all(above & below, axis=1)
        return kept(cloud, inside)


@dataclass(frozen=True)
class Voxelize(Transform):
    """One point per voxel of side `size`: means of floats and colors, votes of labels.

    points: where the point of a voxel lies: at the "mean" of its points, at the "center" of the
    voxel, or at the "first" point. Nothing is random, so that rng may be left out.
    """

    size: float = 0.05
    points: str = "mean"

    def __post_init__(self) -> None:
        positive(self, "size", self.size)
        one_of(self, "points", self.points, ("mean", "center", "first"))

    def __call__(
        self, cloud: PointCloud, rng: np.random.Generator | None = None, draw: Draw | None = None
    ) -> PointCloud:
        check_cloud("Voxelize", cloud)
        return self.apply(cloud, rng, draw)

    def apply(
        self, cloud: PointCloud, rng: np.random.Generator | None, draw: Draw | None
    ) -> PointCloud:
        return downsample(cloud, float(self.size), self.points)[0]


def kept(cloud: PointCloud, mask: np.ndarray) -> PointCloud:
    """Rows of a mask; at least one row is kept, so that a network always has something to see."""
    if not len(cloud) or mask.all():
        return cloud
    if not mask.any():
        mask = np.arange(len(cloud)) == 0
    return cloud[mask]
