"""Convolutions of sparse tensors and linear layers; docs/ops/conv.md."""

from .._ext import (
    conv3d,
    conv_transpose3d,
    generative_conv_transpose3d,
    linear,
    linear_features,
    normalized_conv_transpose3d,
    normalized_generative_conv_transpose3d,
    normalized_subm_conv3d,
    subm_conv3d,
)

__all__ = [
    "conv3d",
    "conv_transpose3d",
    "generative_conv_transpose3d",
    "linear",
    "linear_features",
    "normalized_conv_transpose3d",
    "normalized_generative_conv_transpose3d",
    "normalized_subm_conv3d",
    "subm_conv3d",
]
