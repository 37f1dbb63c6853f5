"""Augmentation of clouds: composable, seeded per item and epoch; labels follow."""

import sys as _sys

from .. import _error_names, _help
from .base import Compose, OneOf, Sometimes, Transform, rng_of
from .build import TRANSFORMS, build
from .color import ColorDrop, ColorJitter
from .geometry import Elastic, Flip, Jitter, Normalize, Rotate, Scale, Translate
from .mix import CopyPaste, LaserMix, Mix3D, PolarMix
from .rows import CropBox, CropRange, CropSphere, Dropout, Voxelize

__all__ = [
    "TRANSFORMS",
    "ColorDrop",
    "ColorJitter",
    "Compose",
    "CopyPaste",
    "CropBox",
    "CropRange",
    "CropSphere",
    "Dropout",
    "Elastic",
    "Flip",
    "Jitter",
    "LaserMix",
    "Mix3D",
    "Normalize",
    "OneOf",
    "PolarMix",
    "Rotate",
    "Scale",
    "Sometimes",
    "Transform",
    "Translate",
    "Voxelize",
    "build",
    "rng_of",
]

_error_names.guard(globals())
_help.install(_sys.modules[__name__], "transforms")
