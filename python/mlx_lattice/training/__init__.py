"""Training: one loop for any model and loss, checkpoints, several ranks, metrics, optimizers."""

import sys as _sys
from types import ModuleType as _ModuleType

from .. import _error_names, _help
from . import (
    checkpoint,
    distributed,
    inference,
    losses,
    metrics,
    optimizers,
    progress,
    scans,
    schedules,
)
from .average import WeightAverage
from .distributed import Ranks, TrainingError
from .inference import evaluate_points, predict_points, probabilities
from .loader import ClassBalanced, Loader, LoaderError, class_counts
from .losses import classification_loss
from .metrics import Confusion, PartIoU
from .optimizers import AdamW
from .recompute import checkpoint_stages
from .scans import VoxelPipeline, segmentation_loss
from .sync_norm import SyncBatchNorm, synchronize_batch_norm
from .trainer import Trainer, adamw, warm_cosine

__all__ = [
    "AdamW",
    "ClassBalanced",
    "Confusion",
    "Loader",
    "LoaderError",
    "PartIoU",
    "Ranks",
    "SyncBatchNorm",
    "Trainer",
    "TrainingError",
    "VoxelPipeline",
    "WeightAverage",
    "adamw",
    "checkpoint",
    "checkpoint_stages",
    "class_counts",
    "classification_loss",
    "distributed",
    "evaluate_points",
    "inference",
    "losses",
    "metrics",
    "optimizers",
    "predict_points",
    "probabilities",
    "progress",
    "scans",
    "schedules",
    "segmentation_loss",
    "synchronize_batch_norm",
    "warm_cosine",
]

_shown = [m for m in map(globals().get, __all__) if isinstance(m, _ModuleType)]
for _module in (_sys.modules[__name__], *_shown):
    _error_names.guard(vars(_module))
_help.install(_sys.modules[__name__], "training")
