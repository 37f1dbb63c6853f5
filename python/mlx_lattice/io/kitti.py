"""Scans of KITTI, SemanticKITTI and nuScenes: rows of little-endian float32, labels apart.

| format | one point | labels |
|---|---|---|
| kitti | x y z intensity | .label: uint32, low half the class, high half the object |
| nuscenes | x y z intensity ring, `.pcd.bin` | _lidarseg.bin: uint8 |
| | | _panoptic.npz: uint16, class * 1000 + object |

A `.bin` file does not say which of the two it is. Its place or its name decides (`velodyne/`,
`.pcd.bin`), then its size.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _ext
from ..core._checks import integer
from ..core._checks import path as check_path
from ._check import FileError, file_size, naming
from ._native import read_native, write_native
from .cloud import PointCloud

if TYPE_CHECKING:
    from ..core.types import FilePath


def bin_format(path: FilePath) -> str:
    """The format "kitti" or "nuscenes", from the name, the folder and the size of a `.bin` file."""
    check_path("read_bin", path)
    if not str(path).endswith(".pcd.bin"):
        os.stat(path)  # the system's own words where there is no such file
    try:
        return _ext.scan_format(os.fsdecode(path))
    except ValueError as error:
        raise FileError(str(error)) from None


def read_bin(path: FilePath, **options: Any) -> PointCloud:
    """PointCloud of a `.bin` file of KITTI or nuScenes.

    The name (`.pcd.bin`), the folder (`velodyne/`) or the size of the file tells the format. Where
    several fit, a ValueError asks for it. Options go to `read_kitti` or `read_nuscenes`.
    """
    reader = read_nuscenes if bin_format(path) == "nuscenes" else read_kitti
    return reader(path, **options)


def read_kitti(path: FilePath, labels: FilePath | bool | None = None) -> PointCloud:
    """PointCloud with `intensity`, and with `label` and `instance` where there are labels.

    Args:
        labels: The path of a .label file; False for none. By default `labels/NAME.label` beside
            `velodyne/NAME.bin` is read where it exists.

    Raises:
        ValueError: The size of the file does not fit, or there is not one label per point.

    Examples:
        >>> import os, tempfile
        >>> from mlx_lattice import io, samples
        >>> path = os.path.join(tempfile.mkdtemp(), "000000.bin")
        >>> io.write_kitti(path, io.PointCloud(samples.scan().points))
        >>> io.read_kitti(path)
        PointCloud(6,000 points float32; intensity float32)
    """
    cloud = read_native(path, "kitti")
    columns = dict(cloud.columns)
    if labels is None:
        beside = _beside(path, "velodyne", "labels", ".label")
        labels = beside if beside is not None and beside.is_file() else False
    if not isinstance(labels, bool):
        label, instance = read_label(labels, len(cloud))
        columns |= {"label": label, "instance": instance}
    return PointCloud(cloud.points, columns)


def read_label(path: FilePath, count: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(label, instance) of a SemanticKITTI .label file, each (N,) uint16.

    count: the number of points that it must have; another number is a ValueError.
    """
    packed = _values(path, "<u4", 1, "KITTI label")
    _counted(path, len(packed), count)
    return (packed & 0xFFFF).astype(np.uint16), (packed >> 16).astype(np.uint16)


def read_labeled(path: FilePath) -> PointCloud:
    """PointCloud of a .label file and the scan `velodyne/NAME.bin` beside its folder `labels/`.

    Without that scan it is a ValueError: a .label file holds no points.
    """
    check_path("read_labeled", path)
    scan = _beside(path, "labels", "velodyne", ".bin")
    if scan is None or not scan.is_file():
        expected = scan or "velodyne/NAME.bin for labels/NAME.label"
        raise ValueError(
            f"{path}: a .label file holds no points and there is no {expected}; "
            "read_kitti(scan, labels) takes both paths"
        )
    return read_kitti(scan, path)


def read_nuscenes(
    path: FilePath, labels: FilePath | None = None, panoptic: FilePath | None = None
) -> PointCloud:
    """PointCloud of a `.pcd.bin` file with `intensity` and `ring`.

    labels: the path of a _lidarseg.bin, which adds `label`.
    panoptic: the path of a _panoptic.npz, which adds `label` and `instance`.
    """
    cloud = read_native(path, "nuscenes")
    columns = dict(cloud.columns)
    if labels is not None:
        columns["label"] = read_lidarseg(labels, len(cloud))
    if panoptic is not None:
        label, instance = read_panoptic(panoptic, len(cloud))
        columns |= {"label": label, "instance": instance}
    return PointCloud(cloud.points, columns)


def read_lidarseg(path: FilePath, count: int | None = None) -> np.ndarray:
    """(N,) uint8 class of each point of a nuScenes _lidarseg.bin.

    count: the number of points that it must have; another number is a ValueError.
    """
    with naming(path, "nuScenes label"), open(path, "rb") as file:
        label = np.fromfile(file, np.uint8)
    _counted(path, len(label), count)
    return label


def read_panoptic(path: FilePath, count: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(label, instance) of a nuScenes _panoptic.npz, uint8 and uint16.

    Its array `data` is class * 1000 + object. count: the number of points that it must have.
    """
    from .npy import npz_arrays

    with naming(path, "nuScenes panoptic"), open(path, "rb") as file, zipfile.ZipFile(file) as z:
        arrays = npz_arrays(file, z)
        data = arrays.get("data")
        if data is None or data.ndim != 1 or data.dtype.kind not in "ui":
            raise ValueError(
                f"arrays {', '.join(arrays) or 'none'}; expected one array `data` of whole numbers"
            )
        data = data.astype(np.int64)
        if data.size and not 0 <= data.min() <= data.max() < 256_000:
            raise ValueError(f"values {data.min()}..{data.max()}, expected class * 1000 + object")
    _counted(path, len(data), count)
    return (data // 1000).astype(np.uint8), (data % 1000).astype(np.uint16)


def _beside(path: FilePath, folder: str, other: str, suffix: str) -> Path | None:
    """root/other/NAME+suffix for root/folder/NAME; None when the file is not in `folder`."""
    path = Path(path)
    return path.parent.parent / other / (path.stem + suffix) if path.parent.name == folder else None


def _counted(path: FilePath, found: int, expected: int | None) -> None:
    if expected is not None and integer("io", "count", expected, 0, 2**63) != found:
        raise ValueError(f"{path}: {found} labels, expected one for each of {expected} points")


def _values(path: FilePath, dtype: str, width: int, kind: str) -> np.ndarray:
    """All numbers of a file, of four bytes each and so many per point."""
    with naming(path, kind), open(path, "rb") as file:
        size = file_size(file)
        if size % (4 * width):
            raise ValueError(f"{size} bytes, expected a multiple of {4 * width}")
        return np.fromfile(file, dtype).astype(dtype[1:], copy=False)


def write_kitti(path: FilePath, cloud: PointCloud) -> None:
    """Writes x, y, z and intensity, which is 0 where the cloud has none, as float32.

    Other columns have no place in this format and are a ValueError, and so are points that float32
    would move by more than 5 mm.
    """
    write_native("write_kitti", path, cloud, "kitti", "")


def write_nuscenes(path: FilePath, cloud: PointCloud) -> None:
    """Writes x, y, z, intensity and ring, which are 0 where the cloud has none, as float32.

    Other columns have no place in this format and are a ValueError.
    """
    write_native("write_nuscenes", path, cloud, "nuscenes", "")
