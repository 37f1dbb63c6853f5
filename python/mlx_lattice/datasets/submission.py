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

from ..core import _checks
from ..io.atomic_files import write_bytes
from .base import Dataset, inside
from .nuscenes import NuScenes


def write_prediction(
    dataset: Dataset, i: int, classes: np.ndarray, directory: str | os.PathLike[str]
) -> Path:
    """Writes the prediction of an item in the layout that its benchmark takes.

    Args:
        dataset: SemanticKITTI, NuScenes or ScanNet.
        i: Number of the item.
        classes: Class index of each point, integers (P,).
        directory: Folder that the file is written to; it is made.

    Returns:
        The path of the file.

    Raises:
        TypeError, ValueError: The data set has no benchmark, or `classes` are no class indices.

    Examples:
        >>> import numpy as np, tempfile
        >>> from mlx_lattice import datasets
        >>> data = datasets.SemanticKITTI("semantickitti", "test")  # the folder as downloaded
        >>> classes = np.zeros(len(data[0]), np.int64)  # a network would say more than "car"
        >>> path = datasets.write_prediction(data, 0, classes, tempfile.mkdtemp())
        >>> path.parts[-4:]
        ('sequences', '11', 'predictions', '000000.label')
    """
    _checks.path("write_prediction", directory, "directory")
    place = getattr(dataset, "prediction_path", None)
    if place is None:
        raise ValueError(
            f"[write_prediction] {type(dataset).__name__} has no benchmark that takes predictions; "
            "expected SemanticKITTI, NuScenes or ScanNet"
        )
    expected = f"one class index 0..{len(dataset.classes) - 1} per point of {dataset.name(i)}"
    classes = _checks.numpy_array("write_prediction", "classes", classes, expected, "iu")
    if classes.ndim != 1 or (
        classes.size and not 0 <= classes.min() <= classes.max() < len(dataset.classes)
    ):
        _checks.wrong_value("write_prediction", "classes", classes, expected)
    path = inside(Path(directory), place(i))
    ids = dataset.table.values(classes)
    if path.suffix == ".txt":
        data = "".join(f"{v}\n" for v in ids.tolist()).encode()
    else:
        data = ids.astype("<u4" if path.suffix == ".label" else np.uint8).tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, data)
    return path


def write_submission_notes(dataset: Dataset, directory: str | os.PathLike[str]) -> Path | None:
    """Writes the file in which a submission to nuScenes says what the method used.

    Args:
        dataset: The data set.
        directory: Folder of the predictions.

    Returns:
        The path of the file; None for other data sets, which need no such file.

    Raises:
        TypeError: `directory` is no path.
    """
    _checks.path("write_submission_notes", directory, "directory")
    if not isinstance(getattr(dataset, "_dataset", dataset), NuScenes):
        return None
    path = Path(directory) / {"valid": "val"}.get(dataset.split, dataset.split) / "submission.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    used = {"lidar": True, "camera": False, "radar": False, "map": False, "external": False}
    text = json.dumps({"meta": {f"use_{name}": value for name, value in used.items()}}, indent=2)
    write_bytes(path, (text + "\n").encode())
    return path
