"""Networks that are made from a few numbers, train with `mlx.optimizers`, and save themselves.

A saved network is a safetensors file with a JSON file beside it. `pretrained` opens published ones.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from . import convert
from ._hierarchy import Level, upcast
from ._integer_layers import Leave
from ._model import Model, load
from .integer import IntegerNetwork, quantize
from .litept import LitePT
from .minkunet import MinkUNet
from .ppt import PointPromptSegmenter
from .ptv3 import PointTransformerV3
from .published import pretrained
from .resnet import SparseResNet
from .second import SecondBackbone
from .sonata import Sonata, Utonia
from .window_unet import WindowUNet

_POINT_NETWORKS = ("PointClassifier", "PointResNet", "PointUNet")
__all__ = [
    "IntegerNetwork",
    "Leave",
    "Level",
    "LitePT",
    "MinkUNet",
    "Model",
    *_POINT_NETWORKS,
    "PointPromptSegmenter",
    "PointTransformerV3",
    "SecondBackbone",
    "Sonata",
    "SparseResNet",
    "Utonia",
    "WindowUNet",
    "convert",
    "load",
    "pretrained",
    "quantize",
    "upcast",
]


def __getattr__(name: str) -> type[Model] | ModuleType:
    if name == "detection":  # it needs NumPy
        return importlib.import_module(f"{__name__}.detection")
    if name in _POINT_NETWORKS:  # they live with their layers, which are built on Model
        from .. import points

        found: type[Model] = getattr(points, name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
