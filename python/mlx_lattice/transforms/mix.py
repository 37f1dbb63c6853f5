"""Transforms that mix two clouds: Mix3D, PolarMix, LaserMix and instance copy-paste."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..core._checks import finite, flag, integer, number
from .base import Transform, check, join, linear, moved
from .geometry import turn

if TYPE_CHECKING:
    from ..io import PointCloud
    from .base import Draw


@dataclass(frozen=True)
class Mix3D(Transform):
    """Both clouds, each with its center at the origin (Nekrasov et al., 3DV 2021)."""

    def apply(self, cloud: PointCloud, rng: np.random.Generator, draw: Draw | None) -> PointCloud:
        other = self._second(rng, draw)
        return join(_centered(cloud), _centered(other), "Mix3D")


@dataclass(frozen=True)
class PolarMix(Transform):
    """A sector of the other scan replaces that of this one; objects of it are pasted and turned.

    Xiao et al., NeurIPS 2022.

    sector: the angle of the sector in degrees.
    classes: class indices whose points are pasted once per angle, rotated about the scanner. By
        default only the sector is replaced.
    angles: in degrees.
    """

    sector: float = 180.0
    classes: tuple[int, ...] = ()
    angles: tuple[float, ...] = (120.0, 240.0)

    def __post_init__(self) -> None:
        number(self, "sector", self.sector, 0, 360, low_included=False)
        _check_list(self, "classes")
        for angle in _check_list(self, "angles"):
            finite(self, "angles", angle)

    def apply(self, cloud: PointCloud, rng: np.random.Generator, draw: Draw | None) -> PointCloud:
        other = self._second(rng, draw)
        begin = rng.uniform(0, 360)
        inside = (_azimuth(cloud) - begin) % 360 < self.sector
        take = (_azimuth(other) - begin) % 360 < self.sector
        mixed = join(cloud[~inside], other[take], "PolarMix")
        if len(self.classes):
            objects = other[np.isin(_labels(self, other), self.classes)]
            for angle in self.angles:
                mixed = join(mixed, linear(objects, turn(np.radians(angle))), "PolarMix")
        return mixed


@dataclass(frozen=True)
class LaserMix(Transform):
    """Areas of inclination alternate between the two scans (Kong et al., CVPR 2023).

    areas: numbers of areas, one of which is drawn.
    low, high: the inclinations of the scanner in degrees.
    """

    areas: tuple[int, ...] = (3, 4, 5, 6)
    low: float = -25.0
    high: float = 3.0

    def __post_init__(self) -> None:
        areas = [integer(self, "areas", area, 2) for area in _check_list(self, "areas")]
        check(self, "areas", len(areas) > 0, "numbers of 2 or more")
        low, high = (finite(self, key, getattr(self, key)) for key in ("low", "high"))
        check(self, "high", low < high, f"above low = {low}")

    def apply(self, cloud: PointCloud, rng: np.random.Generator, draw: Draw | None) -> PointCloud:
        other = self._second(rng, draw)
        cuts = np.linspace(self.low, self.high, int(rng.choice(self.areas)) + 1)[1:-1]
        first = int(rng.integers(2))
        mine = np.digitize(_inclination(cloud), cuts) % 2 == first
        theirs = np.digitize(_inclination(other), cuts) % 2 != first
        return join(cloud[mine], other[theirs], "LaserMix")


@dataclass(frozen=True)
class CopyPaste(Transform):
    """Up to `count` objects of the other scan, turned about the scanner, replace what stood there.

    classes: class indices to take objects of. The other cloud needs the columns `label` and
        `instance`.
    turned: whether objects are turned about the scanner by a random angle.
    """

    classes: tuple[int, ...] = ()
    count: int = 3
    turned: bool = True

    def __post_init__(self) -> None:
        check(self, "classes", len(_check_list(self, "classes")) > 0, "one class or more")
        integer(self, "count", self.count)
        flag(self, "turned", self.turned)

    def apply(self, cloud: PointCloud, rng: np.random.Generator, draw: Draw | None) -> PointCloud:
        other = self._second(rng, draw)
        if "instance" not in other.columns:
            raise ValueError("[CopyPaste] needs the column instance in both clouds")
        instance = other.columns["instance"]
        usable = np.isin(_labels(self, other), self.classes) & (instance > 0)
        objects = np.unique(instance[usable])
        chosen = rng.permutation(objects)[: self.count]
        for one in chosen:
            piece = other[usable & (instance == one)]
            if self.turned:
                piece = linear(piece, turn(rng.uniform(-np.pi, np.pi)))
            low, high = piece.points.min(axis=0), piece.points.max(axis=0)
            free = ((cloud.points < low) | (cloud.points > high)).any(axis=1)
            cloud = join(cloud[free], piece, "CopyPaste")
        return cloud


def _check_list(transform: Transform, key: str) -> list[object]:
    """The values of a setting that is a list of numbers."""
    values = getattr(transform, key)
    check(transform, key, isinstance(values, (list, tuple, np.ndarray)), "a list of numbers")
    return list(values)


def _centered(cloud: PointCloud) -> PointCloud:
    bounds = cloud.bounds()
    middle = 0.0 if bounds is None else (bounds[0] + bounds[1]) / 2
    return moved(cloud, cloud.points.astype(np.float64) - middle)


def _azimuth(cloud: PointCloud) -> np.ndarray:
    """The angle of each point about the z axis, in degrees."""
    return np.degrees(np.arctan2(cloud.points[:, 1], cloud.points[:, 0]))


def _inclination(cloud: PointCloud) -> np.ndarray:
    """The angle of each point above the plane z = 0, in degrees."""
    flat: np.ndarray = np.hypot(cloud.points[:, 0], cloud.points[:, 1])
    return np.degrees(np.arctan2(cloud.points[:, 2], flat))


def _labels(transform: Transform, cloud: PointCloud) -> np.ndarray:
    if "label" not in cloud.columns:
        raise ValueError(f"[{type(transform).__name__}] needs the column label in both clouds")
    return cloud.columns["label"]
