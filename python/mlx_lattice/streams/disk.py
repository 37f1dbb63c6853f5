"""Whether the disks hold what a run writes, before it begins."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from ..io._check import require
from ..io.cloud import PointCloud
from ..training import VoxelPipeline
from .clouds import LAS, CloudFile
from .rows import to_rows

LABELED = 9  # bytes of the label, the score and the old label of a point


def work_bytes(files: Sequence[CloudFile], pipeline: VoxelPipeline) -> int:
    """About how many bytes the passes write: points, then voxels and rows."""
    total = sum(file.count for file in files)
    point = 12 + 4 * sum(pipeline.widths) + 4
    voxel = 12 + 4 * pipeline.channels + 19
    return total * point + total * voxel // 2


def output_bytes(files: Sequence[CloudFile], format: str) -> int:
    """About how many bytes the output has; a third of LAS for LAZ."""
    total = 0
    for file in files:
        if not file.count:
            continue
        if format in LAS:
            with require("laspy", "io").open(file.path, read_evlrs=False) as reader:
                row = reader.header.point_format.size
            total += file.count * (row + LABELED) // (3 if format == "laz" else 1)
        else:
            piece: PointCloud = next(iter(file.pieces(1000)))
            total += file.count * (to_rows(piece, format).itemsize + LABELED)
    return total


def existing(path: Path) -> Path:
    """The folder itself, or the nearest above it that exists."""
    return next(p for p in (path, *path.absolute().parents) if p.exists())


def check_space(needs: Sequence[tuple[Path, int, str]], cure: str) -> None:
    """ValueError unless the disks have so many bytes.

    Args:
        needs: A folder, the bytes, and what they are for; disks that hold several need the sum.
        cure: What else may be done than to free some space.
    """
    disks: dict[int, tuple[Path, int, str]] = {}
    for folder, needed, what in needs:
        there = existing(folder)
        device = os.stat(there).st_dev
        if device in disks:
            first, before, others = disks[device]
            disks[device] = (first, before + needed, f"{others} and {what}")
        else:
            disks[device] = (there, needed, what)
    for there, needed, what in disks.values():
        free = shutil.disk_usage(there).free
        if needed > free:
            raise ValueError(
                f"{there}: {what} need about {needed / 1e9:.1f} GB, and the disk has "
                f"{free / 1e9:.1f} GB; free some space, or {cure}"
            )
