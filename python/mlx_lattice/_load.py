"""Loads the extension, or says what to install.

MLX changes its C++ ABI in patch releases, and a wrong pair ends in undefined symbols or worse.
So the version of the build is compared with the running version before the extension is loaded.
"""

import importlib

from . import _build


def cure(built, running):
    """The sentence that a user with the wrong MLX needs."""
    return (
        f"mlx_lattice {_build.VERSION} was built for MLX {built}, found MLX {running}. "
        f"Install the MLX it expects: pip install 'mlx[cpu]=={built}' (macOS: 'mlx=={built}'); "
        "or build mlx_lattice for the MLX you have: pip install --no-build-isolation --no-deps "
        "-C cmake.define.LATTICE_MLX_ANY_VERSION=ON . in its source folder."
    )


def release(version):
    """The version without the date of a development build: 0.33.0.dev20260101+abc -> 0.33.0."""
    return version.split("+")[0].split(".dev")[0]


def load_extension(name="mlx_lattice._ext", built=_build.MLX_VERSION):
    try:
        import mlx.core as mx  # first: it loads libmlx and registers mx.array
    except ImportError as error:
        raise ImportError(cure(built, "none")) from error
    running = mx.__version__
    if release(running) != built:
        raise ImportError(cure(built, running))
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{error}\n{cure(built, running)}") from error
