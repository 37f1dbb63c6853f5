"""Files that C++ reads and writes (lattice/io), as `PointCloud`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from .. import _ext
from ..core._checks import path as check_path
from ._check import FileError
from .atomic_files import write_bytes
from .cloud import PointCloud, check_cloud

if TYPE_CHECKING:
    from ..core.types import FilePath


def read_native(
    path: FilePath, format: str, on_progress: Callable[[float], object] | None = None
) -> PointCloud:
    """The PointCloud of a file of a format of `lattice::read_cloud`."""
    check_path("io", path)
    with open(path, "rb"):  # the system's own words: no such file, is a directory
        pass
    try:
        return PointCloud(*_ext.read_cloud(os.fsdecode(path), format, on_progress))
    except ValueError as error:
        raise FileError(str(error)) from None


def write_native(who: str, path: FilePath, cloud: PointCloud, format: str, encoding: str) -> None:
    """Writes a file of a format of `lattice::write_cloud`."""
    check_cloud(who, cloud)
    check_path(who, path)
    try:
        data = _ext.cloud_bytes(cloud.points, cloud.columns, format, encoding)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    write_bytes(path, data)
