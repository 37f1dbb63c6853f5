"""Scans of KITTI, SemanticKITTI and nuScenes: rows of little-endian float32, labels apart.

format     one point                              labels
kitti      x y z intensity                        .label: uint32, low half the class, high half the
object
nuscenes   x y z intensity ring, `.pcd.bin`       _lidarseg.bin: uint8; _panoptic.npz: uint16,
class * 1000 + object

A `.bin` file does not say which of the two it is. Its place or its name decides (`velodyne/`,
`.pcd.bin`), then its size.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._atomic import atomic_file
from ._check import file_size, naming, write_array
from .cloud import PointCloud

WIDTHS = {"kitti": 4, "nuscenes": 5}  # float32 values per point


def bin_format(path: str | os.PathLike[str]) -> Any:
    """ "kitti" or "nuscenes", from the name, the folder and the size of a `.bin` file."""
    path = Path(path)
    if path.name.endswith(".pcd.bin"):
        return "nuscenes"
    if path.parent.name == "velodyne" and not _has_rings(path):
        return "kitti"
    with naming(path, "BIN"):
        size = os.stat(path).st_size
        fitting = [name for name, width in WIDTHS.items() if size % (4 * width) == 0]
        if not fitting:
            raise ValueError(
                f"{size} bytes, expected a multiple of 16 (kitti: 4 floats per point) "
                "or of 20 (nuscenes: 5 floats per point)"
            )
        if len(fitting) > 1 and size:
            raise ValueError(
                f"{size} bytes are {size // 16} points of KITTI or {size // 20} of nuScenes; "
                "say which: --format kitti or --format nuscenes (in Python format=)"
            )
        return fitting[0]


def _has_rings(path: Path) -> bool:
    """Whether rows of five floats fit, the fifth a ring number: other rows hardly ever do."""
    if not path.is_file() or os.stat(path).st_size % 20:
        return False
    rows = np.fromfile(path, "<f4", 5000).reshape(-1, 5)
    ring = rows[:, 4]
    whole = np.isfinite(ring).all() and (ring == np.rint(ring)).all()
    return len(rows) >= 8 and bool(whole and (ring >= 0).all() and ring.any())


def read_bin(path: str | os.PathLike[str], **options: Any) -> PointCloud:
    """PointCloud of a `.bin` file; a ValueError asks for the format where the file fits several."""
    reader = read_nuscenes if bin_format(path) == "nuscenes" else read_kitti
    return reader(path, **options)


PRECISION = 0.005  # of a coordinate, in the unit of the file: what float32 may lose


def read_kitti(
    path: str | os.PathLike[str], labels: str | os.PathLike[str] | bool | None = None
) -> PointCloud:
    """PointCloud with `intensity`, and with `label` and `instance` where there are labels.

    labels: path of a .label file; False for none. By default `labels/NAME.label` beside
    `velodyne/NAME.bin` is read
    where it exists.
    """
    rows = _values(path, "<f4", 4, "KITTI").reshape(-1, 4)
    columns = {"intensity": rows[:, 3]}
    if labels is None:
        beside = _beside(path, "velodyne", "labels", ".label")
        labels = beside if beside is not None and beside.is_file() else False
    if not isinstance(labels, bool):
        label, instance = read_label(labels, len(rows))
        columns |= {"label": label, "instance": instance}
    return PointCloud(rows[:, :3], columns)


def read_label(
    path: str | os.PathLike[str], count: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(label, instance) of a SemanticKITTI .label file, each (N,) uint16. count: the number of
    points it must have.
    """
    packed = _values(path, "<u4", 1, "KITTI label")
    _counted(path, len(packed), count)
    return (packed & 0xFFFF).astype(np.uint16), (packed >> 16).astype(np.uint16)


def read_labeled(path: str | os.PathLike[str]) -> PointCloud:
    """PointCloud of a .label file together with the scan `velodyne/NAME.bin` beside its folder
    `labels/`.
    """
    scan = _beside(path, "labels", "velodyne", ".bin")
    if scan is None or not scan.is_file():
        expected = scan or "velodyne/NAME.bin for labels/NAME.label"
        raise ValueError(
            f"{path}: a .label file holds no points and there is no {expected}; "
            "read_kitti(scan, labels) takes both paths"
        )
    return read_kitti(scan, path)


def read_nuscenes(
    path: str | os.PathLike[str],
    labels: str | os.PathLike[str] | None = None,
    panoptic: str | os.PathLike[str] | None = None,
) -> PointCloud:
    """PointCloud with `intensity` and `ring`; labels: path of a _lidarseg.bin; panoptic: of a
    _panoptic.npz.
    """
    rows = _values(path, "<f4", 5, "nuScenes").reshape(-1, 5)
    ring = rows[:, 4]
    with naming(path, "nuScenes"):
        if ring.size and not (np.isfinite(ring).all() and (ring == np.rint(ring)).all()):
            raise ValueError(
                "the fifth value of a point is not a whole ring number; is this file KITTI's? "
                "--format kitti"
            )
        columns = {"intensity": rows[:, 3], "ring": ring.astype(np.int32)}
    if labels is not None:
        columns["label"] = read_lidarseg(labels, len(rows))
    if panoptic is not None:
        label, instance = read_panoptic(panoptic, len(rows))
        columns |= {"label": label, "instance": instance}
    return PointCloud(rows[:, :3], columns)


def read_lidarseg(path: str | os.PathLike[str], count: int | None = None) -> np.ndarray:
    """(N,) uint8 class of each point of a nuScenes _lidarseg.bin."""
    with naming(path, "nuScenes label"), open(path, "rb") as file:
        label = np.fromfile(file, np.uint8)
    _counted(path, len(label), count)
    return label


def read_panoptic(
    path: str | os.PathLike[str], count: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(label, instance) of a nuScenes _panoptic.npz: uint8 and uint16; its array `data` is class *
    1000 + object.
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


def _beside(
    path: str | os.PathLike[str], folder: str | os.PathLike[str], other: Any, suffix: Any
) -> Any:
    """root/other/NAME+suffix for root/folder/NAME; None when the file is not in `folder`."""
    path = Path(path)
    return path.parent.parent / other / (path.stem + suffix) if path.parent.name == folder else None


def _counted(path: str | os.PathLike[str], found: Any, expected: Any) -> None:
    if expected is not None and found != expected:
        raise ValueError(f"{path}: {found} labels, expected one for each of {expected} points")


def _values(path: str | os.PathLike[str], dtype: Any, width: int, kind: str) -> Any:
    with naming(path, kind), open(path, "rb") as file:
        size = file_size(file)
        if size % (4 * width):
            raise ValueError(f"{size} bytes, expected a multiple of {4 * width}")
        return np.fromfile(file, dtype).astype(dtype[1:], copy=False)


def write_kitti(path: str | os.PathLike[str], cloud: PointCloud) -> None:
    """Intensity is 0 where the cloud has none. Other columns have no place in this format and are
    an error.
    """
    _only(path, cloud, "KITTI", {"intensity"})
    _write(path, cloud, ["intensity"])


def write_nuscenes(path: str | os.PathLike[str], cloud: PointCloud) -> None:
    """Intensity and ring are 0 where the cloud has none. Other columns are an error."""
    _only(path, cloud, "nuScenes", {"intensity", "ring"})
    _write(path, cloud, ["intensity", "ring"])


def _only(path: str | os.PathLike[str], cloud: PointCloud, kind: str, allowed: Any) -> None:
    others = set(cloud.columns) - allowed
    if others:
        raise ValueError(
            f"{path}: a {kind} file has no place for {', '.join(sorted(others))}; "
            "drop them or write .ply"
        )


def _write(path: str | os.PathLike[str], cloud: PointCloud, names: Sequence[str]) -> None:
    zero = np.zeros(len(cloud), np.float32)
    columns = [cloud.columns.get(name, zero) for name in names]
    for name, values in zip(names, columns):
        if values.ndim != 1:
            raise ValueError(
                f"{path}: column {name!r} has {values.shape[1]} values per point, expected one"
            )
    with np.errstate(over="ignore"):
        rows = np.column_stack([cloud.points, *columns]).astype("<f4")
    _check_precision(path, cloud.points, rows)
    with atomic_file(path) as file:
        write_array(file, rows)


def _check_precision(path: str | os.PathLike[str], points: Any, rows: Any) -> None:
    """float32 loses at most PRECISION, and no finite point becomes infinite."""
    if points.dtype == np.float32 or not len(points):
        return
    finite = np.isfinite(points)
    error = np.abs(np.where(finite, points - rows[:, :3].astype(np.float64), 0)).max()
    if error > PRECISION:
        raise ValueError(
            f"{path}: float32, which the file holds, moves the points by up to {error:.3g}; "
            "subtract an origin first (cloud.local()), or write .npz, .las or .ply"
        )
