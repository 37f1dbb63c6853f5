"""Command `predict`: a network that `train` wrote labels the points of a cloud."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

from .. import models
from .device import add_device
from .files import FORMATS
from .run_files import MODEL, PIPELINE
from .train_run import count_points, modules


def add_command(commands: argparse._SubParsersAction[Any]) -> None:
    predict = commands.add_parser(
        "predict",
        help="labels the points of a cloud with a trained network",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Writes the cloud with the predicted class of each point in column `label`.\n"
        "If the cloud has labels, the command prints the intersection over union, keeps the old\n"
        "labels in column `truth`, and a page shows both side by side.",
        epilog="examples:\n"
        "  mlx-lattice predict run scan.ply labeled.ply\n"
        f"  mlx-lattice predict run scan.ply look.html\n\n{FORMATS}; "
        "also .html and .png for the output",
    )
    predict.add_argument("model", help="folder that `train` wrote, or its model.safetensors")
    predict.add_argument("cloud", help="file to read")
    predict.add_argument("output", help="file to write; the extension is its format")
    predict.add_argument(
        "--format", metavar="F", help="format of the input where its extension does not tell"
    )
    add_device(predict)
    predict.set_defaults(run=_predict)


def _predict(arguments: argparse.Namespace) -> None:
    io, scans, *_ = modules()
    path = Path(arguments.model)
    path = path / MODEL if path.is_dir() else path
    if not path.with_name(PIPELINE).is_file():
        raise ValueError(
            f"{path.with_name(PIPELINE)} is missing: "
            "expected a folder that `mlx-lattice train` wrote"
        )
    picture = Path(arguments.output).suffix.lower() in (".html", ".htm", ".png")
    if not picture:
        io.format_of(arguments.output, write=True)  # before the work
    pipeline, model = scans.VoxelPipeline.load(path.with_name(PIPELINE)), models.load(path)
    if (model.config["in_channels"], model.config["out_channels"]) != (
        pipeline.channels,
        len(pipeline.classes),
    ):
        raise ValueError(f"{path} and {PIPELINE} do not belong together")
    cloud = io.read(arguments.cloud, arguments.format)
    if "truth" in cloud.columns:  # predict wrote this cloud: its `label` is no truth
        columns = {n: v for n, v in cloud.columns.items() if n != "truth"}
        columns[pipeline.label] = cloud.columns["truth"]
        cloud = io.PointCloud(cloud.points, columns, dict(cloud.meta))
    begin = time.perf_counter()
    scan = pipeline.scan(cloud, arguments.cloud)
    voxelized = time.perf_counter()
    classes = scans.predict(model, scan)
    done = time.perf_counter()
    labels = pipeline.point_labels(scan, classes)
    others = {
        name: values
        for name, values in cloud.columns.items()
        if name not in (pipeline.label, "label", "truth")
    }
    truth = cloud.columns.get(pipeline.label)
    labeled = io.PointCloud(
        cloud.points,
        {**others, "label": labels, **({} if truth is None else {"truth": truth})},
        dict(cloud.meta),
    )
    print(
        f"{len(cloud):,} points, {len(classes):,} voxels: {(voxelized - begin) * 1e3:.0f} ms "
        f"for voxels, {(done - voxelized) * 1e3:.0f} ms for the network"
    )
    if truth is not None:
        confusion = scans.Confusion(pipeline.names)
        confusion.add(scan.labels, classes)
        points = scans.Confusion(pipeline.names, unit="points")
        count_points(points, pipeline, scan, classes, cloud)
        print(f"\nIoU per voxel\n{confusion}\n\nIoU per point\n{points}\n")
    if picture:
        _draw(arguments.output, labeled, pipeline, truth, io)
    else:
        io.write(arguments.output, labeled)
    print(f"wrote {arguments.output}")
    print(
        f"next: open {arguments.output}"
        if picture
        else f"next: mlx-lattice view {arguments.output} look.html --color label"
    )


def _draw(path: str | os.PathLike[str], labeled: Any, pipeline: Any, truth: Any, io: Any) -> None:
    try:
        from .. import viewer
    except ImportError as error:
        raise ValueError(str(error)) from None
    panels = [viewer.Panel(labeled, "prediction")]
    if truth is not None:
        panels = viewer.compare(labeled, truth, labeled.columns["label"])
    viewer.write(path, panels, color="label", classes=dict(pipeline.classes))
