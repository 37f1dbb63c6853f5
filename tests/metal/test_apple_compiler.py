"""Apple's compiler takes the text of every Metal kernel that the library launches.

It needs Xcode, but no GPU: a host that computes nothing stands in for it and collects the texts.
"""

import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mlx
import mlx.core as mx
import pytest
from metal.host import standing_in
from metal.texts import launch_all

PRELUDE = '#include "mlx/backend/metal/kernels/utils.h"\n'  # what MLX puts before each kernel
INCLUDE = f"{next(iter(mlx.__path__))}/include"


def texts():
    """Kernel texts of all routes, those of the tensor unit included."""
    found = {}

    def host(launch, _inputs):
        found.setdefault(launch.text, launch.name)
        return [mx.zeros(shape, dtype) for shape, dtype in launch.outputs]

    with standing_in(host, tier="neural_accelerator"):
        launch_all("metal")
    return list(found)


def test_texts_are_collected():
    assert len(texts()) > 100


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("xcrun") is None, reason="no Xcode here")
@pytest.mark.parametrize("standard", ["metal3.1", "metal3.2", "metal4.0"])
def test_every_kernel_compiles(standard, tmp_path):
    def compiled(text, name="kernel"):
        path = Path(tmp_path / f"{name}.metal")
        path.write_text(PRELUDE + text)
        command = ["xcrun", "metal", "-fsyntax-only", f"-std={standard}", "-I", INCLUDE, str(path)]
        return subprocess.run(command, capture_output=True, text=True)

    if compiled("").returncode:
        pytest.skip(f"this Xcode has no {standard}")
    # Tensor operations are new in Metal 4.
    chosen = [t for t in texts() if standard == "metal4.0" or "MetalPerformancePrim" not in t]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        done = pool.map(compiled, chosen, map(str, range(len(chosen))))
        assert [run.stderr for run in done if run.returncode] == []


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("xcrun") is None, reason="no Xcode here")
def test_neighboring_values_are_loaded_at_once(tmp_path):
    """In the code that Apple's compiler makes of a tile kernel with 8 channels per load."""
    text = next(t for t in texts() if "conv_tiles_sorted" in t and "_in8_out8" in t)
    path = Path(tmp_path / "kernel.metal")
    path.write_text(PRELUDE + text)
    command = ["xcrun", "metal", "-S", "-emit-llvm", "-O2", "-I", INCLUDE, str(path), "-o", "-"]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    loads = re.findall(r"= load (.+?), ", made.stdout)
    assert any(found.startswith(("<4 x", "<8 x")) for found in loads), sorted(set(loads))
