"""Writes a MinkUNet for examples/cpp/minkunet.cpp.

    write_minkunet.py <folder>                 a network and a scan that are made here
    write_minkunet.py <folder> <run> <cloud>   the network that `mlx-lattice train --output <run>`
                                               wrote, and a file with points

The folder gets net.safetensors, packed.safetensors (by `mlx-lattice quantize`) and
scan.safetensors: coordinates, features, and the logits that Python computes with both networks.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys

import mlx.core as mx
from mlx_lattice import SparseTensor, io, models, training


def hills() -> SparseTensor:
    """A surface of 4096 voxels with 4 channels."""
    steps = mx.arange(64 * 64)
    x, y = steps // 64 - 32, steps % 64 - 32
    z = (4 * mx.sin(x / 9.0) + 3 * mx.cos(y / 7.0)).astype(mx.int32)
    coords = mx.stack([mx.zeros_like(x), x, y, z], axis=1)
    return SparseTensor(coords, mx.random.normal((64 * 64, 4)))


def made_here(depth: int = 14, width: int = 16) -> tuple[models.Model, SparseTensor]:
    mx.random.seed(0)
    scan, model = hills(), models.MinkUNet(4, 6, depth=depth, width=width)
    for _ in range(3):  # running statistics move
        mx.eval(model(scan).feats, model.parameters())
    model.eval()
    return model, scan


def trained(run: pathlib.Path, cloud: str) -> tuple[models.Model, SparseTensor]:
    pipeline = training.VoxelPipeline.load(run / "pipeline.json")
    return models.load(run / "model.safetensors"), pipeline.scan(io.read(cloud)).tensor


def write(folder: pathlib.Path, model: models.Model, scan: SparseTensor) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    net, packed = folder / "net.safetensors", folder / "packed.safetensors"
    model.save(net)
    command = ["quantize", str(net), "--bits", "8", "--output", str(packed)]
    subprocess.run([sys.executable, "-m", "mlx_lattice", *command], check=True)
    arrays = {
        "coords": scan.coords,
        "feats": scan.feats,
        "net": model(scan).feats,
        "packed": models.load(packed)(scan).feats,
    }
    mx.save_safetensors(str(folder / "scan.safetensors"), arrays)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 4):
        sys.exit(__doc__)
    own = sys.argv[2:]
    write(
        pathlib.Path(sys.argv[1]), *(trained(pathlib.Path(own[0]), own[1]) if own else made_here())
    )
