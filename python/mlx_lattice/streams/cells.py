"""Pass 1: points go into the cells of a grid on disk, and the points of each cell become voxels.

The low corner, the second percentile of z and the sizes of normalized columns are those of the
whole cloud. So the voxels are those of `VoxelPipeline.scan` on the whole cloud, with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from .. import ops
from ..io.atomic_files import atomic_file
from ..io.cloud import PointCloud
from ..training import VoxelPipeline
from ..training.voxel_pipeline import _column, _exact, to_unit, typical_size
from .clouds import CloudFile

FAR = 1 << 20  # voxels: float32 positions then still have 1/16 of a voxel
SIDE = 256  # voxels
POINT_BYTES = 160  # memory per point, with its columns, while voxels are made
Tell = Callable[[int], object]


class Moved(Exception):
    """The low corner is another than the header says."""


@dataclass
class Cell:
    """One cell of the grid: its place, the points and voxels in it."""

    at: tuple[int, int]
    points: int = 0
    voxels: int = 0
    first: int = 0  # voxels of the cells before it

    def path(self, folder: Path, what: str) -> Path:
        """A file of this cell."""
        return folder / f"cell_{self.at[0]}_{self.at[1]}.{what}"


class Smallest:
    """The `n` smallest of the values that were seen."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._kept = np.empty(0, np.float32)
        self._new: list[np.ndarray] = []
        self._waiting = 0

    def add(self, values: np.ndarray) -> None:
        """Sees more values."""
        if len(self._kept) == self._n:
            values = values[values < self._kept.max(initial=-np.inf)]
        self._new.append(values)
        self._waiting += len(values)
        if self._waiting > max(self._n, 1 << 20):
            self._merge()

    def _merge(self) -> None:
        every = np.concatenate([self._kept, *self._new])
        self._kept = np.partition(every, self._n - 1)[: self._n] if len(every) > self._n else every
        self._new, self._waiting = [], 0

    def sorted(self) -> np.ndarray:
        """The values, ascending."""
        self._merge()
        return np.sort(self._kept)


def low_corner(files: Sequence[CloudFile], tell: Tell = lambda n: None) -> np.ndarray | None:
    """The low corner of all finite points; headers are believed, and checked in pass 1."""
    lows = []
    for file in files:
        if file.low is not None:
            if file.count:
                lows.append(file.low)
            continue
        for piece in file.pieces():
            tell(len(piece))
            bounds = piece.bounds()
            if bounds is not None:
                lows.append(bounds[0])
    return np.min(lows, axis=0) if lows else None


def local(cloud: PointCloud, low: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(finite, positions): the mask of finite points, and the others less the corner, float32."""
    finite = cloud.finite()
    points = cloud.points if finite.all() else cloud.points[finite]
    return finite, (points.astype(np.float64) - low).astype(np.float32)


def cells_of(positions: np.ndarray, voxel: float, side: int) -> np.ndarray:
    """(N, 2) int64: the cell of each position."""
    return np.floor(positions[:, :2] / np.float32(voxel)).astype(np.int64) // side


def by_cell(cells: np.ndarray) -> tuple[np.ndarray, list[tuple[tuple[int, int], slice]]]:
    """(order, parts): rows by cell in their order, and the slice of each cell."""
    if not len(cells):
        return np.empty(0, np.int64), []
    key = cells[:, 0] * (1 << 31) + cells[:, 1]
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.diff(key[order], prepend=key[order[0]] - 1))
    ends = [*starts[1:].tolist(), len(key)]
    found = cells[order[starts]].tolist()
    return order, [((x, y), slice(a, b)) for (x, y), a, b in zip(found, starts.tolist(), ends)]


def check_far(high: np.ndarray, low: np.ndarray, voxel: float, name: str) -> None:
    """ValueError if points are too far from the low corner for their voxels."""
    span = float((high - low).max())
    if span > FAR * voxel:
        raise ValueError(
            f"{name}: the points span {span:,.0f}, from {np.round(low, 3).tolist()} to "
            f"{np.round(high, 3).tolist()}, more than {FAR:,} voxels of {voxel:g}; "
            "drop far points, or cut the cloud into parts"
        )


class PointPass:
    """Writes the points of each cell into a file of its own."""

    def __init__(
        self, folder: Path, pipeline: VoxelPipeline, low: np.ndarray, total: int, side: int
    ) -> None:
        self._folder, self._pipeline, self.low, self._side = folder, pipeline, low, side
        self.cells: dict[tuple[int, int], Cell] = {}
        self._lowest = Smallest(int(total * 0.02) + 2)
        self._largest = {  # of columns that are divided by their size: the largest, less than 0
            column: (Smallest(int(total * width * 0.01) + 2), width)
            for column, width in zip(pipeline.columns, pipeline.widths, strict=True)
            if column in pipeline.normalized
        }
        self.finite = 0
        self._seen_low = np.full(3, np.inf)

    def add(self, cloud: PointCloud, name: str) -> None:
        """Takes the points of a piece."""
        finite, positions = local(cloud, self.low)
        if len(positions):
            bounds = cloud.bounds()
            assert bounds is not None
            self._seen_low = np.minimum(self._seen_low, bounds[0])
            if (bounds[0] < self.low).any():
                raise Moved
            check_far(bounds[1], self.low, self._pipeline.voxel, name)
        self.finite += len(positions)
        self._lowest.add(positions[:, 2])
        rows = self._rows(cloud, finite, positions, name)
        order, parts = by_cell(cells_of(positions, self._pipeline.voxel, self._side))
        rows = rows[order]
        for at, part in parts:
            cell = self.cells.setdefault(at, Cell(at))
            with open(cell.path(self._folder, "points"), "ab") as file:
                file.write(rows[part].tobytes())
            cell.points += part.stop - part.start

    def _rows(
        self, cloud: PointCloud, finite: np.ndarray, positions: np.ndarray, name: str
    ) -> np.ndarray:
        columns = []
        for column, width in zip(self._pipeline.columns, self._pipeline.widths, strict=True):
            values = _column(cloud, column, width, name).reshape(len(cloud), width)
            if column in self._largest:
                kept = values if finite.all() else values[finite]
                self._largest[column][0].add(-np.abs(to_unit(kept, width)).reshape(-1))
            elif values.dtype.itemsize > 4 or values.dtype.kind == "i":
                values = values.astype(np.float32)
            columns.append(values if finite.all() else values[finite])
        dtype: list[Any] = [("p", "<f4", 3)]
        dtype += [(f"c{i}", v.dtype.str, (v.shape[1],)) for i, v in enumerate(columns)]
        rows = np.empty(len(positions), dtype)
        rows["p"] = positions
        for i, values in enumerate(columns):
            rows[f"c{i}"] = values
        self.dtype = rows.dtype
        return rows

    def end(self) -> float:
        """The second percentile of z, in voxels; Moved if the low corner is another."""
        if self.finite and (self._seen_low != self.low).any():
            raise Moved
        return ground_of(self._lowest.sorted(), self.finite, self._pipeline.voxel)

    def sizes(self) -> dict[str, float]:
        """By what columns are divided."""
        return {
            column: typical_size(-lowest.sorted(), self.finite * width)
            for column, (lowest, width) in self._largest.items()
        }


def ground_of(smallest: np.ndarray, count: int, voxel: float) -> float:
    """The second percentile of `count` heights in voxels, from the smallest of them.

    Between two values as the C++ of `voxel_features` goes between them.
    """
    if not count:
        return 0.0
    heights = smallest / np.float32(voxel)
    at = (count - 1) * 0.02
    before = int(at)
    low = heights[before]
    if before + 1 >= count:
        return float(low)
    high, t = heights[before + 1], at - before
    step = np.float32(high - low)
    near = low + step * np.float32(t) if t < 0.5 else high - step * np.float32(1 - t)
    return float(np.float32(near))


def make_voxels(
    folder: Path,
    cell: Cell,
    dtype: np.dtype[Any],
    pipeline: VoxelPipeline,
    ground: float,
    sizes: dict[str, float],
) -> None:
    """Turns the points of a cell into voxels, and deletes the points.

    coords (V, 3) int32 are counted from the low corner of the cloud; rows (P,) int32 gives each
    point its voxel.
    """
    points = np.fromfile(cell.path(folder, "points"), dtype)
    columns = []
    for column, width, name in zip(pipeline.columns, pipeline.widths, (dtype.names or ())[1:]):
        values = points[name]
        if column in sizes:
            values = to_unit(values, width) / sizes[column]
        columns.append(_exact(np.ascontiguousarray(values)))
    tensor, rows = ops.voxel_features(
        mx.array(np.ascontiguousarray(points["p"])),
        pipeline.voxel,
        columns,
        frame=((0.0, 0.0, 0.0), ground),
    )
    cell.voxels = len(tensor)
    for what, values in (
        ("coords", np.array(tensor.coords)[:, 1:].astype(np.int32)),
        ("feats", np.array(tensor.feats)),
        ("rows", np.array(rows)),
    ):
        with atomic_file(cell.path(folder, what)) as file:
            np.save(file, values)
    cell.path(folder, "points").unlink()


def count_rows(coords: np.ndarray, side: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """(cells (K, 3), counts (K,)) of voxels in a finer grid."""
    found, counts = np.unique(coords.astype(np.int64) // np.array(side), axis=0, return_counts=True)
    return found, counts
