"""Networks, configured by numbers, that train with `mlx.optimizers` and are saved as safetensors with a JSON beside it."""

from . import convert
from ._model import Model, load
from .minkunet import MinkUNet
from .resnet import SparseResNet
from .second import SecondBackbone

__all__ = ["MinkUNet", "Model", "SecondBackbone", "SparseResNet", "convert", "load"]
