"""Point-cloud files, read into and written from `PointCloud`.

PLY, PCD, LAS/LAZ, NPY/NPZ, scans of KITTI and nuScenes with their labels, text (XYZ, TXT, CSV),
meshes (OFF, OBJ, STL) and E57. LAS and LAZ need laspy and lazrs:
pip install 'lattice-mlx[io]'. A file that is not what it says raises `ValueError` with its path;
memory stays in proportion to the file.
"""

from __future__ import annotations

import os
import os as _os
import sys as _sys
from collections.abc import Callable
from functools import partial as _partial
from typing import Any

from .. import _error_names, _help
from .cloud import PointCloud
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
from .las import read_las, write_las
from .mesh import Mesh, read_mesh, read_surface
from .mlat import read_mlat
from .npy import read_npy, read_npz, write_npy, write_npz
from .pcd import read_pcd, write_pcd
from .ply import read_ply, write_ply
from .scannet import read_scannet
from .text import read_text, write_csv, write_text

READERS: dict[str, Callable[..., Any]] = {
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
WRITERS: dict[str, Callable[..., Any]] = {
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
    "Mesh",
    "PointCloud",
    "format_of",
    "read",
    "read_bin",
    "read_e57",
    "read_kitti",
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


def format_of(
    path: str | os.PathLike[str], format: str | None = None, *, write: bool = False
) -> str:
    """The format's name, from the argument or the extension. write: one that can be written."""
    known = WRITERS if write else READERS
    name = (format or _os.path.splitext(_os.fspath(path))[1].lstrip(".")).lower()
    if name not in known:
        raise ValueError(f"{path}: format {name!r}, expected one of {', '.join(known)}")
    return "nuscenes" if name == "bin" and str(path).endswith(".pcd.bin") else name


def read(path: str | os.PathLike[str], format: str | None = None, **options: Any) -> PointCloud:
    """PointCloud of a file. format: a name such as kitti, where the extension does not tell.

    options go to the reader: `samples=` and `seed=` of a mesh, `columns=` of a text file,
    `labels=` of a scan.
    """
    name = format_of(path, format)
    return _called(READERS[name], "read", name, path, **options)


def write(
    path: str | os.PathLike[str], cloud: PointCloud, format: str | None = None, **options: Any
) -> None:
    """Writes by extension. options go to the writer: write_ply(format=...) is `encoding=` here.

    encoding: PLY binary_little_endian, binary_big_endian, ascii;
    PCD binary, binary_compressed, ascii.
    """
    name = format_of(path, format, write=True)
    if not isinstance(cloud, PointCloud):
        raise TypeError(
            f"[write] cloud must be a PointCloud, found {type(cloud).__name__}; make one:"
            " PointCloud(points)"
        )
    if "encoding" in options:
        options["format"] = options.pop("encoding")
    if name in ("las", "laz"):
        options.setdefault("compressed", name == "laz")
    return _called(WRITERS[name], "write", name, path, cloud, **options)


def _called(
    function: Callable[..., Any], operation: str, name: str, *arguments: Any, **options: Any
) -> Any:
    try:
        return function(*arguments, **options)
    except TypeError as error:
        if "unexpected keyword" in str(error):
            raise TypeError(f"[{operation}] {name}: {error}") from None
        raise


_error_names.guard(globals())
_help.install(_sys.modules[__name__], "io")
