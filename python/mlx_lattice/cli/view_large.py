"""`view --output FOLDER`: a page of chunks for a cloud of any size."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ..io.cloud import PointCloud
from ..streams.clouds import CloudFile, files_of
from ..training.progress import Progress
from ..viewer import large_page
from .options import parse_classes

# Columns that are kept unless --color names another: chunks of all would take the size of the file.
KEPT = ("label", "truth", "score", "intensity")


def view_large(arguments: argparse.Namespace) -> None:
    """Writes the folder of a page."""
    if len(arguments.input) != 1 or arguments.page is not None:
        raise ValueError("--output: expected one file or one folder of files beside it")
    given = arguments.input[0]
    files = [file for file in files_of(given, arguments.format) if file.count]
    total = sum(file.count for file in files)
    if not total:
        raise ValueError(f"{given}: no points, so there is nothing to show")
    names = parse_classes(arguments.classes)
    classes = dict(enumerate(names)) if isinstance(names, list) else names
    color = arguments.color
    columns = _columns(files, color)
    if color not in (None, "height", "rgb", *columns):
        raise ValueError(f"--color: found {color!r}, expected one of {', '.join(columns)}")
    with Progress("corners", total, "points") as bar:
        bounds = _bounds(files, bar)
    folder = Path(arguments.output)
    with Progress("octree", 2 * total, "points") as bar:
        octree = large_page.build(
            folder, lambda: _pieces(files), bounds, total, columns, bar.advance
        )
    page = large_page.write_page(octree, arguments.title or Path(given).name, color, classes)
    print(f"{page}: {sum(octree.nodes.values()):,} points in {len(octree.nodes):,} chunks")
    print(f"next: open {shlex.quote(str(page))}")


def _pieces(files: list[CloudFile]) -> Iterator[PointCloud]:
    for file in files:
        yield from file.pieces()


def _columns(files: list[CloudFile], color: str | None) -> list[str]:
    """The columns that all files have."""
    wanted = [*KEPT, *([color] if color else [])]
    common: list[str] | None = None
    for file in files:
        columns = next(iter(file.pieces(1000))).columns
        own = [n for n in dict.fromkeys(wanted) if n in columns and columns[n].ndim == 1]
        common = own if common is None else [n for n in common if n in own]
    return common or []


def _bounds(files: list[CloudFile], bar: Progress) -> tuple[np.ndarray, np.ndarray]:
    lows, highs = [], []
    for file in files:
        if file.low is not None and file.high is not None:
            lows.append(file.low)
            highs.append(file.high)
            continue
        for piece in file.pieces():
            bounds = piece.bounds()
            if bounds is not None:
                lows.append(bounds[0])
                highs.append(bounds[1])
            bar.advance(len(piece))
    if not lows:
        raise ValueError(f"{files[0].path}: no points, so there is nothing to show")
    return np.min(lows, axis=0), np.max(highs, axis=0)
