"""Prediction files in the layouts that the benchmarks take.

SemanticKITTI  sequences/11/predictions/000000.label   uint32 ids of the data set
nuScenes       lidarseg/test/TOKEN_lidarseg.bin        uint8 1 .. 16, and test/submission.json
ScanNet        scene0707_00.txt                        one id per line
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np

from .._atomic import write_bytes
from .base import Dataset
from .nuscenes import NuScenes


def write_prediction(
    dataset: Dataset, i: int, classes: np.ndarray, directory: str | os.PathLike[str]
) -> Path:
    """Writes the class indices of the points of item i; returns the path of the file."""
    place = getattr(dataset, "prediction_path", None)
    if place is None:
        raise ValueError(
            f"[write_prediction] {type(dataset).__name__} has no benchmark that takes predictions; "
            "expected SemanticKITTI, NuScenes or ScanNet"
        )
    classes = np.asarray(classes)
    if classes.ndim != 1 or (
        classes.size and not 0 <= classes.min() <= classes.max() < len(dataset.classes)
    ):
        raise ValueError(
            f"[write_prediction] classes of {dataset.name(i)}: expected one class index "
            f"0..{len(dataset.classes) - 1} per point"
        )
    path: Path = Path(directory) / place(i)
    ids = dataset.table.values(classes)
    if path.suffix == ".txt":
        data = "".join(f"{v}\n" for v in ids.tolist()).encode()
    else:
        data = ids.astype("<u4" if path.suffix == ".label" else np.uint8).tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, data)
    return path


def write_submission_notes(dataset: Dataset, directory: str | os.PathLike[str]) -> Path | None:
    """Writes the file of nuScenes that says what a method used; None for other data sets."""
    if not isinstance(getattr(dataset, "_dataset", dataset), NuScenes):
        return None
    path = Path(directory) / {"valid": "val"}.get(dataset.split, dataset.split) / "submission.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    used = {"lidar": True, "camera": False, "radar": False, "map": False, "external": False}
    text = json.dumps({"meta": {f"use_{name}": value for name, value in used.items()}}, indent=2)
    write_bytes(path, (text + "\n").encode())
    return path
