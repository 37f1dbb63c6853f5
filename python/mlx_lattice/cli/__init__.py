"""The command line `mlx-lattice`: one module per group of commands; `main` reads the arguments."""

from .main import main

__all__ = ["main"]
