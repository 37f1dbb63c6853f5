"""Networks of point convolutions: residual blocks, classifier, U-Net.

A network takes a PointCloudBatch, or positions, features and lengths. Without features every point
has the feature 1, so that the network sees geometry alone. The base class saves and loads networks
with their configuration, as `mlx_lattice.models` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn

from ..core._checks import array, flag, integer, layer_count, positive, sizes
from ..models._model import Model
from ..nn import Linear
from .batches import as_batch
from .layers import GlobalPool, PointConv3d, Upsample
from .norms import make_norm
from .point_set import PointSet

if TYPE_CHECKING:
    from ..core.types import ArrayLike
    from .batches import Clouds


def _start(
    model: Model,
    positions: Clouds,
    features: ArrayLike | None,
    lengths: ArrayLike | None,
    grid: float,
) -> tuple[mx.array, PointSet]:
    """(x, points) of what a network was called with."""
    batch = as_batch(positions, features, lengths, type(model).__name__)
    x = batch.features
    if x is None:
        one = mx.ones_like(batch.positions[:, :1].astype(mx.float32))
        x = one * mx.ones((1, model.config["in_channels"]))
    if x.shape[1] != model.config["in_channels"]:
        raise ValueError(
            f"[{type(model).__name__}] features must have {model.config['in_channels']} channels, "
            f"found {x.shape[1]}"
        )
    return x, batch.point_set(grid)


class ConvNormRelu(mlx.nn.Module):
    """relu(norm(conv(x))): (x, points, stride) -> (y, points of y)."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int = 3,
        norm: str = "row",
        rfs: float = 1.0,
        relu: bool = True,
        groups: int = 1,
    ) -> None:
        super().__init__()
        self.conv = PointConv3d(
            in_channels, out_channels, kernel_size, groups, bias=norm == "none", rfs=rfs
        )
        self.norm = make_norm(norm, out_channels)
        self._relu = flag(self, "relu", relu)

    def __call__(self, x: mx.array, points: PointSet, stride: int = 1) -> tuple[mx.array, PointSet]:
        y, points = self.conv(x, points, stride)
        y = self.norm(y, points.lengths)
        return (mx.maximum(y, 0) if self._relu else y), points

    forward = __call__


class _Residual(mlx.nn.Module):
    """relu(skip(x) + branch(x)); stride is that of the one strided convolution in the branch.

    If the channels or the points change, skip is a linear layer with norm on the kept rows.
    """

    def _skip(self, in_channels: int, out_channels: int, stride: int, norm: str) -> None:
        self._stride = integer(self, "stride", stride)
        if stride != 1 or in_channels != out_channels:
            self.project, self.project_norm = (
                Linear(in_channels, out_channels, bias=False),
                make_norm(norm, out_channels),
            )

    def branch(self, x: mx.array, points: PointSet) -> tuple[mx.array, PointSet]:
        """The convolutions beside the skip, and the points of their result."""
        raise NotImplementedError

    def __call__(self, x: mx.array, points: PointSet) -> tuple[mx.array, PointSet]:
        points = PointSet.of(points)
        x = array(self, "x", x, len(points), "C")
        y, target = self.branch(x, points)
        if "project" in self:
            if self._stride != 1:
                rows = points.downsample(self._stride)[1]
                x = x[rows] if rows.size else x[:0]
            x = self.project_norm(self.project(x), target.lengths)
        return mx.maximum(x + y, 0), target

    forward = __call__


class BasicBlock(_Residual):
    """relu(skip(x) + norm(conv(relu(norm(conv(x)))))) on points (He et al. 2016).

    block(x (N, in_channels), points) -> (y, points of y). The first convolution has the stride.
    norm is "batch", "row", "instance", "group", "layer" or "none"; rfs is as in `PointConv3d`.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        stride: int = 1,
        norm: str = "batch",
        rfs: float = 1.0,
    ) -> None:
        super().__init__()
        self.first = ConvNormRelu(in_channels, out_channels, norm=norm, rfs=rfs)
        self.second = ConvNormRelu(out_channels, out_channels, norm=norm, rfs=rfs, relu=False)
        self._skip(in_channels, out_channels, stride, norm)

    def branch(self, x: mx.array, points: PointSet) -> tuple[mx.array, PointSet]:
        y, target = self.first(x, points, self._stride)
        return self.second(y, target)[0], target


class Bottleneck(_Residual):
    """A linear layer to fewer channels, a 3x3x3 convolution, a linear layer to 4 * channels.

    block(x (N, in_channels), points) -> (y (M, 4 * channels), points of y). Each layer has a norm
    (He et al. 2016). The convolution has int(channels * width_per_group / 64) * groups channels in
    `groups` groups (Xie et al. 2017). Wide networks (Zagoruyko and Komodakis 2016) have a larger
    width_per_group.
    """

    expansion = 4

    def __init__(
        self,
        in_channels: int,
        channels: int,
        stride: int = 1,
        norm: str = "batch",
        rfs: float = 1.0,
        groups: int = 1,
        width_per_group: int = 64,
    ) -> None:
        super().__init__()
        channels, groups = integer(self, "channels", channels), integer(self, "groups", groups)
        width_per_group = integer(self, "width_per_group", width_per_group)
        out_channels, width = (
            channels * self.expansion,
            int(channels * width_per_group / 64) * groups,
        )
        bias = norm == "none"
        self.reduce, self.reduce_norm = (
            Linear(in_channels, width, bias=bias),
            make_norm(norm, width),
        )
        self.conv = ConvNormRelu(width, width, norm=norm, rfs=rfs, groups=groups)
        self.expand, self.expand_norm = (
            Linear(width, out_channels, bias=bias),
            make_norm(norm, out_channels),
        )
        self._skip(in_channels, out_channels, stride, norm)

    def branch(self, x: mx.array, points: PointSet) -> tuple[mx.array, PointSet]:
        y = mx.maximum(self.reduce_norm(self.reduce(x), points.lengths), 0)
        y, target = self.conv(y, points, self._stride)
        return self.expand_norm(self.expand(y), target.lengths), target


class PointClassifier(Model):
    """Scores of each cloud -> (B, num_classes).

    Convolutions at strides 1, 2, 2, ... come first, each followed by `blocks` residual blocks, then
    the mean of each cloud and a linear layer. The network takes a PointCloudBatch, or positions (T,
    3), features (T, in_channels) and lengths (B,). Without features every point has the feature 1.

    Args:
        channels: Those of each convolution.
        grid: The side of a kernel cell, in units of the positions.
        norm: "batch", "row", "instance", "group", "layer" or "none".
        pool: How the points of a cloud are joined: "mean", "max", "min" or "sum".
        rfs: Receptive field scaler, as in `PointConv3d`.
    """

    def __init__(
        self,
        in_channels: int = 1,
        num_classes: int = 6,
        channels: Sequence[int] = (16, 32, 64),
        grid: float = 0.2,
        norm: str = "row",
        blocks: int = 0,
        pool: str = "mean",
        rfs: float = 1.0,
    ) -> None:
        channels = sizes(self, "channels", channels)
        blocks = layer_count(self, "blocks", blocks, least=0)
        grid = positive(self, "grid", grid)
        super().__init__(
            in_channels=in_channels,
            num_classes=num_classes,
            channels=channels,
            grid=grid,
            norm=norm,
            blocks=blocks,
            pool=pool,
            rfs=rfs,
        )
        ins = [in_channels, *channels]
        self.stages = [ConvNormRelu(a, b, norm=norm, rfs=rfs) for a, b in zip(ins, channels)]
        self.blocks = [
            [BasicBlock(c, c, norm=norm, rfs=rfs) for _ in range(blocks)] for c in channels
        ]
        self.pool, self.head = GlobalPool(pool), Linear(channels[-1], num_classes)

    def __call__(
        self, positions: Clouds, features: ArrayLike | None = None, lengths: ArrayLike | None = None
    ) -> mx.array:
        x, points = _start(self, positions, features, lengths, self.config["grid"])
        for i, (stage, blocks) in enumerate(zip(self.stages, self.blocks)):
            x, points = stage(x, points, 1 if i == 0 else 2)
            for block in blocks:
                x, points = block(x, points)
        return self.head(self.pool(x, points))

    forward = __call__


class PointUNet(Model):
    """Scores of each point -> (T, num_classes).

    Each level halves the resolution and comes back onto the points of the finer level. The parts:
    stem -> blocks; down: strided residual block, blocks; up: Upsample, norm, relu, blocks; then the
    skip is concatenated. The network takes what `PointClassifier` takes.

    Args:
        channels, blocks: Channels and residual blocks of each level, finest first.
        grid: The side of a kernel cell, in units of the positions.
        stem: The kernel size of the first convolution.

    Examples:
        >>> import mlx.core as mx
        >>> from mlx_lattice import points
        >>> batch = points.PointCloudBatch(mx.random.uniform(shape=(8, 3)), lengths=[4, 4])
        >>> points.PointUNet(num_classes=3, channels=(8, 8), blocks=(1, 1))(batch).shape
        (8, 3)
    """

    def __init__(
        self,
        in_channels: int = 1,
        num_classes: int = 2,
        channels: Sequence[int] = (32, 64, 128, 256),
        blocks: int | Sequence[int] = (2, 3, 4, 6),
        grid: float = 0.1,
        stem: int = 5,
        norm: str = "batch",
        rfs: float = 2.5,
    ) -> None:
        channels = sizes(self, "channels", channels)
        blocks = [layer_count(self, "blocks", n) for n in sizes(self, "blocks", blocks)]
        grid = positive(self, "grid", grid)
        super().__init__(
            in_channels=in_channels,
            num_classes=num_classes,
            channels=channels,
            blocks=blocks,
            grid=grid,
            stem=stem,
            norm=norm,
            rfs=rfs,
        )
        if len(channels) != len(blocks) or not channels:
            raise ValueError(
                "[PointUNet] channels and blocks must have equal lengths >= 1, "
                f"found {channels} and {blocks}"
            )
        self.stem = ConvNormRelu(in_channels, channels[0], stem, norm=norm, rfs=rfs)
        self.encoders = []
        for level, (c, n) in enumerate(zip(channels, blocks)):
            first = BasicBlock(
                channels[max(level - 1, 0)], c, stride=1 if level == 0 else 2, norm=norm, rfs=rfs
            )
            self.encoders.append(
                [first, *(BasicBlock(c, c, norm=norm, rfs=rfs) for _ in range(n - 1))]
            )
        self.ups, self.norms, self.decoders = [], [], []
        below = channels[-1]
        for c in reversed(channels[:-1]):
            self.ups.append(Upsample(below, c, 3, rfs=rfs, bias=norm == "none"))
            self.norms.append(make_norm(norm, c))
            self.decoders.append([BasicBlock(c, c, norm=norm, rfs=rfs)])
            below = 2 * c
        self.head = PointConv3d(below, num_classes, 1)

    def __call__(
        self, positions: Clouds, features: ArrayLike | None = None, lengths: ArrayLike | None = None
    ) -> mx.array:
        x, points = _start(self, positions, features, lengths, self.config["grid"])
        x, _ = self.stem(x, points)
        levels = []
        for blocks in self.encoders:
            for block in blocks:
                x, points = block(x, points)
            levels.append((x, points))
        x, points = levels.pop()
        for up, norm, blocks in zip(self.ups, self.norms, self.decoders):
            skip, fine = levels.pop()
            x = mx.maximum(norm(up(x, points, fine), fine.lengths), 0)
            for block in blocks:
                x, _ = block(x, fine)
            x, points = mx.concatenate([x, skip], axis=1), fine
        return self.head(x, points)[0]

    forward = __call__
