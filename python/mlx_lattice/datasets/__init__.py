"""Public data sets, read as downloaded: lazy sequences of clouds with class indices."""

from .base import Dataset, DatasetError
from .cache import Cached, DiskCache
from .folder import Folder
from .kitti_boxes import KittiBoxes
from .label_tables import LabelTable
from .nuscenes import NuScenes
from .nuscenes_boxes import NuScenesBoxes
from .objects import ModelNet40, ShapeNetPart
from .s3dis import S3DIS
from .scannet import ScanNet
from .semantic_kitti import SemanticKITTI
from .submission import write_prediction, write_submission_notes

DATASETS: dict[str, type[Dataset]] = {
    "semantickitti": SemanticKITTI,
    "nuscenes": NuScenes,
    "scannet": ScanNet,
    "s3dis": S3DIS,
    "modelnet40": ModelNet40,
    "shapenetpart": ShapeNetPart,
    "folder": Folder,
}

__all__ = [
    "DATASETS",
    "S3DIS",
    "Cached",
    "Dataset",
    "DatasetError",
    "DiskCache",
    "Folder",
    "KittiBoxes",
    "LabelTable",
    "ModelNet40",
    "NuScenes",
    "NuScenesBoxes",
    "ScanNet",
    "SemanticKITTI",
    "ShapeNetPart",
    "write_prediction",
    "write_submission_notes",
]
