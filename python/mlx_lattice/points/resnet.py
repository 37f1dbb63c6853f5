"""Residual networks on points, 18 to 152 layers (He et al. 2016), ResNeXt and wide networks.

    stem: convolution of kernel size 7, stride 2 -> norm -> relu -> max pool of size 3, stride 2
    four stages of blocks with 1, 2, 4, 8 times `width` channels, at strides 1, 2, 2, 2
    mean of each cloud -> linear

The points of the last stage lie in cells of 32 * grid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core._checks import integer, one_of, positive
from ..models._model import Model
from ..nn import Linear
from .layers import GlobalPool, max_pool3d
from .networks import BasicBlock, Bottleneck, ConvNormRelu, _start

if TYPE_CHECKING:
    import mlx.core as mx

    from ..core.types import ArrayLike
    from .batches import Clouds
    from .point_set import PointSet

BLOCKS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}


class PointResNet(Model):
    """Scores of each cloud -> (B, num_classes), by a residual network on points.

    The network takes a PointCloudBatch, or positions (T, 3), features (T, in_channels) and lengths
    (B,). Without features every point has the feature 1.

    Args:
        depth: 18 and 34 have basic blocks; 50, 101 and 152 have bottlenecks.
        width: The channels of the first stage.
        groups, width_per_group: Groups of the 3x3x3 convolutions of the bottlenecks, and their
            width. 32 and 4 make a ResNeXt, 1 and 128 a wide network.
        grid: The side of a kernel cell, in units of the positions.
        norm: "batch", "row", "instance", "group", "layer" or "none".
        rfs: Receptive field scaler, as in `PointConv3d`.
        stem: The kernel size of the first convolution.
    """

    def __init__(
        self,
        in_channels: int = 1,
        num_classes: int = 10,
        depth: int = 18,
        width: int = 64,
        groups: int = 1,
        width_per_group: int = 64,
        grid: float = 0.02,
        norm: str = "batch",
        rfs: float = 1.0,
        stem: int = 7,
    ) -> None:
        one_of(self, "depth", depth, tuple(BLOCKS))
        width, grid = integer(self, "width", width), positive(self, "grid", grid)
        groups = integer(self, "groups", groups)
        width_per_group = integer(self, "width_per_group", width_per_group)
        super().__init__(
            in_channels=in_channels,
            num_classes=num_classes,
            depth=depth,
            width=width,
            groups=groups,
            width_per_group=width_per_group,
            grid=grid,
            norm=norm,
            rfs=rfs,
            stem=stem,
        )
        if depth < 50 and (groups, width_per_group) != (1, 64):
            raise ValueError(
                "[PointResNet] basic blocks have groups 1 and width_per_group 64, "
                f"found {groups} and {width_per_group}"
            )
        self.stem = ConvNormRelu(in_channels, width, stem, norm=norm, rfs=rfs)
        self.stages, channels = [], width
        for stage, n in enumerate(BLOCKS[depth]):
            blocks: list[BasicBlock | Bottleneck] = []
            for i in range(n):
                options: dict[str, Any] = {
                    "stride": 2 if stage and i == 0 else 1,
                    "norm": norm,
                    "rfs": rfs,
                }
                if depth < 50:
                    blocks.append(BasicBlock(channels, width * 2**stage, **options))
                    channels = width * 2**stage
                else:
                    options |= {"groups": groups, "width_per_group": width_per_group}
                    blocks.append(Bottleneck(channels, width * 2**stage, **options))
                    channels = width * 2**stage * Bottleneck.expansion
            self.stages.append(blocks)
        self.pool, self.head = GlobalPool("mean"), Linear(channels, num_classes)

    def __call__(
        self, positions: Clouds, features: ArrayLike | None = None, lengths: ArrayLike | None = None
    ) -> mx.array:
        x, points = self.features(positions, features, lengths)
        return self.head(self.pool(x, points))

    forward = __call__

    def features(
        self, positions: Clouds, features: ArrayLike | None = None, lengths: ArrayLike | None = None
    ) -> tuple[mx.array, PointSet]:
        """(x, points) of the last stage."""
        x, points = _start(self, positions, features, lengths, self.config["grid"])
        x, points = self.stem(x, points, 2)
        x, points = max_pool3d(x, points, 3, 2, rfs=self.config["rfs"])
        for blocks in self.stages:
            for block in blocks:
                x, points = block(x, points)
        return x, points


def resnet18(in_channels: int = 1, num_classes: int = 10, **options: Any) -> PointResNet:
    """A `PointResNet` of 18 layers; options are its other arguments."""
    return PointResNet(in_channels, num_classes, 18, **options)


def resnet34(in_channels: int = 1, num_classes: int = 10, **options: Any) -> PointResNet:
    """A `PointResNet` of 34 layers; options are its other arguments."""
    return PointResNet(in_channels, num_classes, 34, **options)


def resnet50(in_channels: int = 1, num_classes: int = 10, **options: Any) -> PointResNet:
    """A `PointResNet` of 50 layers; options are its other arguments."""
    return PointResNet(in_channels, num_classes, 50, **options)


def resnet101(in_channels: int = 1, num_classes: int = 10, **options: Any) -> PointResNet:
    """A `PointResNet` of 101 layers; options are its other arguments."""
    return PointResNet(in_channels, num_classes, 101, **options)


def resnet152(in_channels: int = 1, num_classes: int = 10, **options: Any) -> PointResNet:
    """A `PointResNet` of 152 layers; options are its other arguments."""
    return PointResNet(in_channels, num_classes, 152, **options)


def resnext50_32x4d(in_channels: int = 1, num_classes: int = 10, **options: Any) -> PointResNet:
    """A ResNeXt of 50 layers and 32 groups of 4 channels; options are those of `PointResNet`."""
    return PointResNet(in_channels, num_classes, 50, groups=32, width_per_group=4, **options)


def resnext101_32x8d(in_channels: int = 1, num_classes: int = 10, **options: Any) -> PointResNet:
    """A ResNeXt of 101 layers and 32 groups of 8 channels; options are those of `PointResNet`."""
    return PointResNet(in_channels, num_classes, 101, groups=32, width_per_group=8, **options)


def wide_resnet50_2(in_channels: int = 1, num_classes: int = 10, **options: Any) -> PointResNet:
    """50 layers, twice as wide inside the bottlenecks; options are those of `PointResNet`."""
    return PointResNet(in_channels, num_classes, 50, width_per_group=128, **options)


def wide_resnet101_2(in_channels: int = 1, num_classes: int = 10, **options: Any) -> PointResNet:
    """101 layers, twice as wide inside the bottlenecks; options are those of `PointResNet`."""
    return PointResNet(in_channels, num_classes, 101, width_per_group=128, **options)
