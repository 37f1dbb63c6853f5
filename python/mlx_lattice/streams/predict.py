"""A trained network labels a cloud that is larger than memory: three passes over files.

1  points go into cells on disk, cells become voxels      cells.py
2  the network runs tile by tile                          tiles.py
3  labels and scores go to the points                     results.py
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np

from .. import _ext, io
from ..core._checks import instance
from ..programs.tiles import tile_program
from ..training import Confusion, VoxelPipeline
from ..training.progress import Progress
from . import cells as first_pass
from . import results as third_pass
from .cells import Cell, Moved, PointPass
from .clouds import LAS, CloudFile, files_of
from .disk import check_space, existing, output_bytes, work_bytes
from .manifest import Run, file_hash, settings
from .tiles import TilePass, cells_from, plan, tile_path

if TYPE_CHECKING:
    from mlx.nn import Module

OWN = 400 << 20  # bytes of Python, MLX and pieces of files


@dataclass(frozen=True)
class Job:
    """The job of a run on a large cloud.

    Args:
        model: The network, in evaluation mode.
        pipeline: How it sees clouds.
        weights: Its file, whose hash goes into the manifest.
        cloud: A file, or a folder whose files count as one cloud.
        output: The file to write; None only counts how right the labels are.
        work: The folder of the run; it is deleted at the end.
        memory: Bytes that the process may take.
        tile: The largest side of a tile, in voxels; 0: as the memory allows.
        part: (k, n): this process takes the tiles k, k + n, ...
        format: Of the input, where its extension does not tell.
    """

    model: Module
    pipeline: VoxelPipeline
    weights: Path
    cloud: Path
    output: str | None
    work: Path
    memory: int
    tile: int = 0
    part: tuple[int, int] = (0, 1)
    format: str | None = None


class Prediction:
    """The passes of a job; each continues where a killed process stopped."""

    def __init__(self, job: Job) -> None:
        instance(self, "job", job, Job, "a Job of this module")
        self.job = job
        self.files = files_of(job.cloud, job.format)
        self.total = sum(file.count for file in self.files)
        self.run = Run(job.work)
        self.program = tile_program(job.model, job.pipeline.channels)
        if job.memory <= OWN:
            raise ValueError(
                f"--memory: found {job.memory >> 20} MiB, expected more than {OWN >> 20} MiB, "
                "which the process itself takes"
            )
        if job.pipeline.crop is not None:
            raise ValueError(
                f"{job.cloud}: the pipeline crops points to a box, which a run by tiles does not "
                "do; leave out --memory, or train without a crop"
            )
        _ext.receptive_field(self.program)  # an error names what is not local
        if job.cloud.is_dir():
            for path in [job.work, *([] if job.output is None else [Path(job.output)])]:
                if job.cloud.resolve() in path.resolve().parents:
                    raise ValueError(
                        f"{path}: found it inside of the input {job.cloud}, whose files count as "
                        "one cloud; write elsewhere"
                    )
        if job.output is not None:
            self.output_format = io.format_of(job.output, write=True)
            third_pass.check_output(self.files, job.output, self.output_format, job.pipeline.values)
        mx.set_cache_limit(64 << 20)

    def begin(self) -> None:
        """Checks the disk, and that the folder of the run was made for the same."""
        there = existing(self.job.work)
        if not os.access(there, os.W_OK):
            raise ValueError(f"{self.job.work} cannot be made: {there} may not be written to")
        if self.run.ended():  # not begun either
            needed = work_bytes(self.files, self.job.pipeline)
            needs = [(self.job.work, needed, "the files of the passes")]
            if self.job.output is not None:
                needed = output_bytes(self.files, self.output_format)
                needs.append((Path(self.job.output).absolute().parent, needed, "the output"))
            check_space(needs, "name another folder with --work")
        sizes = sum(file.path.stat().st_size for file in self.files)
        with Progress("check", max(sizes >> 20, 1), "MiB") as bar:
            hashes = [file_hash(f.path, lambda n: bar.advance(n >> 20)) for f in self.files]
        others = {"pipeline": asdict(self.job.pipeline), "tile": self.job.tile}
        others["memory"] = self.job.memory
        paths = [file.path for file in self.files]
        self.run.begin(settings(paths, hashes, file_hash(self.job.weights), others))

    def points(self) -> dict[str, Any]:
        """Pass 1, unless it is done; returns the manifest. One process at a time does it."""
        with self.run.locked():
            manifest = self.run.read()
            if "tiles" in manifest:
                return manifest
            made = self._points()
            manifest |= made
            self.run.write(manifest)
            return manifest

    def _points(self) -> dict[str, Any]:
        low, side = self._low(), first_pass.SIDE
        most = (self.job.memory - OWN) // first_pass.POINT_BYTES
        while True:
            self.run.clear()
            done = PointPass(self.job.work, self.job.pipeline, low, self.total, side)
            try:
                self._bucket(done)
                ground = done.end()
            except Moved:  # the header gave another corner than the points have
                low = self._low(believe=False)
                continue
            largest = max((cell.points for cell in done.cells.values()), default=0)
            if largest <= most or side <= 16:
                break
            side //= 2
        cells = [done.cells[at] for at in sorted(done.cells)]
        sizes = done.sizes()
        with Progress("pass 1 of 3, voxels", sum(c.points for c in cells), "points") as bar:
            for cell in cells:
                first_pass.make_voxels(
                    self.job.work, cell, done.dtype, self.job.pipeline, ground, sizes
                )
                _ext.release_memory()
                mx.clear_cache()
                bar.advance(cell.points)
        voxels = 0
        for cell in cells:
            cell.first, voxels = voxels, voxels + cell.voxels
        memory = self.job.memory - OWN
        tiles = plan(self.program, self.job.work, cells, side, self.job.tile, memory)
        return {
            "low": low.tolist(),
            "side": side,
            "points": self.total,
            "voxels": voxels,
            "cells": [[*c.at, c.points, c.voxels, c.first] for c in cells],
            "tiles": tiles,
        }

    def _low(self, believe: bool = True) -> np.ndarray:
        files = self.files
        if not believe:
            files = [CloudFile(f.path, f.format, f.count) for f in files]
        with Progress("corner", self.total, "points") as bar:
            low = first_pass.low_corner(files, bar.advance)
        for file in files:
            if low is not None and file.high is not None and file.count:
                voxel = self.job.pipeline.voxel
                first_pass.check_far(file.high, low, voxel, str(file.path))
        return np.zeros(3) if low is None else np.asarray(low, np.float64)

    def _bucket(self, done: PointPass) -> None:
        with Progress("pass 1 of 3, points", self.total, "points") as bar:
            for file in self.files:
                for piece in file.pieces():
                    done.add(piece, str(file.path))
                    bar.advance(len(piece))

    def tiles(self, manifest: dict[str, Any]) -> bool:
        """Pass 2 for the tiles of this part; whether all tiles of all parts are done."""
        boxes = manifest["tiles"]
        k, n = self.job.part
        runner = TilePass(self.program, self.job.work, cells_from(manifest), manifest["side"])
        with Progress("pass 2 of 3, tiles", manifest["voxels"] // n, "voxels") as bar:
            for i in range(k, len(boxes), n):
                low, high = boxes[i]
                bar.advance(runner.run(i, tuple(low), tuple(high)), f"tile {i + 1}/{len(boxes)}")
        return not self.left(manifest)

    def left(self, manifest: dict[str, Any]) -> list[int]:
        """The tiles that are not done."""
        tiles = range(len(manifest["tiles"]))
        return [i for i in tiles if not tile_path(self.job.work, i).exists()]

    def write(self, manifest: dict[str, Any]) -> Confusion | None:
        """Pass 3: writes the output; returns how right the labels are, None without labels."""
        cells: list[Cell] = cells_from(manifest)
        results = third_pass.Results(self.job.work, cells, manifest["side"])
        with Progress("pass 3 of 3, tiles", len(manifest["tiles"]), "tiles") as bar:
            results.gather(len(manifest["tiles"]), bar.advance)
        pipeline = self.job.pipeline
        confusion = Confusion(pipeline.names, unit="points")
        low = np.array(manifest["low"])
        pieces = third_pass.labeled(self.files, results, pipeline, low)
        counted = _counted(pieces, pipeline, confusion)
        with Progress("pass 3 of 3, points", self.total, "points") as bar:
            if self.job.output is None:
                for _, (cloud, _labels, _scores) in counted:
                    bar.advance(len(cloud))
            elif self.output_format in LAS:
                third_pass.write_las(self.job.output, self.files, counted, bar.advance)
            else:
                third_pass.write_rows(
                    self.job.output,
                    self.output_format,
                    self.total,
                    counted,
                    pipeline.label,
                    bar.advance,
                )
        return confusion if confusion.counts.any() else None


def _counted(pieces: Any, pipeline: VoxelPipeline, confusion: Confusion) -> Any:
    """The same pieces; counts the labels that they have."""
    index: Callable[..., np.ndarray] = pipeline.class_indices
    of_value = {int(v): i for i, v in enumerate(pipeline.values)}
    for record, (cloud, labels, scores) in pieces:
        if pipeline.label in cloud.columns and cloud.columns[pipeline.label].any():
            found = np.array([of_value.get(int(v), -1) for v in np.unique(labels)])
            classes = found[np.searchsorted(np.unique(labels), labels)]
            inside = classes >= 0
            confusion.add(index(cloud, strict=False)[inside], classes[inside])
        yield record, (cloud, labels, scores)
