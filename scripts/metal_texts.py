"""Writes the text of every Metal kernel that the self test launches: metal_texts.py FOLDER

The text is what MLX would compile. No GPU is needed: a host that computes nothing stands in for it.
scripts/check_metal.sh gives the files to Apple's compiler.
"""

import hashlib
import pathlib
import sys

import mlx.core as mx
from mlx_lattice import _ext

PRELUDE = '#include "mlx/backend/metal/kernels/utils.h"\n'  # what MLX puts before each kernel


def main(folder: str) -> None:
    texts: dict[str, str] = {}

    def host(launch, _inputs):
        texts.setdefault(launch.text, launch.name)
        return [mx.zeros(shape, dtype) for shape, dtype in launch.outputs]

    _ext.set_gpu_host(host)
    _ext.force_tensor_ops("neural_accelerator")  # rows of every tier
    _ext.selftest_rows("gpu", "metal.")
    _ext.force_tensor_ops(None)
    _ext.set_gpu_host(None)
    target = pathlib.Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    for text, name in texts.items():
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        (target / f"{name[:80]}_{digest}.metal").write_text(PRELUDE + text)
    print(f"{len(texts)} kernels in {target}")
    if not texts:
        sys.exit("[metal_texts] found no kernel")


if __name__ == "__main__":
    main(*sys.argv[1:])
