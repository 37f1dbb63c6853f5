"""Attention of each row to its neighbors, along the edges of a relation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn

from .. import ops
from ..core import KernelRelation, KernelSpec, NeighborRelation, SparseTensor
from ._checks import checked_input, integer, number, told
from ._conv import Linear
from ._features import Dropout

if TYPE_CHECKING:
    from .._types import Rows, Triple


class NeighborAttention(nn.Module):
    """Softmax over the edges of each row: proj(sum over edges of P[e] v[source of e]).

    kind: "scalar" has the logit scale <q, k> + bias per head. "vector" has one learned weight of
        the source per group of channels plus the bias, grouped vector attention (Wu et al., "Point
        Transformer V2", NeurIPS 2022).
    kernel_size: the neighbors of a SparseTensor where no relation is given; each kernel offset has
        a bias per head.
    The call takes x, a SparseTensor or an array (N, C). `relation` is a NeighborRelation or
    KernelRelation whose both ends are the rows of x; `positions` is (N, 3). Two linear layers make
    a bias per head of each difference of positions. No array of edges times channels is made.
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
                f"[NeighborAttention] heads must divide {channels} channels, got {heads}"
            )
        if kind not in ("scalar", "vector"):
            raise ValueError(f'[NeighborAttention] kind must be "scalar" or "vector", got {kind!r}')
        self._channels, self._heads, self._kind = channels, heads, kind
        self._scale = (channels // heads) ** -0.5 if scale is None else number(self, "scale", scale)
        self._spec = KernelSpec(kernel_size)
        parts = 3 if kind == "scalar" else 1
        self.qkv = Linear(channels, parts * channels, bias=bool(qkv_bias))
        if kind == "vector":
            self.weigh = Linear(channels, heads)
        self.offset_table = mx.random.normal((self._spec.volume, heads), scale=0.02)
        self.near, self.far = Linear(3, 16), Linear(16, heads)
        self.proj = Linear(channels, channels)
        if number(self, "dropout", dropout, 0, 1, high_included=False):
            self.drop = Dropout(dropout)

    def __call__(
        self,
        x: Rows,
        relation: KernelRelation | NeighborRelation | None = None,
        positions: mx.array | None = None,
    ) -> Rows:
        checked_input(self, x, self._channels, arrays=True)
        feats = x.feats if isinstance(x, SparseTensor) else x
        offsets = relation is None
        if relation is None:
            if not isinstance(x, SparseTensor):
                raise TypeError("[NeighborAttention] an array needs a relation, found none")
            relation = ops.submanifold_kernel_relation(x, self._spec.size)
        queries, sources, kernel_ids = _edges(relation)
        bias = self.offset_table[kernel_ids] if offsets else mx.zeros((1, self._heads))
        if positions is not None:
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
