"""Command `predict`: a network that `train` wrote labels the points of a cloud."""

from __future__ import annotations

import argparse
import shlex
import time
from pathlib import Path

import numpy as np

from .. import io, viewer
from ..io.cloud import labels_of
from ..programs import Program
from ..training import Confusion, Scan, VoxelPipeline, predict_voxels
from ..training.progress import Progress
from . import large
from .options import (
    FORMATS,
    Commands,
    add_device,
    add_format,
    add_parser,
    classes_option,
    read_cloud,
    say_next,
)
from .outputs import check_output
from .run_folder import RunFolder
from .training_run import count_points


def add_command(commands: Commands) -> None:
    parser = add_parser(
        commands,
        "predict",
        "labels the points of a cloud with a trained network",
        "Writes the cloud with the predicted class of each point in column `label`.\n"
        "If the cloud has labels, the command prints the intersection over union, keeps the old\n"
        "labels in column `truth`, and a page shows both side by side.",
        "examples:\n"
        "  mlx-lattice predict run scan.ply labeled.ply\n"
        "  mlx-lattice predict --program net.lattice.safetensors scan.ply labeled.ply\n"
        "  mlx-lattice predict run city.laz labeled.laz --memory 2GB\n"
        f"  mlx-lattice predict run scan.ply look.html\n\n{FORMATS}; "
        "also .html and .png for the output",
    )
    parser.add_argument(
        "model", help="folder that `train` wrote, its model.safetensors, or a program"
    )
    parser.add_argument(
        "--program", action="store_true", help="the model is a program that `export` wrote"
    )
    parser.add_argument("cloud", help="file to read; with --memory also a folder")
    parser.add_argument("output", help="file to write; the extension is its format")
    add_format(parser)
    add_device(parser)
    large.add_options(parser)
    parser.set_defaults(run=_predict)


def _predict(arguments: argparse.Namespace) -> None:
    if arguments.program:
        _predict_program(arguments)
        return
    if large.is_large(arguments):
        large.predict(arguments)
        return
    output = arguments.output
    picture = Path(output).suffix.lower() in (".html", ".htm", ".png")
    check_output(output, arguments.cloud)
    folder = RunFolder.of(arguments.model)
    folder.pipeline()
    if not picture:
        io.format_of(output, write=True)  # before the work
    with Progress("predict", 4, "steps") as bar:
        with bar.step(f"reading {arguments.cloud}"):
            model, pipeline = folder.load()
            cloud = _read(arguments.cloud, arguments.format, pipeline)
        if picture and not cloud.finite().any():
            raise ValueError(f"{arguments.cloud}: no points, so there is nothing to show")
        begin = time.perf_counter()
        with bar.step(f"{len(cloud):,} points become voxels"):
            scan = pipeline.scan(cloud, arguments.cloud, strict=False)
        voxelized = time.perf_counter()
        with bar.step(f"the network, {len(scan.tensor):,} voxels"):
            classes = predict_voxels(model, scan)
        done = time.perf_counter()
        with bar.step(f"writing {output}"):
            _write(output, picture, cloud, pipeline, pipeline.point_labels(scan, classes))
    print(
        f"{len(cloud):,} points, {len(classes):,} voxels: {(voxelized - begin) * 1e3:.0f} ms "
        f"for voxels, {(done - voxelized) * 1e3:.0f} ms for the network"
    )
    if not len(classes):
        print("no points, so that there is nothing to label")
    elif scan.labels is not None:
        _score(pipeline, scan, classes, cloud)
    print(f"wrote {output}")
    if picture:
        print(f"next: open {shlex.quote(output)}")
    else:
        names = classes_option(pipeline.classes)
        say_next("view", output, "look.html", "--color", "label", *names)


def _score(pipeline: VoxelPipeline, scan: Scan, classes: np.ndarray, cloud: io.PointCloud) -> None:
    """Prints both tables of IoU, and which points were not scored."""
    voxels = Confusion(pipeline.names)
    voxels.add(np.array(scan.labels), classes)
    points = Confusion(pipeline.names, unit="points")
    count_points(points, pipeline, scan, classes, cloud)
    print(f"\nIoU per voxel\n{voxels}\n\nIoU per point\n{points}\n")
    left_out = pipeline.class_indices(cloud, strict=False) < 0
    labels = labels_of(cloud, pipeline.label, scan.name)[left_out]
    if labels.size:
        values = np.unique(labels)
        some = ", ".join(map(str, values[:8])) + (", ..." if len(values) > 8 else "")
        word = "label" if len(values) == 1 else "labels"
        print(f"{labels.size:,} points with the {word} {some} are not scored")


def _write(
    output: str,
    picture: bool,
    cloud: io.PointCloud,
    pipeline: VoxelPipeline,
    labels: np.ndarray,
) -> None:
    """The cloud with its labels, as a file or as a page."""
    kept = {n: v for n, v in cloud.columns.items() if n not in (pipeline.label, "label", "truth")}
    kept["label"] = labels
    truth = cloud.columns.get(pipeline.label)
    if truth is not None:
        kept["truth"] = truth
    labeled = io.PointCloud(cloud.points, kept, dict(cloud.meta))
    if not picture:
        io.write(output, labeled)
        return
    panels = [viewer.Panel(labeled, "prediction")]
    if truth is not None:
        panels = viewer.compare(labeled, labels_of(cloud, pipeline.label, output), labels)
    viewer.write(output, panels, color="label", classes=dict(pipeline.classes))


def _predict_program(arguments: argparse.Namespace) -> None:
    """The same by a program in C++, which contains its pipeline."""
    io.format_of(arguments.output, write=True)  # before the work
    program = Program.load(arguments.model)
    cloud = io.read(arguments.cloud, arguments.format)
    session = program.session()
    found = session.run(program.cloud_inputs(cloud))
    stats = session.stats
    print(
        f"{len(cloud):,} points, {stats['rows'][0]:,} voxels: {stats['voxelize']:.0f} ms for "
        f"voxels, {stats['geometry'] + stats['features']:.0f} ms for the network"
    )
    columns = {**cloud.columns, "label": np.array(found["labels"])}
    io.write(arguments.output, io.PointCloud(cloud.points, columns, dict(cloud.meta)))
    print(f"wrote {arguments.output}")
    print(f"next: mlx-lattice view {arguments.output} look.html --color label")


def _read(path: str, format: str | None, pipeline: VoxelPipeline) -> io.PointCloud:
    """The cloud. If `predict` wrote it, its labels are those of the column `truth`."""
    cloud = read_cloud(path, format)
    if "truth" not in cloud.columns:
        return cloud
    columns = {n: v for n, v in cloud.columns.items() if n != "truth"}
    columns[pipeline.label] = cloud.columns["truth"]
    return io.PointCloud(cloud.points, columns, dict(cloud.meta))
