"""Commands `compress` and `decompress`: point-cloud files to .mlat (docs/codec.md) and back.

A voxel keeps the mean of the colors, intensities and floats of its points, rounded for integers.
Of other integers (labels) it keeps the first. So points are merged, but the voxels are stored
without loss.

The model "lidar" makes sweeps of spinning LiDARs 10 to 20 percent smaller. A folder of sweeps
becomes a folder of .mlat files, each of which decodes alone.
"""

from __future__ import annotations

import argparse
import os
import shlex
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import mlx.core as mx
import numpy as np

from .. import io, ops
from ..datasets.folder import clouds_below
from ..io.atomic_files import write_bytes
from ..io.mlat import centers
from ..training.progress import Progress
from .options import (
    Commands,
    add_parser,
    check_input,
    check_positive,
    read_cloud,
    say_next,
)
from .outputs import check_output

Result = TypeVar("Result")
Tell: TypeAlias = Callable[[float], None]  # receives the share that is done
FORMATS = "formats of point clouds: .ply .pcd .las .laz .npy .npz .bin (KITTI)"
AVERAGED = ("color", "intensity", "normal")


def add_command(commands: Commands) -> None:
    what = "a point-cloud file as compressed voxels, .mlat"
    pack = add_parser(commands, "compress", what, __doc__, FORMATS)
    pack.add_argument("input", help="file to read, or a folder of files")
    pack.add_argument("output", help=".mlat file to write; for a folder, the folder to write to")
    side = "side of a voxel, in the file's unit"
    pack.add_argument("--voxel", type=float, required=True, metavar="S", help=side)
    pack.add_argument("--no-attributes", action="store_true", help="coordinates only")
    choices = ("octree", "lidar", "auto")
    what = "octree for every cloud, lidar for sweeps, auto for the smaller (default: octree)"
    pack.add_argument("--model", choices=choices, default="octree", help=what)
    what = "with lidar or auto: five times as fast, larger files"
    pack.add_argument("--fast", action="store_true", help=what)
    what = "with lidar or auto: where the scanner stood, in the file's unit (default: 0 0 0)"
    pack.add_argument(
        "--sensor", type=float, nargs=3, default=[0.0, 0.0, 0.0], metavar=("X", "Y", "Z"), help=what
    )
    what = "write a folder of files, one for each cell of a grid, in so much memory, such as 2GB"
    pack.add_argument("--memory", metavar="SIZE", help=what)
    pack.set_defaults(run=_compress)
    written = "Writes the centers of the voxels, in Morton order, with their attributes."
    what = "a .mlat file as a point cloud"
    unpack = add_parser(commands, "decompress", what, written, FORMATS)
    unpack.add_argument("input", help=".mlat file to read")
    unpack.add_argument("output", help="file to write; the extension is its format")
    unpack.set_defaults(run=_decompress)


class _Stages:
    """Runs the steps of a command under a line of progress, and keeps their times."""

    def __init__(self, label: str, total: int) -> None:
        self.times: list[tuple[str, float]] = []
        self._bar = Progress(label, total, "steps")

    def __call__(self, name: str, work: Callable[[Tell], Result]) -> Result:
        begin = time.perf_counter()
        with self._bar.step(name) as tell:
            result = work(tell)
        self.times.append((name, time.perf_counter() - begin))
        return result

    def __enter__(self) -> _Stages:
        self._bar.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.__exit__(*error)

    def __str__(self) -> str:
        return ", ".join(f"{name} {seconds:.2f} s" for name, seconds in self.times)


def _stored(
    name: str, values: np.ndarray, first: np.ndarray, inverse: np.ndarray, counts: np.ndarray
) -> dict[str, mx.array]:
    """The attributes of voxels that hold one column of points.

    first: a point of each voxel; inverse: the voxel of each point; counts: points per voxel.
    """
    voxels = len(counts)
    if values.dtype == np.bool_:
        values = values.astype(np.uint8)
    mean = name in AVERAGED or values.dtype.kind == "f"
    if values.size == 0 and len(values):
        raise ValueError(
            f"column {name!r}: found {values.shape[1]} values per point, expected some"
        )
    if not mean:
        return _parts(name, values[first])
    columns = values.reshape(len(values), -1).astype(np.float64).T
    means = np.stack([np.bincount(inverse, column, voxels) / counts for column in columns], 1)
    alone = (counts == 1)[:, None]  # the mean of one value is that value, also beyond 2^53
    means = np.rint(means) if values.dtype.kind in "iu" else means
    with np.errstate(invalid="ignore"):
        means = means.astype(values.dtype)
    means = np.where(alone, values.reshape(len(values), -1)[first], means)
    return _parts(name, means.reshape((voxels, *values.shape[1:])))


def _parts(name: str, values: np.ndarray) -> dict[str, mx.array]:
    """{attribute: array}. The format holds up to 32 bits.

    64 bits are two attributes, NAME:f8.high and NAME:f8.low.
    """
    kind = values.dtype.str[1:]
    if values.dtype.itemsize < 8:
        return {name: mx.array(values)}
    if values.dtype.kind in "iu":
        small = np.dtype(f"{values.dtype.kind}4")
        if not len(values) or (
            values.min() >= np.iinfo(small).min and values.max() <= np.iinfo(small).max
        ):
            return {name: mx.array(values.astype(small))}
    bits = np.ascontiguousarray(values).view(np.uint64)
    return {
        f"{name}:{kind}.high": mx.array((bits >> 32).astype(np.uint32)),
        f"{name}:{kind}.low": mx.array((bits & 0xFFFFFFFF).astype(np.uint32)),
    }


def _voxels(
    cloud: io.PointCloud, size: float, with_attributes: bool, origin: np.ndarray | None = None
) -> tuple[mx.array, dict[str, mx.array], tuple[float, float, float], int]:
    """(coords, attributes, origin, number) of the finite points; from their low corner on."""
    cloud = cloud[cloud.finite()]
    points = cloud.points.astype(np.float64)
    if origin is None:
        origin = points.min(0) if len(points) else np.zeros(3)
    cells = _cells(cloud, origin, size)
    table = np.zeros((len(points), 4), np.int32)
    table[:, 1:] = cells
    rows = mx.array(table)
    coords = ops.downsample_coords(rows, 1)
    attributes: dict[str, mx.array] = {}
    if with_attributes and cloud.columns:
        inverse = np.array(ops.inverse_map(coords, rows))
        counts = np.bincount(inverse, minlength=len(coords))
        first = np.array(ops.inverse_map(rows, coords))
        for name, values in cloud.columns.items():
            attributes |= _stored(name, values, first, inverse, counts)
    x, y, z = (float(v) for v in origin)
    return coords.coords, attributes, (x, y, z), len(points)


def _cells(cloud: io.PointCloud, origin: np.ndarray, size: float) -> np.ndarray:
    """(N, 3) the voxels of points."""
    with np.errstate(over="ignore", invalid="ignore"):
        cells = np.floor((cloud.points.astype(np.float64) - origin) / size)
    if len(cells) and not cells.max() <= 2**31 - 1:
        raise ValueError(f"--voxel {size}: the points span more than 2^31 voxels")
    return cells


def _sections(data: bytes) -> Iterator[tuple[str, int]]:
    """(what, bytes) of each section."""
    at = 8
    while at < len(data):
        tag, length = struct.unpack_from("<4sQ", data, at)
        content = data[at + 16 : at + 16 + length]
        yield (
            {b"GRID": "grid", b"COOR": "coordinates"}.get(tag)
            or content[1 : 1 + content[0]].decode(),
            16 + length,
        )
        at += 16 + length


def _compress(arguments: argparse.Namespace) -> None:
    check_positive(arguments, "voxel")
    if arguments.memory:
        from .compress_large import compress_large

        compress_large(arguments)
        return
    if os.path.isdir(arguments.input) and not arguments.output.lower().endswith(".mlat"):
        _compress_folder(arguments)
        return
    check_input(arguments.input)
    check_output(arguments.output, arguments.input)
    if not arguments.output.lower().endswith(".mlat"):
        raise ValueError(
            f"output: found {arguments.output}, expected a name that ends in .mlat; "
            "`decompress` and `voxelize` write point-cloud files"
        )
    with _Stages("compress", 3) as stages:
        cloud, coords, used, data = _packed(arguments, arguments.input, stages)
    write_bytes(arguments.output, data)
    n, before = len(coords), os.path.getsize(arguments.input)
    print(
        f"{len(cloud):,} points, {len(cloud) - used:,} not finite, "
        f"{n:,} voxels of {arguments.voxel:g}"
    )
    for what, size in _sections(data):
        print(f"  {what:16} {size:12,} bytes {8 * size / max(n, 1):9.3f} bits per voxel")
    model = {1: "octree", 2: "lidar"}[data[4]]
    print(
        f"{before:,} -> {len(data):,} bytes, ratio {before / len(data):.1f}, "
        f"{8 * len(data) / max(used, 1):.3f} bits per point, model {model}; {stages}"
    )
    say_next("decompress", arguments.output, f"{Path(arguments.output).stem}_voxels.ply")


def _packed(
    arguments: argparse.Namespace,
    path: str,
    stages: Callable[[str, Callable[[Tell], Any]], Any],
) -> tuple[io.PointCloud, mx.array, int, bytes]:
    """(cloud, voxels, finite points, bytes) of one file."""
    cloud = stages("read", lambda _: read_cloud(path))
    coords, attributes, origin, used = stages(
        "voxels", lambda _: _voxels(cloud, arguments.voxel, not arguments.no_attributes)
    )
    data = stages(
        "code",
        lambda tell: ops.encode_points(
            coords,
            attributes,
            voxel_size=arguments.voxel,
            origin=origin,
            model=arguments.model,
            fast=arguments.fast,
            sensor=arguments.sensor,
            on_progress=tell,
        ),
    )
    return cloud, coords, used, data


def _under(tell: Tell) -> Callable[[str, Callable[[Tell], Any]], Any]:
    """Stages that share the line of progress of their file."""
    return lambda _, work: work(tell)


def _compress_folder(arguments: argparse.Namespace) -> None:
    """Every cloud below a folder, each as a file of its own."""
    source, target = Path(arguments.input), Path(arguments.output)
    found = clouds_below(source)
    if not found:
        raise ValueError(f"input: {source} holds no point clouds, expected some")
    if not target.is_dir():
        cure = shlex.join(["mkdir", "-p", str(target)])
        raise ValueError(f"output: there is no folder {target}; make it with: {cure}")
    names = [target / path.relative_to(source).with_suffix(".mlat") for path in found]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"input: two clouds would become {min(twice)}; rename one of them")
    before = after = voxels = 0
    begin = time.perf_counter()
    with Progress("compress", len(found), "files") as bar:
        for path, name in zip(found, names):
            with bar.step(path.name) as tell:
                _, coords, _, data = _packed(arguments, str(path), _under(tell))
                name.parent.mkdir(parents=True, exist_ok=True)
                check_output(name, path)
                write_bytes(str(name), data)
            before, after = before + path.stat().st_size, after + len(data)
            voxels += len(coords)
    print(
        f"{len(found):,} files, {voxels:,} voxels of {arguments.voxel:g}; {before:,} -> {after:,} "
        f"bytes, ratio {before / max(after, 1):.1f}, {8 * after / max(voxels, 1):.3f} bits per "
        f"voxel; {time.perf_counter() - begin:.2f} s"
    )
    say_next("decompress", names[0], f"{names[0].stem}_voxels.ply")


def _decompress(arguments: argparse.Namespace) -> None:
    check_input(arguments.input)
    io.format_of(arguments.output, write=True)  # before the work
    check_output(arguments.output, arguments.input)
    with _Stages("decompress", 3) as stages:
        with open(arguments.input, "rb") as file:
            data = file.read()
        cloud = stages("decode", lambda tell: ops.decode_points(data, on_progress=tell))
        made = stages("points", lambda _: centers(cloud))
        points = made.points
        stages("write", lambda _: io.write(arguments.output, made))
    print(
        f"{len(points):,} points; {len(data):,} -> {os.path.getsize(arguments.output):,} bytes; "
        f"{stages}"
    )
    say_next("view", arguments.output, "look.html")
