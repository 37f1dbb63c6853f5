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

from ..core._checks import array, caller, flag, integer, integers, layer_count, told
from ..nn import Linear
from ..ops.segments import indexed_segment_reduce
from .batches import as_batch
from .neighbors import knn_graph

if TYPE_CHECKING:
    from ..core.types import ArrayLike
    from .batches import Clouds


class PointCNNConv(mlx.nn.Module):
    """in -> hidden -> relu -> out on each neighbor, then the maximum; ties share the gradient.

    layer(x (T, C), coords, neighbors_idx (T, k), neighbors_rel_pos (T, k, 3)) -> (T, out_channels);
    `knn_graph` makes the last two. coords and batch_indices are accepted and not read.

    Args:
        hidden: The channels between the two layers.
        use_rel_pos: Makes p_j - p_i part of the input.
        xconv: Uses the X-Conv, a learned k x k matrix that mixes the neighbors.
        k: The number of neighbors, which the X-Conv needs.

    Attributes:
        in_channels, out_channels: As given.
        mlp: The shared network; of an X-Conv the one that lifts p_j - p_i.

    Raises:
        ValueError: neighbors_idx holds a row that x does not have, or an array has another shape.
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
        xconv, use_rel_pos = flag(self, "xconv", xconv), flag(self, "use_rel_pos", use_rel_pos)
        self.in_channels, self.out_channels = c_in, c_out
        self._kind, self._k = "xconv" if xconv else "relative" if use_rel_pos else "features", None
        if xconv:
            if k is None:
                raise ValueError("[PointCNNConv] xconv=True needs k")
            self._k = k = integer(self, "k", k)
            self.mlp = _mlp(3, hidden, hidden)
            self.x1, self.x2 = Linear(3 * k, k * k), Linear(k * k, k * k)
            self.conv = Linear(k * (hidden + c_in), c_out)
        else:
            self.mlp = _mlp(c_in, hidden, c_out)
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
        if not isinstance(x, mx.array) or x.ndim != 2:
            raise TypeError(f"[PointCNNConv] x must be an mx.array (T, C), found {told(x)}")
        neighbors_idx = checked_rows(self, "neighbors_idx", neighbors_idx, x.shape[0])
        # The network sees x_j alone: once for each j, not for each edge.
        if self._kind == "features":
            return self._max(self.mlp(x), neighbors_idx)
        if neighbors_rel_pos is None:
            raise ValueError(
                "[PointCNNConv] neighbors_rel_pos must have shape "
                f"{(*neighbors_idx.shape, 3)}, found None"
            )
        relative = array(self, "neighbors_rel_pos", neighbors_rel_pos, *neighbors_idx.shape, 3)
        return (self._relative if self._kind == "relative" else self._xconv)(
            x, neighbors_idx, relative
        )

    forward = __call__

    @staticmethod
    def _max(y: mx.array, idx: mx.array) -> mx.array:
        lengths = mx.zeros_like(idx[:, 0]) + idx.shape[1]
        return indexed_segment_reduce(y, idx.reshape(-1), lengths, "max")

    def _relative(self, x: mx.array, idx: mx.array, rel: mx.array) -> mx.array:
        n, k = idx.shape
        first, relu, second = self.mlp.layers
        y = second(relu(_flat(_take(first(x), idx)) + self.relative(_flat(rel))))
        return y.reshape(n, k, y.shape[1]).max(axis=1)

    def _xconv(self, x: mx.array, idx: mx.array, rel: mx.array) -> mx.array:
        n, k = idx.shape
        if k != self._k:
            raise ValueError(
                f"[PointCNNConv] this X-Conv is made for {self._k} neighbors, found {k}"
            )
        lifted = self.mlp(_flat(rel))
        inputs = mx.concatenate([lifted.reshape(n, k, lifted.shape[1]), _take(x, idx)], axis=2)
        matrix = self.x2(mx.maximum(self.x1(rel.reshape(n, 3 * k)), 0)).reshape(n, k, k)
        return self.conv((matrix @ inputs).reshape(n, k * inputs.shape[2]))


class PointCNNEncoder(mlx.nn.Module):
    """num_layers PointCNNConv with relu between them: (x, coords, lengths) -> (T, channels).

    x is (T, in_channels); coords is a PointCloudBatch, or (T, 3) with lengths (B,). All layers
    share one search of the k nearest neighbors. A cloud of fewer points repeats its first neighbor.
    The options `hidden`, `use_rel_pos` and `xconv` go to the convolutions.
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
        _check_options(conv_kw)
        if self._exact:
            conv_kw = {**conv_kw, "k": k}
        self.layers = [
            PointCNNConv(in_channels if i == 0 else channels, channels, **conv_kw)
            for i in range(count)
        ]

    def __call__(self, x: mx.array, coords: Clouds, lengths: ArrayLike | None = None) -> mx.array:
        batch = as_batch(coords, lengths=lengths, who="PointCNNEncoder")
        idx, rel = knn_graph(batch, self._k)
        for i, layer in enumerate(self.layers):
            x = layer(x if i == 0 else mx.maximum(x, 0), batch.positions, idx, rel, batch.indices)
        return x

    forward = __call__


def _check_options(options: dict[str, Any]) -> None:
    known = ("hidden", "use_rel_pos", "xconv")
    for name in options:
        if name not in known:
            raise TypeError(
                f"[PointCNNEncoder] unknown argument {name!r}, expected {', '.join(known)}"
            )


def checked_rows(who: object, name: str, idx: mx.array, rows: int) -> mx.array:
    """Neighbor rows (rows, k), checked: a row outside would be read from foreign memory."""
    if not isinstance(idx, mx.array) or not mx.issubdtype(idx.dtype, mx.integer):
        raise TypeError(
            f"[{caller(who)}] {name} must be an mx.array of integers, found {told(idx)}"
        )
    if idx.ndim != 2 or idx.shape[0] != rows:
        raise ValueError(
            f"[{caller(who)}] {name} must have shape ({rows}, k), found {tuple(idx.shape)}"
        )
    if idx.size:
        low, high = integers(mx.stack([idx.min(), idx.max()]))
        if low < 0 or high >= rows:
            raise ValueError(
                f"[{caller(who)}] {name} holds {low if low < 0 else high}, which is "
                f"outside 0..{rows - 1}, the rows of x"
            )
    return idx


def _mlp(c_in: int, hidden: int, c_out: int) -> mlx.nn.Sequential:
    return mlx.nn.Sequential(Linear(c_in, hidden), mlx.nn.ReLU(), Linear(hidden, c_out))


def _take(x: mx.array, idx: mx.array) -> mx.array:
    return x[idx] if idx.size else mx.zeros((*idx.shape, x.shape[1]), dtype=x.dtype)


def _flat(a: mx.array) -> mx.array:
    """(n, k, c) -> (n k, c)"""
    return a.reshape(a.shape[0] * a.shape[1], a.shape[2])
