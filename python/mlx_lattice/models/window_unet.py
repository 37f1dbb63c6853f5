"""A U-Net on sparse voxels of residual convolutions and attention in windows."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn

from .. import nn, ops
from ..core._checks import layer_count, positive, share, sizes, sparse_input
from ..nn._transformer import stochastic_depth
from ._blocks import checked, run
from ._model import Model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core import SparseTensor
    from ..core.layouts import GridPooling


class SparseResBlock(mlx.nn.Module):
    """skip(x) + conv(silu(norm(conv(silu(norm(x)))))), the block of 3D generation models.

    With a pooling, x is averaged over its blocks. With `up` too, a tensor of the fine level, each
    fine row reads its block. The resampling comes after the first norm and before the convolution.
    The second convolution begins at 0, so that the block begins as its skip.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(in_channels), nn.LayerNorm(out_channels)
        self.conv1 = nn.SubmConv3d(in_channels, out_channels)
        self.conv2 = nn.SubmConv3d(out_channels, out_channels)
        self.conv2.weight = mx.zeros_like(self.conv2.weight)
        self.activation = nn.SiLU()
        if in_channels != out_channels:
            self.skip = nn.Linear(in_channels, out_channels)

    def __call__(
        self,
        x: SparseTensor,
        pooling: GridPooling | None = None,
        up: SparseTensor | None = None,
    ) -> SparseTensor:
        y = self.activation(self.norm1(x))
        if pooling is not None:
            x, y = (_resampled(t, pooling, up) for t in (x, y))
        y = self.conv2(self.activation(self.norm2(self.conv1(y))))
        kept = self.skip(x) if "skip" in self else x
        return y.with_feats(y.feats + kept.feats)


def _resampled(x: SparseTensor, pooling: GridPooling, up: SparseTensor | None) -> SparseTensor:
    if up is None:
        return ops.grid_pool(x, pooling, "mean")
    return up.with_feats(ops.grid_unpool(x.feats, pooling))


class WindowUNet(Model):
    """A windowed sparse transformer U-Net: x (N, in_channels) -> (N, out_channels) on x's voxels.

    Each level has a residual block of two submanifold convolutions, then transformer blocks with
    attention in windows. Every second block shifts its windows by half of their size (Liu et al.,
    "Swin Transformer", ICCV 2021). Going down averages blocks of 2^3 voxels. Going up gives each
    voxel the row of its block; then the skip is concatenated. Such networks encode and decode
    voxels in 3D generation (Xiang et al., "Structured 3D Latents", CVPR 2025).

    Args:
        channels: Those of each level, finest first.
        depths: The number of transformer blocks of each level.
        head_size: The channels per head, which divide the channels of each level.
        window: The voxels of a window along each axis.
        table: The bias by relative position, "full", "axial" or None, as in `nn.WindowAttention`.
        mlp_ratio: The channels inside an MLP per channel of its block.
        drop_path: The probability with which the last block is skipped in training; it rises from 0
            at the first.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        channels: Sequence[int] = (32, 64, 128),
        depths: Sequence[int] = (2, 2, 2),
        head_size: int = 16,
        window: int = 8,
        table: str | None = "axial",
        mlp_ratio: float = 4,
        drop_path: float = 0.0,
    ) -> None:
        config = checked(
            self,
            in_channels=in_channels,
            out_channels=out_channels,
            head_size=head_size,
            window=window,
        )
        config["channels"] = sizes(self, "channels", channels)
        config["depths"] = [layer_count(self, "depths", n) for n in sizes(self, "depths", depths)]
        if len(config["channels"]) != len(config["depths"]):
            raise ValueError(
                "[WindowUNet] channels and depths must have equal lengths, "
                f"found {config['channels']} and {config['depths']}"
            )
        for c in config["channels"]:
            if c % config["head_size"]:
                raise ValueError(
                    f"[WindowUNet] head_size {config['head_size']} must divide the channels of "
                    f"each level, found {c}"
                )
        config["table"] = table
        config["mlp_ratio"] = positive(self, "mlp_ratio", mlp_ratio)
        config["drop_path"] = share(self, "drop_path", drop_path)
        super().__init__(**config)
        widths = config["channels"]
        rates = stochastic_depth(config["drop_path"], config["depths"])
        self.stem = nn.Linear(config["in_channels"], widths[0])
        self.downs = [SparseResBlock(a, b) for a, b in zip([widths[0], *widths], widths)]
        self.encoder = [self._blocks(c, r) for c, r in zip(widths, rates)]
        self.ups = [SparseResBlock(b, a) for a, b in itertools.pairwise(widths)]
        self.joins = [SparseResBlock(2 * c, c) for c in widths[:-1]]
        self.decoder = [self._blocks(c, r) for c, r in zip(widths[:-1], rates)]
        self.norm = nn.LayerNorm(widths[0])
        self.head = nn.Linear(widths[0], config["out_channels"])

    def _blocks(self, channels: int, rates: Sequence[float]) -> list[nn.TransformerBlock]:
        config = self._config
        return [
            nn.TransformerBlock(
                channels,
                nn.WindowAttention(
                    channels,
                    channels // config["head_size"],
                    config["window"],
                    config["window"] // 2 if i % 2 else 0,
                    table=config["table"],
                ),
                mlp_ratio=config["mlp_ratio"],
                drop_path=rate,
                position=False,
            )
            for i, rate in enumerate(rates)
        ]

    def features(self, x: SparseTensor) -> SparseTensor:
        """The input of the head: the finest tensor after the last norm."""
        levels: list[tuple[SparseTensor, GridPooling | None]] = []
        pooling: GridPooling | None = None
        x = self.stem(sparse_input(self, x, self._config["in_channels"]))
        for down, blocks in zip(self.downs, self.encoder):
            if levels:
                pooling = ops.grid_pooling(x, 2, "z")
            x = run(blocks, down(x, pooling))
            levels.append((x, pooling))
        _, pooling = levels.pop()
        for up, join, blocks in zip(
            reversed(self.ups), reversed(self.joins), reversed(self.decoder)
        ):
            skip, before = levels.pop()
            x = up(x, pooling, skip)
            x = run(blocks, join(ops.cat([x, skip])))
            pooling = before
        return self.norm(x)

    def __call__(self, x: SparseTensor) -> SparseTensor:
        return self.head(self.features(x))
