"""Command `detect`: the boxes of a scan by a published detector."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from .. import io, viewer
from ..io.atomic_files import write_bytes
from ..training.progress import Progress
from .options import FORMATS, Commands, add_format, add_parser


def add_command(commands: Commands) -> None:
    parser = add_parser(
        commands,
        "detect",
        "the boxes of a scan by a published detector",
        "Reads the weights of SECOND, PointPillars, CenterPoint or VoxelNeXt and finds boxes.",
        "examples:\n"
        "  mlx-lattice detect scan.bin --model second_7862.pth --config second_kitti --view\n"
        "  mlx-lattice detect scan.pcd.bin --model cbgs.pth --config centerpoint_nuscenes\n\n"
        "configurations: second_kitti, pointpillars_kitti, centerpoint_nuscenes,\n"
        "centerpoint_nuscenes_0.1, voxelnext_nuscenes, or a JSON or YAML file of OpenPCDet\n"
        f"{FORMATS}",
    )
    parser.add_argument("input", help="the scan")
    parser.add_argument(
        "--model", required=True, help="weights: .pth of OpenPCDet or det3d, or of Detector.save"
    )
    parser.add_argument("--config", help="what the weights belong to; not for Detector.save")
    parser.add_argument(
        "--view",
        nargs="?",
        const="",
        metavar="PAGE",
        help="write a page with the boxes (default: the name of the scan with .html)",
    )
    parser.add_argument(
        "--output",
        metavar="JSON",
        help="write the boxes, with velocities if there are any, to a JSON file",
    )
    parser.add_argument(
        "--score", type=float, default=0.0, metavar="S", help="only boxes of at least this score"
    )
    add_format(parser)
    parser.set_defaults(run=_detect)


def _columns(cloud: io.PointCloud, names: tuple[str, ...]) -> np.ndarray:
    """x, y, z and columns; a column that the scan lacks, such as the time of a sweep, is 0."""
    made = np.zeros((len(cloud), 3 + len(names)), np.float32)
    made[:, :3] = cloud.points
    for i, name in enumerate(names, 3):
        if name in cloud.columns:
            made[:, i] = cloud.columns[name]
    return made


def _detect(arguments: argparse.Namespace) -> None:
    from ..models import detection

    with Progress("detect", 3, "steps") as bar:
        bar.advance(0, f"reading {arguments.model}")
        net = detection.load(arguments.model, arguments.config)
        bar.advance(1, f"reading {arguments.input}")
        cloud = io.read(arguments.input, arguments.format)
        bar.advance(1, "finding boxes")
        found = net.detect(_columns(cloud, net.columns))
        bar.advance(1)
    keep = found.scores >= arguments.score
    boxes, labels, scores = found.boxes[keep], found.labels[keep], found.scores[keep]
    names = [name for name, kept in zip(found.names, keep) if kept]
    for name, score, box in zip(names, scores, boxes):
        numbers = " ".join(f"{v:8.2f}" for v in box)
        print(f"{name:20} {score:5.2f}  {numbers}")
    lost = found.dropped or {}
    print(
        f"{len(names)} boxes; of {len(cloud):,} points {lost.get('outside', 0):,} lie outside of "
        f"the grid, {lost.get('full_voxel', 0):,} in full voxels, "
        f"{lost.get('full_grid', 0):,} beyond the last voxel"
    )
    if arguments.output:
        rows: list[dict[str, object]] = [
            {"name": n, "score": s, "box": b}
            for n, s, b in zip(names, scores.tolist(), boxes.tolist())
        ]
        if found.velocities is not None:
            for row, velocity in zip(rows, found.velocities[keep].tolist()):
                row["velocity"] = velocity
        write_bytes(arguments.output, json.dumps(rows, indent=1).encode())
        print(f"wrote {arguments.output}")
    if arguments.view is not None:
        path = arguments.view or str(Path(arguments.input).with_suffix(".html"))
        classes = net.settings.class_names
        title = Path(arguments.input).name
        panel = viewer.box_panel(cloud, boxes, labels, scores, classes=classes, title=title)
        viewer.write(path, panel, classes=viewer.box_classes(classes), unit="m")
        print(f"next: open {path}")
