"""Installing the package leaves the MLX of the user alone, also one that is built for CUDA.

On Linux mlx[cpu], mlx[cuda12] and mlx[cuda13] all own mlx/lib/libmlx.so: the last one that pip
installs wins. So the package asks for plain mlx. Small stand-ins have the names and files of MLX's
packages; ours has the metadata of the build that is installed.
"""

import hashlib
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import distribution

import mlx.core as mx
import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="MLX has these extras on Linux"),
]

OWN = distribution("lattice-mlx")
VERSION = mx.__version__
OWNERS = {"cpu": "mlx-cpu", "cuda12": "mlx-cuda-12", "cuda13": "mlx-cuda-13"}


def wheel(folder, name, version, metadata="", files=None):
    """A wheel of nothing but these files and this metadata."""
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}"
    content = {
        **(files or {}),
        f"{info}/METADATA": head if not metadata.startswith("Metadata-Version") else metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    content[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*content, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as archive:
        for path, text in content.items():
            archive.writestr(path, text)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """A folder of wheels: MLX with its three libraries, NumPy, this package and a careless one."""
    folder = tmp_path_factory.mktemp("wheels")
    extras = "".join(
        f"Provides-Extra: {extra}\nRequires-Dist: {owner}=={VERSION}; extra == '{extra}'\n"
        for extra, owner in OWNERS.items()
    )
    wheel(folder, "mlx", VERSION, extras, {"mlx/__init__.py": ""})
    for owner in OWNERS.values():
        wheel(folder, owner, VERSION, files={"mlx/lib/libmlx.so": owner})
    wheel(folder, "numpy", "2.0.0", files={"numpy/__init__.py": ""})
    wheel(folder, "lattice-mlx", OWN.version, OWN.read_text("METADATA"), {"mlx_lattice/a.py": ""})
    wheel(folder, "careless", "1.0", f"Requires-Dist: mlx[cpu]=={VERSION}\n")
    return folder


@pytest.fixture
def environment(shelf, tmp_path):
    """Installs into a new environment, and tells the hash of the library of MLX in it."""
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"

    def install(*what):
        subprocess.run(
            [sys.executable, "-m", "pip", "--python", python, "install", "--no-index"]
            + ["--quiet", "--disable-pip-version-check", "--find-links", shelf, *what],
            check=True,
        )
        found = next((tmp_path / "env").glob("lib/python*/site-packages/mlx/lib/libmlx.so"), None)
        return found and hashlib.sha256(found.read_bytes()).hexdigest()

    return install


def test_a_library_for_cuda_stays(environment):
    before = environment("mlx[cuda13]")
    assert before == hashlib.sha256(b"mlx-cuda-13").hexdigest()
    assert environment("lattice-mlx") == before
    assert environment("careless") != before  # what a requirement of mlx[cpu] would do


def test_the_extras_choose_the_library(environment):
    assert environment("lattice-mlx") is None
    for extra, owner in OWNERS.items():
        assert environment(f"lattice-mlx[{extra}]") == hashlib.sha256(owner.encode()).hexdigest()
