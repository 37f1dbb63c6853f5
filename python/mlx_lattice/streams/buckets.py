"""Points with all their columns in the cells of a grid on disk, so that each cell fits into memory.

`voxelize` and `compress` work cell by cell. The corners of cells are corners of voxels, so that no
voxel has points in two cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..io.cloud import PointCloud
from ..io.las import STANDARD
from ..training.progress import Progress
from ..training.tiled import bytes_of
from .cells import SIDE, by_cell, low_corner
from .clouds import LAS, CloudFile
from .manifest import Run

OWN = 300 << 20  # bytes of Python, MLX and pieces of files
POINT_BYTES = 300  # working memory per point of a cell, beside its rows
Index = Callable[[PointCloud, np.ndarray], np.ndarray]  # (cloud, low corner) -> voxels (N, 3)
At = tuple[int, int]
LEFT_OUT = {*STANDARD, "label"} - {"classification"}


def memory_of(command: str, text: str) -> int:
    """The bytes of --memory; ValueError if they are less than the process itself takes."""
    memory = bytes_of(command, "--memory", text)
    if memory <= OWN:
        raise ValueError(
            f"--memory: found {memory >> 20} MiB, expected more than {OWN >> 20} MiB, which the "
            "process itself takes"
        )
    return memory


class Buckets:
    """The finite points of files by cells.

    Args:
        run: The folder, which this process has locked.
        files: The files, which count as one cloud.
        index: Gives the voxel of each point.
        memory: Bytes that the process may take.
    """

    def __init__(self, run: Run, files: Sequence[CloudFile], index: Index, memory: int) -> None:
        self._folder, self.files = run.folder, files
        self.total = sum(file.count for file in files)
        self.meta: dict[str, Any] = {}
        self.dtype = np.dtype([])  # of the rows
        believed, side = True, SIDE
        while True:
            run.clear()
            self.low = self._low_corner(believed)
            self._fill(index, side)
            if self.finite and (self._seen_low != self.low).any():
                believed = False  # the header gave another corner than the points have
                continue
            largest = max(self.counts.values(), default=0)
            if largest * (2 * self.dtype.itemsize + POINT_BYTES) <= memory - OWN or side == 1:
                return
            side //= 2

    def _low_corner(self, believed: bool) -> np.ndarray:
        files = self.files
        if not believed:
            files = [CloudFile(file.path, file.format, file.count) for file in files]
        with Progress("corner", self.total, "points") as bar:
            low = low_corner(files, bar.advance)
        return np.zeros(3) if low is None else np.asarray(low, np.float64)

    def _fill(self, index: Index, side: int) -> None:
        self.counts: dict[At, int] = {}
        self.finite = 0
        self._seen_low = np.full(3, np.inf)
        self._used: set[str] = set()
        read = 0
        with Progress("pass 1 of 2, points", self.total, "points") as bar:
            for file in self.files:
                for piece in file.pieces():
                    self.meta = self.meta or dict(piece.meta)
                    self._add(piece, file, read, index, side)
                    read += len(piece)
                    bar.advance(len(piece))

    def _add(self, piece: PointCloud, file: CloudFile, read: int, index: Index, side: int) -> None:
        finite = piece.finite()
        kept = piece if finite.all() else piece[finite]
        bounds = kept.bounds()
        if bounds is None:
            return
        self._seen_low = np.minimum(self._seen_low, bounds[0])
        parts = [("points", kept.points), ("order", read + np.flatnonzero(finite))]
        parts += kept.columns.items()
        dtype = np.dtype([(name, v.dtype, v.shape[1:]) for name, v in parts])
        if self.finite and dtype != self.dtype:
            raise ValueError(
                f"{file.path}: the columns {list(dtype.names or ())[2:]} are not those of the "
                f"files before it, {list(self.dtype.names or ())[2:]}"
            )
        self.dtype = dtype
        rows = np.empty(len(kept), dtype)
        for name, values in parts:
            rows[name] = values
            if name not in LEFT_OUT or file.format not in LAS or values.any():
                self._used.add(name)
        order, cells = by_cell(index(kept, self.low)[:, :2].astype(np.int64) // side)
        rows = rows[order]
        for at, part in cells:
            with open(self.path(at), "ab") as out:
                out.write(rows[part].tobytes())
            self.counts[at] = self.counts.get(at, 0) + part.stop - part.start
        self.finite += len(kept)

    def path(self, at: At, what: str = "points") -> Path:
        """A file of a cell."""
        return self._folder / f"cell_{at[0]}_{at[1]}.{what}"

    def cells(self) -> Iterator[tuple[At, PointCloud, np.ndarray]]:
        """(place, points, their places in the order of the files) of each cell; deletes its file.

        As `io.read` does, columns of a LAS record that are 0 everywhere are left out.
        """
        for at in sorted(self.counts):
            rows = np.fromfile(self.path(at), self.dtype)
            self.path(at).unlink()
            names = [n for n in (self.dtype.names or ())[2:] if n in self._used]
            columns = {name: np.ascontiguousarray(rows[name]) for name in names}
            yield at, PointCloud(rows["points"], columns, dict(self.meta)), rows["order"].copy()
