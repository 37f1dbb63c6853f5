"""Transforms that move points: flips, turns, scales, noise, elastic distortion, normalization."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..core._checks import finite, flag, number, one_of, positive
from .base import Transform, axes_of, check, check_numbers, linear, moved

if TYPE_CHECKING:
    from ..io import PointCloud
    from .base import Draw


@dataclass(frozen=True)
class Flip(Transform):
    """Mirrors each of the axes with probability p; normals are mirrored too.

    axes: letters such as "xy".

    Examples:
        >>> import numpy as np
        >>> from mlx_lattice import samples, transforms
        >>> yard, rng = samples.scan(), transforms.rng_of(seed=0, epoch=0, index=0)
        >>> mirrored = transforms.Flip("x", p=1.0)(yard, rng)
        >>> np.array_equal(mirrored.points[:, 0], -yard.points[:, 0])
        True
    """

    axes: str = "xy"
    p: float = 0.5

    def __post_init__(self) -> None:
        axes_of(self, "axes")
        number(self, "p", self.p, 0, 1)

    def apply(self, cloud: PointCloud, rng: np.random.Generator, draw: Draw | None) -> PointCloud:
        signs = np.ones(3)
        for axis in axes_of(self, "axes"):
            if rng.random() < self.p:
                signs[axis] = -1
        return linear(cloud, np.diag(signs)) if (signs < 0).any() else cloud


@dataclass(frozen=True)
class Rotate(Transform):
    """Turns about an axis through the origin by an angle between low and high, in degrees."""

    axis: str = "z"
    low: float = -180.0
    high: float = 180.0

    def __post_init__(self) -> None:
        one_of(self, "axis", self.axis, ("x", "y", "z"))
        low, high = (finite(self, key, getattr(self, key)) for key in ("low", "high"))
        check(self, "high", low <= high, f"at least low = {low}")

    def apply(self, cloud: PointCloud, rng: np.random.Generator, draw: Draw | None) -> PointCloud:
        return linear(cloud, turn(np.radians(rng.uniform(self.low, self.high)), self.axis))


@dataclass(frozen=True)
class Scale(Transform):
    """Multiplies all lengths by a factor between low and high; per_axis: each axis by its own."""

    low: float = 0.95
    high: float = 1.05
    per_axis: bool = False

    def __post_init__(self) -> None:
        low, high = (finite(self, key, getattr(self, key)) for key in ("low", "high"))
        check(self, "low", 0 < low <= high, f"above 0 and at most high = {high}")
        flag(self, "per_axis", self.per_axis)

    def apply(self, cloud: PointCloud, rng: np.random.Generator, draw: Draw | None) -> PointCloud:
        factor = rng.uniform(self.low, self.high, 3 if self.per_axis else 1)
        return linear(cloud, np.diag(np.broadcast_to(factor, 3)))


@dataclass(frozen=True)
class Translate(Transform):
    """Moves all points by one vector, whose axes are normal with deviations sigma (x, y, z)."""

    sigma: tuple[float, ...] = (0.5, 0.5, 0.1)

    def __post_init__(self) -> None:
        expected = "three numbers of 0 or more"
        check(self, "sigma", min(check_numbers(self, "sigma", expected)) >= 0, expected)

    def apply(self, cloud: PointCloud, rng: np.random.Generator, draw: Draw | None) -> PointCloud:
        return moved(cloud, cloud.points + rng.normal(size=3) * np.asarray(self.sigma))


@dataclass(frozen=True)
class Jitter(Transform):
    """Moves each coordinate by normal noise of deviation sigma, at most `most`."""

    sigma: float = 0.01
    most: float = 0.05

    def __post_init__(self) -> None:
        finite(self, "sigma", self.sigma, 0)
        finite(self, "most", self.most, 0)

    def apply(self, cloud: PointCloud, rng: np.random.Generator, draw: Draw | None) -> PointCloud:
        noise = rng.standard_normal(cloud.points.shape, np.float32) * np.float32(self.sigma)
        return moved(cloud, cloud.points + np.clip(noise, -self.most, self.most))


@dataclass(frozen=True)
class Elastic(Transform):
    """Smooth distortion (Simard et al., 2003): blurred noise on a coarse grid, interpolated.

    cell: the distance of two nodes of the grid, in units of the points.
    magnitude: the standard deviation of the noise at a node before it is blurred.
    """

    cell: float = 0.2
    magnitude: float = 0.4

    def __post_init__(self) -> None:
        positive(self, "cell", self.cell)
        finite(self, "magnitude", self.magnitude, 0)

    def apply(self, cloud: PointCloud, rng: np.random.Generator, draw: Draw | None) -> PointCloud:
        bounds = cloud.bounds()
        if bounds is None:
            return cloud
        low, high = bounds
        cell = max(self.cell, float((high - low).max()) / 128)  # at most 131 nodes per axis
        shape = np.ceil((high - low) / cell).astype(int) + 3
        noise = rng.standard_normal((*shape, 3)).astype(np.float32)
        for _ in range(2):  # a box of three nodes, twice along each axis
            for axis in range(3):
                wide = np.concatenate([noise.take([0], axis), noise, noise.take([-1], axis)], axis)
                n = noise.shape[axis]
                noise = sum(wide.take(range(k, k + n), axis) for k in range(3)) / np.float32(3)
        finite = cloud.finite()
        at = (cloud.points[finite] - low) / cell + 0.5
        points = cloud.points.astype(np.float64)
        points[finite] += self.magnitude * read_grid(noise, at)
        return moved(cloud, points)


@dataclass(frozen=True)
class Normalize(Transform):
    """Moves the center of the points to the origin; `unit` also scales the farthest point to 1.

    center: "mean" of the points, "box" for the middle of their box, or "none".

    Examples:
        >>> import numpy as np
        >>> from mlx_lattice import samples, transforms
        >>> rng = transforms.rng_of(seed=0, epoch=0, index=0)
        >>> unit = transforms.Normalize()(samples.scan(), rng)
        >>> round(float(np.linalg.norm(unit.points, axis=1).max()), 3)
        1.0
    """

    center: str = "mean"
    unit: bool = True

    def __post_init__(self) -> None:
        one_of(self, "center", self.center, ("mean", "box", "none"))
        flag(self, "unit", self.unit)

    def apply(self, cloud: PointCloud, rng: np.random.Generator, draw: Draw | None) -> PointCloud:
        finite = cloud.points[cloud.finite()].astype(np.float64)
        if not len(finite):
            return cloud
        middle = np.zeros(3)
        if self.center == "mean":
            middle = finite.mean(axis=0)
        elif self.center == "box":
            middle = (finite.min(axis=0) + finite.max(axis=0)) / 2
        scale = np.sqrt(((finite - middle) ** 2).sum(axis=1).max()) if self.unit else 1.0
        return moved(cloud, (cloud.points.astype(np.float64) - middle) / (scale or 1.0))


def turn(angle: float, axis: str = "z") -> np.ndarray:
    """(3, 3) matrix of a right-handed turn about an axis, in radians."""
    c, s, k = np.cos(angle), np.sin(angle), "xyz".index(axis)
    i, j = (k + 1) % 3, (k + 2) % 3
    matrix = np.eye(3)
    matrix[i, i] = matrix[j, j] = c
    matrix[i, j], matrix[j, i] = -s, s
    return matrix


def read_grid(grid: np.ndarray, at: np.ndarray) -> np.ndarray:
    """(N, C): trilinear values of grid (X, Y, Z, C) at positions (N, 3) in nodes."""
    last = np.array(grid.shape[:3]) - 2
    base = np.clip(np.floor(at).astype(np.int64), 0, last)
    part = (at - base).astype(np.float32)
    out = np.zeros((len(at), grid.shape[3]), np.float32)
    for corner in range(8):
        step = np.array([corner & 1, corner >> 1 & 1, corner >> 2])
        weight = np.where(step, part, 1 - part).prod(axis=1)
        x, y, z = (base + step).T
        out += weight[:, None] * grid[x, y, z]
    return out
