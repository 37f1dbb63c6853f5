"""Features of pillars: a small network on the points of each pillar (Lang et al., "PointPillars:
Fast encoders for object detection from point clouds", CVPR 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import mlx.core as mx
import mlx.nn

from ... import nn
from .layers import EPS, MOMENTUM


class PillarLayer(mlx.nn.Module):
    """relu(norm(linear(x))) and its maximum over the slots; side by side unless it is the last."""

    def __init__(self, c_in: int, c_out: int, use_norm: bool, last: bool) -> None:
        super().__init__()
        width = c_out if last else c_out // 2
        self._last = last
        self.linear = nn.Linear(c_in, width, bias=not use_norm)
        if use_norm:
            self.norm = nn.BatchNorm(width, EPS, MOMENTUM)

    def __call__(self, x: mx.array) -> mx.array:
        """(V, M, C) -> (V, C') of the last layer, else (V, M, C')."""
        _, m, c = x.shape
        y = self.linear(x.reshape(-1, c))
        if "norm" in self:
            y = self.norm(y)
        y = mx.maximum(y, 0).reshape(-1, m, y.shape[1])
        # Slots without a point take part: they are relu(norm(0)).
        top = mx.max(y, axis=1, keepdims=not self._last)
        if self._last:
            return top
        return mx.concatenate([y, mx.broadcast_to(top, y.shape)], axis=-1)


class PillarFeatures(mlx.nn.Module):
    """Voxels (V, M, F) with their counts and cells -> (V, C)."""

    def __init__(
        self,
        in_channels: int,
        config: dict[str, Any],
        low: Sequence[float],
        voxel_size: Sequence[float],
    ) -> None:
        super().__init__()
        self._absolute = bool(config.get("USE_ABSLOTE_XYZ", True))
        self._distance = bool(config.get("WITH_DISTANCE", False))
        self._low, self._size = tuple(low), tuple(voxel_size)
        widths = [
            in_channels + (6 if self._absolute else 3) + int(self._distance),
            *config["NUM_FILTERS"],
        ]
        use_norm = bool(config.get("USE_NORM", True))
        last = len(widths) - 2
        self.pfn_layers = [
            PillarLayer(a, b, use_norm, i == last) for i, (a, b) in enumerate(pairwise(widths))
        ]

    def __call__(self, voxels: mx.array, counts: mx.array, cells: mx.array) -> mx.array:
        """cells are (V, 3): z, y, x."""
        xyz = voxels[:, :, :3]
        kept = mx.maximum(counts, 1).astype(mx.float32)[:, None, None]
        mean = mx.sum(xyz, axis=1, keepdims=True) / kept
        size, low = mx.array(self._size), mx.array(self._low)
        xyz_cells = mx.take(cells, mx.array([2, 1, 0]), axis=1)
        center = (xyz_cells.astype(mx.float32) + 0.5) * size + low
        parts = [voxels if self._absolute else voxels[:, :, 3:]]
        parts += [xyz - mean, xyz - center[:, None]]
        if self._distance:
            parts.append(mx.sqrt(mx.sum(xyz * xyz, axis=2, keepdims=True)))
        x = mx.concatenate(parts, axis=-1)
        used = mx.arange(voxels.shape[1])[None] < counts[:, None]
        x = mx.where(used[:, :, None], x, 0)
        for layer in self.pfn_layers:
            x = layer(x)
        return x
