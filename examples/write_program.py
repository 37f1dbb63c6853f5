"""Writes a program, a scan and its labels for examples/label_c and examples/label_cpp.

    write_program.py <folder>                 a small network that is made here
    write_program.py <folder> <run> <cloud>   the network that `mlx-lattice train --output <run>`
                                              wrote, and a file with points and an intensity

The folder gets net.lattice.safetensors, scan.bin with float32 records x y z intensity, and
labels.txt, the labels that Python computes.
"""

from __future__ import annotations

import pathlib
import sys

import mlx.core as mx
import numpy as np
from mlx_lattice import io, models, samples, training


def made_here() -> tuple[models.Model, training.VoxelPipeline, io.PointCloud]:
    mx.random.seed(0)
    classes = tuple((10 * i, name) for i, name in enumerate(samples.CLASSES))
    pipeline = training.VoxelPipeline(0.2, classes, columns=("intensity",), widths=(1,))
    return models.MinkUNet(pipeline.channels, 4, depth=14, width=8), pipeline, samples.scan()


def trained(
    run: pathlib.Path, cloud: str
) -> tuple[models.Model, training.VoxelPipeline, io.PointCloud]:
    pipeline = training.VoxelPipeline.load(run / "pipeline.json")
    return models.load(run / "model.safetensors"), pipeline, io.read(cloud)


def main(folder: pathlib.Path, *rest: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    model, pipeline, cloud = trained(pathlib.Path(rest[0]), rest[1]) if rest else made_here()
    points = cloud.points.astype(np.float32)
    intensity = cloud.columns["intensity"].astype(np.float32)
    np.column_stack([points, intensity]).tofile(folder / "scan.bin")
    cloud = io.PointCloud(points, {"intensity": intensity})
    model.eval()
    model.export(folder / "net.lattice.safetensors", example=cloud, pipeline=pipeline)
    scan = pipeline.scan(cloud)
    labels = pipeline.point_labels(scan, training.predict_voxels(model, scan))
    (folder / "labels.txt").write_text("".join(f"{label}\n" for label in labels))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), *sys.argv[2:])
