"""Training: one loop for any model and loss, checkpoints, several ranks, metrics, optimizers."""

from . import checkpoint, distributed, metrics, optimizers, progress, scans
from .distributed import Ranks, TrainingError
from .metrics import Confusion
from .optimizers import AdamW
from .scans import VoxelPipeline
from .trainer import Trainer, adamw, classification_loss, warm_cosine

__all__ = [
    "AdamW",
    "Confusion",
    "Ranks",
    "Trainer",
    "TrainingError",
    "VoxelPipeline",
    "adamw",
    "checkpoint",
    "classification_loss",
    "distributed",
    "metrics",
    "optimizers",
    "progress",
    "scans",
    "warm_cosine",
]
