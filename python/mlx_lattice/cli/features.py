"""Command `features`: shows what an encoder sees in a cloud, as colors, clusters and a page."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import encoders, io, viewer
from ..training.progress import Progress
from ..transforms import PIPELINES, encoder_pipeline
from .options import FORMATS, Commands, add_device, add_format, add_parser, printable, size_of
from .published import EXAMPLE_RULE, add_options, opened
from .run_folder import SHIPPED, RunFolder

if TYPE_CHECKING:
    from ..models import Model

STEPS = 5


def add_command(commands: Commands) -> None:
    parser = add_parser(
        commands,
        "features",
        "features of a pretrained encoder: colors, clusters, a page to click in",
        "Runs an encoder on a cloud. The page shows the main directions of the features as\n"
        "colors; a click on a point shows how similar all others are. It works offline.",
        "examples:\n"
        "  mlx-lattice features scan.ply --view                      the network that ships\n"
        "  mlx-lattice features scan.ply --model sonata_small.pth --view look.html\n"
        "  mlx-lattice features scan.ply --model sonata.pth --output scan.npz --clusters 12\n\n"
        f"{EXAMPLE_RULE}\n{FORMATS}",
    )
    add = parser.add_argument
    add("cloud", help="file to read")
    add(
        "--model",
        default=SHIPPED,
        help="a .pth or .safetensors file, a folder, a hub name, or a folder that `train` wrote "
        "(default: the network that ships with the package)",
    )
    add(
        "--view",
        nargs="?",
        const="features.html",
        metavar="HTML",
        help="the page to write (default: features.html)",
    )
    add("--output", metavar="FILE", help=".npz with features, inverse and colors, or a cloud")
    add("--clusters", type=int, metavar="K", help="groups points with like features")
    add("--pipeline", choices=PIPELINES, help="how the cloud becomes voxels (default: the model's)")
    add("--voxel", type=float, metavar="SIZE", help="the side of a voxel (default: as published)")
    add("--scale", type=float, help="the factor of lengths of Utonia; larger sees finer")
    levels = "levels whose own features are kept, from the coarse end (default: %(default)s)"
    add("--levels", type=int, default=2, metavar="N", help=levels)
    add("--limit", type=int, default=300_000, metavar="N", help="points of the page at most")
    add_options(parser)
    add_format(parser)
    add_device(parser)
    parser.set_defaults(run=_features)


def _features(arguments: argparse.Namespace) -> None:
    if arguments.view is None and arguments.output is None:
        raise ValueError("give --view for a page, or --output for a file")
    if arguments.output and not arguments.output.endswith(".npz"):
        io.format_of(arguments.output, write=True)  # before the work
    with Progress("features", STEPS, "steps") as bar:
        bar.advance(0, f"reading {arguments.model}")
        net, pipeline, told = _network(arguments)
        bar.advance(1, f"reading {arguments.cloud}")
        cloud = io.read(arguments.cloud, arguments.format)
        cloud = cloud[cloud.finite()]
        bar.advance(1, f"the network looks at {len(cloud):,} points")
        begin = time.perf_counter()
        found = encoders.point_features(net, cloud, pipeline, concatenate=arguments.levels)
        seconds = time.perf_counter() - begin
        bar.advance(1, "colors")
        columns = {"pca": np.rint(encoders.pca_colors(found.rows) * 255).astype(np.uint8)}
        if arguments.clusters is not None:
            columns["cluster"] = encoders.kmeans(found.rows, arguments.clusters).astype(np.int32)
        bar.advance(1, "writing")
        _write(arguments, cloud, found, columns)
    print(told)
    print(
        f"{len(cloud):,} points, {len(found.rows):,} voxels, {found.rows.shape[1]} features each: "
        f"{seconds:.1f} s"
    )
    for path in filter(None, (arguments.output, arguments.view)):
        print(f"wrote {path}: {size_of(path)}")
    if arguments.view:
        print(f"next: open {arguments.view} and click a point")


def _network(arguments: argparse.Namespace) -> tuple[Model, encoders.Pipeline | None, str]:
    """The network, its pipeline or None for the published one, and what to say about it."""
    folder = RunFolder.of(arguments.model)
    if folder.pipeline_path.is_file():
        net, trained = folder.load()
        return net, trained, f"{arguments.model}: {type(net).__name__} of mlx-lattice train"
    net, found = opened(arguments.model, arguments)
    pipeline = None
    if arguments.pipeline or arguments.voxel or arguments.scale:
        if not arguments.pipeline:
            raise ValueError("--voxel and --scale need --pipeline: which steps they belong to")
        pipeline = encoder_pipeline(arguments.pipeline, size=arguments.voxel, scale=arguments.scale)
    return net, pipeline, printable(found)


def _write(
    arguments: argparse.Namespace,
    cloud: io.PointCloud,
    found: encoders.PointFeatures,
    columns: dict[str, np.ndarray],
) -> None:
    points = {name: found.to_points(values) for name, values in columns.items()}
    if arguments.output and arguments.output.endswith(".npz"):
        from ..io.atomic_files import atomic_file

        with atomic_file(arguments.output) as file:
            arrays: dict[str, Any] = {"features": found.rows, "inverse": found.inverse, **columns}
            np.savez(file, **arrays)
    elif arguments.output:
        kept = {n: v for n, v in cloud.columns.items() if n not in ("color", "cluster")}
        kept |= {"color": points["pca"]} | {n: v for n, v in points.items() if n != "pca"}
        io.write(arguments.output, io.PointCloud(cloud.points, kept, dict(cloud.meta)))
    if arguments.view:
        points["similarity"] = found.to_points(encoders.packed_features(found.rows))
        shown = io.PointCloud(cloud.points, {**cloud.columns, **points})
        viewer.write(
            arguments.view,
            viewer.Panel(shown, Path(arguments.cloud).name),
            color="pca",
            title=f"features of {Path(arguments.cloud).name}",
            limit=arguments.limit,
        )
