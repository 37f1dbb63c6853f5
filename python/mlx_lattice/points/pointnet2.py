"""PointNet++ (Qi et al., NeurIPS 2017): shared networks on balls around farthest points.

set abstraction:      y_i = max over points j within r of center i of MLP([x_j, (p_j - p_i) / r])
feature propagation:  x_p = sum over the 3 nearest centers of w x, w = 1 / d^2, scaled to sum 1
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn

from .. import ops
from ..core._checks import flag, integer, layer_count, listed, number, positive
from ..core._checks import sizes as widths
from ..models._model import Model
from ..nn import Linear
from ..ops.segments import segment_indices, segment_reduce
from .batches import as_batch
from .norms import make_norm

if TYPE_CHECKING:
    from ..core.types import ArrayLike
    from .batches import Clouds


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
    """y_i = max over the points j within r of center i of MLP([x_j, (p_j - p_i) / r]), r = radius.

    layer(x, positions, lengths) -> (y (M, channels[-1]), centers (M, 3), lengths of the centers).
    The centers are farthest points of each cloud; x (T, in_channels) may be None for 0 channels.

    Args:
        channels: Those of each layer of the MLP.
        share: The share of the points of a cloud that become centers, above 0 and at most 1.
        most: The largest number of neighbors; the nearest are kept.
        norm: "batch", "row" or "none".

    Raises:
        ValueError: Arrays have other rows, or lengths do not sum to them.

    Examples:
        >>> import mlx.core as mx
        >>> from mlx_lattice import points
        >>> layer = points.SetAbstraction(0, (16,), share=0.25, radius=0.5)
        >>> y, centers, sizes = layer(None, mx.random.uniform(shape=(40, 3)), mx.array([20, 20]))
        >>> y.shape, sizes.tolist()
        ((10, 16), [5, 5])
    """

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
        self._radius = positive(self, "radius", radius)
        self._most = integer(self, "most", most)
        first = integer(self, "in_channels", in_channels, 0) + 3
        self.mlp = SharedMLP([first, *widths(self, "channels", channels)], norm)

    def __call__(
        self, x: mx.array | None, positions: mx.array, lengths: mx.array
    ) -> tuple[mx.array, mx.array, mx.array]:
        batch = as_batch(positions, x, lengths, type(self).__name__)
        x, positions, lengths = batch.features, batch.positions, batch.lengths
        rows, sizes = ops.sample_centers(mx.stop_gradient(positions), lengths, self._share)
        centers = positions[rows]
        found = ops.build_radius_relation(
            mx.stop_gradient(positions),
            mx.stop_gradient(centers),
            radius=self._radius,
            max_neighbors=self._most,
            batch_indices=segment_indices(lengths),
            query_batch_indices=segment_indices(sizes),
        )
        edges = found.edges
        near = (positions[edges.source_rows] - centers[edges.query_rows]) / self._radius
        inputs = near if x is None else mx.concatenate([x[edges.source_rows], near], axis=1)
        return segment_reduce(self.mlp(inputs), found.query_counts, "max"), centers, sizes


class FeaturePropagation(mlx.nn.Module):
    """Features of centers carried to the points they came from, joined with the points' own.

    layer(x, centers, sizes, own, positions, lengths) -> (T, channels[-1]). x (M, C) are features of
    the centers (M, 3) with `sizes` per cloud; own (T, C2), or None, are those of the points. Each
    point takes the mean of its three nearest centers with weights 1 / d^2; in_channels is C + C2.
    """

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
        for where, feats, counts in ((centers, x, sizes), (positions, own, lengths)):
            as_batch(where, feats, counts, type(self).__name__)
        found = ops.build_knn_relation(
            mx.stop_gradient(centers),
            mx.stop_gradient(positions),
            k=3,
            batch_indices=segment_indices(sizes),
            query_batch_indices=segment_indices(lengths),
        )
        weight = 1 / mx.maximum(found.distances, 1e-8)
        edges = found.edges
        total = segment_reduce(weight[:, None], found.query_counts, "sum")
        weight = weight[:, None] / total[edges.query_rows]
        y = segment_reduce(weight * x[edges.source_rows], found.query_counts, "sum")
        return self.mlp(y if own is None else mx.concatenate([y, own], axis=1))


class PointNet2(Model):
    """PointNet++ with one scale per level: scores (B, num_classes), or (T, num_classes) per point.

    The network takes a PointCloudBatch, or positions (T, 3), features (T, in_channels) and lengths
    (B,). Positions are expected in about the unit ball, as `transforms.Normalize` makes them.

    Args:
        in_channels: Those of the features; 0 without features.
        shares, radii: Share of the points that each set abstraction keeps, and its radius.
        most: The largest number of neighbors of a center.
        per_point: Whether there is one result per point instead of one per cloud.
        norm: "batch", "row" or "none".
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
        shares = listed(self, "shares", shares, "a list of numbers")
        radii = listed(self, "radii", radii, "a list of numbers")
        if len(shares) != len(radii) or not shares:
            raise ValueError(
                f"[PointNet2] radii must be as many as shares, found {len(radii)} and {len(shares)}"
            )
        in_channels = integer(self, "in_channels", in_channels, 0)
        num_classes, width = (
            integer(self, "num_classes", num_classes),
            integer(self, "width", width),
        )
        layer_count(self, "shares", len(shares))
        per_point = flag(self, "per_point", per_point)
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
        self._build()

    def _build(self) -> None:
        """Makes the layers that the configuration asks for."""
        config = self._config
        in_channels, width, most = config["in_channels"], config["width"], config["most"]
        shares, radii, norm = config["shares"], config["radii"], config["norm"]
        sizes = [in_channels] + [width * 2 ** (i + 1) for i in range(len(shares))]
        self.levels = [
            SetAbstraction(a, (b // 2, b // 2, b), share, radius, most, norm)
            for a, b, share, radius in zip(sizes[:-1], sizes[1:], shares, radii, strict=True)
        ]
        top = sizes[-1] * 2
        self.whole = SharedMLP([sizes[-1] + 3, sizes[-1], top], norm)
        if config["per_point"]:
            self.rises = [
                FeaturePropagation(
                    (top if i == len(shares) - 1 else sizes[i + 2]) + sizes[i + 1],
                    [sizes[i + 1]],
                    norm,
                )
                for i in reversed(range(len(shares)))
            ]
            self.last = FeaturePropagation(sizes[1] + in_channels, [width * 2, width * 2], norm)
        self.hidden = Linear(width * 2 if config["per_point"] else top, 256)
        self.hidden_norm = make_norm(norm, 256)
        self.head = Linear(256, config["num_classes"])

    def __call__(
        self, positions: Clouds, features: ArrayLike | None = None, lengths: ArrayLike | None = None
    ) -> mx.array:
        batch = as_batch(positions, features, lengths, "PointNet2")
        given = batch.features
        if (0 if given is None else given.shape[1]) != self.config["in_channels"]:
            raise ValueError(
                f"[PointNet2] features must have {self.config['in_channels']} channels, "
                f"found {0 if given is None else given.shape[1]}"
            )
        x, centers, sizes = self.levels[0](given, batch.positions, batch.lengths)
        steps = [(given, batch.positions, batch.lengths), (x, centers, sizes)]
        for level in self.levels[1:]:
            x, centers, sizes = level(x, centers, sizes)
            steps.append((x, centers, sizes))
        whole = self.whole(mx.concatenate([x, centers], axis=1))
        cloud = segment_reduce(whole, sizes, "max", empty_value=0.0)  # 0 for an empty cloud
        if self.config["per_point"]:
            y = cloud[segment_indices(sizes)]  # the whole cloud at each center of the last level
            y = self.rises[0].mlp(mx.concatenate([y, x], axis=1))
            for i, rise in enumerate(self.rises[1:], 1):
                own, positions_, sizes_ = steps[-1 - i]
                y = rise(y, steps[-i][1], steps[-i][2], own, positions_, sizes_)
            own, positions_, sizes_ = steps[0]
            cloud = self.last(y, steps[1][1], steps[1][2], own, positions_, sizes_)
        return self.head(mx.maximum(self.hidden_norm(self.hidden(cloud)), 0))

    forward = __call__
