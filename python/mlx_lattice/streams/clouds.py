"""Clouds read by pieces: one file, or a folder whose files count as one cloud."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import io
from ..datasets.folder import clouds_below
from ..io._check import naming, require
from ..io.cloud import PointCloud, gather
from ..io.las import _check_header, _check_items
from .rows import fields_of, mapped

PIECE = 1 << 20  # points
LAS = ("las", "laz")


@dataclass(frozen=True)
class CloudFile:
    """One file: its points, and their corners if a header tells them without reading."""

    path: Path
    format: str
    count: int
    low: np.ndarray | None = None
    high: np.ndarray | None = None

    def pieces(self, size: int = PIECE) -> Iterator[PointCloud]:
        """The points in order, `size` of them at a time."""
        if self.format in LAS:
            yield from _las_pieces(self.path, size)
            return
        rows = mapped(self.path, self.format)
        if rows is None:  # a form that cannot be mapped: text, or compressed by column
            cloud = io.read(self.path, self.format)
            for begin in range(0, len(cloud), size):
                yield cloud[begin : begin + size]
            return
        for begin in range(0, len(rows), size):
            yield _cloud(rows[begin : begin + size], self.format)


def files_of(path: str | os.PathLike[str], format: str | None = None) -> list[CloudFile]:
    """The files of a cloud. All headers are read, so that a broken file is found before the work.

    Raises:
        ValueError: There is no such file, or one is not what it says; the message names it.
    """
    given = Path(path)
    paths = clouds_below(given) if given.is_dir() else [given]
    if not paths:
        raise ValueError(f"{path}: the folder holds no cloud")
    return [_file(p, io.format_of(p, format)) for p in paths]


def _file(path: Path, format: str) -> CloudFile:
    if format in LAS:
        laspy = require("laspy", "io")
        with naming(path, "LAS"), open(path, "rb") as file:
            if _check_header(file):
                require("lazrs", "io")
            file.seek(0)
            with laspy.open(file, closefd=False, read_evlrs=False) as reader:
                header = reader.header
                if header.are_points_compressed and header.point_count:
                    _check_items(header, header.point_format.size)
                low, high = np.array(header.mins), np.array(header.maxs)
                return CloudFile(path, format, int(header.point_count), low, high)
    rows = mapped(path, format)
    return CloudFile(path, format, len(io.read(path, format)) if rows is None else len(rows))


def _las_pieces(path: Path, size: int) -> Iterator[PointCloud]:
    laspy = require("laspy", "io")
    found = 0
    with naming(path, "LAS"), laspy.open(path, read_evlrs=False) as reader:
        total = reader.header.point_count
        try:
            for record in reader.chunk_iterator(size) if total else ():
                found += len(record)
                yield las_cloud(record)
        except BaseException as error:
            if type(error).__name__ == "PanicException":  # of lazrs; not an Exception
                raise ValueError("broken compressed data") from None
            raise
        if found != total:
            raise ValueError(f"found {found} points, expected {total}: truncated")


def las_cloud(record: Any) -> PointCloud:
    """The points of a record of laspy; the columns of the standard record that are not geometry."""
    axes = [
        np.asarray(record[axis]) * record.scales[i] + record.offsets[i]
        for i, axis in enumerate("XYZ")
    ]
    fields = dict(zip("xyz", axes))
    for name in record.point_format.dimension_names:
        if name not in ("X", "Y", "Z"):
            fields[name] = np.array(record[name])
    return gather(fields, "points")


def _cloud(rows: np.ndarray, format: str) -> PointCloud:
    if rows.dtype.names is None:
        features = {"features": np.array(rows[:, 3:])} if rows.shape[1] > 3 else {}
        return PointCloud(np.array(rows[:, :3]), features)
    return gather(fields_of(rows, format), "points")
