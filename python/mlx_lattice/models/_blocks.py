"""Parts of residual networks on sparse tensors: convolution + norm, residual blocks, encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.nn

from .. import nn
from ..devices import async_eval
from ..nn._checks import integer

if TYPE_CHECKING:
    from mlx.nn import Module

    from mlx_lattice.core import SparseTensor


class ConvNorm(mlx.nn.Module):
    """relu(norm(conv(x) [+ residual])); the convolution has no bias, the norm has one."""

    def __init__(self, conv: Any, channels: Any, relu: bool = True) -> None:
        super().__init__()
        self.conv, self.norm = conv, nn.BatchNorm(channels)
        self._relu = relu

    def __call__(
        self, x: Any, coordinates: SparseTensor | None = None, residual: SparseTensor | None = None
    ) -> Any:
        y = self.conv(x) if coordinates is None else self.conv(x, coordinates)
        return self.norm(y, residual, self._relu, only_reader=True)


def subm(
    in_channels: int,
    out_channels: int,
    kernel_size: int | tuple[int, int, int] = 3,
    relu: bool = True,
) -> Any:
    return ConvNorm(
        nn.SubmConv3d(in_channels, out_channels, kernel_size, bias=False), out_channels, relu
    )


def down(in_channels: int, out_channels: int) -> Any:
    """Halves the resolution."""
    return ConvNorm(
        nn.Conv3d(in_channels, out_channels, kernel_size=2, stride=2, bias=False), out_channels
    )


def up(in_channels: int, out_channels: int) -> Any:
    """Doubles the resolution, onto the coordinates of its second argument."""
    return ConvNorm(
        nn.ConvTranspose3d(in_channels, out_channels, kernel_size=2, stride=2, bias=False),
        out_channels,
    )


class Block(mlx.nn.Module):
    """relu(x + f(x)), He et al. 2016. If channels differ, x passes a pointwise convolution."""

    expansion = 1

    def __init__(self, in_channels: int, planes: int) -> None:
        super().__init__()
        self.layers = self._layers(in_channels, planes)
        if in_channels != planes * self.expansion:
            self.project = subm(in_channels, planes * self.expansion, 1, relu=False)

    def __call__(self, x: Any) -> Any:
        skip = self.project(x) if "project" in self else x
        y = x
        for layer in self.layers[:-1]:
            y = layer(y)
        return self.layers[-1](y, residual=skip)


class BasicBlock(Block):
    """Two 3x3x3 convolutions."""

    def _layers(self, in_channels: int, planes: int) -> Any:
        return [subm(in_channels, planes), subm(planes, planes)]


class Bottleneck(Block):
    """1x1x1, 3x3x3, 1x1x1 onto four times the channels."""

    expansion = 4

    def _layers(self, in_channels: int, planes: int) -> Any:
        return [
            subm(in_channels, planes, 1),
            subm(planes, planes),
            subm(planes, planes * self.expansion, 1),
        ]


def stage(block: Any, in_channels: int, planes: int, count: int) -> tuple[Any, ...]:
    """`count` blocks; returns them with the channels that come out."""
    blocks = []
    for _ in range(count):
        blocks.append(block(in_channels, planes))
        in_channels = planes * block.expansion
    return blocks, in_channels


def run(blocks: Any, x: Any) -> Any:
    for block in blocks:
        x = block(x)
    return x


class Encoder(mlx.nn.Module):
    """A submanifold stem, then levels: halve the resolution (2x2x2), residual blocks."""

    def __init__(
        self,
        in_channels: Any,
        width: Any,
        block: Any,
        planes: Any,
        counts: Any,
        stem_kernel_size: Any,
    ) -> None:
        super().__init__()
        self.stem = subm(in_channels, width, stem_kernel_size)
        self.downs, self.stages = [], []
        self._channels = [width]
        for p, count in zip(planes, counts):
            c = self._channels[-1]
            self.downs.append(down(c, c))
            blocks, c = stage(block, c, p, count)
            self.stages.append(blocks)
            self._channels.append(c)

    @property
    def channels(self) -> Any:
        """Of each level, finest first."""
        return tuple(self._channels)

    def __call__(self, x: Any) -> Any:
        """The tensors of all levels, finest first."""
        levels = [async_eval(self.stem(x))]
        for halve, blocks in zip(self.downs, self.stages):
            levels.append(async_eval(run(blocks, halve(levels[-1]))))
        return levels


def checked(model: Module, **numbers: Any) -> dict[str, Any]:
    """The numbers as plain ints >= 1; errors name the model's class."""
    return {name: integer(model, name, value) for name, value in numbers.items()}


def choose(model: Module, name: str, value: Any, table: Any) -> Any:
    if value not in list(table):
        raise ValueError(
            f"[{type(model).__name__}] {name} must be one of {sorted(table)}, got {value!r}"
        )
    return table[value]
