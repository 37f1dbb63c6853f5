"""Networks that are made from a few numbers, train with `mlx.optimizers`, and save themselves.

A saved network is a safetensors file with a JSON file beside it.
"""

from __future__ import annotations

from typing import Any

from . import convert
from ._model import Model, load
from .minkunet import MinkUNet
from .ptv3 import PointTransformerV3
from .resnet import SparseResNet
from .second import SecondBackbone

_POINT_NETWORKS = ("PointClassifier", "PointResNet", "PointUNet")
__all__ = [
    "MinkUNet",
    "Model",
    *_POINT_NETWORKS,
    "PointTransformerV3",
    "SecondBackbone",
    "SparseResNet",
    "convert",
    "load",
]


def __getattr__(name: str) -> Any:
    if name in _POINT_NETWORKS:  # they live with their layers, which are built on Model
        from .. import points

        return getattr(points, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
