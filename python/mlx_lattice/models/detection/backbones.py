"""Sparse backbones: from voxels (batch, z, y, x) to the coarse levels of a detector.

VoxelBackbone is that of SECOND (Yan, Mao and Li, Sensors 2018), with residual blocks that of
CenterPoint (Yin, Zhou and Krähenbühl, CVPR 2021); VoxelNeXtBackbone is that of Chen et al.,
"VoxelNeXt: Fully sparse VoxelNet for 3D object detection and tracking", CVPR 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import mlx.nn

from ... import ops
from ...devices import async_eval
from .._integer_layers import Leave
from .layers import ResidualBlock, reached, run, subm

if TYPE_CHECKING:
    from ...core import SparseTensor

Stages = "dict[str, SparseTensor]"


class VoxelBackbone(mlx.nn.Module):
    """conv_input, conv1 to conv4 and conv_out; halves the resolution three times, the height four.

    widths: channels of conv1, conv2, conv3, conv4 and conv_out. residual: blocks instead of single
    layers; bias: whether their convolutions have one. order: of the rows, see `ops.conv3d`.
    """

    def __init__(
        self,
        in_channels: int,
        widths: Sequence[int],
        residual: bool,
        bias: bool = True,
        order: str = "sorted",
    ) -> None:
        super().__init__()
        one, two, three, four, out = widths
        self._residual = residual
        self.conv_input = subm(in_channels, one)
        self.conv1 = (
            [ResidualBlock(one, bias), ResidualBlock(one, bias)] if residual else [subm(one, one)]
        )
        for name, c_in, c_out, padding in (
            ("conv2", one, two, 1),
            ("conv3", two, three, 1),
            ("conv4", three, four, (0, 1, 1)),
        ):
            first = reached(c_in, c_out, 3, 2, padding, order)
            more = [ResidualBlock(c_out, bias) if residual else subm(c_out, c_out) for _ in "ab"]
            setattr(self, name, [first, *more])
        self.conv_out = reached(four, out, (3, 1, 1), (2, 1, 1), 0, order)

    def __call__(self, x: SparseTensor) -> dict[str, SparseTensor]:
        """The tensor after each stage."""
        stages = {"conv_input": run(self.conv_input, x)}
        y = stages["conv_input"]
        for name in ("conv1", "conv2", "conv3", "conv4"):
            for layer in self[name]:
                y = run(layer, y) if isinstance(layer, list) else layer(y)
            stages[name] = y = async_eval(y)
        stages["conv_out"] = run(self.conv_out, y)
        return stages


class VoxelNeXtBackbone(mlx.nn.Module):
    """conv_input, conv1 to conv6, the sum of the last three levels seen from above, conv_out.

    widths: channels of conv1 to conv6 and of conv_out; sizes: kernels of conv2 to conv5, conv6 has
    the last.
    """

    def __init__(
        self,
        in_channels: int,
        widths: Sequence[int],
        sizes: Sequence[int] = (3, 3, 3, 3),
        order: str = "sorted",
    ) -> None:
        super().__init__()
        self.conv_input = subm(in_channels, widths[0])
        self.conv1 = [ResidualBlock(widths[0]), ResidualBlock(widths[0])]
        kernels = [*sizes, sizes[-1]]
        for i, (c_in, c_out, size) in enumerate(zip(widths, widths[1:6], kernels)):
            first = reached(c_in, c_out, size, 2, size // 2, order)
            setattr(self, f"conv{i + 2}", [first, ResidualBlock(c_out), ResidualBlock(c_out)])
        self.leave = [Leave() for _ in range(3)]
        out = widths[6]
        self.conv_out = reached(widths[5], out, (1, 3, 3), 1, (0, 1, 1), order)
        self.shared_conv = subm(out, out, (1, 3, 3), bias=True, eps=1e-5)

    def __call__(self, x: SparseTensor) -> dict[str, SparseTensor]:
        """The tensor after each stage, and "merged" and "bev" between them."""
        y = run(self.conv_input, x)
        stages = {"conv_input": y}
        for i in range(1, 7):
            for layer in self[f"conv{i}"]:
                y = run(layer, y) if isinstance(layer, list) else layer(y)
            stages[f"conv{i}"] = y = async_eval(y)
        coarse = [leave(stages[n]) for leave, n in zip(self.leave, ("conv4", "conv5", "conv6"))]
        stages["merged"] = ops.merge_levels(coarse)
        stages["bev"] = ops.sum_over(stages["merged"], 0)
        stages["conv_out"] = run(self.conv_out, stages["bev"])
        stages["shared_conv"] = run(self.shared_conv, stages["conv_out"])
        return stages
