"""The command line `mlx-lattice`: one module per group of commands; `main` reads the arguments."""

import sys as _sys

from .. import _help
from .main import main

__all__ = ["main"]

_help.install(_sys.modules[__name__], "cli")
