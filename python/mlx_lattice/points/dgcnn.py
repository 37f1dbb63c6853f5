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

from ..core._checks import array, flag, integer, number, one_of, sizes
from ..models._model import Model
from ..nn import Linear
from ..ops.segments import segment_reduce
from .batches import as_batch
from .neighbors import feature_graph
from .norms import make_norm
from .pointcnn import checked_rows

if TYPE_CHECKING:
    from ..core.types import ArrayLike
    from .batches import Clouds


class EdgeConv(mlx.nn.Module):
    """y_i = max over the neighbors j of i of leaky(norm(A x_i + B (x_j - x_i))).

    layer(x (T, in_channels), lengths) -> (T, out_channels). The k nearest rows of x in its own
    cloud are the neighbors; `layer(x, lengths, graph)` takes rows (T, k) instead. lengths (B,) are
    the rows of each cloud, by default one cloud.

    Args:
        norm: "batch", "row" or another name of `points` norms, or "none".
        slope: That of the activation below 0.
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
        self._in_channels = c_in = integer(self, "in_channels", in_channels)
        c_out = integer(self, "out_channels", out_channels)
        self._k, self._slope = integer(self, "k", k), number(self, "slope", slope)
        self.own, self.other = Linear(c_in, c_out, bias=False), Linear(c_in, c_out, bias=False)
        self.norm = make_norm(norm, c_out)

    def __call__(
        self, x: mx.array, lengths: mx.array | None = None, graph: mx.array | None = None
    ) -> mx.array:
        x = array(self, "x", x, "T", self._in_channels)
        if graph is None:
            idx = feature_graph(x, self._k, lengths)
        else:
            idx = checked_rows(self, "graph", graph, x.shape[0])
        n, k = idx.shape
        b = self.other(x)
        edges = (self.own(x) - b)[:, None] + b[idx.reshape(-1)].reshape(n, k, b.shape[1])
        sizes = None if lengths is None else lengths * k
        edges = self.norm(edges.reshape(n * k, b.shape[1]), sizes)
        edges = mx.maximum(edges, self._slope * edges)
        return edges.reshape(n, k, b.shape[1]).max(axis=1) if n else edges.reshape(0, b.shape[1])

    forward = __call__


class DGCNN(Model):
    """Dynamic graph network: scores (B, num_classes) per cloud, or (T, num_classes) per point.

    EdgeConvs of `channels`, their outputs side by side, a linear layer to `width`, the maximum and
    the mean of each cloud, then the head. The network takes a PointCloudBatch, or positions (T, 3),
    features (T, in_channels) and lengths (B,); without features it sees the positions.

    Args:
        channels: Those of each EdgeConv.
        k: The number of neighbors in the space of the features.
        per_point: Whether there is one result per point instead of one per cloud.
        norm: "batch" over all rows, "row" over the channels of a row, or "none".
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
        one_of(self, "norm", norm, ("batch", "row", "none"))
        channels = sizes(self, "channels", channels)
        in_channels = integer(self, "in_channels", in_channels)
        num_classes = integer(self, "num_classes", num_classes)
        width, k = integer(self, "width", width), integer(self, "k", k)
        per_point = flag(self, "per_point", per_point)
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
        batch = as_batch(positions, features, lengths, "DGCNN")
        x = batch.positions if batch.features is None else batch.features
        if x.shape[1] != self.config["in_channels"]:
            raise ValueError(
                f"[DGCNN] expected {self.config['in_channels']} channels, found {x.shape[1]}"
            )
        found = []
        for layer in self.layers:
            x = layer(x, batch.lengths)
            found.append(x)
        local = mx.concatenate(found, axis=1)
        y = _leaky(self.mix_norm(self.mix(local)))
        both = [
            segment_reduce(y, batch.lengths, how, empty_value=0.0)  # an empty cloud has no maximum
            for how in ("max", "mean")
        ]
        cloud = mx.concatenate(both, axis=1)
        if self.config["per_point"]:
            cloud = mx.concatenate([cloud[batch.indices], local], axis=1)
        return self.head(_leaky(self.hidden_norm(self.hidden(cloud))))

    forward = __call__


def _leaky(x: mx.array) -> mx.array:
    return mx.maximum(x, 0.2 * x)
