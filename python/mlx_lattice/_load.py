"""Loads the extension, or says what is wrong with the installation and how to fix it.

Checks, in this order:

1. another distribution that owns the folder mlx_lattice/: an older, unrelated project has the same
   import name;
2. no MLX;
3. MLX without its library libmlx: on Linux it comes with one of the extras cpu, cuda12, cuda13;
4. the MLX for CUDA on a machine without a driver of NVIDIA, or with an old one;
5. another version of MLX: MLX changes its C++ ABI in patch releases, so that a wrong pair ends in
   undefined symbols or worse;
6. an extension that the system cannot load.
"""

import importlib
import importlib.util
import os
import sys
from types import ModuleType

from . import _build

OTHER = "mlx-lattice"  # the distribution of the unrelated project
OUR_FILE = "mlx_lattice/_build.py"  # a file that only this project installs
SITE_PACKAGES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def check_distribution(folder: str = SITE_PACKAGES) -> None:
    """Raises ImportError when the files of the unrelated project and of this one are mixed."""
    name = OTHER.replace("-", "_")
    for entry in os.listdir(folder):
        record = os.path.join(folder, entry, "RECORD")
        if not entry.startswith(f"{name}-") or not os.path.isfile(record):
            continue
        with open(record, encoding="utf-8") as file:
            files = file.read()
        if "mlx_lattice/__init__.py" in files and OUR_FILE not in files:
            raise ImportError(
                f"[mlx_lattice] found the distribution '{OTHER}', an unrelated project with the "
                "same import name; its files and those of lattice-mlx are mixed. "
                "Remove both and install one: "
                f"pip uninstall {OTHER} lattice-mlx, then pip install 'lattice-mlx[cpu]'."
            )


def install_mlx(version: str) -> str:
    """The command that brings MLX with its library to this system."""
    if sys.platform == "darwin":
        return f"pip install mlx=={version}"
    return (
        f"pip install 'mlx[cpu]=={version}' "
        f"(with an NVIDIA GPU: 'mlx[cuda12]=={version}' or 'mlx[cuda13]=={version}')"
    )


def missing_mlx(version: str) -> str:
    return (
        f"[mlx_lattice] found no MLX; expected MLX {version}. Install it: {install_mlx(version)}."
    )


def missing_libmlx(version: str) -> str:
    return (
        "[mlx_lattice] found the Python part of MLX without its library libmlx. "
        f"Install the library: {install_mlx(version)}."
    )


def missing_driver(version: str, error: ImportError) -> str:
    return (
        f"[mlx_lattice] found the MLX for CUDA, which cannot start here: {error}. "
        "Install a driver of NVIDIA that is new enough; without an NVIDIA GPU use the MLX for the "
        "CPU: pip uninstall mlx-cuda-12 mlx-cuda-13, "
        f"then pip install --force-reinstall 'mlx[cpu]=={version}'."
    )


def wrong_mlx(built: str, running: str) -> str:
    return (
        f"[mlx_lattice] lattice-mlx {_build.VERSION} was built for MLX {built}, "
        f"found MLX {running}. "
        f"Install the MLX that it expects: {install_mlx(built)}; "
        "or build it for the MLX you have, in its source folder: "
        "pip install --no-build-isolation --no-deps -C cmake.define.LATTICE_MLX_ANY_VERSION=ON ."
    )


def broken_extension(error: ImportError) -> str:
    return (
        f"[mlx_lattice] the compiled part of lattice-mlx {_build.VERSION} cannot be loaded: "
        f"{error}. "
        "Install it anew: pip install --force-reinstall --no-deps lattice-mlx; "
        "a build of your own needs the libraries that it was linked with, "
        "such as Highway (Debian: libhwy1)."
    )


def release(version: str) -> str:
    """The version without the date of a development build: 0.33.0.dev20260101+abc -> 0.33.0."""
    return version.split("+")[0].split(".dev")[0]


def _load_mlx(built: str) -> str:
    """Imports mlx.core, which loads libmlx and registers mx.array; returns its version."""
    try:
        found = importlib.util.find_spec("mlx.core")
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise ImportError(missing_mlx(built))
    try:
        return str(importlib.import_module("mlx.core").__version__)
    except ImportError as error:
        if "libmlx" in str(error):
            raise ImportError(missing_libmlx(built)) from None
        if "cuda" in str(error).lower():
            raise ImportError(missing_driver(built, error)) from None
        raise


def load_or_explain() -> ModuleType:
    """The extension. If it cannot be loaded, the command ends with one line; an import raises."""
    try:
        return load_extension()
    except ImportError as error:
        # While the package is imported, the name of a program that `python -m` runs is "-m".
        if sys.argv[:1] == ["-m"] or os.path.basename(sys.argv[0]) == "mlx-lattice":
            raise SystemExit(str(error)) from None
        raise


def load_extension(name: str = "mlx_lattice._ext", built: str = _build.MLX_VERSION) -> ModuleType:
    check_distribution()
    running = _load_mlx(built)
    if release(running) != built:
        raise ImportError(wrong_mlx(built, running))
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if str(error).startswith("["):  # the extension was loaded and names the mistake
            raise
        raise ImportError(broken_extension(error)) from None
