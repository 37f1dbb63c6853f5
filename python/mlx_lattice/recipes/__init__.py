"""Recipes that come with the package: `mlx-lattice train --recipe NAME --data PATH`.

The page Training explains them. The package holds files only.
"""

__all__: list[str] = []
