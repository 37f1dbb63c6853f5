"""Writes a program, a scan and its boxes for examples/detect_c and examples/detect_cpp.

    write_detector.py <folder>                       a small network that is made here
    write_detector.py <folder> <weights> <config> <scan.bin>
                                                     a published one; see models.detection.load

The folder gets net.lattice.safetensors, scan.bin with float32 records x y z intensity, and
boxes.txt: label, score, x y z dx dy dz and heading of the boxes that Python finds.
"""

from __future__ import annotations

import pathlib
import sys

import mlx.core as mx
import numpy as np
from mlx_lattice import io, samples
from mlx_lattice.models import detection
from mlx_lattice.training.detection import street_config


def made_here() -> tuple[detection.Detector, np.ndarray]:
    mx.random.seed(0)
    config = street_config()
    config["model"]["POST_PROCESSING"]["SCORE_THRESH"] = 0.01  # it has not learned anything
    net = detection.Detector(config)
    net.eval()
    return net, samples.street_boxes(1).points


def published(weights: str, config: str, scan: str) -> tuple[detection.Detector, np.ndarray]:
    cloud = io.read(scan, "kitti")
    rows = [cloud.points, cloud.columns["intensity"][:, None]]
    return detection.load(weights, config), np.concatenate(rows, axis=1)


def main(folder: pathlib.Path, *rest: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    net, points = published(*rest) if rest else made_here()
    points = np.ascontiguousarray(points[:, :4], np.float32)
    points.tofile(folder / "scan.bin")
    net.export(folder / "net.lattice.safetensors", points)
    found = net.detect(points)
    lines = [
        " ".join([str(label), f"{score:.9g}", *(f"{v:.9g}" for v in box)]) + "\n"
        for label, score, box in zip(found.labels, found.scores, found.boxes)
    ]
    (folder / "boxes.txt").write_text("".join(lines))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), *sys.argv[2:])
