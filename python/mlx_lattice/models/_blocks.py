"""Parts of residual networks on sparse tensors: convolution + norm, residual blocks, encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import mlx.nn

from .. import nn, ops
from ..core._checks import caller, integer, told
from ..devices import async_eval

if TYPE_CHECKING:
    from ..core import SparseTensor
    from ..core.types import Triple

T = TypeVar("T")


class ConvNorm(mlx.nn.Module):
    """relu(norm(conv(x)) + residual); the convolution has no bias, the norm has one."""

    def __init__(self, conv: mlx.nn.Module, channels: int, relu: bool = True) -> None:
        super().__init__()
        self.conv, self.norm = conv, nn.BatchNorm(channels)
        self._relu = relu

    def __call__(
        self,
        x: SparseTensor | list[SparseTensor],
        coordinates: SparseTensor | None = None,
        residual: SparseTensor | None = None,
    ) -> SparseTensor:
        """x: a tensor, or several whose channels are taken side by side."""
        return self.conv.with_norm(x, self.norm, residual, self._relu, coordinates)


def subm(
    in_channels: int, out_channels: int, kernel_size: Triple = 3, relu: bool = True
) -> ConvNorm:
    """Keeps the coordinates."""
    return ConvNorm(
        nn.SubmConv3d(in_channels, out_channels, kernel_size, bias=False), out_channels, relu
    )


def down(in_channels: int, out_channels: int) -> ConvNorm:
    """Halves the resolution."""
    return ConvNorm(
        nn.Conv3d(in_channels, out_channels, kernel_size=2, stride=2, bias=False), out_channels
    )


def up(in_channels: int, out_channels: int) -> ConvNorm:
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

    def _layers(self, in_channels: int, planes: int) -> list[ConvNorm]:
        raise NotImplementedError

    def __call__(self, x: SparseTensor | list[SparseTensor]) -> SparseTensor:
        """x: a tensor, or several whose channels are taken side by side."""
        if "project" in self:
            skip = self.project(x)
        else:
            x = skip = ops.cat(x) if isinstance(x, list) else x
        y = x
        for layer in self.layers[:-1]:
            y = layer(y)
        return self.layers[-1](y, residual=skip)


class BasicBlock(Block):
    """Two 3x3x3 convolutions."""

    def _layers(self, in_channels: int, planes: int) -> list[ConvNorm]:
        return [subm(in_channels, planes), subm(planes, planes)]


class Bottleneck(Block):
    """1x1x1, 3x3x3, 1x1x1 onto four times the channels."""

    expansion = 4

    def _layers(self, in_channels: int, planes: int) -> list[ConvNorm]:
        return [
            subm(in_channels, planes, 1),
            subm(planes, planes),
            subm(planes, planes * self.expansion, 1),
        ]


def stage(block: type[Block], in_channels: int, planes: int, count: int) -> tuple[list[Block], int]:
    """`count` blocks, and the channels that come out of them."""
    blocks = []
    for _ in range(count):
        blocks.append(block(in_channels, planes))
        in_channels = planes * block.expansion
    return blocks, in_channels


def run(blocks: Iterable[Callable[[SparseTensor], SparseTensor]], x: SparseTensor) -> SparseTensor:
    """Applies the blocks to x, one after the other."""
    for block in blocks:
        x = block(x)
    return x


class Encoder(mlx.nn.Module):
    """A submanifold stem, then levels: halve the resolution (2x2x2), residual blocks."""

    def __init__(
        self,
        in_channels: int,
        width: int,
        block: type[Block],
        planes: Sequence[int],
        counts: Sequence[int],
        stem_kernel_size: int,
    ) -> None:
        super().__init__()
        self.stem = subm(in_channels, width, stem_kernel_size)
        self.downs: list[ConvNorm] = []
        self.stages: list[list[Block]] = []
        self._channels = [width]
        for p, count in zip(planes, counts):
            c = self._channels[-1]
            self.downs.append(down(c, c))
            blocks, c = stage(block, c, p, count)
            self.stages.append(blocks)
            self._channels.append(c)

    @property
    def channels(self) -> tuple[int, ...]:
        """The channels of each level, finest first."""
        return tuple(self._channels)

    def __call__(self, x: SparseTensor) -> list[SparseTensor]:
        """The tensors of all levels, finest first."""
        levels = [async_eval(self.stem(x))]
        for halve, blocks in zip(self.downs, self.stages):
            levels.append(async_eval(run(blocks, halve(levels[-1]))))
        return levels


def checked(model: object, **numbers: object) -> dict[str, Any]:
    """The numbers as plain ints >= 1; errors name the model's class."""
    return {name: integer(model, name, value) for name, value in numbers.items()}


def choose(model: object, name: str, value: object, table: Mapping[int, T]) -> T:
    """The entry of a table by its number, such as the depth of a network."""
    if not isinstance(value, int) or value not in table:
        raise ValueError(
            f"[{caller(model)}] {name} must be one of {sorted(table)}, found {told(value)}"
        )
    return table[value]
