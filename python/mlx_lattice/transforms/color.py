"""Transforms of the column `color`: jitter, contrast, drop. A cloud without colors is an error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..io import PointCloud
from .base import Transform, check

if TYPE_CHECKING:
    from .base import Draw


@dataclass(frozen=True)
class ColorJitter(Transform):
    """Brightness, contrast and noise per point, as parts of the full range."""

    brightness: float = 0.1
    contrast: float = 0.1
    noise: float = 0.02

    def __post_init__(self) -> None:
        for key in ("brightness", "contrast", "noise"):
            check(self, key, getattr(self, key) >= 0, "0 or more")

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
        check(self, "p", 0 <= self.p <= 1, "0 to 1")

    def apply(self, cloud: PointCloud, rng: np.random.Generator, draw: Draw | None) -> PointCloud:
        color, _ = _color(self, cloud)
        if rng.random() >= self.p:
            return cloud
        return _with_color(cloud, color, np.zeros((len(cloud), 3)))


def _color(transform: Any, cloud: PointCloud) -> tuple[Any, ...]:
    color = cloud.columns.get("color")
    if color is None or color.ndim != 2 or color.shape[1] not in (3, 4):
        raise ValueError(
            f"[{type(transform).__name__}] needs the column color (N, 3); "
            f"found {', '.join(cloud.columns) or 'no column'}"
        )
    return color, 1.0 if color.dtype.kind == "f" else float(np.iinfo(color.dtype).max)


def _with_color(cloud: PointCloud, color: Any, rgb: Any) -> PointCloud:
    values = color.copy()
    values[:, :3] = rgb if color.dtype.kind == "f" else np.rint(rgb)
    return PointCloud(cloud.points, {**cloud.columns, "color": values}, dict(cloud.meta))
