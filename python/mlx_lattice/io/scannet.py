"""ScanNet: the mesh of a scene is one PLY, its labels are a second PLY with the same vertices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..core._checks import path as check_path
from .cloud import PointCloud
from .ply import read_ply

if TYPE_CHECKING:
    from ..core.types import FilePath


def read_scannet(path: FilePath, labels: FilePath | bool | None = None) -> PointCloud:
    """PointCloud of SCENE_vh_clean_2.ply with color, and with `label` (NYU40 ids) of a second PLY.

    labels: the path of the second PLY; False for none. By default the file
    SCENE_vh_clean_2.labels.ply beside the first is read where it exists.
    """
    check_path("read_scannet", path)
    path = Path(path)
    cloud = read_ply(path)
    if labels is None:
        beside = path.with_name(path.stem + ".labels.ply")
        labels = beside if beside.is_file() else False
    if isinstance(labels, bool):
        return cloud
    second = read_ply(labels)
    if "label" not in second.columns:
        raise ValueError(
            f"{labels}: no property label; found {', '.join(second.columns) or 'none'}"
        )
    if len(second) != len(cloud):
        raise ValueError(
            f"{labels}: {len(second)} labels, expected one for each of {len(cloud)} points"
        )
    label = second.columns["label"].astype(np.uint16)
    return PointCloud(cloud.points, {**cloud.columns, "label": label}, dict(cloud.meta))
