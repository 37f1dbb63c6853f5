"""NPY and NPZ of NumPy, never with pickled objects.

NPY: (N, 3), or (N, C) whose further columns become `features`, or a structured array with named
fields. NPZ: `points` (N, 3) or x, y, z, and one array per column.
"""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, BinaryIO

import numpy as np
from numpy.lib import format as npy

from ..core._checks import flag
from ..core._checks import path as check_path
from ._check import HEADER_LIMIT, file_size, naming, short
from ._native import read_native, write_native
from .atomic_files import atomic_file
from .cloud import PointCloud, check_cloud, gather

if TYPE_CHECKING:
    from ..core.types import FilePath

NAME_LIMIT = 1000  # bytes of the name of a column
PIECE = 16 << 20  # bytes that are read at once
GROWTH, FREE = 64, 256 << 20  # arrays may take FREE bytes, or GROWTH times the file


def read_npy(path: FilePath, *, on_progress: Callable[[float], object] | None = None) -> PointCloud:
    """PointCloud of a .npy file: an array (N, C), or a structured array with x, y and z.

    Columns after the third become `features`, or keep the names of their fields. Pickled objects
    are never loaded: such a file is a ValueError. on_progress is called now and then with the share
    that is done.
    """
    return read_native(path, "npy", on_progress)


def _array(file: IO[bytes], size: int) -> np.ndarray:
    """The array of an open .npy of `size` bytes; shape and dtype are checked against it first."""
    version = npy.read_magic(file)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"format {version}, expected 1.0, 2.0 or 3.0")
    reader = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the Python parser, which raises an error afterwards
        shape, by_column, dtype = reader(file, max_header_size=HEADER_LIMIT)
    if dtype.hasobject:
        raise ValueError("pickled objects are never loaded")
    count = 1
    for extent in shape:
        if extent < 0:
            raise ValueError(f"shape {shape}")
        count *= extent
    left = size - file.tell()
    if count * dtype.itemsize > left:
        raise ValueError(
            f"shape {shape} of {dtype} needs {count * dtype.itemsize} bytes, found {left}: "
            "truncated, or the shape is wrong"
        )
    data, found = np.empty(count * dtype.itemsize, np.uint8), 0
    while found < len(data):  # straight into the array: no second copy
        got = file.readinto(data[found : found + PIECE].data)  # type: ignore[attr-defined]
        if not got:
            raise ValueError(f"found {found} bytes of data, expected {len(data)}: truncated")
        found += got
    array = (
        np.frombuffer(data, dtype, count) if dtype.itemsize and count else np.empty(count, dtype)
    )
    return array.reshape(shape[::-1]).T if by_column else array.reshape(shape)


def _native(array: np.ndarray) -> np.ndarray:
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def npz_arrays(file: BinaryIO, archive: zipfile.ZipFile) -> dict[str, np.ndarray]:
    """{name: array} of an open NPZ file, without pickled objects.

    The arrays never take more memory than the size of the file can account for.
    """
    entries = [e for e in archive.infolist() if e.filename.endswith(".npy")]
    claimed, most = sum(e.file_size for e in entries), max(FREE, GROWTH * file_size(file))
    if claimed > most:
        raise ValueError(
            f"arrays of {claimed} bytes from a file of {file_size(file)} bytes, "
            f"expected at most {most}; write it without compression if it is real: "
            "write_npz(compressed=False)"
        )
    if any(e.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for e in entries):
        raise ValueError("compressed by something else than deflate")
    arrays = {}
    for entry in entries:
        with archive.open(entry) as member:
            arrays[entry.filename[:-4]] = _native(_array(member, entry.file_size))
    return arrays


def read_npz(path: FilePath) -> PointCloud:
    """PointCloud of a .npz file: `points` or `xyz` (N, 3), or x, y and z; others are columns.

    A file that claims more memory than its size can account for is a ValueError.
    """
    with naming(path, "NPZ"), open(path, "rb") as file, zipfile.ZipFile(file) as archive:
        arrays = npz_arrays(file, archive)
    with naming(path, "NPZ"):
        for name in ("points", "xyz"):
            if name in arrays:
                points = arrays.pop(name)
                if points.ndim != 2 or points.shape[1] != 3:
                    raise ValueError(f"array {name!r} of shape {points.shape}, expected (N, 3)")
                return PointCloud(points, arrays)
        return gather(arrays, "archive")


def write_npy(path: FilePath, cloud: PointCloud) -> None:
    """Writes (N, 3), or with columns a structured array of x, y, z and the columns."""
    write_native("write_npy", path, cloud, "npy", "")


def write_npz(path: FilePath, cloud: PointCloud, *, compressed: bool = True) -> None:
    """Writes `points` and one array per column, with all dtypes as they are."""
    check_cloud("write_npz", cloud)
    check_path("write_npz", path)
    compressed = flag("write_npz", "compressed", compressed)
    for name in cloud.columns:
        if name in ("points", "xyz") or not name or len(name.encode()) > NAME_LIMIT or "\0" in name:
            raise ValueError(
                f"{path}: a column of an NPZ file cannot be named {short(name)}: expected 1 to"
                f" {NAME_LIMIT} bytes, not points or xyz"
            )
    kind = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with atomic_file(path) as file, zipfile.ZipFile(file, "w", kind) as archive:
        for name, values in {"points": cloud.points, **cloud.columns}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                npy.write_array(member, np.asanyarray(values), allow_pickle=False)
