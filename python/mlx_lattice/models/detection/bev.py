"""The dense part seen from above: convolutions of all cells of a map.

A map (B, H, W, C) is a sparse tensor with all cells (`ops.from_map`), so that the kernels of sparse
convolutions compute it: their tiles read a full map as fast as a dense product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn

from ... import nn, ops
from ...devices import async_eval
from .layers import EPS, MOMENTUM, Pair, reached, run, subm

if TYPE_CHECKING:
    from ...core import SparseTensor

FLAT = (1, 3, 3)  # a kernel of 3 x 3 in a map


def rows_of(dense: mx.array) -> SparseTensor:
    """A map as rows; `mx.array` in, `SparseTensor` out."""
    return ops.from_map(dense)


class BevBackbone(mlx.nn.Module):
    """Levels of 3 x 3 convolutions, each brought back to one size, side by side.

    config: LAYER_NUMS, LAYER_STRIDES, NUM_FILTERS, UPSAMPLE_STRIDES, NUM_UPSAMPLE_FILTERS.
    """

    def __init__(self, in_channels: int, config: dict[str, Any]) -> None:
        super().__init__()
        nums: Sequence[int] = config["LAYER_NUMS"]
        filters: Sequence[int] = config["NUM_FILTERS"]
        ups: Sequence[float] = config.get("UPSAMPLE_STRIDES") or ()
        widths: Sequence[int] = config.get("NUM_UPSAMPLE_FILTERS") or ()
        if len(ups) not in (0, len(nums)):
            raise ValueError(
                f"[BevBackbone] UPSAMPLE_STRIDES must have one number for each of {len(nums)} "
                f"levels, got {len(ups)}"
            )
        self.blocks: list[list[mlx.nn.Module]] = []
        self.deblocks: list[Pair] = []
        c_in = in_channels
        for count, stride, width in zip(nums, config["LAYER_STRIDES"], filters):
            # Names count the padding, the ReLUs and the norms of a sequence.
            block: list[mlx.nn.Module] = [mlx.nn.Identity(), *_conv(c_in, width, stride)]
            for _ in range(count):
                block += [mlx.nn.Identity(), *subm(width, width, FLAT)]
            self.blocks.append(block)
            c_in = width
        for stride, c_in, width in zip(ups, filters, widths):
            self.deblocks.append(_up(c_in, width, stride))
        self._ups = tuple(ups)
        self.out_channels = sum(widths) if ups else c_in

    def __call__(self, dense: mx.array) -> mx.array:
        """(B, H, W, C) -> (B, H', W', C')."""
        x, made = dense, []
        for i, block in enumerate(self.blocks):
            rows = rows_of(x)
            for at in range(1, len(block), 3):
                rows = run(block[at : at + 2], rows)
            x = ops.to_map(async_eval(rows))
            if self._ups:
                stride = max(1, round(self._ups[i]))
                up = run(self.deblocks[i], ops.from_map(x, stride=stride))
                made.append(ops.to_map(async_eval(up)))
        if not made:
            return x
        shapes = {tuple(m.shape[1:3]) for m in made}
        if len(shapes) > 1:
            raise ValueError(
                f"[BevBackbone] the levels come back with sizes {sorted(shapes)}; the map must be "
                "a multiple of all strides"
            )
        return mx.concatenate(made, axis=-1) if len(made) > 1 else made[0]


def _conv(c_in: int, c_out: int, stride: int) -> Pair:
    if stride == 1:
        return subm(c_in, c_out, FLAT)
    return reached(c_in, c_out, FLAT, (1, stride, stride), (0, 1, 1))


def _up(c_in: int, c_out: int, stride: float) -> Pair:
    if stride < 1:
        by = round(1 / stride)
        return reached(c_in, c_out, (1, by, by), (1, by, by), 0)
    by = round(stride)
    conv: mlx.nn.Module = nn.SubmConv3d(c_in, c_out, 1, bias=False)
    if by > 1:
        size = (1, by, by)
        conv = nn.ConvTranspose3d(c_in, c_out, size, size, bias=False, support="reached")
    return [conv, nn.BatchNorm(c_out, EPS, MOMENTUM)]


def height_to_channels(x: SparseTensor, batch: int) -> mx.array:
    """(B, H, W, C D) of a tensor inside of bounds (D, H, W): channel c D + z."""
    if x.bounds is None:
        raise ValueError("[height_to_channels] the tensor has no bounds")
    _, (depth, height, width) = x.bounds
    dense = x.to_dense((batch, depth, height, width))
    return mx.transpose(dense, (0, 2, 3, 4, 1)).reshape(batch, height, width, -1)
