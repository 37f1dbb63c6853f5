"""Modules on `mlx.nn.Module`; they train with `mlx.optimizers` and save with `save_weights`."""

from ._conv import (
    Conv3d,
    ConvTranspose3d,
    GenerativeConvTranspose3d,
    Linear,
    NormalizedConvTranspose3d,
    NormalizedGenerativeConvTranspose3d,
    NormalizedSubmConv3d,
    SubmConv3d,
)

__all__ = [
    "Conv3d",
    "ConvTranspose3d",
    "GenerativeConvTranspose3d",
    "Linear",
    "NormalizedConvTranspose3d",
    "NormalizedGenerativeConvTranspose3d",
    "NormalizedSubmConv3d",
    "SubmConv3d",
]
