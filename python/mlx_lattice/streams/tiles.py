"""Pass 2: the network runs tile by tile on the voxels of the cells that a tile needs."""

from __future__ import annotations

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


def plan(
    program: LoadedProgram, folder: Path, cells: Sequence[Cell], tile: int, memory: int
) -> list[tuple[Triple, Triple]]:
    """The tiles, (low, high) each, from the counted voxels."""
    alignment = _ext.receptive_field(program)[2]
    side = tuple(a * max(1, 64 // a) for a in alignment)
    whole = (*side[:2], 1 << 30)
    at, counts = [], []
    for cell in cells:
        found, n = count_rows(np.load(cell.path(folder, "coords")), whole)
        at.append(found)
        counts.append(n)
    tiles = (-(-tile // side[0]) * side[0], -(-tile // side[1]) * side[1], 0)
    boxes = _ext.plan_tiles(
        program,
        np.concatenate(at).reshape(-1).tolist() if at else [],
        np.concatenate(counts).tolist() if counts else [],
        side,
        tiles,
        (0, 0, 0),
        memory,
    )
    return [(tuple(low), tuple(high)) for low, high in boxes]


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

    def run(self, i: int, low: Triple, high: Triple) -> int:
        """Runs tile i unless its file is there; returns its voxels."""
        path = tile_path(self._folder, i)
        if path.exists():
            return int(np.load(path, mmap_mode="r").shape[0])
        result = self._run(low, high)
        with atomic_file(path) as file:
            np.save(file, result)
        return len(result)

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
        _ext.release_memory()
        mx.clear_cache()
        return made


def cells_from(manifest: dict[str, Any]) -> list[Cell]:
    """The cells that pass 1 wrote down."""
    return [Cell((c[0], c[1]), *c[2:]) for c in manifest["cells"]]
