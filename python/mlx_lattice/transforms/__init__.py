"""Augmentation of clouds, and the steps that published encoders expect.

Transforms are composable and seeded per item and epoch; labels follow.
"""

from .base import Compose, OneOf, Sometimes, Transform, rng_of
from .color import ColorDrop, ColorJitter
from .encoders import (
    PIPELINES,
    CenterShift,
    EncoderInput,
    EncoderPipeline,
    GridSample,
    Rescale,
    encoder_pipeline,
)
from .from_recipe import TRANSFORMS, build
from .geometry import Elastic, Flip, Jitter, Normalize, Rotate, Scale, Translate
from .mix import CopyPaste, LaserMix, Mix3D, PolarMix
from .selection import CropBox, CropRange, CropSphere, Dropout, Voxelize

__all__ = [
    "PIPELINES",
    "TRANSFORMS",
    "CenterShift",
    "ColorDrop",
    "ColorJitter",
    "Compose",
    "CopyPaste",
    "CropBox",
    "CropRange",
    "CropSphere",
    "Dropout",
    "Elastic",
    "EncoderInput",
    "EncoderPipeline",
    "Flip",
    "GridSample",
    "Jitter",
    "LaserMix",
    "Mix3D",
    "Normalize",
    "OneOf",
    "PolarMix",
    "Rescale",
    "Rotate",
    "Scale",
    "Sometimes",
    "Transform",
    "Translate",
    "Voxelize",
    "build",
    "encoder_pipeline",
    "rng_of",
]
