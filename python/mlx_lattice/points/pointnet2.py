"""PointNet++ (Qi et al., NeurIPS 2017): shared networks on balls around farthest points.

set abstraction:      y_i = max over points j within r of center i of MLP([x_j, (p_j - p_i) /
r])
feature propagation:  x_p = sum over the 3 nearest centers of w x, w = 1 / d^2, scaled to sum 1
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn

from .. import ops
from ..models._model import Model
from ..nn import Linear
from ..nn._checks import integer, integers, number
from ..nn._checks import sizes as widths
from .batches import PointCloudBatch, as_batch
from .norms import make_norm
from .segments import segment_reduce

if TYPE_CHECKING:
    from .._types import ArrayLike
    from .batches import Clouds


def sample_centers(
    positions: mx.array, lengths: mx.array, share: float
) -> tuple[mx.array, mx.array]:
    """(rows, lengths): farthest points of each cloud, the share of its points, at least one."""
    rows, sizes, begin = [mx.zeros((0,), dtype=mx.int32)], [], 0
    for size in integers(lengths):
        count = min(size, max(1, round(size * share)))
        if size:
            cloud = mx.stop_gradient(positions[begin : begin + size])
            rows.append(ops.farthest_point_sample(cloud, count) + begin)
        sizes.append(count)
        begin += size
    return mx.concatenate(rows), mx.array(sizes, dtype=mx.int32)


class SharedMLP(mlx.nn.Module):
    """Linear layers with norm and relu on every row."""

    def __init__(self, channels: Sequence[int], norm: str = "batch") -> None:
        super().__init__()
        pairs = list(itertools.pairwise(channels))
        self.layers = [Linear(a, b, bias=norm == "none") for a, b in pairs]
        self.norms = [make_norm(norm, b) for _, b in pairs]

    def __call__(self, x: mx.array) -> mx.array:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = mx.maximum(norm(layer(x)), 0)
        return x


class SetAbstraction(mlx.nn.Module):
    """(x, positions, lengths) -> (y, centers, lengths of the centers)."""

    def __init__(
        self,
        in_channels: int,
        channels: Sequence[int],
        share: float = 0.25,
        radius: float = 0.2,
        most: int = 32,
        norm: str = "batch",
    ) -> None:
        super().__init__()
        self._share = number(self, "share", share, 0, 1, low_included=False)
        self._radius = number(self, "radius", radius, 0, low_included=False, high_included=False)
        self._most = integer(self, "most", most)
        first = integer(self, "in_channels", in_channels, 0) + 3
        self.mlp = SharedMLP([first, *widths(self, "channels", channels)], norm)

    def __call__(
        self, x: mx.array | None, positions: mx.array, lengths: mx.array
    ) -> tuple[mx.array, mx.array, mx.array]:
        batch = PointCloudBatch._named(type(self).__name__, positions, x, lengths)
        rows, sizes = sample_centers(batch.positions, batch.lengths, self._share)
        centers = positions[rows]
        found = ops.build_radius_relation(
            mx.stop_gradient(positions),
            mx.stop_gradient(centers),
            radius=self._radius,
            max_neighbors=self._most,
            batch_indices=_clouds(lengths),
            query_batch_indices=_clouds(sizes),
        )
        edges = found.edges
        near = (positions[edges.source_rows] - centers[edges.query_rows]) / self._radius
        inputs = near if x is None else mx.concatenate([x[edges.source_rows], near], axis=1)
        return segment_reduce(self.mlp(inputs), found.query_counts, "max"), centers, sizes


class FeaturePropagation(mlx.nn.Module):
    """Features of centers carried to the points they came from, joined with the points' own."""

    def __init__(self, in_channels: int, channels: Sequence[int], norm: str = "batch") -> None:
        super().__init__()
        self.mlp = SharedMLP([in_channels, *widths(self, "channels", channels)], norm)

    def __call__(
        self,
        x: mx.array,
        centers: mx.array,
        sizes: mx.array,
        own: mx.array | None,
        positions: mx.array,
        lengths: mx.array,
    ) -> mx.array:
        PointCloudBatch._named(type(self).__name__, centers, x, sizes)
        PointCloudBatch._named(type(self).__name__, positions, own, lengths)
        found = ops.build_knn_relation(
            mx.stop_gradient(centers),
            mx.stop_gradient(positions),
            k=3,
            batch_indices=_clouds(sizes),
            query_batch_indices=_clouds(lengths),
        )
        weight = 1 / mx.maximum(found.distances, 1e-8)
        edges = found.edges
        total = segment_reduce(weight[:, None], found.query_counts, "sum")
        weight = weight[:, None] / total[edges.query_rows]
        y = segment_reduce(weight * x[edges.source_rows], found.query_counts, "sum")
        return self.mlp(y if own is None else mx.concatenate([y, own], axis=1))


class PointNet2(Model):
    """PointNet++ with one scale per level: one class per cloud, or with `per_point` one per point.

    shares, radii: of the set abstractions; positions are expected in about the unit ball, as
    transforms.Normalize makes them.
    """

    def __init__(
        self,
        in_channels: int = 0,
        num_classes: int = 40,
        width: int = 64,
        shares: Sequence[float] = (0.5, 0.25),
        radii: Sequence[float] = (0.2, 0.4),
        most: int = 32,
        per_point: bool = False,
        norm: str = "batch",
    ) -> None:
        shares, radii = list(shares), list(radii)
        if len(shares) != len(radii) or not shares:
            raise ValueError(
                f"[PointNet2] radii must be as many as shares, got {len(radii)} and {len(shares)}"
            )
        super().__init__(
            in_channels=in_channels,
            num_classes=num_classes,
            width=width,
            shares=shares,
            radii=radii,
            most=most,
            per_point=per_point,
            norm=norm,
        )
        sizes = [in_channels] + [width * 2 ** (i + 1) for i in range(len(shares))]
        self.levels = [
            SetAbstraction(a, (b // 2, b // 2, b), share, radius, most, norm)
            for a, b, share, radius in zip(sizes[:-1], sizes[1:], shares, radii, strict=True)
        ]
        top = sizes[-1] * 2
        self.whole = SharedMLP([sizes[-1] + 3, sizes[-1], top], norm)
        if per_point:
            self.rises = [
                FeaturePropagation(
                    (top if i == len(shares) - 1 else sizes[i + 2]) + sizes[i + 1],
                    [sizes[i + 1]],
                    norm,
                )
                for i in reversed(range(len(shares)))
            ]
            self.last = FeaturePropagation(sizes[1] + in_channels, [width * 2, width * 2], norm)
        self.hidden = Linear(width * 2 if per_point else top, 256)
        self.hidden_norm = make_norm(norm, 256)
        self.head = Linear(256, num_classes)

    def __call__(
        self, positions: Clouds, features: ArrayLike | None = None, lengths: ArrayLike | None = None
    ) -> mx.array:
        batch = as_batch(positions, features, lengths)
        x = batch.features
        if (0 if x is None else x.shape[1]) != self.config["in_channels"]:
            raise ValueError(
                f"[PointNet2] features must have {self.config['in_channels']} channels, "
                f"got {0 if x is None else x.shape[1]}"
            )
        steps = [(x, batch.positions, batch.lengths)]
        for level in self.levels:
            steps.append(level(*steps[-1]))
        x, centers, sizes = steps[-1]
        cloud = segment_reduce(self.whole(mx.concatenate([x, centers], axis=1)), sizes, "max")
        if self.config["per_point"]:
            y = cloud[_clouds(sizes)]  # the whole cloud at each center of the last level
            y = self.rises[0].mlp(mx.concatenate([y, x], axis=1))
            for i, rise in enumerate(self.rises[1:], 1):
                own, positions_, sizes_ = steps[-1 - i]
                y = rise(y, steps[-i][1], steps[-i][2], own, positions_, sizes_)
            own, positions_, sizes_ = steps[0]
            cloud = self.last(y, steps[1][1], steps[1][2], own, positions_, sizes_)
        return self.head(mx.maximum(self.hidden_norm(self.hidden(cloud)), 0))

    forward = __call__


def _clouds(lengths: mx.array) -> mx.array:
    """The cloud of each row."""
    sizes = integers(lengths)
    parts = [mx.full((size,), i, dtype=mx.int32) for i, size in enumerate(sizes) if size]
    return mx.concatenate(parts) if parts else mx.zeros((0,), dtype=mx.int32)
