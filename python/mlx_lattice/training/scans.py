"""Names that programs import from here. They are defined in the modules of their topics.

`VoxelPipeline` and `Scan` stand in `voxel_pipeline`, `pipeline_of` in `labeled_clouds`, the loss
and the weights of classes in `losses`, `predict` and `evaluate` in `inference` as `predict_voxels`
and `evaluate_voxels`.
"""

from .inference import evaluate_voxels as evaluate
from .inference import predict_voxels as predict
from .labeled_clouds import pipeline_of
from .losses import balanced_weights, class_weights, segmentation_loss
from .metrics import Confusion as Confusion
from .voxel_pipeline import Scan, VoxelPipeline

__all__ = [
    "Scan",
    "VoxelPipeline",
    "balanced_weights",
    "class_weights",
    "evaluate",
    "pipeline_of",
    "predict",
    "segmentation_loss",
]
