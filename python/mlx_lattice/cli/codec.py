"""Commands `compress` and `decompress`: point-cloud files to .mlat (docs/codec.md) and back.

A voxel keeps the mean of the colors, intensities and floats of its points, rounded for integers.
Of other integers (labels) it keeps the first. So points are merged, but the voxels are stored
without loss.
"""

from __future__ import annotations

import argparse
import os
import struct
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from .. import ops
from .._atomic import same_file, write_bytes
from ..training.progress import Progress

if TYPE_CHECKING:
    from mlx_lattice.io.cloud import PointCloud

FORMATS = "formats of point clouds: .ply .pcd .las .laz .npy .npz .bin (KITTI)"
AVERAGED = ("color", "intensity", "normal")


def add_command(commands: argparse._SubParsersAction[Any]) -> None:
    raw = argparse.RawDescriptionHelpFormatter
    pack = commands.add_parser(
        "compress",
        help="a point-cloud file as compressed voxels, .mlat",
        formatter_class=raw,
        description=__doc__,
        epilog=FORMATS,
    )
    pack.add_argument("input", help="file to read")
    pack.add_argument("output", help=".mlat file to write")
    pack.add_argument(
        "--voxel",
        type=float,
        required=True,
        metavar="S",
        help="side of a voxel, in the file's unit",
    )
    pack.add_argument("--no-attributes", action="store_true", help="coordinates only")
    pack.set_defaults(run=_compress)
    unpack = commands.add_parser(
        "decompress",
        help="a .mlat file as a point cloud",
        formatter_class=raw,
        description="Writes the centers of the voxels, in Morton order, with their attributes.",
        epilog=FORMATS,
    )
    unpack.add_argument("input", help=".mlat file to read")
    unpack.add_argument("output", help="file to write; the extension is its format")
    unpack.set_defaults(run=_decompress)


class _Stages:
    """Runs the steps of a command under a line of progress, and keeps their times."""

    def __init__(self, label: str, total: int) -> None:
        self.times: list[Any] = []
        self._bar = Progress(label, total, "steps")

    def __call__(self, name: str, work: Any) -> Any:
        self._bar.advance(0, name)
        begin = time.perf_counter()
        result = work()
        self.times.append((name, time.perf_counter() - begin))
        self._bar.advance(1)
        return result

    def __enter__(self) -> Any:
        self._bar.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._bar.__exit__(*error)

    def __str__(self) -> str:
        return ", ".join(f"{name} {seconds:.2f} s" for name, seconds in self.times)


def _stored(name: str, values: Any, first: Any, inverse: Any, counts: Any, voxels: Any) -> Any:
    """The attributes of voxels that hold one column of points."""
    import numpy as np

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


def _parts(name: str, values: Any) -> dict[Any, Any]:
    """{attribute: array}. The format holds up to 32 bits.

    64 bits are two attributes, NAME:f8.high and NAME:f8.low.
    """
    import numpy as np

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


def _voxels(cloud: PointCloud, size: Any, with_attributes: Any) -> tuple[Any, ...]:
    """(coords, attributes, origin) of the finite points."""
    import numpy as np

    cloud = cloud[cloud.finite()]
    points = cloud.points.astype(np.float64)
    origin = points.min(0) if len(points) else np.zeros(3)
    with np.errstate(over="ignore", invalid="ignore"):
        cells = np.floor((points - origin) / size)
    if len(cells) and not cells.max() <= 2**31 - 1:
        raise ValueError(f"--voxel {size}: the points span more than 2^31 voxels")
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
            attributes |= _stored(name, values, first, inverse, counts, len(coords))
    return coords, attributes, tuple(float(v) for v in origin), len(points)


def _sections(data: Any) -> Iterator[Any]:
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
    from .. import io

    if not 0 < arguments.voxel < float("inf"):
        raise ValueError(f"--voxel must be positive, found {arguments.voxel}")
    if same_file(arguments.input, arguments.output):
        raise ValueError(
            f"output: found {arguments.output}, the input itself; expected another file, because"
            " voxels lose points"
        )
    if not arguments.output.lower().endswith(".mlat"):
        raise ValueError(
            f"output: found {arguments.output}, expected a name that ends in .mlat; "
            "`decompress` and `voxelize` write point-cloud files"
        )
    with _Stages("compress", 3) as stages:
        cloud = stages("read", lambda: io.read(arguments.input))
        coords, attributes, origin, used = stages(
            "voxels", lambda: _voxels(cloud, arguments.voxel, not arguments.no_attributes)
        )
        data = stages(
            "code",
            lambda: ops.encode_points(
                coords, attributes, voxel_size=arguments.voxel, origin=origin
            ),
        )
    write_bytes(arguments.output, data)
    n, before = len(coords), os.path.getsize(arguments.input)
    print(
        f"{len(cloud):,} points, {len(cloud) - used:,} not finite, "
        f"{n:,} voxels of {arguments.voxel:g}"
    )
    for what, size in _sections(data):
        print(f"  {what:16} {size:12,} bytes {8 * size / max(n, 1):9.3f} bits per voxel")
    print(
        f"{before:,} -> {len(data):,} bytes, ratio {before / len(data):.1f}, "
        f"{8 * len(data) / max(used, 1):.3f} bits per point; {stages}"
    )
    print(f"next: mlx-lattice view {arguments.output} look.html, or decompress")


def _decompress(arguments: argparse.Namespace) -> None:
    from .. import io
    from ..io.mlat import centers

    with _Stages("decompress", 3) as stages:
        with open(arguments.input, "rb") as file:
            data = file.read()
        cloud = stages("decode", lambda: ops.decode_points(data))
        made = stages("points", lambda: centers(cloud))
        points = made.points
        stages("write", lambda: io.write(arguments.output, made))
    print(
        f"{len(points):,} points; {len(data):,} -> {os.path.getsize(arguments.output):,} bytes; "
        f"{stages}"
    )
