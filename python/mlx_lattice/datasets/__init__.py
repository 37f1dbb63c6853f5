"""Data sets of the field, as downloaded: lazy sequences of clouds with classes;
docs/datasets.md.
"""

import sys as _sys

from .. import _error_names, _help
from .base import Dataset, DatasetError
from .cache import Cached, DiskCache
from .folder import Folder
from .nuscenes import NuScenes
from .objects import ModelNet40, ShapeNetPart
from .s3dis import S3DIS
from .scannet import ScanNet
from .semantic_kitti import SemanticKITTI
from .submission import write_prediction, write_submission_notes
from .tables import LabelTable

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
    "LabelTable",
    "ModelNet40",
    "NuScenes",
    "ScanNet",
    "SemanticKITTI",
    "ShapeNetPart",
    "write_prediction",
    "write_submission_notes",
]

_error_names.guard(globals())
_help.install(_sys.modules[__name__], "datasets")
