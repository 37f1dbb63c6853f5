"""Pictures of point clouds: one HTML page that works offline, a PNG, or a frame of a notebook.

    viewer.write("scan.html", cloud)
    viewer.write("compare.html", viewer.compare(points, truth, prediction), classes=["road", "car"])
    viewer.show(cloud)                       # in a notebook

Panels stand side by side under one camera and share colors and legends. A PNG needs Pillow.
"""

from __future__ import annotations

import os as _os
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from ..core._checks import numpy_array as _numpy_array
from ..core._checks import path as _check_path
from ..io.atomic_files import atomic_file as _atomic_file
from ..io.atomic_files import write_bytes as _write_bytes
from ..io.cloud import PointCloud as _PointCloud
from .boxes import box_classes, box_panel, compare_boxes, with_boxes
from .html_page import page
from .notebook_frame import Frame, show
from .scene import Panel
from .scene import Panels as _Panels

if _TYPE_CHECKING:
    from PIL import Image as _Image

    from ..core.types import ArrayLike as _ArrayLike

__all__ = [
    "Frame",
    "Panel",
    "box_classes",
    "box_panel",
    "compare",
    "compare_boxes",
    "page",
    "picture",
    "show",
    "with_boxes",
    "write",
]


def compare(
    points: _PointCloud | _ArrayLike, truth: _ArrayLike, prediction: _ArrayLike
) -> list[Panel]:
    """Three panels of one cloud: prediction, truth and errors.

    Args:
        points: Positions (N, 3), or a `PointCloud` whose columns are kept.
        truth: True class of each point, integers (N,). Points with a negative class do not count.
        prediction: Predicted class of each point, integers (N,).

    Returns:
        Panels for `page`, `picture`, `write` and `show`. A page of them also has a table of IoU.

    Raises:
        ValueError: The three do not have the same number of rows.

    Examples:
        >>> import numpy as np
        >>> from mlx_lattice import viewer
        >>> panels = viewer.compare(np.random.rand(4, 3), [0, 0, 1, 1], [0, 1, 1, 1])
        >>> [panel.title for panel in panels]
        ['prediction', 'truth', 'errors']
    """
    cloud = (
        points
        if isinstance(points, _PointCloud)
        else _PointCloud(_numpy_array("compare", "points", points))
    )
    pairs = {
        "label": _numpy_array("compare", "prediction", prediction),
        "truth": _numpy_array("compare", "truth", truth),
    }
    for name, values in pairs.items():
        if values.dtype.kind not in "iub" or values.shape != (len(cloud),):
            raise ValueError(
                f"[compare] {'prediction' if name == 'label' else name}: "
                f"found {values.dtype} of shape "
                f"{values.shape}, expected integers of shape ({len(cloud)},)"
            )
    joined = _PointCloud(cloud.points, {**cloud.columns, **pairs})
    return [
        Panel(joined, "prediction", "label"),
        Panel(joined, "truth", "truth"),
        Panel(joined, "errors", "errors"),
    ]


def picture(panels: _Panels, **options: _Any) -> _Image.Image:
    """A Pillow image of panels, seen from the direction in which the page begins.

    Args:
        panels: As for `page`.
        **options: color, classes, title, limit, point_size as for `page`; `size` (width, height) in
            pixels, by default (1600, 900); `theme`, "dark" or "light".

    Returns:
        A `PIL.Image.Image`.

    Raises:
        ImportError: Pillow is not installed.
        ValueError: An option with a value that is not allowed.
    """
    try:
        from .raster import render
    except ImportError as error:
        raise ImportError(
            f"{error}; a PNG needs Pillow: pip install 'lattice-mlx[view]' (or pip install pillow)"
        ) from None
    return render(panels, **options)


def write(path: str | _os.PathLike[str], panels: _Panels, **options: _Any) -> None:
    """Writes a page or a picture.

    Args:
        path: A name that ends in .html or .png.
        panels: As for `page`.
        **options: Options of `page`, or of `picture` for a PNG.

    Raises:
        ValueError: Another extension, or an option with a value that is not allowed.

    Examples:
        >>> import os, tempfile
        >>> import numpy as np
        >>> from mlx_lattice import viewer
        >>> path = os.path.join(tempfile.mkdtemp(), "cloud.html")
        >>> viewer.write(path, np.random.rand(100, 3))
        >>> os.path.getsize(path) > 1000
        True
    """
    _check_path("write", path)
    extension = _os.path.splitext(_os.fsdecode(path))[1].lower()
    if extension in (".html", ".htm"):
        text = page(panels, **options)
        _write_bytes(path, text.encode("utf-8", "replace"))
    elif extension == ".png":
        image = picture(panels, **options)
        with _atomic_file(path) as file:
            image.save(file, "PNG")
    else:
        raise ValueError(f"[write] path {path}: extension {extension!r}, expected .html or .png")
