"""Pictures of point clouds: one HTML page that works offline, or a PNG.

    viewer.write("scan.html", viewer.Panel(cloud))
    viewer.write("compare.html", [Panel(truth, "truth"), Panel(predicted, "prediction")], color="label", classes={0: "road", 1: "car"})

Panels stand side by side under one camera and share colors and legends. Needs NumPy; a PNG also Pillow.
"""

try:
    import numpy as _numpy  # noqa: F401
except ImportError:
    raise ImportError(
        "mlx_lattice.viewer needs NumPy: pip install 'mlx-lattice[view]' (or pip install numpy)"
    ) from None

import os as _os

from .layers import Panel
from .web import page

__all__ = ["Panel", "page", "picture", "write"]


def picture(panels, **options):
    """A Pillow image: picture(panels, color=None, classes=None, title="", limit=5_000_000, size=(1600, 900), point_size=None)."""
    try:
        from .raster import render
    except ImportError as error:
        raise ImportError(
            f"{error}; a PNG needs Pillow: pip install 'mlx-lattice[view]' (or pip install pillow)"
        ) from None
    return render(panels, **options)


def write(path, panels, **options):
    """Writes .html or .png by extension. options: color, classes, title, limit, point_size; size of a PNG."""
    extension = _os.path.splitext(_os.fspath(path))[1].lower()
    if extension in (".html", ".htm"):
        text = page(panels, **options)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    elif extension == ".png":
        picture(panels, **options).save(path)
    else:
        raise ValueError(f"{path}: extension {extension!r}, expected .html or .png")
