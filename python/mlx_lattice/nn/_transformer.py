"""Parts of transformers on sparse tensors: MLP, DropPath, position encoding, pooling, the block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn as nn

from .. import ops
from ..core import SparseTensor
from ..core._checks import (
    function,
    integer,
    number,
    one_of,
    positive,
    share,
    sparse_input,
    told,
)
from ..core.layouts import GridPooling
from ._conv import SubmConv3d
from ._features import GELU, BatchNorm, Dropout, LayerNorm, _on_rows
from ._linear import Linear

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..core.types import Rows, Triple


class MLP(nn.Module):
    """second(gelu(first(x))): two linear layers on a SparseTensor or an array (N, channels).

    hidden: the channels between the layers, by default 4 * channels.
    out_channels: those of the result, by default `channels`.
    dropout: the probability with which a value after either layer is 0 in training.
    """

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
        if share(self, "dropout", dropout):
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
        self._p = share(self, "p", p)

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
    """norm(linear(conv(x))): a submanifold convolution gives each row information on its neighbors.

    layer(x) -> (N, channels) on the coordinates of x. Transformer blocks add it to x. `norm` makes
    the norm from its channels.
    """

    def __init__(
        self, channels: int, kernel_size: Triple = 3, norm: Callable[[int], nn.Module] = LayerNorm
    ) -> None:
        super().__init__()
        self.conv = SubmConv3d(channels, channels, kernel_size)
        self.linear = Linear(channels, channels)
        function(self, "norm", norm)
        self.norm = norm(channels)

    def __call__(self, x: SparseTensor) -> SparseTensor:
        return self.norm(self.linear(self.conv(x)))


class TransformerBlock(nn.Module):
    """x += position(x); x += attention(norm(x)); x += mlp(norm(x)).

    `block(x, order, seen)` returns a tensor on the coordinates of x. `order` and further named
    arguments go to the attention (SerializedAttention takes some); `seen` is a tensor that the
    position encoding reads instead of x. `block.steps` also returns the last branch.

    Args:
        attention: A module of a SparseTensor, such as SerializedAttention or WindowAttention. None:
            the block has neither attention nor MLP.
        mlp_ratio: The channels inside the MLP per channel of the block.
        drop_path: The probability with which a row skips a branch in training.
        dropout: The probability with which a value inside the MLP is 0 in training.
        pre_norm: Whether norms come before attention and MLP; otherwise after the sums.
        position: Whether there is a ConvPositionEncoding. "norm": x = norm0(x) takes its place, as
            in the attention stages of LitePT.
        layer_scale: The start of learned factors per channel of both branches (Touvron et al.,
            "Going deeper with Image Transformers", 2021); None has no factors.
        norm: Makes a norm from its channels.
    """

    def __init__(
        self,
        channels: int,
        attention: nn.Module | None,
        *,
        mlp_ratio: float = 4,
        drop_path: float = 0.0,
        dropout: float = 0.0,
        pre_norm: bool = True,
        position: bool | str = True,
        layer_scale: float | None = None,
        norm: Callable[[int], nn.Module] = LayerNorm,
    ) -> None:
        super().__init__()
        self._channels = integer(self, "channels", channels)
        ratio = positive(self, "mlp_ratio", mlp_ratio)
        function(self, "norm", norm)
        if one_of(self, "position", position, (True, False, "norm")) == "norm":
            self.norm0 = norm(self._channels)
        elif position:
            self.position = ConvPositionEncoding(self._channels, norm=norm)
        if attention is None:
            return
        function(self, "attention", attention)
        self.norm1, self.norm2 = norm(self._channels), norm(self._channels)
        self.attention = attention
        if layer_scale is not None:
            start = number(self, "layer_scale", layer_scale)
            self.scale1, self.scale2 = (mx.full((self._channels,), start) for _ in range(2))
        self.mlp = MLP(self._channels, max(1, int(self._channels * ratio)), dropout=dropout)
        self.drop_path = DropPath(drop_path)
        self._pre_norm = bool(pre_norm)

    def __call__(
        self,
        x: SparseTensor,
        order: str | None = None,
        seen: SparseTensor | None = None,
        **options: Any,
    ) -> SparseTensor:
        return self.steps(x, order, seen, **options)[0]

    def steps(
        self,
        x: SparseTensor,
        order: str | None = None,
        seen: SparseTensor | None = None,
        **options: Any,
    ) -> tuple[SparseTensor, SparseTensor]:
        """The result, and the branch that was added last, before the sum."""
        sparse_input(self, x, self._channels)
        branch = x
        if "norm0" in self:
            x = branch = self.norm0(x)
        elif "position" in self:
            branch = self.position(x if seen is None else seen)
            x = _plus(x, branch)
        if "attention" not in self:
            return x, branch
        if order is not None:
            options["order"] = order
        x, _ = self._step(x, "1", lambda y: self.attention(y, **options))
        return self._step(x, "2", self.mlp)

    def _step(
        self, x: SparseTensor, which: str, run: Callable[[SparseTensor], SparseTensor]
    ) -> tuple[SparseTensor, SparseTensor]:
        norm = self[f"norm{which}"]
        branch = run(norm(x) if self._pre_norm else x)
        if f"scale{which}" in self:
            branch = branch.with_feats(branch.feats * self[f"scale{which}"])
        branch = self.drop_path(branch)
        x = _plus(x, branch)
        return x if self._pre_norm else norm(x), branch


def _plus(x: SparseTensor, y: SparseTensor) -> SparseTensor:
    return x.with_feats(x.feats + y.feats)


class GridPool(nn.Module):
    """Blocks of stride^3 voxels become one row: gelu(norm(max over the block of linear(x))).

    `layer(x, order, depth)` returns (coarse tensor, pooling); `GridUnpool` takes the pooling for
    the way back. The rows of the coarse tensor ascend along the curve `order`, of `depth` bits per
    axis.

    Args:
        stride: The side of a block in voxels: a power of two along a curve.
        order: A curve, or "lexicographic" for rows by batch, x, y and z and any stride.
        mode: How the rows of a block are joined: "max", "mean" or "sum".
        momentum: The share of a new batch in the running statistics of the norm.
        norm: Makes the norm from its channels; by default a BatchNorm.

    Examples:
        >>> from mlx_lattice import nn, samples
        >>> x = samples.tensor()
        >>> coarse, pooling = nn.GridPool(4, 8)(x)
        >>> fine, skip = nn.GridUnpool(8, 4, 16)(coarse, x, pooling)
        >>> coarse.stride, fine.shape, fine.same_coords(x)
        ((2, 2, 2), (6, 16), True)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        stride: int = 2,
        order: str = "z",
        mode: str = "max",
        momentum: float = 0.01,
        norm: Callable[[int], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self._channels = integer(self, "in_channels", in_channels)
        self._stride, self._order = integer(self, "stride", stride), order
        self._mode = one_of(self, "mode", mode, ("max", "mean", "sum"))
        if self._stride & (self._stride - 1) and order != "lexicographic":
            raise ValueError(
                f"[GridPool] stride must be a power of two, found {stride}; "
                'order="lexicographic" takes any stride'
            )
        self.linear = Linear(self._channels, out_channels)
        make = _batch_norm(momentum) if norm is None else norm
        function(self, "norm", make)
        self.norm = make(out_channels)
        self.activation = GELU()

    def __call__(
        self, x: SparseTensor, order: str | None = None, depth: int | None = None
    ) -> tuple[SparseTensor, GridPooling]:
        sparse_input(self, x, self._channels)
        order = self._order if order is None else order
        pooling = ops.grid_pooling(x, self._stride, order, depth=depth)
        y = ops.grid_pool(self.linear(x), pooling, self._mode)
        return self.activation(self.norm(y)), pooling

    def _extra_repr(self) -> str:
        return f"stride={self._stride}, order={self._order}, mode={self._mode}"


class GridUnpool(nn.Module):
    """gelu(norm(linear(skip))) + gelu(norm(linear(x))) of the block of each row.

    `layer(x, skip, pooling)` takes the coarse tensor x, the tensor that was pooled and the pooling
    of `GridPool`. It returns the sum and the branch of the skip alone, both of out_channels on the
    coordinates of skip. `norm` makes both norms from their channels; by default they are
    BatchNorms.
    """

    def __init__(
        self,
        in_channels: int,
        skip_channels: int,
        out_channels: int,
        momentum: float = 0.01,
        norm: Callable[[int], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.linear, self.skip_linear = (
            Linear(in_channels, out_channels),
            Linear(skip_channels, out_channels),
        )
        make = _batch_norm(momentum) if norm is None else norm
        function(self, "norm", make)
        self.norm, self.skip_norm = make(out_channels), make(out_channels)
        self.activation = GELU()

    def __call__(
        self, x: SparseTensor, skip: SparseTensor, pooling: GridPooling
    ) -> tuple[SparseTensor, SparseTensor]:
        if not isinstance(x, SparseTensor) or not isinstance(skip, SparseTensor):
            raise TypeError(
                f"[GridUnpool] x and skip must be SparseTensors, found {told(x)} and {told(skip)}"
            )
        if not isinstance(pooling, GridPooling):
            raise TypeError(
                f"[GridUnpool] pooling must be a GridPooling, found {told(pooling)}; GridPool"
                " returns it with the coarse tensor"
            )
        y = self.activation(self.norm(self.linear(x)))
        kept = self.activation(self.skip_norm(self.skip_linear(skip)))
        return kept.with_feats(kept.feats + ops.grid_unpool(y.feats, pooling)), kept


def _batch_norm(momentum: float) -> Callable[[int], nn.Module]:
    return lambda channels: BatchNorm(channels, eps=1e-3, momentum=momentum)


def stochastic_depth(rate: float, depths: Sequence[int]) -> list[list[float]]:
    """Drop rates that rise from 0 to `rate` over all blocks, as one list per stage."""
    total = sum(depths)
    rates = [rate * i / max(total - 1, 1) for i in range(total)]
    ends = [sum(depths[: i + 1]) for i in range(len(depths))]
    return [rates[end - n : end] for n, end in zip(depths, ends)]
