"""Command `voxelize`: one point for each voxel of a file."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from .. import io
from ..io.downsample import downsample
from ..streams.buckets import memory_of
from ..streams.clouds import files_of
from ..streams.voxels import voxelize
from ..training.progress import Progress
from .info import span
from .options import (
    FORMATS,
    Commands,
    add_format,
    add_parser,
    read_cloud,
    say_next,
    size_of,
    table,
)
from .outputs import check_output


def add_command(commands: Commands) -> None:
    parser = add_parser(
        commands,
        "voxelize",
        "one point for each voxel of a file",
        "Keeps one point per voxel. Colors, intensity and float columns become means; "
        "labels become the most frequent value.",
        "examples:\n"
        "  mlx-lattice voxelize scan.ply --voxel 0.05 small.ply\n"
        "  mlx-lattice voxelize city.laz --voxel 0.5 city.ply --points center\n"
        "  mlx-lattice voxelize 000000.bin --voxel 0.1 000000.npz --counts\n"
        "  mlx-lattice voxelize survey/ --voxel 0.5 city.laz --memory 2GB   larger than memory\n\n"
        f"{FORMATS}",
    )
    parser.add_argument("input", help="file to read")
    parser.add_argument("output", help="file to write; the extension is its format")
    parser.add_argument(
        "--voxel",
        "--size",
        dest="size",
        type=float,
        required=True,
        metavar="S",
        help="side of a voxel, in the file's unit; --size is the older spelling",
    )
    parser.add_argument(
        "--points",
        choices=["mean", "center", "first"],
        default="mean",
        help="where the point of a voxel lies (default: %(default)s of its points)",
    )
    parser.add_argument(
        "--counts", action="store_true", help="add the column `count`, points of the voxel"
    )
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        help="work by cells on the disk in so much memory, such as 2GB; the input may be a folder",
    )
    add_format(parser)
    parser.set_defaults(run=_voxelize)


def _voxelize(arguments: argparse.Namespace) -> None:
    if not 0 < arguments.size < float("inf"):
        raise ValueError(f"--voxel: found {arguments.size}, expected a positive number")
    io.format_of(arguments.output, write=True)  # before the work
    check_output(arguments.output, arguments.input)
    if arguments.memory:
        _voxelize_large(arguments)
        return
    with Progress("voxelize", 3, "steps") as bar:
        begin = time.perf_counter()
        with bar.step(f"reading {arguments.input}"):
            cloud = read_cloud(arguments.input, arguments.format)
        read = time.perf_counter()
        with bar.step(f"{len(cloud):,} points"):
            small, counts, bad, _ = downsample(cloud, arguments.size, arguments.points)
            if arguments.counts:
                small.columns["count"] = counts.astype("int32")
        done = time.perf_counter()
        with bar.step(f"writing {arguments.output}"):
            io.write(arguments.output, small)
        end = time.perf_counter()
    left_out = f", {bad:,} of them not finite and left out" if bad else ""
    each = f"{counts.mean():.2f} on average, at most {counts.max():,}" if len(counts) else "none"
    rows = [
        ("points", f"{len(cloud):,}{left_out}"),
        ("voxels", f"{len(small):,}"),
        ("points per voxel", each),
        ("columns", ", ".join(small.columns) or "none"),
        ("bounds", span(small.bounds())),
        ("read", f"{size_of(arguments.input)}, {read - begin:.3f} s"),
        ("voxelize", f"{done - read:.3f} s"),
        ("write", f"{size_of(arguments.output)}, {end - done:.3f} s"),
    ]
    print(table(rows))
    say_next("view", arguments.output, "look.html")


def _voxelize_large(arguments: argparse.Namespace) -> None:
    """The same for a cloud that is larger than memory."""
    begin = time.perf_counter()
    format = io.format_of(arguments.output, write=True)
    if format not in ("las", "laz", "ply", "npy"):
        raise ValueError(
            f"{arguments.output}: a large cloud is written as .las, .laz, .ply or .npy, "
            f"found .{format}"
        )
    made = voxelize(
        files_of(arguments.input, arguments.format),
        arguments.output,
        format,
        arguments.size,
        points=arguments.points,
        counts=arguments.counts,
        memory=memory_of("voxelize", arguments.memory),
    )
    bad = made.points - made.finite
    left_out = f", {bad:,} of them not finite and left out" if bad else ""
    rows = [
        ("points", f"{made.points:,}{left_out}"),
        ("voxels", f"{made.voxels:,}"),
        (
            "points per voxel",
            f"{made.finite / made.voxels:.2f} on average, at most {made.most:,}",
        ),
        ("time", f"{time.perf_counter() - begin:.1f} s, {size_of(arguments.output)}"),
    ]
    print(table(rows))
    folder = str(Path(arguments.output).with_suffix(""))
    say_next("view", arguments.output, "--output", folder)
