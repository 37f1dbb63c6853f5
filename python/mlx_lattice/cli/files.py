"""Commands on point-cloud files: `voxelize`, `view`, and `info file`."""

from __future__ import annotations

import argparse
import importlib
import math
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..training.progress import Progress
from .main import printable

if TYPE_CHECKING:
    from mlx_lattice.io.cloud import PointCloud

FORMATS = (
    "formats: .ply .pcd .las .laz .npy .npz .mlat .xyz .txt .csv .e57, .bin and .label (kitti,\n"
    "nuscenes), meshes .off .obj .stl, whose surface is sampled; --format names the format if the\n"
    "extension does not"
)


def add_command(commands: argparse._SubParsersAction[Any]) -> None:
    raw = argparse.RawDescriptionHelpFormatter
    voxels = commands.add_parser(
        "voxelize",
        help="one point for each voxel of a file",
        formatter_class=raw,
        description="Keeps one point per voxel. Colors, intensity and float columns become means; "
        "labels become the most frequent value.",
        epilog="examples:\n"
        "  mlx-lattice voxelize scan.ply --voxel 0.05 small.ply\n"
        "  mlx-lattice voxelize city.laz --voxel 0.5 city.ply --points center\n"
        f"  mlx-lattice voxelize 000000.bin --voxel 0.1 000000.npz --counts\n\n{FORMATS}",
    )
    voxels.add_argument("input", help="file to read")
    voxels.add_argument("output", help="file to write; the extension is its format")
    voxels.add_argument(
        "--voxel",
        "--size",
        dest="size",
        type=float,
        required=True,
        metavar="S",
        help="side of a voxel, in the file's unit; --size is the older spelling",
    )
    voxels.add_argument(
        "--points",
        choices=["mean", "center", "first"],
        default="mean",
        help="where the point of a voxel lies (default: %(default)s of its points)",
    )
    voxels.add_argument(
        "--counts", action="store_true", help="add the column `count`, points of the voxel"
    )
    voxels.add_argument(
        "--format", metavar="F", help="format of the input where its extension does not tell"
    )
    voxels.set_defaults(run=_voxelize)

    view = commands.add_parser(
        "view",
        help="an interactive HTML page or a PNG of files",
        formatter_class=raw,
        description="Writes one HTML page that works offline (turn, move, zoom, choose colors), "
        "or a PNG.",
        epilog="examples:\n"
        "  mlx-lattice view scan.ply scan.html\n"
        "  mlx-lattice view scan.ply scan.png --color height\n"
        "  mlx-lattice view truth.ply predicted.ply compare.html --color label "
        "--classes road,car,tree\n\n"
        f"several files stand side by side under one camera\n{FORMATS}",
    )
    view.add_argument("input", nargs="+", help="files to read")
    view.add_argument("output", help=".html or .png")
    view.add_argument(
        "--color",
        metavar="C",
        help="height, rgb or a column (default: rgb or label where there is one, else height)",
    )
    view.add_argument(
        "--classes",
        metavar="A,B,...",
        help="names of the values 0, 1, ... of the column --color, else of label",
    )
    view.add_argument(
        "--limit",
        type=int,
        default=1_000_000,
        metavar="N",
        help="draw at most N points in all (default: %(default)s)",
    )
    view.add_argument(
        "--point-size", type=float, default=2.0, metavar="PX", help="default: %(default)s pixels"
    )
    view.add_argument("--title", default="", help="default: the names of the files")
    view.add_argument(
        "--format", metavar="F", help="format of the input where its extension does not tell"
    )
    view.set_defaults(run=_view)


def _io() -> Any:
    return _call(importlib.import_module, "mlx_lattice.io")


def _call(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """A missing optional package is the user's to install: one line, no stack trace."""
    try:
        return function(*arguments, **options)
    except ImportError as error:
        raise ValueError(str(error)) from None


def table(rows: Any) -> str:
    """Lines of a two-column table."""
    rows = [(printable(name), printable(value)) for name, value in rows]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _span(bounds: Any) -> str:
    """Five digits of the longest side: a map's meters and an object's micrometers are both seen."""
    if bounds is None:
        return "none"
    side = max(float(high) / 2 - float(low) / 2 for low, high in zip(*bounds))  # half: no overflow
    if side > 1e15:
        return "  ".join(
            f"{axis} {low:.4g} .. {high:.4g}" for axis, low, high in zip("xyz", *bounds)
        )
    digits = min(max(4 - math.floor(math.log10(2 * side)), 0), 12) if side > 0 else 3
    return "  ".join(
        f"{axis} {low:.{digits}f} .. {high:.{digits}f}" for axis, low, high in zip("xyz", *bounds)
    )


def _bytes(path: str | os.PathLike[str]) -> str:
    return f"{os.path.getsize(path):,} bytes"


def _voxelize(arguments: argparse.Namespace) -> None:
    io = _io()
    if not 0 < arguments.size < float("inf"):
        raise ValueError(f"--voxel: found {arguments.size}, expected a positive number")
    io.format_of(arguments.output, write=True)  # before the work
    from ..io.downsample import downsample

    with Progress("voxelize", 3, "steps") as bar:
        begin = time.perf_counter()
        bar.advance(0, f"reading {arguments.input}")
        cloud = _call(io.read, arguments.input, arguments.format)
        read = time.perf_counter()
        bar.advance(1, f"{len(cloud):,} points")
        small, counts, bad = downsample(cloud, arguments.size, arguments.points)
        if arguments.counts:
            small.columns["count"] = counts.astype("int32")
        done = time.perf_counter()
        bar.advance(1, f"writing {arguments.output}")
        _call(io.write, arguments.output, small)
        end = time.perf_counter()
    rows = [
        (
            "points",
            f"{len(cloud):,}" + (f", {bad:,} of them not finite and left out" if bad else ""),
        ),
        ("voxels", f"{len(small):,}"),
        (
            "points per voxel",
            f"{counts.mean():.2f} on average, at most {counts.max():,}" if len(counts) else "none",
        ),
        ("columns", ", ".join(small.columns) or "none"),
        ("bounds", _span(small.bounds())),
        ("read", f"{_bytes(arguments.input)}, {read - begin:.3f} s"),
        ("voxelize", f"{done - read:.3f} s"),
        ("write", f"{_bytes(arguments.output)}, {end - done:.3f} s"),
        ("next", f"mlx-lattice view {arguments.output} look.html"),
    ]
    print(table(rows))


def _view(arguments: argparse.Namespace) -> None:
    viewer = _call(importlib.import_module, "mlx_lattice.viewer")
    if not 0 < arguments.point_size <= 64:
        raise ValueError(f"--point-size: found {arguments.point_size}, expected 0 to 64 pixels")
    classes = arguments.classes.split(",") if arguments.classes else None
    panels = []
    with Progress("view", len(arguments.input) + 1, "steps") as bar:
        for path in arguments.input:
            bar.advance(0, f"reading {path}")
            panels.append(
                viewer.Panel(_call(_io().read, path, arguments.format), os.path.basename(path))
            )
            bar.advance(1, "drawing")
        _call(
            viewer.write,
            arguments.output,
            panels,
            color=arguments.color,
            classes=classes,
            limit=arguments.limit,
            title=arguments.title,
            point_size=arguments.point_size,
        )
    print(
        f"{arguments.output}: {_bytes(arguments.output)}, "
        f"{', '.join(f'{p.title} {len(p.cloud):,} points' for p in panels)}"
    )
    print(f"next: open {arguments.output}")


def info_file(path: str | os.PathLike[str], format: str | None = None) -> None:
    """Prints what a file holds: format, points, columns, bounds, NaN, spacing."""
    io = _io()
    kind = io.format_of(path, format)
    cloud = _call(io.read, path, format)
    bad = int((~cloud.finite()).sum())
    rows = [
        ("file", f"{path}, {_bytes(path)}"),
        ("format", kind),
        ("points", f"{len(cloud):,}, {cloud.points.dtype}"),
        ("not finite", f"{bad:,} points"),
        ("bounds", _span(cloud.bounds())),
    ]
    spacing = _spacing(cloud)
    if spacing is not None:
        rows.append(
            (
                "spacing",
                f"about {spacing:.3g} to the nearest point (median of a sample); "
                f"voxels of {2 * spacing:.2g} hold several",
            )
        )
    for name, values in cloud.columns.items():
        shape = f"[{values.shape[1]}]" if values.ndim == 2 else ""
        text = f"{values.dtype}{shape}"
        kept = values[_finite(values)] if values.dtype.kind == "f" else values
        if kept.size:
            text += (
                f"  {kept.min():.6g} .. {kept.max():.6g}"
                if values.dtype.kind == "f"
                else f"  {kept.min()} .. {kept.max()}"
            )
        if kept.size < values.size:
            text += f", {values.size - kept.size:,} not finite"
        rows.append((f"column {name}", text))
    print(table(rows))
    print(f"next: mlx-lattice view {path} look.html")


def _finite(values: Any) -> Any:
    import numpy as np

    return np.isfinite(values)


def _spacing(cloud: PointCloud, sample: int = 64, piece: Any = 1 << 18) -> Any:
    """Median distance of some points to their nearest other point; None below two points.

    The function compares each of these points with all points.
    """
    import numpy as np

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
