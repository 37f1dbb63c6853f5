"""Command `info`: reports what this build can do, or what a cloud file or a program holds."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator

import numpy as np

from .. import backend_info, io
from ..programs import ENDING
from ..training.progress import Progress
from .options import (
    Commands,
    add_format,
    add_parser,
    check_input,
    say_next,
    size_of,
    table,
)
from .program_report import about_program
from .run_folder import RunFolder


def add_command(commands: Commands) -> None:
    parser = add_parser(
        commands,
        "info",
        "says what this build can do on this machine, or what a cloud, a run or a program holds",
        epilog="examples:\n  mlx-lattice info\n  mlx-lattice info scan.laz\n"
        "  mlx-lattice info run\n  mlx-lattice info net.lattice.safetensors --rows 50000",
    )
    parser.add_argument(
        "file",
        nargs="?",
        help="a point-cloud file, a folder of `train` or a program; without it, this build",
    )
    parser.add_argument(
        "--rows", type=int, default=100_000, help="of a program: rows for which memory is bounded"
    )
    add_format(parser)
    parser.set_defaults(run=_info)


def _info(arguments: argparse.Namespace) -> None:
    if arguments.file and arguments.file.endswith(ENDING):
        print(table(about_program(arguments.file, arguments.rows)))
        say_next("selftest", arguments.file)
        return
    if not arguments.file:
        print(table(_flat(backend_info())))
        say_next("selftest", "--quick")
        return
    folder = RunFolder(arguments.file)
    if folder.path.is_dir() and folder.pipeline_path.is_file():
        print(table(_about_run(folder)))
        say_next("predict", folder.path, "scan.ply", "look.html")
        return
    check_input(arguments.file)
    with Progress("info", 2, "steps") as bar:
        with bar.step(f"reading {arguments.file}"):
            kind = io.format_of(arguments.file, arguments.format)
            cloud = io.read(arguments.file, arguments.format)
        with bar.step(f"{len(cloud):,} points"):
            rows = list(_about(arguments.file, kind, cloud))
    print(table(rows))
    if len(cloud):
        say_next("view", arguments.file, "look.html")


def _about_run(folder: RunFolder) -> Iterator[tuple[str, str]]:
    """Reports what a training learned, and from which data."""
    model, pipeline = folder.load()
    yield "run", f"{folder.path}, {'by a recipe' if folder.recipe_path.is_file() else 'on files'}"
    yield "network", f"{type(model).__name__}, {folder.model.name}, {size_of(folder.model)}"
    yield "voxels", f"of {pipeline.voxel:g}"
    yield "column of labels", pipeline.label
    yield "labels", ", ".join(f"{value} {name}" for value, name in pipeline.classes)
    yield "ignored labels", ", ".join(map(str, pipeline.ignored)) or "none"
    yield "columns", ", ".join(pipeline.columns) or "none besides the shape of the cloud"
    if pipeline.normalized:
        yield "normalized", ", ".join(pipeline.normalized) + ", by their size in each cloud"
    if pipeline.crop is not None:
        yield "crop", " to ".join(" ".join(f"{v:g}" for v in corner) for corner in pipeline.crop)
    if folder.history.is_file():
        yield "epochs", str(len(folder.history.read_text(encoding="utf-8").splitlines()) - 1)


def _flat(values: dict[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """The entries of nested tables, with dots in their names."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _about(path: str, kind: str, cloud: io.PointCloud) -> Iterator[tuple[str, str]]:
    """Format, points, columns, bounds, NaN and spacing of a file."""
    yield "file", f"{path}, {size_of(path)}"
    yield "format", kind
    yield "points", f"{len(cloud):,}, {cloud.points.dtype}"
    yield "not finite", f"{int((~cloud.finite()).sum()):,} points"
    yield "bounds", span(cloud.bounds())
    spacing = _spacing(cloud)
    if spacing is not None:
        yield (
            "spacing",
            f"about {spacing:.3g} to the nearest point (median of a sample); "
            f"voxels of {2 * spacing:.2g} hold several",
        )
    for name, values in cloud.columns.items():
        yield f"column {name}", _range(values)


def _range(values: np.ndarray) -> str:
    """The dtype of a column and its smallest and largest value."""
    floats = values.dtype.kind == "f"
    text = f"{values.dtype}" + (f"[{values.shape[1]}]" if values.ndim == 2 else "")
    kept = values[np.isfinite(values)] if floats else values
    if kept.size:
        form = ".6g" if floats else ""
        text += f"  {kept.min():{form}} .. {kept.max():{form}}"
    if kept.size < values.size:
        text += f", {values.size - kept.size:,} not finite"
    return text


def span(bounds: tuple[np.ndarray, np.ndarray] | None) -> str:
    """Bounds with five digits of the longest side: meters of a map, micrometers of an object."""
    if bounds is None:
        return "none"
    side = max(float(high) / 2 - float(low) / 2 for low, high in zip(*bounds))  # half: no overflow
    if side > 1e15:
        form = ".4g"
    else:
        digits = min(max(4 - math.floor(math.log10(2 * side)), 0), 12) if side > 0 else 3
        form = f".{digits}f"
    return "  ".join(
        f"{axis} {low:{form}} .. {high:{form}}" for axis, low, high in zip("xyz", *bounds)
    )


def _spacing(cloud: io.PointCloud, sample: int = 64, piece: int = 1 << 18) -> float | None:
    """Median distance of some points to their nearest other point; None below two points.

    The function compares each of these points with all points.
    """
    cloud = cloud[cloud.finite()]
    if len(cloud) < 2:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        points = (cloud.points - cloud.points[0]).astype(np.float32)
    if not np.isfinite(points).all():
        return None
    rows = np.random.default_rng(0).choice(len(points), min(sample, len(points)), replace=False)
    best = np.full(len(rows), np.inf, np.float32)
    for begin in range(0, len(points), piece):
        part = points[begin : begin + piece]
        for i, row in enumerate(rows):
            d = ((part - points[row]) ** 2).sum(axis=1)
            if begin <= row < begin + piece:
                d[row - begin] = np.inf
            best[i] = min(best[i], d.min())
    return float(np.sqrt(np.median(best)))
