"""The HTML page: page.html with the scene inside as JSON and base64; no address is ever fetched."""

from __future__ import annotations

import base64
import html
import json
import re
from pathlib import Path

import numpy as np

from ..core._checks import one_of
from .scene import (
    AZIMUTH,
    BACKGROUNDS,
    STOPS,
    TILT,
    Classes,
    Drawn,
    Layer,
    Panels,
    Scene,
    check_point_size,
    scene,
    text,
)

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
    """
    one_of("viewer", "theme", theme, THEMES)
    size = check_point_size(point_size)
    s = scene(panels, color, classes, limit)
    titles = " / ".join(p.title for p in s.panels if p.title)
    title = text("title", title) or titles or "point cloud"
    facts = {"title": title, "theme": theme, "unit": text("unit", unit), "pointSize": size}
    data = {**facts, **_scene_data(s)}
    inside = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    # In one pass: what is put in is not searched again.
    values = {"__TITLE__": html.escape(title), "__DATA__": inside}
    return re.sub(
        "__TITLE__|__DATA__", lambda m: values[m[0]], TEMPLATE.read_text(encoding="utf-8")
    )


def _scene_data(s: Scene) -> dict[str, object]:
    """The data of the page, under the names that its script reads."""
    return {
        "radius": s.radius,
        "center": s.center.tolist(),
        "first": s.first,
        "view": [float(AZIMUTH), float(TILT)],
        "stops": STOPS.tolist(),
        "backgrounds": BACKGROUNDS,
        "scores": s.scores,
        "layers": [
            {"name": x.name, "kind": x.kind, "low": x.low, "high": x.high, "entries": x.entries}
            for x in s.layers
        ],
        "panels": _panels(s),
    }


def _panels(s: Scene) -> list[dict[str, object]]:
    """The panels. A panel that shows the cloud of an earlier panel refers to it by its number."""
    made: list[dict[str, object]] = []
    first: dict[int, int] = {}
    for i, p in enumerate(s.panels):
        head = {"title": p.title, "color": p.color, "marks": p.marks}
        if p.cloud in first:
            made.append({**head, "same": first[p.cloud]})
        else:
            first[p.cloud] = i
            made.append({**head, **_buffers(s, p)})
    return made


def _buffers(s: Scene, p: Drawn) -> dict[str, object]:
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
    """Bytes of a layer: colors, vectors, class indices in the smallest size, or 16-bit scalars.

    Scalars lie between low and high; NaN is low.
    """
    if layer.kind in ("rgb", "similar"):
        return values
    if layer.kind == "class":
        return values.astype("<u2")
    t = (values - layer.low) / max(layer.high - layer.low, 1e-12)
    return np.rint(np.clip(np.nan_to_num(t, posinf=1, neginf=0), 0, 1) * 65535).astype("<u2")


def _text(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array).data).decode("ascii")
