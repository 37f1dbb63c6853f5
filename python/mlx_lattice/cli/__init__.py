"""The command line `mlx-lattice`: one module per command or group; `main` reads the arguments."""

from .main import main

__all__ = ["main"]
