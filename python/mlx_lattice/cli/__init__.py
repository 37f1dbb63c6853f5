"""The command line `mlx-lattice`: one module per group of commands. `main.py` reads the arguments."""
