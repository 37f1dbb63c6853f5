"""Point-cloud files: PLY, PCD, LAS/LAZ, NPY/NPZ and KITTI .bin, read into and written from `PointCloud`.

Needs NumPy; LAS and LAZ also laspy and lazrs: pip install 'mlx-lattice[io]'. A file that is not what it says raises
`ValueError` with its path; memory stays in proportion to the file.
"""

try:
    import numpy as _numpy  # noqa: F401
except ImportError:
    raise ImportError(
        "mlx_lattice.io needs NumPy: pip install 'mlx-lattice[io]' (or pip install numpy)"
    ) from None

import os as _os
from collections.abc import Callable

from .cloud import PointCloud
from .kitti import read_kitti, write_kitti
from .las import read_las, write_las
from .npy import read_npy, read_npz, write_npy, write_npz
from .pcd import read_pcd, write_pcd
from .ply import read_ply, write_ply

READERS: dict[str, Callable] = {
    "ply": read_ply,
    "pcd": read_pcd,
    "las": read_las,
    "laz": read_las,
    "npy": read_npy,
    "npz": read_npz,
    "bin": read_kitti,
}
WRITERS: dict[str, Callable] = {
    "ply": write_ply,
    "pcd": write_pcd,
    "las": write_las,
    "laz": write_las,
    "npy": write_npy,
    "npz": write_npz,
    "bin": write_kitti,
}

__all__ = [
    "PointCloud",
    "format_of",
    "read",
    "read_kitti",
    "read_las",
    "read_npy",
    "read_npz",
    "read_pcd",
    "read_ply",
    "write",
    "write_kitti",
    "write_las",
    "write_npy",
    "write_npz",
    "write_pcd",
    "write_ply",
]


def format_of(path, format=None):
    """The format's name, from the argument or the extension."""
    name = format or _os.path.splitext(_os.fspath(path))[1].lstrip(".")
    name = {"kitti": "bin"}.get(name.lower(), name.lower())
    if name not in READERS:
        raise ValueError(f"{path}: format {name!r}, expected one of {', '.join(READERS)}")
    return name


def read(path, format=None):
    """PointCloud of a file; `format` (ply, pcd, las, laz, npy, npz, bin) where the extension does not tell."""
    return READERS[format_of(path, format)](path)


def write(path, cloud, format=None, **options):
    """Writes by extension. options go to the writer: write_ply(format=...) is `encoding=` here.

    encoding: PLY binary_little_endian, binary_big_endian, ascii; PCD binary, binary_compressed, ascii.
    """
    name = format_of(path, format)
    if "encoding" in options:
        options["format"] = options.pop("encoding")
    if name in ("las", "laz"):
        options.setdefault("compressed", name == "laz")
    try:
        return WRITERS[name](path, cloud, **options)
    except TypeError as error:
        if "unexpected keyword" in str(error):
            raise TypeError(f"[write] {name}: {error}") from None
        raise
