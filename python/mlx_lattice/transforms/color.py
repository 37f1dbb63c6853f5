"""Transforms of the column `color`: jitter, contrast, drop. A cloud without colors is an error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..core._checks import finite, number
from ..io import PointCloud
from .base import Transform

if TYPE_CHECKING:
    from .base import Draw


@dataclass(frozen=True)
class ColorJitter(Transform):
    """Changes brightness and contrast of a cloud, and adds noise to the color of each point.

    brightness, contrast: the largest change, as a share of the full range and of the contrast.
    noise: the standard deviation per point, as a share of the full range.
    """

    brightness: float = 0.1
    contrast: float = 0.1
    noise: float = 0.02

    def __post_init__(self) -> None:
        for key in ("brightness", "contrast", "noise"):
            finite(self, key, getattr(self, key), 0)

    def apply(self, cloud: PointCloud, rng: np.random.Generator, draw: Draw | None) -> PointCloud:
        color, full = _color(self, cloud)
        rgb = color[:, :3].astype(np.float64) / full
        middle = rgb.mean(axis=0, keepdims=True) if len(rgb) else 0.0
        rgb = (rgb - middle) * (1 + rng.uniform(-self.contrast, self.contrast)) + middle
        rgb = rgb + rng.uniform(-self.brightness, self.brightness)
        rgb = rgb + rng.normal(0, self.noise, rgb.shape)
        return _with_color(cloud, color, np.clip(rgb, 0, 1) * full)


@dataclass(frozen=True)
class ColorDrop(Transform):
    """All colors become 0 with probability p."""

    p: float = 0.2

    def __post_init__(self) -> None:
        number(self, "p", self.p, 0, 1)

    def apply(self, cloud: PointCloud, rng: np.random.Generator, draw: Draw | None) -> PointCloud:
        color, _ = _color(self, cloud)
        if rng.random() >= self.p:
            return cloud
        return _with_color(cloud, color, np.zeros((len(cloud), 3)))


def _color(transform: Transform, cloud: PointCloud) -> tuple[np.ndarray, float]:
    """The colors, and the largest value that they may have."""
    color = cloud.columns.get("color")
    if color is None or color.ndim != 2 or color.shape[1] not in (3, 4):
        raise ValueError(
            f"[{type(transform).__name__}] needs the column color (N, 3); "
            f"found {', '.join(cloud.columns) or 'no column'}"
        )
    return color, 1.0 if color.dtype.kind == "f" else float(np.iinfo(color.dtype).max)


def _with_color(cloud: PointCloud, color: np.ndarray, rgb: np.ndarray) -> PointCloud:
    values = color.copy()
    values[:, :3] = rgb if color.dtype.kind == "f" else np.rint(rgb)
    return PointCloud(cloud.points, {**cloud.columns, "color": values}, dict(cloud.meta))
