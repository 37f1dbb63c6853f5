"""Writes a MinkUNet, a scan and its logits for examples/cpp/minkunet.cpp.

Write_minkunet.py <folder>
"""

from __future__ import annotations

import os
import pathlib
import sys

import mlx.core as mx
from mlx_lattice import SparseTensor, models


def write(folder: str | os.PathLike[str], depth: int = 18, width: int = 8, seed: int = 0) -> None:
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    mx.random.seed(seed)
    steps = mx.arange(64 * 64)
    x, y = steps // 64 - 32, steps % 64 - 32
    z = (4 * mx.sin(x / 9.0) + 3 * mx.cos(y / 7.0)).astype(mx.int32)  # a hilly surface
    scan = SparseTensor(
        mx.stack([mx.zeros_like(x), x, y, z], axis=1), mx.random.normal((64 * 64, 4))
    )
    model = models.MinkUNet(4, 6, depth=depth, width=width)
    for _ in range(3):  # running statistics move
        mx.eval(model(scan).feats, model.parameters())
    model.eval()
    model.save(folder / "net.safetensors")
    logits = model(scan).feats
    mx.save_safetensors(
        str(folder / "scan.safetensors"),
        {"coords": scan.coords, "feats": scan.feats, "logits": logits},
    )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write(sys.argv[1])
