"""MinkUNet: residual U-Nets on sparse voxels for semantic segmentation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import nn
from ..core._checks import sparse_input
from ..devices import async_eval
from ._blocks import (
    BasicBlock,
    Block,
    Bottleneck,
    ConvNorm,
    Encoder,
    checked,
    choose,
    run,
    stage,
    up,
)
from ._model import Model

if TYPE_CHECKING:
    from ..core import SparseTensor

# depth -> (block, blocks of the four encoder levels); a decoder level has one block (14) or two.
_DEPTHS: dict[int, tuple[type[Block], tuple[int, ...], int]] = {
    14: (BasicBlock, (1, 1, 1, 1), 1),
    18: (BasicBlock, (2, 2, 2, 2), 2),
    34: (BasicBlock, (2, 3, 4, 6), 2),
    50: (Bottleneck, (2, 3, 4, 6), 2),
    101: (Bottleneck, (2, 3, 4, 23), 2),
}
_ENCODER, _DECODER = (1, 2, 4, 8), (8, 4, 3, 3)  # times the width


class MinkUNet(Model):
    """A residual U-Net with four levels: x (N, in_channels) -> logits (N, out_channels).

    The logits lie on the coordinates of x. The network is that of Choy, Gwak and Savarese, "4D
    Spatio-Temporal ConvNets: Minkowski Convolutional Neural Networks", CVPR 2019. Its blocks are
    those of He et al., "Deep Residual Learning for Image Recognition", CVPR 2016.

    Going down is a 2x2x2 convolution of stride 2. Going up is its transpose onto the coordinates of
    the skip, which is then concatenated by identity.

    Args:
        depth: 14, 18 or 34 with basic blocks, 50 or 101 with bottlenecks.
        width: The channels of the stem. The levels have width * (1, 2, 4, 8) channels going down
            and width * (8, 4, 3, 3) going up, times 4 with bottlenecks.

    Examples:
        >>> from mlx_lattice import models, samples
        >>> models.MinkUNet(4, 3, depth=14, width=4)(samples.tensor()).shape
        (6, 3)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        depth: int = 18,
        width: int = 32,
        stem_kernel_size: int = 5,
    ) -> None:
        block, counts, back = choose(self, "depth", depth, _DEPTHS)
        config = checked(
            self,
            in_channels=in_channels,
            out_channels=out_channels,
            depth=depth,
            width=width,
            stem_kernel_size=stem_kernel_size,
        )
        super().__init__(**config)
        width = config["width"]
        planes = [width * m for m in _ENCODER]
        self.encoder = Encoder(
            config["in_channels"], width, block, planes, counts, config["stem_kernel_size"]
        )
        c = self.encoder.channels[-1]
        self.ups: list[ConvNorm] = []
        self.decoders: list[list[Block]] = []
        for m, skip in zip(_DECODER, reversed(self.encoder.channels[:-1])):
            self.ups.append(up(c, width * m))
            blocks, c = stage(block, width * m + skip, width * m, back)
            self.decoders.append(blocks)
        self.head = nn.Linear(c, config["out_channels"])

    def features(self, x: SparseTensor) -> SparseTensor:
        """The input of the head: (N, head.weight.shape[1]) features on x's coordinates."""
        *skips, x = self.encoder(sparse_input(self, x, self._config["in_channels"]))
        for rise, blocks, skip in zip(self.ups, self.decoders, reversed(skips)):
            first, *others = blocks
            x = async_eval(run(others, first([rise(x, skip), skip])))
        return x

    def __call__(self, x: SparseTensor) -> SparseTensor:
        return self.head(self.features(x))
