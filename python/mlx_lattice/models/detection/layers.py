"""Layers of detectors as [convolution, norm] pairs, so that weights have their published names."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import mlx.nn

from ... import nn

if TYPE_CHECKING:
    from ...core import SparseTensor
    from ...core.types import Triple

EPS, MOMENTUM = 1e-3, 0.01
Pair: TypeAlias = "list[mlx.nn.Module]"


def subm(c_in: int, c_out: int, size: Triple = 3, *, bias: bool = False, eps: float = EPS) -> Pair:
    """A submanifold convolution and its norm."""
    return [nn.SubmConv3d(c_in, c_out, size, bias=bias), nn.BatchNorm(c_out, eps, MOMENTUM)]


def reached(
    c_in: int,
    c_out: int,
    size: Triple,
    stride: Triple,
    padding: Triple,
    order: str = "sorted",
    eps: float = EPS,
) -> Pair:
    """A convolution onto every cell that it reaches, and its norm."""
    conv = nn.Conv3d(c_in, c_out, size, stride, padding, bias=False, support="reached", order=order)
    return [conv, nn.BatchNorm(c_out, eps, MOMENTUM)]


def run(
    pair: Pair, x: SparseTensor, residual: SparseTensor | None = None, relu: bool = True
) -> SparseTensor:
    """relu(norm(conv(x)) + residual)."""
    conv, norm = pair
    y: SparseTensor = conv.with_norm(x, norm, residual, relu)
    return y


class ResidualBlock(mlx.nn.Module):
    """relu(x + norm(conv(relu(norm(conv(x)))))), both convolutions submanifold of size 3."""

    def __init__(self, channels: int, bias: bool = True) -> None:
        super().__init__()
        self.conv1, self.bn1 = subm(channels, channels, bias=bias)
        self.conv2, self.bn2 = subm(channels, channels, bias=bias)

    def __call__(self, x: SparseTensor) -> SparseTensor:
        y = run([self.conv1, self.bn1], x)
        return run([self.conv2, self.bn2], y, residual=x)
