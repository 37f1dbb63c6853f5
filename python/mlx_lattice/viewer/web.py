"""The HTML page: page.html with the scene inside as JSON and base64; no address is ever fetched."""

from __future__ import annotations

import base64
import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from .layers import AZIMUTH, BACKGROUNDS, STOPS, TILT, Classes, Drawn, Layer, Panels, Scene, scene

TEMPLATE = Path(__file__).with_name("page.html")
THEMES = ("auto", "dark", "light")


def page(
    panels: Panels,
    *,
    color: str | None = None,
    classes: Classes = None,
    title: str = "",
    limit: int = 1_000_000,
    point_size: float | None = None,
    theme: str = "auto",
    unit: str = "",
) -> str:
    """The text of one HTML page that draws panels side by side and works offline.

    Args:
        panels: A `Panel`, `PointCloud`, `SparseTensor` or array (N, 3), or up to 16 of them.
        color: The layer to begin with: "height", "rgb", "errors" or the name of a column.
        classes: Names of the values of `color` or of `label`: a list, {value: name} or
            {value: (name, (r, g, b))}.
        title: The heading of the page.
        limit: The number of points of all clouds together. The page says when it shows fewer.
        point_size: The diameter of a point in pixels.
        theme: "auto" (as the browser is set), "dark" or "light".
        unit: The unit of the positions, for the scale bar, such as "m".

    Returns:
        The text of the page.

    Raises:
        ValueError: A layer, theme, limit or number of panels that does not exist.

    Example:
        >>> import numpy as np
        >>> from mlx_lattice import viewer
        >>> viewer.page(np.random.rand(100, 3)).startswith("<!DOCTYPE html>")
        True
    """
    if theme not in THEMES:
        raise ValueError(f"[viewer] theme: found {theme!r}, expected one of {', '.join(THEMES)}")
    if point_size is not None and not 0 < point_size <= 64:
        raise ValueError(f"[viewer] point_size: found {point_size}, expected 0 to 64 pixels")
    s = scene(panels, color, classes, limit)
    title = title or " / ".join(p.title for p in s.panels if p.title) or "point cloud"
    data = {
        "title": title,
        "radius": s.radius,
        "center": s.center.tolist(),
        "first": s.first,
        "view": [float(AZIMUTH), float(TILT)],
        "theme": theme,
        "unit": unit,
        "pointSize": point_size or 2.0,
        "stops": STOPS.tolist(),
        "backgrounds": BACKGROUNDS,
        "scores": s.scores,
        "layers": [
            {"name": x.name, "kind": x.kind, "low": x.low, "high": x.high, "entries": x.entries}
            for x in s.layers
        ],
        "panels": _panels(s),
    }
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    # In one pass: what is put in is not searched again.
    values = {"__TITLE__": html.escape(title), "__DATA__": text}
    return re.sub(
        "__TITLE__|__DATA__", lambda m: values[m[0]], TEMPLATE.read_text(encoding="utf-8")
    )


def _panels(s: Scene) -> list[dict[str, Any]]:
    """The panels. A panel that shows the cloud of an earlier panel refers to it by its number."""
    made: list[dict[str, Any]] = []
    first: dict[int, int] = {}
    for i, p in enumerate(s.panels):
        head = {"title": p.title, "color": p.color}
        if p.cloud in first:
            made.append({**head, "same": first[p.cloud]})
        else:
            first[p.cloud] = i
            made.append({**head, **_buffers(s, p)})
    return made


def _buffers(s: Scene, p: Drawn) -> dict[str, Any]:
    return {
        "shown": len(p.points),
        "total": p.total,
        "bad": p.bad,
        "points": _text(p.points.astype("<f4")),
        "values": {
            x.name: _text(_packed(x, p.values[x.name]))
            for x in s.layers
            if x.name in p.values and x.kind != "height"
        },
    }


def _packed(layer: Layer, values: np.ndarray) -> np.ndarray:
    """Bytes of a layer: colors, class indices in the smallest size, or scalars in 16 bits.

    Scalars lie between low and high; NaN is low.
    """
    if layer.kind == "rgb":
        return values
    if layer.kind == "class":
        return values.astype("<u2")
    t = (values - layer.low) / max(layer.high - layer.low, 1e-12)
    return np.rint(np.clip(np.nan_to_num(t, posinf=1, neginf=0), 0, 1) * 65535).astype("<u2")


def _text(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array).data).decode("ascii")
