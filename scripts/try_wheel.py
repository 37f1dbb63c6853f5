"""Runs the Python samples of the README with an installed wheel: try_wheel.py README.md

Also fails when a compiler is on PATH or when Highway comes from the system and not from the wheel.
"""

import pathlib
import re
import shutil
import sys

for name in ("cc", "c++", "gcc", "g++", "clang", "clang++"):
    assert shutil.which(name) is None, f"found the compiler {name} on PATH; expected none"

import mlx_lattice  # noqa: E402

folder = pathlib.Path(mlx_lattice.__file__).resolve().parents[1]
maps = pathlib.Path("/proc/self/maps")
if maps.exists():
    loaded = set(re.findall(r"(/\S*(?:libhwy|liblattice|libmlx)\S*)", maps.read_text()))
    outside = sorted(path for path in loaded if folder not in pathlib.Path(path).resolve().parents)
    assert any("liblattice" in path for path in loaded), loaded
    assert not outside, f"loaded from outside of the environment: {outside}"

samples = re.findall(r"```python\n(.*?)```", pathlib.Path(sys.argv[1]).read_text(), re.DOTALL)
assert samples, "found no Python sample"
for sample in samples:
    exec(compile(sample, sys.argv[1], "exec"), {})
print(f"{len(samples)} samples of {sys.argv[1]} ran with lattice-mlx {mlx_lattice.__version__}")
