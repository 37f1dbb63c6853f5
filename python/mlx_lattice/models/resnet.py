"""A residual encoder on sparse voxels, with or without a classification head."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import nn
from ..core._checks import integer, sparse_input
from ._blocks import BasicBlock, Block, Bottleneck, Encoder, checked, choose
from ._model import Model

if TYPE_CHECKING:
    import mlx.core as mx

    from ..core import SparseTensor

_DEPTHS: dict[int, tuple[type[Block], tuple[int, ...]]] = {
    14: (BasicBlock, (1, 1, 1, 1)),
    18: (BasicBlock, (2, 2, 2, 2)),
    34: (BasicBlock, (3, 4, 6, 3)),
    50: (Bottleneck, (3, 4, 6, 3)),
    101: (Bottleneck, (3, 4, 23, 3)),
}


class SparseResNet(Model):
    """Residual encoder with four halvings: x (N, in_channels) -> the coarsest tensor, or logits.

    The network is that of He et al., "Deep Residual Learning for Image Recognition", CVPR 2016. It
    runs on sparse voxels as in Choy, Gwak and Savarese, "4D Spatio-Temporal ConvNets", CVPR 2019.
    `pyramid(x)` returns the tensors of all five levels.

    Args:
        out_channels: With a number, the mean over each batch item goes through a linear layer:
            (B, out_channels) logits. An empty item has the logits of zeros.
        depth: 14, 18 or 34 with basic blocks, 50 or 101 with bottlenecks.
        width: The levels have width * (1, 2, 4, 8) channels, times 4 with bottlenecks.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        depth: int = 18,
        width: int = 32,
        stem_kernel_size: int = 3,
    ) -> None:
        block, counts = choose(self, "depth", depth, _DEPTHS)
        config = checked(
            self,
            in_channels=in_channels,
            depth=depth,
            width=width,
            stem_kernel_size=stem_kernel_size,
        )
        config["out_channels"] = (
            None if out_channels is None else integer(self, "out_channels", out_channels)
        )
        super().__init__(**config)
        planes = [config["width"] * m for m in (1, 2, 4, 8)]
        self.encoder = Encoder(
            config["in_channels"],
            config["width"],
            block,
            planes,
            counts,
            config["stem_kernel_size"],
        )
        if out_channels is not None:
            self.pool = nn.GlobalAvgPool()
            self.head = nn.Linear(self.encoder.channels[-1], config["out_channels"])

    def pyramid(self, x: SparseTensor) -> list[SparseTensor]:
        """Tensors of all levels, finest first."""
        return self.encoder(sparse_input(self, x, self._config["in_channels"]))

    def __call__(self, x: SparseTensor) -> SparseTensor | mx.array:
        y = self.pyramid(x)[-1]
        if "head" not in self:
            return y
        return self.head(self.pool(y))
