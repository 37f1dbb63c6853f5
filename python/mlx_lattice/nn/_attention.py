"""Attention modules on sparse tensors: along an order, in windows, and along neighbors.

    y = proj(softmax(q k^T * scale + bias) v)      q, k, v = the three parts of qkv(x)

The rows of a segment attend to each other. `ops.attention_patches` and `ops.attention_windows` make
the segments, and the coordinate manager of the tensor keeps them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn

from .. import ops
from ._checks import checked_input, integer, number
from ._conv import Linear
from ._features import Dropout

if TYPE_CHECKING:
    from mlx.nn import Module

    from .._types import Triple
    from ..core import SparseTensor
    from ..core.layouts import AttentionLayout


class _Attention(nn.Module):
    """What attention in segments shares: linear layers, heads, slots."""

    def __init__(
        self, channels: int, heads: int, qkv_bias: bool, scale: float | None, dropout: float
    ) -> None:
        super().__init__()
        channels, heads = integer(self, "channels", channels), integer(self, "heads", heads)
        if channels % heads:
            raise ValueError(
                f"[{type(self).__name__}] heads must divide {channels} channels, got {heads}"
            )
        self._channels, self._heads = channels, heads
        size = channels // heads
        self._scale = size**-0.5 if scale is None else number(self, "scale", scale)
        self.qkv = Linear(channels, 3 * channels, bias=bool(qkv_bias))
        self.proj = Linear(channels, channels)
        if number(self, "dropout", dropout, 0, 1, high_included=False):
            self.drop = Dropout(dropout)

    def _attend(
        self, x: SparseTensor, layout: AttentionLayout, bias: ops.PositionBias | None
    ) -> SparseTensor:
        y = self.proj(self._between(self.qkv(x.feats), layout, bias))
        return x.with_feats(self.drop(y) if "drop" in self else y)

    def _between(
        self, qkv: mx.array, layout: AttentionLayout, bias: ops.PositionBias | None
    ) -> mx.array:
        """What attention makes of queries, keys and values of the rows."""
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

    rpe: adds a bias per head from a table by relative position: the sum over the axes of
        `rpe_table[axis * (2 B + 1) + clip(g_i - g_j, -B, B) + B]`, B = int((4 patch_size)^(1/3) 2).
    shrink: the patches of a batch have at most as many rows as its smallest cloud.
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
        dropout: float = 0.0,
    ) -> None:
        super().__init__(channels, heads, qkv_bias, scale, dropout)
        self._patch_size = integer(self, "patch_size", patch_size)
        self._order, self._shrink = order, bool(shrink)
        ops.curve_codes(mx.zeros((0, 4), mx.int32), order)  # a wrong name is told here
        if rpe:
            rows = 3 * (2 * rpe_bound(self._patch_size) + 1)
            self.rpe_table = mx.random.normal((rows, self._heads), scale=0.02)

    def layout(self, x: SparseTensor, order: str | None = None) -> AttentionLayout:
        """The patches on the coordinates of x, along `order` instead of the module's own."""
        return ops.attention_patches(
            x, self._patch_size, self._order if order is None else order, shrink=self._shrink
        )

    def __call__(self, x: SparseTensor, order: str | None = None) -> SparseTensor:
        checked_input(self, x, self._channels)
        layout = self.layout(x, order)
        bias = None
        if "rpe_table" in self:
            bias = ops.PositionBias(
                self.rpe_table.T, layout.positions, bounds=(rpe_bound(self._patch_size),) * 3
            )
        return self._attend(x, layout, bias)

    def _extra_repr(self) -> str:
        return (
            f"{super()._extra_repr()}, patch_size={self._patch_size}, order={self._order}, "
            f"rpe={'rpe_table' in self}"
        )


class WindowAttention(_Attention):
    """Attention in windows of `window` voxels per axis (Liu et al., "Swin Transformer", 2021).

    window: one integer or one per axis; 0 is the whole axis, so that (w, 0, 0) are slabs and 0
        lets each cloud attend to itself.
    shift: moves the borders of the windows, below `window`.
    table: relative positions p = g_i - g_j: "full" has one bias per head and p, "axial" the sum of
        one per axis, None has none. Both need a window without 0.
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
        self._window, self._shift = _triple(self, "window", window), _triple(self, "shift", shift)
        ops.attention_windows(mx.zeros((0, 4), mx.int32), self._window, self._shift)
        if table not in ("full", "axial", None):
            raise ValueError(
                f'[WindowAttention] table must be "full", "axial" or None, got {table!r}'
            )
        self._table = table
        if table is not None:
            if 0 in self._window:
                raise ValueError(
                    f"[WindowAttention] a table needs sizes >= 1, got window {self._window}; "
                    "give table=None"
                )
            sizes = [2 * w - 1 for w in self._window]
            rows = sizes[0] * sizes[1] * sizes[2] if table == "full" else sum(sizes)
            self.position_table = mx.random.normal((rows, self._heads), scale=0.02)

    def layout(self, x: SparseTensor) -> AttentionLayout:
        """The windows on the coordinates of x."""
        return ops.attention_windows(x, self._window, self._shift)

    def __call__(self, x: SparseTensor) -> SparseTensor:
        checked_input(self, x, self._channels)
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


def _triple(module: Module, name: str, value: Triple) -> tuple[int, int, int]:
    values = value if isinstance(value, (list, tuple)) else (value,) * 3
    if len(values) != 3:
        raise ValueError(
            f"[{type(module).__name__}] {name} must be one integer or three, got {value!r}"
        )
    x, y, z = (integer(module, name, v, least=0) for v in values)
    return x, y, z
