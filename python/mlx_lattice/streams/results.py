"""Pass 3: adds labels and scores to the points, in their order, and keeps all attributes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ..io._check import require
from ..io.atomic_files import atomic_path
from ..io.cloud import PointCloud
from ..training import VoxelPipeline
from .cells import Cell, by_cell, cells_of, local
from .clouds import LAS, PIECE, CloudFile, las_cloud
from .rows import head_of, to_rows
from .tiles import tile_path

Tell = Callable[[int], object]
Piece = tuple[PointCloud, np.ndarray, np.ndarray]  # points, labels, scores


class Results:
    """Classes and scores of all voxels on disk, and which point reads which of them."""

    def __init__(self, folder: Path, cells: Sequence[Cell], side: int) -> None:
        self._folder, self._side = folder, side
        self._cells = {cell.at: cell for cell in cells}
        self._list = list(cells)
        self._next: dict[tuple[int, int], int] = {}
        self._segment = lru_cache(maxsize=64)(self._read_segment)

    def gather(self, tiles: int, tell: Tell = lambda n: None) -> None:
        """Brings the results of the tiles into the order of the voxels."""
        total = sum(cell.voxels for cell in self._list)
        for name, dtype in (("classes", np.int16), ("scores", np.float32)):
            np.memmap(self._folder / name, dtype, "w+", shape=(max(total, 1),)).flush()
        with (
            open(self._folder / "classes", "r+b") as classes,
            open(self._folder / "scores", "r+b") as scores,
        ):
            for i in range(tiles):
                made = np.load(tile_path(self._folder, i))
                starts = np.flatnonzero(np.diff(made["cell"], prepend=-1))
                for a, b in zip(starts, [*starts[1:], len(made)]):
                    cell = self._list[made["cell"][a]]
                    for file, name in ((classes, "class"), (scores, "score")):
                        width = made.dtype[name].itemsize
                        file.seek(cell.first * width)
                        part = np.frombuffer(file.read(cell.voxels * width), made.dtype[name])
                        part = part.copy()
                        part[made["row"][a:b]] = made[name][a:b]
                        file.seek(cell.first * width)
                        file.write(part.tobytes())
                tell(1)

    def _read_segment(self, at: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        cell = self._cells[at]
        return (
            np.fromfile(self._folder / "classes", np.int16, cell.voxels, offset=cell.first * 2),
            np.fromfile(self._folder / "scores", np.float32, cell.voxels, offset=cell.first * 4),
        )

    def of_points(
        self, cloud: PointCloud, pipeline: VoxelPipeline, low: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(class indices, scores) of the next points of the cloud; -1 and 0 without a voxel.

        The points of a cell come in their order, so a number per cell says where to continue.
        """
        finite, positions = local(cloud, low)
        classes = np.full(len(positions), -1, np.int16)
        scores = np.zeros(len(positions), np.float32)
        order, parts = by_cell(cells_of(positions, pipeline.voxel, self._side))
        for at, part in parts:
            n, begin = part.stop - part.start, self._next.get(at, 0)
            rows = _rows_of(self._cells[at].path(self._folder, "rows"), begin, n)
            of_voxels, score = self._segment(at)
            classes[order[part]], scores[order[part]] = of_voxels[rows], score[rows]
            self._next[at] = begin + n
        if finite.all():
            return classes, scores
        every, all_scores = np.full(len(cloud), -1, np.int16), np.zeros(len(cloud), np.float32)
        every[finite], all_scores[finite] = classes, scores
        return every, all_scores


def _rows_of(path: Path, begin: int, n: int) -> np.ndarray:
    with open(path, "rb") as file:
        np.lib.format.read_magic(file)
        np.lib.format.read_array_header_1_0(file)
        return np.fromfile(file, np.int32, n, offset=begin * 4)


def check_output(files: Sequence[CloudFile], output: str, format: str, values: np.ndarray) -> None:
    """ValueError unless the output can hold the labels; before the work."""
    if format in LAS:
        if any(file.format not in LAS for file in files):
            raise ValueError(
                f"{output}: a large cloud is written as LAS only from LAS, LAZ or COPC; "
                "write .ply or .npy"
            )
        laspy = require("laspy", "io")
        formats = set()
        for file in files:
            with laspy.open(file.path, read_evlrs=False) as reader:
                formats.add(str(reader.header.point_format.dtype()))
                most = 31 if reader.header.point_format.id < 6 else 255
            if values.min() < 0 or values.max() > most:
                raise ValueError(
                    f"{file.path}: its point format holds classes 0..{most}, and the network "
                    f"knows {values.min()}..{values.max()}; write .ply or .npy"
                )
        if len(formats) > 1:
            raise ValueError(
                f"{output}: the files have {len(formats)} point formats, expected one; "
                "write .ply or .npy"
            )
    elif format not in ("ply", "npy"):
        raise ValueError(
            f"{output}: a large cloud is written as .las, .laz, .ply or .npy, found .{format}"
        )


def labeled(
    files: Sequence[CloudFile], results: Results, pipeline: VoxelPipeline, low: np.ndarray
) -> Iterator[tuple[Any, Piece]]:
    """(record of laspy or None, (points, label values, scores)) of each piece."""
    values = np.append(pipeline.values, -1)
    for file in files:
        if file.format in LAS:
            laspy = require("laspy", "io")
            with laspy.open(file.path, read_evlrs=False) as reader:
                for record in reader.chunk_iterator(PIECE) if file.count else ():
                    cloud = las_cloud(record)
                    classes, scores = results.of_points(cloud, pipeline, low)
                    yield record, (cloud, values[classes], scores)
            continue
        for cloud in file.pieces():
            classes, scores = results.of_points(cloud, pipeline, low)
            yield None, (cloud, values[classes], scores)


def write_las(
    output: str, files: Sequence[CloudFile], pieces: Iterator[tuple[Any, Piece]], tell: Tell
) -> None:
    """LAS or LAZ with the header, records and attributes of the first file."""
    laspy = require("laspy", "io")
    with laspy.open(files[0].path) as reader:
        header = copy.deepcopy(reader.header)
    # A COPC header speaks of an octree that the output has not.
    header.vlrs = [v for v in header.vlrs if v.user_id not in ("copc", "laszip encoded")]
    header.evlrs = None
    names = set(header.point_format.dimension_names)
    extra = [n for n in ("score", "truth") if n not in names]
    kinds = {"score": "f4", "truth": "u1"}
    header.add_extra_dims([laspy.ExtraBytesParams(n, kinds[n]) for n in extra])
    with (
        atomic_path(output) as path,
        laspy.open(
            path,
            mode="w",
            header=header,
            do_compress=output.lower().endswith(".laz"),
            laz_backend=laspy.LazBackend.Lazrs if output.lower().endswith(".laz") else None,
        ) as writer,
    ):
        for record, (cloud, labels, scores) in pieces:
            made = laspy.ScaleAwarePointRecord.zeros(len(record), header=header)
            for name in record.array.dtype.names:
                made.array[name] = record.array[name]
            made.x, made.y, made.z = cloud.points.T  # the scale may be that of another file
            if "truth" in extra:
                made["truth"] = np.array(record["classification"])
            made["classification"], made["score"] = labels, scores
            writer.write_points(made)
            tell(len(record))


def write_rows(
    output: str,
    format: str,
    total: int,
    pieces: Iterator[tuple[Any, Piece]],
    label: str,
    tell: Tell,
) -> None:
    """PLY or NPY: the columns of the cloud, `label`, `score`, and the old label as `truth`."""
    with atomic_path(output) as path, open(path, "wb") as file:
        dtype = None
        for _, (cloud, labels, scores) in pieces:
            kept = {n: v for n, v in cloud.columns.items() if n not in (label, "label", "truth")}
            if label in cloud.columns:
                kept["truth"] = cloud.columns[label]
            kept |= {"label": labels.astype(np.int32), "score": scores}
            rows = to_rows(PointCloud(cloud.points, kept), format)
            if dtype is None:
                dtype = rows.dtype
                file.write(head_of(format, dtype, total))
            elif rows.dtype != dtype:
                raise ValueError(
                    f"{output}: the files have different columns: {rows.dtype.names} and "
                    f"{dtype.names}"
                )
            file.write(rows.tobytes())
            tell(len(rows))
        if dtype is None:
            raise ValueError(f"{output}: no points, so there is nothing to label")
