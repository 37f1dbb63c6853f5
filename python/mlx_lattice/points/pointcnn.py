"""Convolution over the k nearest neighbors.

    y_i = max over neighbors j of i of W2 relu(W1 [x_j, p_j - p_i] + b1) + b2

`PointCNNConv` runs a shared network on each neighbor and takes the largest value per channel.
`xconv=True` is the X-Conv of PointCNN (Li et al. 2018, arXiv 1801.07791): a learned k x k matrix
weights and permutes the neighbors before an ordinary convolution. The convolution with real kernel
geometry is `PointConv3d`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn

from .. import ops
from ..nn import Linear
from ..nn._checks import integer, integers, layer_count, told
from .batches import as_batch
from .graphs import check_k, feature_graph
from .segments import indexed_segment_reduce

if TYPE_CHECKING:
    from .._types import ArrayLike
    from .batches import Clouds


def knn_graph(
    points: Clouds, k: int, lengths: ArrayLike | None = None
) -> tuple[mx.array, mx.array]:
    """(idx (T, k) int32, rel_pos (T, k, 3)): the k nearest points in the cloud of each point.

    Neighbors are ordered by (distance, row); the point itself comes first. In a cloud with fewer
    than k points the remaining places repeat the first neighbor, so that a maximum stays right.
    The array rel_pos = points[idx] - point is differentiable in the points.

    An array points (T, C) of another width is searched in its C dimensions, as EdgeConv does with
    features; rel_pos is then (T, k, C).
    """
    check_k(k)
    if isinstance(points, mx.array) and points.ndim == 2 and points.shape[1] != 3:
        idx = feature_graph(points, k, lengths)
        return idx, points[idx.reshape(-1)].reshape(*idx.shape, -1) - points[:, None]
    batch = as_batch(points, lengths=lengths)
    rows = batch.positions
    if not batch.total_points:
        return mx.zeros((0, k), dtype=mx.int32), mx.zeros((0, k, 3), dtype=rows.dtype)
    found = ops.build_knn_relation(mx.stop_gradient(rows), k=k, batch_indices=batch.indices)
    rank = mx.arange(k, dtype=mx.int32)[None]
    place = found.row_offsets[:-1, None] + mx.where(rank < found.query_counts[:, None], rank, 0)
    idx = found.edges.source_rows[place]
    mx.eval(idx)
    return idx, rows[idx] - rows[:, None]


class PointCNNConv(mlx.nn.Module):
    """in -> hidden -> relu -> out on each neighbor, then the maximum; ties share the gradient.

    use_rel_pos: p_j - p_i is part of the input.
    xconv: uses the X-Conv; needs k, the number of neighbors.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        hidden: int = 64,
        use_rel_pos: bool = False,
        xconv: bool = False,
        k: int | None = None,
    ) -> None:
        super().__init__()
        c_in, c_out = (
            integer(self, "in_channels", in_channels),
            integer(self, "out_channels", out_channels),
        )
        hidden = integer(self, "hidden", hidden)
        self._kind, self._k = "xconv" if xconv else "relative" if use_rel_pos else "features", None
        if xconv:
            if k is None:
                raise ValueError("[PointCNNConv] xconv=True needs k")
            self._k = k = integer(self, "k", k)
            self.lift1, self.lift2 = Linear(3, hidden), Linear(hidden, hidden)
            self.x1, self.x2 = Linear(3 * k, k * k), Linear(k * k, k * k)
            self.conv = Linear(k * (hidden + c_in), c_out)
        else:
            self.first, self.second = Linear(c_in, hidden), Linear(hidden, c_out)
            if use_rel_pos:
                self.relative = Linear(3, hidden, bias=False)

    def __call__(
        self,
        x: mx.array,
        coords: mx.array,
        neighbors_idx: mx.array,
        neighbors_rel_pos: mx.array | None = None,
        batch_indices: mx.array | None = None,
    ) -> mx.array:
        """(T, out) from x (T, C), rows neighbors_idx (T, k) and neighbors_rel_pos (T, k, 3)."""
        neighbors_idx = _rows_of(x, neighbors_idx)
        if (
            self._kind == "features"
        ):  # the network sees x_j alone: once for each j, not for each edge
            y = self.second(mx.maximum(self.first(x), 0))
            return self._max(y, neighbors_idx)
        if neighbors_rel_pos is None or neighbors_rel_pos.shape != (*neighbors_idx.shape, 3):
            found = None if neighbors_rel_pos is None else tuple(neighbors_rel_pos.shape)
            raise ValueError(
                "[PointCNNConv] neighbors_rel_pos must have shape "
                f"{(*neighbors_idx.shape, 3)}, got {found}"
            )
        return (self._relative if self._kind == "relative" else self._xconv)(
            x, neighbors_idx, neighbors_rel_pos
        )

    forward = __call__

    @staticmethod
    def _max(y: mx.array, idx: mx.array) -> mx.array:
        lengths = mx.full((idx.shape[0],), idx.shape[1], dtype=mx.int32)
        return indexed_segment_reduce(y, idx.reshape(-1), lengths, "max")

    def _relative(self, x: mx.array, idx: mx.array, rel: mx.array) -> mx.array:
        n, k = idx.shape
        h = _flat(_take(self.first(x), idx)) + self.relative(_flat(rel))
        y = self.second(mx.maximum(h, 0))
        return y.reshape(n, k, y.shape[1]).max(axis=1)

    def _xconv(self, x: mx.array, idx: mx.array, rel: mx.array) -> mx.array:
        n, k = idx.shape
        if k != self._k:
            raise ValueError(f"[PointCNNConv] this X-Conv is made for {self._k} neighbors, got {k}")
        lifted = self.lift2(mx.maximum(self.lift1(_flat(rel)), 0))
        inputs = mx.concatenate([lifted.reshape(n, k, lifted.shape[1]), _take(x, idx)], axis=2)
        matrix = self.x2(mx.maximum(self.x1(rel.reshape(n, 3 * k)), 0)).reshape(n, k, k)
        return self.conv((matrix @ inputs).reshape(n, k * inputs.shape[2]))


class PointCNNEncoder(mlx.nn.Module):
    """num_layers PointCNNConv with relu between them: (x, coords, lengths) -> (T, channels).

    All layers share one search of neighbors. k is cut to the largest cloud, except for X-Conv. The
    options `hidden`, `use_rel_pos` and `xconv` go to the convolutions.
    """

    def __init__(
        self,
        num_layers: int = 3,
        in_channels: int = 3,
        channels: int = 64,
        k: int = 16,
        **conv_kw: Any,
    ) -> None:
        super().__init__()
        count = layer_count(self, "num_layers", num_layers)
        self._k, self._exact = integer(self, "k", k), bool(conv_kw.get("xconv"))
        if self._exact:
            conv_kw = {**conv_kw, "k": k}
        self.layers = [
            PointCNNConv(in_channels if i == 0 else channels, channels, **conv_kw)
            for i in range(count)
        ]

    def __call__(self, x: mx.array, coords: Clouds, lengths: ArrayLike | None = None) -> mx.array:
        batch = as_batch(coords, lengths=lengths)
        largest = max(integers(batch.lengths), default=0)
        k = self._k if self._exact else max(1, min(self._k, largest))
        idx, rel = knn_graph(batch, k)
        for i, layer in enumerate(self.layers):
            x = layer(x if i == 0 else mx.maximum(x, 0), batch.positions, idx, rel, batch.indices)
        return x

    forward = __call__


def _rows_of(x: mx.array, idx: mx.array) -> mx.array:
    """Neighbor rows, checked once for all forms.

    A row outside of x would be read from foreign memory.
    """
    if not isinstance(x, mx.array) or x.ndim != 2:
        raise TypeError(f"[PointCNNConv] x must be an array (T, C), found {told(x)}")
    if not isinstance(idx, mx.array) or not mx.issubdtype(idx.dtype, mx.integer):
        raise TypeError(
            f"[PointCNNConv] neighbors_idx must be an array of integers, found {told(idx)}"
        )
    if idx.ndim != 2 or idx.shape[0] != x.shape[0]:
        raise ValueError(
            f"[PointCNNConv] neighbors_idx must have shape ({x.shape[0]}, k), got"
            f" {tuple(idx.shape)}"
        )
    if idx.size:
        low, high = integers(mx.stack([idx.min(), idx.max()]))
        if low < 0 or high >= x.shape[0]:
            raise ValueError(
                f"[PointCNNConv] neighbors_idx holds {low if low < 0 else high}, which is "
                f"outside 0..{x.shape[0] - 1}, the rows of x"
            )
    return idx


def _take(x: mx.array, idx: mx.array) -> mx.array:
    return x[idx] if idx.size else mx.zeros((*idx.shape, x.shape[1]), dtype=x.dtype)


def _flat(a: mx.array) -> mx.array:
    """(n, k, c) -> (n k, c)"""
    return a.reshape(a.shape[0] * a.shape[1], a.shape[2])
