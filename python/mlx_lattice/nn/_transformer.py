"""Parts of transformers on sparse tensors: MLP, DropPath, position encoding, pooling, the block."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn

from .. import ops
from ..core import SparseTensor
from ._checks import checked_input, integer, number
from ._conv import Linear, SubmConv3d
from ._features import GELU, BatchNorm, Dropout, LayerNorm, _on_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .._types import Rows
    from ..core.layouts import GridPooling


class MLP(nn.Module):
    """Two linear layers with GELU between them, on a SparseTensor or an array (N, C)."""

    def __init__(
        self,
        channels: int,
        hidden: int | None = None,
        out_channels: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        channels = integer(self, "channels", channels)
        hidden = 4 * channels if hidden is None else integer(self, "hidden", hidden)
        self.first = Linear(channels, hidden)
        self.second = Linear(hidden, channels if out_channels is None else out_channels)
        self.activation = GELU()
        if number(self, "dropout", dropout, 0, 1, high_included=False):
            self.drop = Dropout(dropout)

    def __call__(self, x: Rows) -> Rows:
        y = self.activation(self.first(x))
        if "drop" in self:
            return self.drop(self.second(self.drop(y)))
        return self.second(y)


class DropPath(nn.Module):
    """Stochastic depth: in training a row is 0 with probability p, otherwise divided by 1 - p.

    Huang et al., "Deep Networks with Stochastic Depth", ECCV 2016. Each row of features draws for
    itself, as Point Transformer V3 does.
    """

    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        self._p = number(self, "p", p, 0, 1, high_included=False)

    def __call__(self, x: Rows) -> Rows:
        if not self.training or self._p == 0:
            return x
        return _on_rows(self, x, self._drop)

    def _drop(self, f: mx.array) -> mx.array:
        kept = mx.random.bernoulli(1 - self._p, (f.shape[0], 1))
        return f * (kept / (1 - self._p)).astype(f.dtype)

    def _extra_repr(self) -> str:
        return f"p={self._p}"


class ConvPositionEncoding(nn.Module):
    """norm(linear(conv(x))): a submanifold convolution tells each row who its neighbors are."""

    def __init__(self, channels: int, kernel_size: int | tuple[int, int, int] = 3) -> None:
        super().__init__()
        self.conv = SubmConv3d(channels, channels, kernel_size)
        self.linear = Linear(channels, channels)
        self.norm = LayerNorm(channels)

    def __call__(self, x: SparseTensor) -> SparseTensor:
        return self.norm(self.linear(self.conv(x)))


class TransformerBlock(nn.Module):
    """x += position(x); x += attention(norm(x)); x += mlp(norm(x)).

    attention: a module of a SparseTensor, such as SerializedAttention or WindowAttention.
    pre_norm: norms stand before attention and MLP; otherwise behind the sums.
    position: whether there is a ConvPositionEncoding.
    The call takes `order` for SerializedAttention, and `seen`, a tensor that the position encoding
    reads instead of x.
    """

    def __init__(
        self,
        channels: int,
        attention: nn.Module,
        *,
        mlp_ratio: float = 4,
        drop_path: float = 0.0,
        dropout: float = 0.0,
        pre_norm: bool = True,
        position: bool = True,
    ) -> None:
        super().__init__()
        self._channels = integer(self, "channels", channels)
        ratio = number(self, "mlp_ratio", mlp_ratio, 0, low_included=False, high_included=False)
        if position:
            self.position = ConvPositionEncoding(self._channels)
        self.norm1, self.norm2 = LayerNorm(self._channels), LayerNorm(self._channels)
        self.attention = attention
        self.mlp = MLP(self._channels, max(1, int(self._channels * ratio)), dropout=dropout)
        self.drop_path = DropPath(drop_path)
        self._pre_norm = bool(pre_norm)

    def __call__(
        self, x: SparseTensor, order: str | None = None, seen: SparseTensor | None = None
    ) -> SparseTensor:
        checked_input(self, x, self._channels)
        if "position" in self:
            x = _plus(x, self.position(x if seen is None else seen))
        options = {} if order is None else {"order": order}
        x = self._step(x, self.norm1, lambda y: self.attention(y, **options))
        return self._step(x, self.norm2, self.mlp)

    def _step(
        self, x: SparseTensor, norm: nn.Module, run: Callable[[SparseTensor], SparseTensor]
    ) -> SparseTensor:
        if self._pre_norm:
            return _plus(x, self.drop_path(run(norm(x))))
        return norm(_plus(x, self.drop_path(run(x))))


def _plus(x: SparseTensor, y: SparseTensor) -> SparseTensor:
    return x.with_feats(x.feats + y.feats)


class GridPool(nn.Module):
    """Blocks of stride^3 voxels become one row: gelu(norm(max over the block of linear(x))).

    The rows of the result ascend along `order`. The call returns the coarse tensor and the pooling
    that GridUnpool takes.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        stride: int = 2,
        order: str = "z",
        mode: str = "max",
        momentum: float = 0.01,
    ) -> None:
        super().__init__()
        self._channels = integer(self, "in_channels", in_channels)
        self._stride, self._order, self._mode = integer(self, "stride", stride), order, mode
        if self._stride & (self._stride - 1):
            raise ValueError(f"[GridPool] stride must be a power of two, got {stride}")
        self.linear = Linear(self._channels, out_channels)
        self.norm = BatchNorm(out_channels, eps=1e-3, momentum=momentum)
        self.activation = GELU()

    def __call__(
        self, x: SparseTensor, order: str | None = None
    ) -> tuple[SparseTensor, GridPooling]:
        checked_input(self, x, self._channels)
        pooling = ops.grid_pooling(x, self._stride, self._order if order is None else order)
        y = ops.grid_pool(self.linear(x), pooling, self._mode)
        return self.activation(self.norm(y)), pooling

    def _extra_repr(self) -> str:
        return f"stride={self._stride}, order={self._order}, mode={self._mode}"


class GridUnpool(nn.Module):
    """gelu(norm(linear(skip))) + gelu(norm(linear(x))) of the block of each row.

    The call (x, skip, pooling) returns the sum and the branch of the skip alone, both on the
    coordinates of skip.
    """

    def __init__(
        self,
        in_channels: int,
        skip_channels: int,
        out_channels: int,
        momentum: float = 0.01,
    ) -> None:
        super().__init__()
        self.linear, self.skip_linear = (
            Linear(in_channels, out_channels),
            Linear(skip_channels, out_channels),
        )
        self.norm = BatchNorm(out_channels, eps=1e-3, momentum=momentum)
        self.skip_norm = BatchNorm(out_channels, eps=1e-3, momentum=momentum)
        self.activation = GELU()

    def __call__(
        self, x: SparseTensor, skip: SparseTensor, pooling: GridPooling
    ) -> tuple[SparseTensor, SparseTensor]:
        if not isinstance(x, SparseTensor) or not isinstance(skip, SparseTensor):
            raise TypeError(
                "[GridUnpool] x and skip must be SparseTensors, found a "
                f"{type(x).__name__} and a {type(skip).__name__}"
            )
        y = self.activation(self.norm(self.linear(x)))
        kept = self.activation(self.skip_norm(self.skip_linear(skip)))
        return kept.with_feats(kept.feats + ops.grid_unpool(y.feats, pooling)), kept


def stochastic_depth(rate: float, depths: Sequence[int]) -> list[list[float]]:
    """Drop rates that rise from 0 to `rate` over all blocks, as one list per stage."""
    total = sum(depths)
    rates = [rate * i / max(total - 1, 1) for i in range(total)]
    ends = [sum(depths[: i + 1]) for i in range(len(depths))]
    return [rates[end - n : end] for n, end in zip(depths, ends)]
