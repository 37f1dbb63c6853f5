"""Installations that cannot work: each one gets its own sentence with the cure, and no other."""

import shutil
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import mlx_lattice
import pytest
from mlx_lattice import _load

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(mlx_lattice.__file__).parent
SITE = Path(mx.__file__).parents[1]  # where MLX is
VERSION, MLX = mlx_lattice.__version__, mx.__version__
INSTALL = (
    f"pip install mlx=={MLX}"
    if sys.platform == "darwin"
    else f"pip install 'mlx[cpu]=={MLX}' "
    f"(with an NVIDIA GPU: 'mlx[cuda12]=={MLX}' or 'mlx[cuda13]=={MLX}')"
)


@pytest.fixture
def copy(tmp_path):
    """The package alone, in a folder of its own: MLX is not beside it."""
    ignored = shutil.ignore_patterns("__pycache__", "include", "share")
    shutil.copytree(PACKAGE, tmp_path / "mlx_lattice", ignore=ignored)
    return tmp_path / "mlx_lattice"


def last_line(copy, *paths):
    """The last line that `import mlx_lattice` prints with only these folders; "" when it works."""
    paths = [str(copy.parent), *map(str, paths)]
    code = f"import sys; sys.path[:0] = {paths!r}; import mlx_lattice"
    result = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True
    )
    assert (result.returncode == 0) == (result.stderr == "")
    return result.stderr.strip().split("\n")[-1]


def test_a_good_copy(copy):
    assert last_line(copy, SITE) == ""


def test_no_mlx(copy):
    assert last_line(copy) == (
        f"ImportError: [mlx_lattice] found no MLX; expected MLX {MLX}. Install it: {INSTALL}."
    )


def test_mlx_without_its_library(copy, tmp_path):
    mlx = tmp_path / "other" / "mlx"
    mlx.mkdir(parents=True)
    core = next(p for p in Path(mx.__file__).parent.glob("core.*") if p.suffix == ".so")
    shutil.copy(core, mlx)
    assert last_line(copy, tmp_path / "other") == (
        "ImportError: [mlx_lattice] found the Python part of MLX without its library libmlx. "
        f"Install the library: {INSTALL}."
    )


def test_the_command_prints_one_line(copy):
    """`pip install .` without an extra gives no libmlx: no traceback stands before the cure."""
    result = subprocess.run(
        [sys.executable, "-S", "-m", "mlx_lattice", "info"],
        cwd=copy.parent,
        env={"PYTHONPATH": str(copy.parent)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1
    cure = f"expected MLX {MLX}. Install it: {INSTALL}."
    assert result.stderr == f"[mlx_lattice] found no MLX; {cure}\n"


@pytest.mark.parametrize(
    "reason",  # of mlx[cuda13] 0.32.4: without a driver, and with a driver that does not answer
    [
        "libcuda.so.1: cannot open shared object file: No such file or directory",
        "cudaMallocManaged(&data, size) failed: CUDA driver version is insufficient for CUDA "
        "runtime version",
    ],
)
def test_mlx_for_cuda_without_a_driver(copy, tmp_path, reason):
    mlx = tmp_path / "other" / "mlx"
    mlx.mkdir(parents=True)
    (mlx / "core.py").write_text(f"raise ImportError({reason!r})\n")
    assert last_line(copy, tmp_path / "other") == (
        "ImportError: [mlx_lattice] found the MLX for CUDA, which cannot start here: "
        f"{reason}. Install a driver of NVIDIA that is new enough; without an NVIDIA GPU use the "
        "MLX for the CPU: pip uninstall mlx-cuda-12 mlx-cuda-13, then pip install "
        f"--force-reinstall 'mlx[cpu]=={MLX}'."
    )


def test_another_mlx(copy):
    build = copy / "_build.py"
    build.write_text(build.read_text().replace(MLX, "0.0.1"))
    assert last_line(copy, SITE) == (
        f"ImportError: [mlx_lattice] lattice-mlx {VERSION} was built for MLX 0.0.1, "
        f"found MLX {MLX}. "
        f"Install the MLX that it expects: {INSTALL.replace(MLX, '0.0.1')}; "
        "or build it for the MLX you have, in its source folder: pip install --no-build-isolation "
        "--no-deps -C cmake.define.LATTICE_MLX_ANY_VERSION=ON ."
    )


def test_development_builds_of_mlx():
    assert _load.release("0.33.0.dev20260101+abc") == "0.33.0"
    assert _load.release("0.32.4") == "0.32.4"


def write_distribution(folder, *files):
    info = folder / "mlx_lattice-9.9.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mlx-lattice\nVersion: 9.9.9\n")
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))


def test_another_mlx_lattice(copy):
    write_distribution(copy.parent, "mlx_lattice/__init__.py", "mlx_lattice/other.py")
    assert last_line(copy, SITE) == (
        "ImportError: [mlx_lattice] found the distribution 'mlx-lattice', an unrelated project "
        "with the same import name; its files and those of lattice-mlx are mixed. Remove both and "
        "install one: pip uninstall mlx-lattice lattice-mlx, then pip install 'lattice-mlx[cpu]'."
    )


def test_a_distribution_with_other_files_is_no_matter(copy):
    write_distribution(copy.parent, "something_else/__init__.py")
    assert last_line(copy, SITE) == ""


def test_extension_that_cannot_be_loaded(copy):
    extension = next(copy.glob("_ext.*.so"))
    extension.write_bytes(b"not a library")
    line = last_line(copy, SITE)
    begin = f"ImportError: [mlx_lattice] the compiled part of lattice-mlx {VERSION} "
    end = (
        ". Install it anew: pip install --force-reinstall --no-deps lattice-mlx; a build of your "
        "own needs the libraries that it was linked with, such as Highway (Debian: libhwy1)."
    )
    assert (
        line.startswith(begin + "cannot be loaded: ")
        and line.endswith(end)
        and extension.name in line
    )
    assert "built for MLX" not in line  # the versions agree: they are not the cause


def test_no_highway_at_build_time(tmp_path):
    """CMake stops with the cure, without a download."""
    if shutil.which("cmake") is None:
        pytest.skip("no cmake")
    hidden = ["-DCMAKE_DISABLE_FIND_PACKAGE_hwy=ON", "-DCMAKE_DISABLE_FIND_PACKAGE_PkgConfig=ON"]
    command = ["cmake", "-S", str(ROOT), "-B", str(tmp_path), "-DLATTICE_KERNELS_ONLY=ON", *hidden]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode != 0
    assert (
        "Highway, the vector library that lattice needs, is not installed. Install it: `apt-get "
        "install libhwy-dev` (Debian, Ubuntu), `dnf install highway-devel` (Fedora) or `brew "
        "install highway` (macOS)."
    ) in " ".join(result.stderr.split())
