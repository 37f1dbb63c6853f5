"""Point-cloud files, read into and written from `PointCloud`.

PLY, PCD, LAS/LAZ, NPY/NPZ, scans of KITTI and nuScenes with their labels, text (XYZ, TXT, CSV),
meshes (OFF, OBJ, STL) and E57. LAS and LAZ need laspy and lazrs:
pip install 'lattice-mlx[io]'. `read_checkpoint` reads weights of other programs. A file that is not
what it says raises `ValueError` with its path; memory stays in proportion to the file.
"""

from __future__ import annotations

import os as _os
from collections.abc import Callable
from functools import partial as _partial
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any

from ..core._checks import flag as _flag
from ..core._checks import path as _check_path
from ..core._checks import told as _told
from .box_frame import BoxFrame
from .checkpoint import Checkpoint, read_checkpoint
from .cloud import PointCloud
from .cloud import check_cloud as _check_cloud
from .e57 import read_e57
from .kitti import (
    read_bin,
    read_kitti,
    read_label,
    read_labeled,
    read_lidarseg,
    read_nuscenes,
    read_panoptic,
    write_kitti,
    write_nuscenes,
)
from .kitti_objects import (
    KittiCalibration,
    camera_objects,
    lidar_boxes,
    read_kitti_calibration,
    read_kitti_objects,
)
from .las import read_las, write_las
from .mesh import Mesh, read_mesh, read_surface
from .mlat import read_mlat
from .npy import read_npy, read_npz, write_npy, write_npz
from .pcd import read_pcd, write_pcd
from .ply import read_ply, write_ply
from .scannet import read_scannet
from .text import read_text, write_csv, write_text

if _TYPE_CHECKING:
    from ..core.types import FilePath as _FilePath

READERS: dict[str, Callable[..., PointCloud]] = {
    "ply": read_ply,
    "pcd": read_pcd,
    "las": read_las,
    "laz": read_las,
    "npy": read_npy,
    "npz": read_npz,
    "bin": read_bin,
    "kitti": read_kitti,
    "nuscenes": read_nuscenes,
    "label": read_labeled,
    "xyz": read_text,
    "txt": read_text,
    "csv": read_text,
    "off": _partial(read_surface, format="off"),
    "obj": _partial(read_surface, format="obj"),
    "stl": _partial(read_surface, format="stl"),
    "e57": read_e57,
    "mlat": read_mlat,
    "scannet": read_scannet,
}
WRITERS: dict[str, Callable[..., None]] = {
    "ply": write_ply,
    "pcd": write_pcd,
    "las": write_las,
    "laz": write_las,
    "npy": write_npy,
    "npz": write_npz,
    "bin": write_kitti,
    "kitti": write_kitti,
    "nuscenes": write_nuscenes,
    "xyz": write_text,
    "txt": write_text,
    "csv": write_csv,
}

__all__ = [
    "BoxFrame",
    "Checkpoint",
    "KittiCalibration",
    "Mesh",
    "PointCloud",
    "camera_objects",
    "format_of",
    "lidar_boxes",
    "read",
    "read_bin",
    "read_checkpoint",
    "read_e57",
    "read_kitti",
    "read_kitti_calibration",
    "read_kitti_objects",
    "read_label",
    "read_labeled",
    "read_las",
    "read_lidarseg",
    "read_mesh",
    "read_mlat",
    "read_npy",
    "read_npz",
    "read_nuscenes",
    "read_panoptic",
    "read_pcd",
    "read_ply",
    "read_scannet",
    "read_surface",
    "read_text",
    "write",
    "write_csv",
    "write_kitti",
    "write_las",
    "write_npy",
    "write_npz",
    "write_nuscenes",
    "write_pcd",
    "write_ply",
    "write_text",
]


def format_of(path: _FilePath, format: str | None = None, *, write: bool = False) -> str:
    """The name of a file's format: the argument, or what the extension says.

    Args:
        write: Whether the format must be one that can be written.

    Raises:
        ValueError: There is no such format.
    """
    _check_path("format_of", path)
    known = list(WRITERS if _flag("format_of", "write", write) else READERS)
    if format is not None and not isinstance(format, str):
        raise TypeError(f"[format_of] format must be a text, found {_told(format)}")
    name = (format or _os.path.splitext(_os.fsdecode(path))[1].lstrip(".")).lower()
    if name not in known:
        raise ValueError(f"[io] path {path}: format {name!r}, expected one of {', '.join(known)}")
    return "nuscenes" if name == "bin" and str(path).endswith(".pcd.bin") else name


def read(path: _FilePath, format: str | None = None, **options: Any) -> PointCloud:
    """The PointCloud of a file.

    Args:
        format: A name such as "kitti", where the extension does not tell.
        **options: What the reader of the format takes: `samples=` and `seed=` of a mesh, `columns=`
            of a text file, `labels=` of a scan.

    Raises:
        OSError: The file cannot be opened.
        ValueError: There is no such format, or the file is not what it says; the message begins
            with its path.

    Examples:
        >>> import tempfile
        >>> from mlx_lattice import io, samples
        >>> path = samples.write_scans(tempfile.mkdtemp(), 1)[0]
        >>> io.read(path)
        PointCloud(6,000 points float32; label uint8, intensity float32)
    """
    name = format_of(path, format)
    try:
        return READERS[name](path, **options)
    except TypeError as error:
        if "unexpected keyword" in str(error):
            raise TypeError(f"[read] {name}: {error}") from None
        raise


def write(path: _FilePath, cloud: PointCloud, format: str | None = None, **options: Any) -> None:
    """Writes a cloud in the format of the extension.

    Args:
        format: A name such as "kitti", where the extension does not tell.
        **options: What the writer of the format takes. `encoding=` is the argument `format` of
            `write_ply` and `write_pcd`: PLY has binary_little_endian, binary_big_endian and ascii,
            PCD has binary, binary_compressed and ascii.

    Raises:
        OSError: The file cannot be written; a file that stood there stays as it was.
        ValueError: There is no such format, or it cannot hold the cloud.
    """
    name = format_of(path, format, write=True)
    _check_cloud("write", cloud)
    if "encoding" in options:
        options["format"] = options.pop("encoding")
    if name in ("las", "laz"):
        options.setdefault("compressed", name == "laz")
    try:
        WRITERS[name](path, cloud, **options)
    except TypeError as error:
        if "unexpected keyword" in str(error):
            raise TypeError(f"[write] {name}: {error}") from None
        raise
