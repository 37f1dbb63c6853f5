"""KITTI .bin: rows of little-endian float32 x, y, z, intensity. SemanticKITTI .label: uint32 a point, low half the class."""

import numpy as np

from ._check import file_size, naming
from .cloud import PointCloud


def read_kitti(path, labels=None):
    """labels: path of a .label file; adds `label` and `instance`."""
    rows = _values(path, "<f4", 4, "KITTI").reshape(-1, 4)
    columns = {"intensity": rows[:, 3].copy()}
    if labels is not None:
        packed = _values(labels, "<u4", 1, "KITTI label")
        if len(packed) != len(rows):
            raise ValueError(
                f"{labels}: {len(packed)} labels, expected one for each of {len(rows)} points"
            )
        columns |= {
            "label": (packed & 0xFFFF).astype(np.uint16),
            "instance": (packed >> 16).astype(np.uint16),
        }
    return PointCloud(rows[:, :3].copy(), columns)


def _values(path, dtype, width, kind):
    with naming(path, kind), open(path, "rb") as file:
        size = file_size(file)
        if size % (4 * width):
            raise ValueError(f"{size} bytes, expected a multiple of {4 * width}")
        return np.fromfile(file, dtype).astype(dtype[1:], copy=False)


def write_kitti(path, cloud):
    """Intensity is 0 where the cloud has none. Other columns have no place in this format and are an error."""
    others = set(cloud.columns) - {"intensity"}
    if others:
        raise ValueError(
            f"{path}: a KITTI file has no place for {', '.join(sorted(others))}; drop them or write .ply"
        )
    intensity = cloud.columns.get("intensity", np.zeros(len(cloud), np.float32))
    np.column_stack([cloud.points, intensity]).astype("<f4").tofile(path)
