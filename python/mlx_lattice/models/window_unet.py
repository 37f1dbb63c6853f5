"""A U-Net on sparse voxels of residual convolutions and attention in windows."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn

from .. import nn, ops
from ..nn._checks import layer_count, number, sizes
from ..nn._transformer import stochastic_depth
from ._blocks import checked
from ._model import Model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._types import Triple
    from ..core import SparseTensor


class SparseResBlock(mlx.nn.Module):
    """skip(x) + conv(silu(norm(conv(silu(norm(x)))))), the block of 3D generation models.

    The call takes `pooling` and `up`: x is averaged over the blocks of the pooling, or each fine
    row reads its block. The resampling stands behind the first norm and before the convolution. The
    second convolution begins at 0, so that the block begins as its skip.
    """

    def __init__(self, in_channels: Any, out_channels: Any) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(in_channels), nn.LayerNorm(out_channels)
        self.conv1 = nn.SubmConv3d(in_channels, out_channels)
        self.conv2 = nn.SubmConv3d(out_channels, out_channels)
        self.conv2.weight = mx.zeros_like(self.conv2.weight)
        self.activation = nn.SiLU()
        if in_channels != out_channels:
            self.skip = nn.Linear(in_channels, out_channels)

    def __call__(self, x: Any, pooling: Any = None, up: Any = None) -> Any:
        """pooling alone goes down; with `up`, a tensor of the fine level, onto its coordinates."""
        y = self.activation(self.norm1(x))
        if pooling is not None:
            x, y = (_resampled(t, pooling, up) for t in (x, y))
        y = self.conv2(self.activation(self.norm2(self.conv1(y))))
        kept = self.skip(x) if "skip" in self else x
        return y.with_feats(y.feats + kept.feats)


def _resampled(x: Any, pooling: Any, up: Any) -> Any:
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

    channels: of each level, finest first.
    depths: transformer blocks of each level.
    head_size: channels per head, which divides the channels of each level.
    window: voxels per axis of a window.
    table: relative positions, "full", "axial" or None.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        channels: Sequence[int] = (32, 64, 128),
        depths: Sequence[int] = (2, 2, 2),
        head_size: int = 16,
        window: Triple = 8,
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
        config["channels"] = sizes(self, "channels", list(channels))
        config["depths"] = [layer_count(self, "depths", n) for n in sizes(self, "depths", depths)]
        if len(config["channels"]) != len(config["depths"]):
            raise ValueError(
                "[WindowUNet] channels and depths must have equal lengths, "
                f"got {config['channels']} and {config['depths']}"
            )
        for c in config["channels"]:
            if c % config["head_size"]:
                raise ValueError(
                    f"[WindowUNet] head_size {config['head_size']} must divide the channels of "
                    f"each level, got {c}"
                )
        config["table"] = table
        config["mlp_ratio"] = number(self, "mlp_ratio", mlp_ratio, 0, low_included=False)
        config["drop_path"] = number(self, "drop_path", drop_path, 0, 1, high_included=False)
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

    def _blocks(self, channels: Any, rates: Any) -> Any:
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
        """What the head sees: the finest tensor behind the last norm."""
        levels: list[Any] = []
        x, pooling = self.stem(x), None
        for down, blocks in zip(self.downs, self.encoder):
            if levels:
                pooling = ops.grid_pooling(x, 2, "z")
            x = _run(blocks, down(x, pooling))
            levels.append((x, pooling))
        _, pooling = levels.pop()
        for up, join, blocks in zip(
            reversed(self.ups), reversed(self.joins), reversed(self.decoder)
        ):
            skip, before = levels.pop()
            x = up(x, pooling, skip)
            x = _run(blocks, join(ops.cat([x, skip])))
            pooling = before
        return self.norm(x)

    def __call__(self, x: SparseTensor) -> SparseTensor:
        return self.head(self.features(x))


def _run(blocks: Any, x: Any) -> Any:
    for block in blocks:
        x = block(x)
    return x
