"""Attention modules on sparse tensors: in patches along a curve, and in windows.

    y = proj(softmax(q k^T * scale + bias) v)      q, k, v = the three parts of qkv(x)

The rows of a segment attend to each other. `ops.attention_patches` and `ops.attention_windows` make
the segments, and the coordinate manager of the tensor keeps them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn

from .. import ops
from ..core._checks import flag, integer, number, one_of, positive, share, sparse_input, triple
from ._features import Dropout
from ._linear import Linear

if TYPE_CHECKING:
    from ..core import SparseTensor
    from ..core.layouts import AttentionLayout
    from ..core.types import Triple


class _Attention(nn.Module):
    """The base of attention in segments: linear layers, heads, slots."""

    def __init__(
        self, channels: int, heads: int, qkv_bias: bool, scale: float | None, dropout: float
    ) -> None:
        super().__init__()
        channels, heads = integer(self, "channels", channels), integer(self, "heads", heads)
        if channels % heads:
            raise ValueError(
                f"[{type(self).__name__}] heads must divide {channels} channels, found {heads}"
            )
        self._channels, self._heads = channels, heads
        size = channels // heads
        self._scale = size**-0.5 if scale is None else number(self, "scale", scale)
        self.qkv = Linear(channels, 3 * channels, bias=flag(self, "qkv_bias", qkv_bias))
        self.proj = Linear(channels, channels)
        if share(self, "dropout", dropout):
            self.drop = Dropout(dropout)

    def _attend(
        self,
        x: SparseTensor,
        layout: AttentionLayout,
        bias: ops.PositionBias | None,
        positions: mx.array | None = None,
    ) -> SparseTensor:
        qkv = self.qkv(x.feats)
        if positions is not None:
            qkv = self._turned(qkv, positions)
        y = self.proj(self._between(qkv, layout, bias))
        return x.with_feats(self.drop(y) if "drop" in self else y)

    def _turned(self, qkv: mx.array, positions: mx.array) -> mx.array:
        raise NotImplementedError

    def _between(
        self, qkv: mx.array, layout: AttentionLayout, bias: ops.PositionBias | None
    ) -> mx.array:
        """The result of attention for the queries, keys and values of the rows."""
        parts = ops.to_slots(qkv, layout, parts=3)
        size = self._channels // self._heads
        q, k, v = (part.reshape(part.shape[0], self._heads, size) for part in parts)
        y = ops.attention(q, k, v, layout.offsets, scale=self._scale, bias=bias)
        return ops.to_rows(y.reshape(y.shape[0], self._channels), layout)

    def _extra_repr(self) -> str:
        return f"{self._channels}, heads={self._heads}, scale={self._scale:.4g}"


def rpe_bound(patch_size: int) -> int:
    """The farthest relative position of Point Transformer V3: int((4 P)^(1/3) * 2)."""
    return int((4 * patch_size) ** (1 / 3) * 2)


class SerializedAttention(_Attention):
    """Attention in patches of rows along a space-filling curve (Wu et al., CVPR 2024).

    layer(x) -> (N, channels) on the coordinates of x; `layer(x, order)` takes another curve,
    `depth` the bits per axis of the curve, and `positions` (N, 3) what `rope` turns by.

    Args:
        heads: The number of heads, which divides the channels.
        patch_size: The number of consecutive rows that attend to each other.
        order: The curve: "z", "z-trans", "hilbert" or "hilbert-trans".
        scale: The factor of q k^T; by default 1 / sqrt(channels / heads).
        rpe: Adds a bias per head from a table by relative position: the sum over the axes of
            `rpe_table[axis * (2 B + 1) + clip(g_i - g_j, -B, B) + B]`, where
            B = int((4 patch_size)^(1/3) 2).
        shrink: The patches of a batch have at most as many rows as its smallest cloud.
        rope: The base of rotary positions on three axes, which turn queries and keys
            (`ops.rotary` in halves). By default the positions are the coordinates of x. The size
            of a head must be a multiple of 6.
        dropout: The probability with which a value of the result is 0 in training.

    Raises:
        ValueError: heads does not divide the channels, there is no curve of that name, or heads do
            not fit to rope.

    Examples:
        >>> from mlx_lattice import nn, samples
        >>> layer = nn.SerializedAttention(4, heads=2, patch_size=4, order="hilbert")
        >>> layer(samples.tensor()).shape
        (6, 4)
    """

    def __init__(
        self,
        channels: int,
        heads: int,
        patch_size: int = 1024,
        order: str = "z",
        *,
        qkv_bias: bool = True,
        scale: float | None = None,
        rpe: bool = False,
        shrink: bool = False,
        rope: float | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(channels, heads, qkv_bias, scale, dropout)
        self._rope = None if rope is None else positive(self, "rope", rope)
        if rope is not None and (self._channels // self._heads) % 6:
            raise ValueError(
                f"[{type(self).__name__}] rope needs heads of a multiple of 6 channels: three axes "
                f"with pairs; found {channels} channels and {heads} heads"
            )
        self._patch_size = integer(self, "patch_size", patch_size)
        self._order, self._shrink = order, flag(self, "shrink", shrink)
        ops.curve_codes(mx.zeros((0, 4), mx.int32), order)  # raises for a wrong name
        if flag(self, "rpe", rpe):
            rows = 3 * (2 * rpe_bound(self._patch_size) + 1)
            self.rpe_table = mx.random.normal((rows, self._heads), scale=0.02)

    def layout(
        self, x: SparseTensor, order: str | None = None, depth: int | None = None
    ) -> AttentionLayout:
        """The patches on the coordinates of x, along `order` instead of the module's own."""
        order = self._order if order is None else order
        return ops.attention_patches(x, self._patch_size, order, shrink=self._shrink, depth=depth)

    def _turned(self, qkv: mx.array, positions: mx.array) -> mx.array:
        """Queries and keys turned by their positions; values stay."""
        n, both = qkv.shape[0], 2 * self._channels
        qk = qkv[:, :both].reshape(n, 2 * self._heads, self._channels // self._heads)
        assert self._rope is not None
        turned = ops.rotary(qk, positions, base=self._rope, halves=True)
        return mx.concatenate([turned.reshape(n, both), qkv[:, both:]], axis=1)

    def __call__(
        self,
        x: SparseTensor,
        order: str | None = None,
        depth: int | None = None,
        positions: mx.array | None = None,
    ) -> SparseTensor:
        sparse_input(self, x, self._channels)
        layout = self.layout(x, order, depth)
        if self._rope is None:
            positions = None
        elif positions is None:
            positions = x.coords[:, 1:].astype(mx.float32)
        bias = None
        if "rpe_table" in self:
            bias = ops.PositionBias(
                self.rpe_table.T, layout.positions, bounds=(rpe_bound(self._patch_size),) * 3
            )
        return self._attend(x, layout, bias, positions)

    def _extra_repr(self) -> str:
        return (
            f"{super()._extra_repr()}, patch_size={self._patch_size}, order={self._order}, "
            f"rpe={'rpe_table' in self}, rope={self._rope}"
        )


class WindowAttention(_Attention):
    """Attention in windows of `window` voxels per axis (Liu et al., "Swin Transformer", 2021).

    layer(x) -> (N, channels) on the coordinates of x.

    Args:
        heads: The number of heads, which divides the channels.
        window: One integer or one per axis. 0 is the whole axis, so that (w, 0, 0) are slabs, and 0
            lets all rows of a cloud attend to each other.
        shift: Moves the borders of the windows, by less than `window`.
        table: The bias by relative position p = g_i - g_j: "full" has one value per head and p,
            "axial" the sum of one per axis, None has none. Both tables need a window without 0.
        scale: The factor of q k^T; by default 1 / sqrt(channels / heads).
        dropout: The probability with which a value of the result is 0 in training.

    Raises:
        ValueError: heads does not divide the channels, shift reaches window, or a table is wanted
            for a whole axis.
    """

    def __init__(
        self,
        channels: int,
        heads: int,
        window: Triple = 8,
        shift: Triple = 0,
        *,
        table: str | None = "full",
        qkv_bias: bool = True,
        scale: float | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(channels, heads, qkv_bias, scale, dropout)
        self._window, self._shift = triple(self, "window", window), triple(self, "shift", shift)
        ops.attention_windows(mx.zeros((0, 4), mx.int32), self._window, self._shift)
        self._table = one_of(self, "table", table, ("full", "axial", None))
        if table is not None:
            if 0 in self._window:
                raise ValueError(
                    f"[WindowAttention] a table needs sizes >= 1, found window {self._window}; "
                    "give table=None"
                )
            sizes = [2 * w - 1 for w in self._window]
            rows = sizes[0] * sizes[1] * sizes[2] if table == "full" else sum(sizes)
            self.position_table = mx.random.normal((rows, self._heads), scale=0.02)

    def layout(self, x: SparseTensor) -> AttentionLayout:
        """The windows on the coordinates of x."""
        return ops.attention_windows(x, self._window, self._shift)

    def __call__(self, x: SparseTensor) -> SparseTensor:
        sparse_input(self, x, self._channels)
        layout = self.layout(x)
        bias = None
        if self._table is not None:
            bias = ops.PositionBias(
                self.position_table.T,
                layout.positions,
                bounds=tuple(w - 1 for w in self._window),
                joint=self._table == "full",
            )
        return self._attend(x, layout, bias)

    def _extra_repr(self) -> str:
        return (
            f"{super()._extra_repr()}, window={self._window}, shift={self._shift}, "
            f"table={self._table}"
        )
