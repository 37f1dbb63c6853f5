"""The HTML page: template page.html with the scene as JSON and base64 buffers inside. No address is ever fetched."""

import base64
import html
import json
from pathlib import Path

import numpy as np

from .layers import BACKGROUND, STOPS, scene

TEMPLATE = Path(__file__).with_name("page.html")


def page(panels, *, color=None, classes=None, title="", limit=1_000_000, point_size=None):
    """The text of the page. limit: points of all panels together; a smaller choice is stated on the page.

    color: the layer to begin with, "height", "rgb" or a column. classes: names of its values, or of those of `label`.
    """
    s = scene(panels, color, classes, limit)
    title = title or " / ".join(p.title for p in s.panels if p.title) or "point cloud"
    data = {
        "title": title,
        "radius": s.radius,
        "center": s.center.tolist(),
        "first": s.first,
        "pointSize": point_size or 2.0,
        "stops": STOPS.tolist(),
        "background": BACKGROUND,
        "layers": [
            {"name": x.name, "kind": x.kind, "low": x.low, "high": x.high, "entries": x.entries}
            for x in s.layers
        ],
        "panels": [
            {
                "title": p.title,
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
            for p in s.panels
        ],
    }
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return (
        TEMPLATE.read_text(encoding="utf-8")
        .replace("__TITLE__", html.escape(title), 1)
        .replace("__DATA__", text, 1)
    )


def _packed(layer, values):
    """Bytes of colors, class indices in the smallest size, scalars in 16 bits between low and high (NaN is low)."""
    if layer.kind == "rgb":
        return values
    if layer.kind == "class":
        return values.astype("<u2")
    t = (values - layer.low) / max(layer.high - layer.low, 1e-12)
    return np.rint(np.clip(np.nan_to_num(t, posinf=1, neginf=0), 0, 1) * 65535).astype("<u2")


def _text(array):
    return base64.b64encode(np.ascontiguousarray(array)).decode("ascii")
