"""Recipes that come with the package: `mlx-lattice train --recipe NAME --data PATH`.

Docs/training.md.
"""
