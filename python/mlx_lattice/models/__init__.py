"""Networks, configured by numbers, that train with `mlx.optimizers` and are saved as safetensors with a JSON beside it."""

from . import convert
from ._model import Model, load
from .minkunet import MinkUNet
from .resnet import SparseResNet
from .second import SecondBackbone

__all__ = ["MinkUNet", "Model", "PointClassifier", "PointUNet", "SecondBackbone", "SparseResNet", "convert", "load"]


def __getattr__(name):
    if name in ("PointClassifier", "PointUNet"):  # they live with their layers, which are built on Model
        from .. import points

        return getattr(points, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
