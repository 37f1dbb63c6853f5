"""EdgeConv on graphs in feature space, and DGCNN (Wang et al., ACM Trans. Graph. 2019).

    y_i = max over neighbors j of i of leaky(norm(A x_i + B (x_j - x_i)))

The neighbors are the k nearest rows in the space of the features themselves, found anew by each
layer. A x_i + B (x_j - x_i) = (A - B) x_i + B x_j: both products are taken per row, not per edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn

from .. import ops
from ..models._model import Model
from ..nn import Linear
from ..nn._checks import integer, integers
from .batches import as_batch
from .norms import make_norm
from .segments import segment_reduce

if TYPE_CHECKING:
    from .._types import ArrayLike
    from .batches import Clouds


def check_k(k: object) -> None:
    """Raises unless k is a number of neighbors that a graph can have places for."""
    if not isinstance(k, int) or k < 1:
        raise ValueError(f"[knn_graph] k must be an integer >= 1, got {k!r}")
    if k > 1 << 16:
        raise ValueError(f"[knn_graph] k must be at most 65,536, got {k}; each row gets k places")


def feature_graph(x: mx.array, k: int, lengths: ArrayLike | None = None) -> mx.array:
    """(T, k) int32: rows of the k nearest features in the cloud of each row, itself among them.

    x is (T, C) for any C. In a cloud of fewer than k rows the last places repeat the first
    neighbor.
    """
    check_k(k)
    x = mx.stop_gradient(x)
    sizes = [x.shape[0]] if lengths is None else integers(lengths)
    if sum(sizes) != x.shape[0]:
        raise ValueError(f"[knn_graph] lengths must sum to {x.shape[0]}, got {sum(sizes)}")
    parts, begin = [mx.zeros((0, k), dtype=mx.int32)], 0
    for size in sizes:
        if size:
            rows, _ = ops.knn_rows(x[begin : begin + size], min(k, size))
            if size < k:
                rows = mx.concatenate([rows, mx.repeat(rows[:, :1], k - size, axis=1)], axis=1)
            parts.append(rows + begin)
            begin += size
    return mx.concatenate(parts)


class EdgeConv(mlx.nn.Module):
    """(x (T, C), lengths) -> (T, out_channels).

    The graph is searched among x unless it is given.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        k: int = 20,
        norm: str = "batch",
        slope: float = 0.2,
    ) -> None:
        super().__init__()
        c_in = integer(self, "in_channels", in_channels)
        c_out = integer(self, "out_channels", out_channels)
        self._k, self._slope = integer(self, "k", k), float(slope)
        self.own, self.other = Linear(c_in, c_out, bias=False), Linear(c_in, c_out, bias=False)
        self.norm = make_norm(norm, c_out)

    def __call__(
        self, x: mx.array, lengths: mx.array | None = None, graph: mx.array | None = None
    ) -> mx.array:
        idx = feature_graph(x, self._k, lengths) if graph is None else graph
        n, k = idx.shape
        b = self.other(x)
        edges = (self.own(x) - b)[:, None] + b[idx.reshape(-1)].reshape(n, k, b.shape[1])
        sizes = None if lengths is None else mx.array(lengths) * k
        edges = self.norm(edges.reshape(n * k, b.shape[1]), sizes)
        edges = mx.maximum(edges, self._slope * edges)
        return edges.reshape(n, k, b.shape[1]).max(axis=1) if n else edges.reshape(0, b.shape[1])

    forward = __call__


class DGCNN(Model):
    """Dynamic graph network: one class per cloud, or with `per_point` one per point.

    EdgeConvs of `channels`, their outputs side by side, a linear layer to `width`, the maximum and
    the mean of each cloud, then the head. Norms are batch norms over all rows, or "row" norms.
    """

    def __init__(
        self,
        in_channels: int = 3,
        num_classes: int = 40,
        channels: Sequence[int] = (64, 64, 128, 256),
        width: int = 1024,
        k: int = 20,
        per_point: bool = False,
        norm: str = "batch",
    ) -> None:
        if norm not in ("batch", "row", "none"):
            raise ValueError(f"[DGCNN] norm must be batch, row or none, got {norm!r}")
        channels = list(channels)
        super().__init__(
            in_channels=in_channels,
            num_classes=num_classes,
            channels=channels,
            width=width,
            k=k,
            per_point=per_point,
            norm=norm,
        )
        ins = [in_channels, *channels[:-1]]
        self.layers = [EdgeConv(a, b, k, norm) for a, b in zip(ins, channels, strict=True)]
        self.mix, self.mix_norm = Linear(sum(channels), width, bias=False), make_norm(norm, width)
        joined = 2 * width + (sum(channels) if per_point else 0)
        self.hidden, self.hidden_norm = Linear(joined, 256, bias=False), make_norm(norm, 256)
        self.head = Linear(256, num_classes)

    def __call__(
        self, positions: Clouds, features: ArrayLike | None = None, lengths: ArrayLike | None = None
    ) -> mx.array:
        """Rows are features where there are any, else the positions."""
        batch = as_batch(positions, features, lengths)
        x = batch.positions if batch.features is None else batch.features
        if x.shape[1] != self.config["in_channels"]:
            raise ValueError(
                f"[DGCNN] expected {self.config['in_channels']} channels, got {x.shape[1]}"
            )
        found = []
        for layer in self.layers:
            x = layer(x, batch.lengths)
            found.append(x)
        local = mx.concatenate(found, axis=1)
        y = _leaky(self.mix_norm(self.mix(local)))
        cloud = mx.concatenate(
            [segment_reduce(y, batch.lengths, how) for how in ("max", "mean")], axis=1
        )
        if self.config["per_point"]:
            cloud = mx.concatenate([cloud[batch.indices], local], axis=1)
        return self.head(_leaky(self.hidden_norm(self.hidden(cloud))))

    forward = __call__


def _leaky(x: mx.array) -> mx.array:
    return mx.maximum(x, 0.2 * x)
