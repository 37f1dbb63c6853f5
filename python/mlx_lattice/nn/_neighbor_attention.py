"""Attention of each row to its neighbors, along the edges of a relation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn

from .. import ops
from ..core import KernelRelation, KernelSpec, NeighborRelation, SparseTensor
from ..core._checks import array, flag, integer, number, one_of, rows_input, share, told
from ._features import Dropout
from ._linear import Linear

if TYPE_CHECKING:
    from ..core.types import Rows, Triple


class NeighborAttention(nn.Module):
    """Attention of each row to its neighbors: proj(sum over the edges e of a row of P[e] v[e]).

    P is the softmax over the edges of a row, and v[e] the value of the row where the edge begins.
    `layer(x, relation, positions)` returns what x is, a SparseTensor or an array (N, channels). The
    relation is a NeighborRelation or a KernelRelation whose both ends are the rows of x; without
    one, the neighbors of a SparseTensor are those of a kernel. With positions (N, 3), two linear
    layers make a bias per head of each difference of positions. No array of edges times channels is
    made.

    Args:
        heads: The number of heads, which divides the channels.
        kernel_size: The neighbors where no relation is given; each offset has a bias per head.
        kind: "scalar" has the logit scale <q, k> + bias per head. "vector" has one learned weight
            of the source per group of channels plus the bias, which is grouped vector attention (Wu
            et al., "Point Transformer V2", NeurIPS 2022).

    Raises:
        TypeError: x is an array and no relation is given.
        ValueError: heads does not divide the channels, or kind is another word.

    Examples:
        >>> from mlx_lattice import nn, ops, samples
        >>> x = samples.tensor()
        >>> layer = nn.NeighborAttention(4, heads=2)
        >>> layer(x).shape, layer(x.feats, ops.knn_relation(x, k=2)).shape
        ((6, 4), (6, 4))
    """

    def __init__(
        self,
        channels: int,
        heads: int,
        kernel_size: Triple = 3,
        *,
        kind: str = "scalar",
        qkv_bias: bool = True,
        scale: float | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        channels, heads = integer(self, "channels", channels), integer(self, "heads", heads)
        if channels % heads:
            raise ValueError(
                f"[NeighborAttention] heads must divide {channels} channels, found {heads}"
            )
        self._kind = one_of(self, "kind", kind, ("scalar", "vector"))
        self._channels, self._heads = channels, heads
        self._scale = (channels // heads) ** -0.5 if scale is None else number(self, "scale", scale)
        self._spec = KernelSpec(kernel_size)
        parts = 3 if kind == "scalar" else 1
        self.qkv = Linear(channels, parts * channels, bias=flag(self, "qkv_bias", qkv_bias))
        if kind == "vector":
            self.weigh = Linear(channels, heads)
        self.offset_table = mx.random.normal((self._spec.volume, heads), scale=0.02)
        self.near, self.far = Linear(3, 16), Linear(16, heads)
        self.proj = Linear(channels, channels)
        if share(self, "dropout", dropout):
            self.drop = Dropout(dropout)

    def __call__(
        self,
        x: Rows,
        relation: KernelRelation | NeighborRelation | None = None,
        positions: mx.array | None = None,
    ) -> Rows:
        rows_input(self, x, self._channels)
        feats = x.feats if isinstance(x, SparseTensor) else x
        offsets = relation is None
        if relation is None:
            if not isinstance(x, SparseTensor):
                raise TypeError("[NeighborAttention] an array needs a relation, found none")
            relation = ops.submanifold_kernel_relation(x, self._spec.size)
        queries, sources, kernel_ids = _edges(relation)
        bias = self.offset_table[kernel_ids] if offsets else mx.zeros((1, self._heads))
        if positions is not None:
            positions = array(self, "positions", positions, feats.shape[0], 3)
            apart = positions[sources] - positions[queries]
            bias = bias + self.far(mx.maximum(self.near(apart), 0))
        y = self._attend(feats, relation, sources, bias)
        y = self.proj(y.reshape(feats.shape))
        y = self.drop(y) if "drop" in self else y
        return x.with_feats(y) if isinstance(x, SparseTensor) else y

    def _attend(
        self,
        feats: mx.array,
        relation: KernelRelation | NeighborRelation,
        sources: mx.array,
        bias: mx.array,
    ) -> mx.array:
        shape = (feats.shape[0], self._heads, self._channels // self._heads)
        if self._kind == "vector":
            bias = bias + self.weigh(feats)[sources]
            v = self.qkv(feats).reshape(shape)
            return ops.neighbor_attention(None, None, v, relation, bias=bias)
        q, k, v = (part.reshape(shape) for part in mx.split(self.qkv(feats), 3, axis=1))
        bias = mx.broadcast_to(bias, (sources.shape[0], self._heads))
        return ops.neighbor_attention(q, k, v, relation, bias=bias, scale=self._scale)

    def _extra_repr(self) -> str:
        return (
            f"{self._channels}, heads={self._heads}, kernel_size={tuple(self._spec.size)}, "
            f"kind={self._kind}"
        )


def _edges(
    relation: KernelRelation | NeighborRelation,
) -> tuple[mx.array, mx.array, mx.array | None]:
    """(query row, source row, kernel offset) of each edge."""
    if isinstance(relation, KernelRelation):
        kernel = relation.edges
        return kernel.out_rows, kernel.in_rows, kernel.kernel_ids
    if isinstance(relation, NeighborRelation):
        edges = relation.edges
        return edges.query_rows, edges.source_rows, None
    raise TypeError(
        "[NeighborAttention] relation must be a NeighborRelation or a KernelRelation, found "
        f"{told(relation)}"
    )
