"""Training: one loop for any model and loss, checkpoints, several ranks, metrics, optimizers."""

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
from .inference import (
    evaluate_points,
    evaluate_voxels,
    predict_points,
    predict_voxels,
    probabilities,
)
from .integer_rounding import integer_rounding
from .labeled_clouds import pipeline_of
from .loader import ClassBalanced, Loader, LoaderError, class_counts
from .losses import balanced_weights, class_weights, classification_loss, segmentation_loss
from .metrics import Confusion, PartIoU
from .optimizers import AdamW
from .recompute import checkpoint_stages
from .sync_norm import SyncBatchNorm, synchronize_batch_norm
from .tiled import predict_tiled
from .trainer import Trainer, adamw, warm_cosine
from .voxel_pipeline import Scan, VoxelPipeline

__all__ = [
    "AdamW",
    "ClassBalanced",
    "Confusion",
    "Loader",
    "LoaderError",
    "PartIoU",
    "Ranks",
    "Scan",
    "SyncBatchNorm",
    "Trainer",
    "TrainingError",
    "VoxelPipeline",
    "WeightAverage",
    "adamw",
    "balanced_weights",
    "checkpoint",
    "checkpoint_stages",
    "class_counts",
    "class_weights",
    "classification_loss",
    "distributed",
    "evaluate_points",
    "evaluate_voxels",
    "inference",
    "integer_rounding",
    "losses",
    "metrics",
    "optimizers",
    "pipeline_of",
    "predict_points",
    "predict_tiled",
    "predict_voxels",
    "probabilities",
    "progress",
    "scans",
    "schedules",
    "segmentation_loss",
    "synchronize_batch_norm",
    "warm_cosine",
]
