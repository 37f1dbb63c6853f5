"""Training and evaluation of detectors: frames with boxes, targets, losses, metrics."""

from ...io.box_frame import BoxFrame
from .frames import Samples, flip, rotate, scale, varied
from .kitti_metrics import KittiScores, kitti_metrics
from .losses import detection_loss
from .nuscenes_metrics import NuScenesScores, in_range, nuscenes_attributes, nuscenes_metrics
from .recipes import learn_streets, overfit, street_config
from .targets import anchor_targets, center_targets

__all__ = [
    "BoxFrame",
    "KittiScores",
    "NuScenesScores",
    "Samples",
    "anchor_targets",
    "center_targets",
    "detection_loss",
    "flip",
    "in_range",
    "kitti_metrics",
    "learn_streets",
    "nuscenes_attributes",
    "nuscenes_metrics",
    "overfit",
    "rotate",
    "scale",
    "street_config",
    "varied",
]
