"""Command `view`: an interactive HTML page or a PNG of files."""

from __future__ import annotations

import argparse
import os
import shlex

import numpy as np

from .. import io, viewer
from ..training.labeled_clouds import class_names
from ..training.progress import Progress
from .options import (
    CLASSES_HELP,
    FORMATS,
    Commands,
    add_format,
    add_parser,
    parse_classes,
    read_cloud,
    size_of,
)
from .outputs import check_output
from .view_large import view_large


def add_command(commands: Commands) -> None:
    parser = add_parser(
        commands,
        "view",
        "an interactive HTML page or a PNG of files",
        "Writes one HTML page that works offline (turn, move, zoom, choose colors), or a PNG.",
        "examples:\n"
        "  mlx-lattice view scan.ply scan.html\n"
        "  mlx-lattice view scan.ply scan.png --color height\n"
        "  mlx-lattice view truth.ply predicted.ply compare.html --color label "
        "--classes road,car,tree\n"
        "  mlx-lattice view city.laz --output city/   a folder, for clouds larger than memory\n\n"
        f"several files stand side by side under one camera\n{FORMATS}",
    )
    parser.add_argument("input", nargs="+", help="files to read")
    parser.add_argument("page", nargs="?", metavar="output", help=".html or .png")
    parser.add_argument(
        "--output",
        metavar="FOLDER",
        help="write a page that draws chunks of an octree, for a file or folder of any size",
    )
    parser.add_argument(
        "--color",
        metavar="C",
        help="height, rgb or a column (default: rgb or label where there is one, else height)",
    )
    parser.add_argument(
        "--classes",
        metavar="A,B,...",
        help=CLASSES_HELP + "; of the column --color, else of label",
    )
    parser.add_argument(
        "--limit",
        type=int,
        default=1_000_000,
        metavar="N",
        help="draw at most N points in all (default: %(default)s)",
    )
    parser.add_argument(
        "--point-size", type=float, default=2.0, metavar="PX", help="default: %(default)s pixels"
    )
    parser.add_argument("--title", default="", help="default: the names of the files")
    add_format(parser)
    parser.set_defaults(run=_view, usage_error=parser.error)


def _view(arguments: argparse.Namespace) -> None:
    if arguments.output is not None:
        view_large(arguments)
        return
    if arguments.page is None:  # argparse gives every word to `input`
        if len(arguments.input) < 2:
            arguments.usage_error("the following arguments are required: output")
        arguments.page = arguments.input.pop()
    arguments.output = arguments.page
    if not 0 < arguments.point_size <= 64:
        raise ValueError(f"--point-size: found {arguments.point_size}, expected 0 to 64 pixels")
    check_output(arguments.output, *arguments.input)
    clouds = []
    with Progress("view", len(arguments.input) + 1, "steps") as bar:
        for path in arguments.input:
            with bar.step(f"reading {path}"):
                clouds.append(read_cloud(path, arguments.format))
            if not clouds[-1].finite().any():
                raise ValueError(f"{path}: no points, so there is nothing to show")
        titles = [os.path.basename(path) for path in arguments.input]
        with bar.step("drawing"):
            viewer.write(
                arguments.output,
                [viewer.Panel(cloud, title) for cloud, title in zip(clouds, titles)],
                color=arguments.color,
                classes=_classes(arguments, clouds),
                limit=arguments.limit,
                title=arguments.title,
                point_size=arguments.point_size,
            )
    drawn = ", ".join(f"{title} {len(cloud):,} points" for title, cloud in zip(titles, clouds))
    print(f"{arguments.output}: {size_of(arguments.output)}, {drawn}")
    total = sum(map(len, clouds))
    if total > arguments.limit:
        print(f"it shows {arguments.limit:,} of {total:,} points; --limit {total} shows all")
    print(f"next: open {shlex.quote(arguments.output)}")


def _classes(arguments: argparse.Namespace, clouds: list[io.PointCloud]) -> dict[int, str] | None:
    """Names by label, with the same meaning as in `train`."""
    names = parse_classes(arguments.classes)
    if names is None:
        return None
    columns = [c.columns for c in clouds]
    named = any(arguments.color in own for own in columns)
    wanted = {arguments.color if named else "label", "truth" if not named else arguments.color}
    found = [own[n] for own in columns for n in wanted if n in own and own[n].ndim == 1]
    kept = [values[np.isfinite(values) & (values >= 0)] for values in found]
    labels = {int(v) for values in kept for v in np.unique(values)}
    return class_names(names, sorted(labels))
