"""Pass 2: the network runs tile by tile on the voxels of the cells that a tile needs."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np

from .. import _ext
from .._ext import LoadedProgram
from ..core import SparseTensor
from ..io.atomic_files import atomic_file
from .cells import SIDE, Cell, count_rows

if TYPE_CHECKING:
    from ..core.types import Triple

# The result of a tile: for each of its voxels the cell, the row there, the class, its probability.
RESULT = np.dtype([("cell", "<i4"), ("row", "<i4"), ("class", "<i2"), ("score", "<f4")])


FEW = 3  # tiles for which nothing is measured
SPARE = 1.4  # working memory of kernels and of the allocator, over the arrays of a tile


def plan(
    program: LoadedProgram, folder: Path, cells: Sequence[Cell], side: int, tile: int, memory: int
) -> list[tuple[Triple, Triple]]:
    """The tiles, (low, high) each, from the counted voxels.

    How much memory a voxel takes depends on the cloud too: voxels of dense clouds have more
    neighbors. So where more than a few tiles are needed, the fullest of some small tiles is run
    first to measure it. Results do not depend on the tiles.
    """
    counts = _Counts(program, folder, cells, tile)
    boxes = counts.tiles(memory)
    if len(boxes) <= FEW:
        return boxes
    try:
        few = counts.tiles(memory // 4)
    except ValueError:  # too little even for the smallest
        few = boxes
    give_back()
    runner = TilePass(program, folder, cells, side)
    fullest = max(few, key=lambda box: counts.rows(*box))
    return counts.tiles(int(memory / SPARE), runner.row_bytes(*fullest))


class _Counts:
    """The voxels of a cloud, counted in a finer grid than that of the cells."""

    def __init__(
        self, program: LoadedProgram, folder: Path, cells: Sequence[Cell], tile: int
    ) -> None:
        self._program = program
        alignment = _ext.receptive_field(program)[2]
        x, y, z = (a * max(1, 64 // a) for a in alignment)
        self._side = (x, y, z)
        self._tile = (-(-tile // x) * x, -(-tile // y) * y, 0)
        made = [count_rows(np.load(cell.path(folder, "coords")), (x, y, 1 << 30)) for cell in cells]
        self._at = np.concatenate([at for at, _ in made] or [np.empty((0, 3), np.int64)])
        self._counts = np.concatenate([n for _, n in made] or [np.empty(0, np.int64)])

    def tiles(self, memory: int, row_bytes: int = 0) -> list[tuple[Triple, Triple]]:
        boxes = _ext.plan_tiles(
            self._program,
            self._at.reshape(-1).tolist(),
            self._counts.tolist(),
            self._side,
            self._tile,
            (0, 0, 0),
            memory,
            row_bytes,
        )
        return [(tuple(low), tuple(high)) for low, high in boxes]

    def rows(self, low: Triple, high: Triple) -> int:
        """The voxels of a tile."""
        corner = self._at[:, :2] * np.array(self._side[:2])
        inside = (corner >= np.array(low)[:2]) & (corner < np.array(high)[:2])
        return int(self._counts[inside.all(axis=1)].sum())


def give_back() -> None:
    """Returns all free memory to the system, also what glibc keeps between pieces in use."""
    _ext.release_memory()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other systems have none
    if trim is not None:
        trim(0)


def tile_path(folder: Path, i: int) -> Path:
    """The result file of tile i."""
    return folder / f"tile_{i}.npy"


class TilePass:
    """Runs tiles of one folder; one for each process."""

    def __init__(
        self, program: LoadedProgram, folder: Path, cells: Sequence[Cell], side: int = SIDE
    ) -> None:
        self._program, self._folder, self._side = program, folder, side
        self._cells = {cell.at: (i, cell) for i, cell in enumerate(cells)}
        self._read = 0  # voxels of the last tile and around it

    def run(self, i: int, low: Triple, high: Triple) -> int:
        """Runs tile i unless its file is there; returns its voxels."""
        path = tile_path(self._folder, i)
        if path.exists():
            return int(np.load(path, mmap_mode="r").shape[0])
        result = self._run(low, high)
        with atomic_file(path) as file:
            np.save(file, result)
        return len(result)

    def row_bytes(self, low: Triple, high: Triple) -> int:
        """Bytes of the arrays of this tile for each of its voxels; those around count a quarter."""
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        own = len(self._run(low, high))
        return int((mx.get_peak_memory() - before) / (own + (self._read - own) / 4)) + 1

    def _run(self, low: Triple, high: Triple) -> np.ndarray:
        first, last = (np.array(n) for n in _ext.tile_input(self._program, low, high))
        coords, feats, own = [], [], []
        for x in range(first[0] // self._side, -(-last[0] // self._side)):
            for y in range(first[1] // self._side, -(-last[1] // self._side)):
                number, cell = self._cells.get((x, y), (0, None))
                if cell is None:
                    continue
                c = np.load(cell.path(self._folder, "coords"))
                rows = np.flatnonzero(((c >= first) & (c < last)).all(axis=1))
                coords.append(c[rows])
                feats.append(np.load(cell.path(self._folder, "feats"), mmap_mode="r")[rows])
                mine = ((c >= low) & (c < high)).all(axis=1).nonzero()[0]
                result = np.zeros(len(mine), RESULT)
                result["cell"], result["row"] = number, mine
                own.append(result)
        made = np.concatenate(own)
        c = np.concatenate(coords)
        self._read = len(c)
        part = SparseTensor(
            mx.array(np.concatenate([np.zeros((len(c), 1), np.int32), c], axis=1)),
            mx.array(np.concatenate(feats)),
        )
        del coords, feats, c
        y = _ext.run_tile(self._program, part, low, high)
        if len(y) != len(made):
            raise ValueError(
                f"[predict] the network gave {len(y):,} rows for {len(made):,} voxels; it must "
                "give one row of scores per voxel"
            )
        p = mx.softmax(y.feats.astype(mx.float32), axis=1)
        made["class"], made["score"] = np.array(mx.argmax(y.feats, axis=1)), np.array(mx.max(p, 1))
        del part, y, p
        give_back()
        return made


def cells_from(manifest: dict[str, Any]) -> list[Cell]:
    """The cells that pass 1 wrote down."""
    return [Cell((c[0], c[1]), *c[2:]) for c in manifest["cells"]]
