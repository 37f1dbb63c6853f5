"""The sparse part of SECOND: from voxels of a LiDAR scan to a dense bird's-eye view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import mlx.core as mx

from .. import nn
from ..core._checks import integers, sizes, sparse_input
from ..devices import async_eval
from ._blocks import ConvNorm, checked, run, subm
from ._model import Model

if TYPE_CHECKING:
    from ..core import SparseTensor
    from ..core.types import Triple


class SecondBackbone(Model):
    """From voxels in a grid (X, Y, Z) to a dense bird's-eye view for a detection head.

    x (N, in_channels) -> (B, ceil(X / 8), ceil(Y / 8), channels * ceil(Z / 16)). The last axis
    holds channel and height: index c * Z' + z.

    The network is that of Yan, Mao and Li, "SECOND: Sparsely Embedded Convolutional Detection",
    Sensors 2018. Each level has two submanifold convolutions. Between levels is a 3x3x3 convolution
    of stride 2. A last convolution of size (1, 1, 3) and stride (1, 1, 2) halves the height.

    The output rows of a strided layer are the halved coordinates of its input. Cells without a
    voxel stay empty; the convolution of the paper also fills their neighbors. B is given by
    batch_counts, else by the largest batch index.

    Args:
        grid_size: The number of voxels along each axis (X, Y, Z).
        channels: Those of the four levels.

    Raises:
        ValueError: A coordinate of x lies outside of the grid.
    """

    def __init__(
        self,
        in_channels: int,
        grid_size: Sequence[int],
        channels: Sequence[int] = (16, 32, 64, 64),
        out_channels: int = 128,
    ) -> None:
        config = checked(self, in_channels=in_channels, out_channels=out_channels)
        config["grid_size"] = sizes(self, "grid_size", grid_size, 3)
        config["channels"] = sizes(self, "channels", channels, 4)
        super().__init__(**config)
        self.levels: list[list[ConvNorm]] = []
        c = config["in_channels"]
        for level, width in enumerate(config["channels"]):
            first = subm(c, width) if level == 0 else _strided(c, width, 3, 2)
            self.levels.append([first, subm(width, width), subm(width, width)])
            c = width
        self.squeeze = _strided(c, config["out_channels"], (1, 1, 3), (1, 1, 2))

    def sparse(self, x: SparseTensor) -> SparseTensor:
        """The sparse tensor of the last layer, at stride (8, 8, 16)."""
        for layers in self.levels:
            x = async_eval(run(layers, x))
        return self.squeeze(x)

    @property
    def output_shape(self) -> tuple[int, int, int]:
        """(X', Y', C') of the bird's-eye view."""
        nx, ny, nz = (-(-n // s) for n, s in zip(self._config["grid_size"], (8, 8, 16)))
        return nx, ny, self._config["out_channels"] * nz

    def __call__(self, x: SparseTensor) -> mx.array:
        self._check_inside(sparse_input(self, x, self._config["in_channels"]))
        y = self.sparse(x)
        sx, sy, sz = (-(-n // s) for n, s in zip(self._config["grid_size"], (8, 8, 16)))
        dense = y.to_dense((sx, sy, sz))
        return mx.swapaxes(dense, 3, 4).reshape(dense.shape[0], *self.output_shape)

    def _check_inside(self, x: SparseTensor) -> None:
        if x.active_count == 0:
            return
        low = integers(mx.min(x.coords[:, 1:], axis=0))
        high = integers(mx.max(x.coords[:, 1:], axis=0))
        for axis, a, b, n in zip("xyz", low, high, self._config["grid_size"]):
            if a < 0 or b >= n:
                raise ValueError(
                    f"[SecondBackbone] {axis} must be in 0..{n - 1}, found {a if a < 0 else b}"
                )


def _strided(in_channels: int, out_channels: int, size: Triple, stride: Triple) -> ConvNorm:
    return ConvNorm(nn.Conv3d(in_channels, out_channels, size, stride, bias=False), out_channels)
