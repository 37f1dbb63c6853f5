"""ScanNet: the mesh of a scene is one PLY, its labels are a second PLY with the same vertices."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from .cloud import PointCloud
from .ply import read_ply


def read_scannet(
    path: str | os.PathLike[str], labels: str | os.PathLike[str] | bool | None = None
) -> PointCloud:
    """PointCloud of SCENE_vh_clean_2.ply with color, and with `label` (NYU40 ids) of a second PLY.

    labels: path of the second PLY; False for none. By default the file beside the first is read
    where it exists.
    """
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
