"""From clouds to what can be drawn: sub-sampled points around one center, and layers, the ways to color them.

    height  z between its 1st and 99th percentile
    rgb     the column color
    scalar  a column of numbers between its percentiles
    class   an integer column with at most 256 values, one color each, with names
Layers of one name share range, colors and legend over all panels, so that pictures can be compared.
"""

from dataclasses import dataclass

import numpy as np

from ..io.cloud import PointCloud, color8

# From low to high.
STOPS = np.array(
    [
        (38, 52, 97),
        (45, 105, 153),
        (52, 160, 164),
        (122, 199, 125),
        (235, 205, 92),
        (242, 131, 68),
        (214, 61, 84),
    ],
    float,
)
BACKGROUND = (13, 17, 27)
# Classes: 20 colors that differ also for the color-blind neighbors in the list; more classes repeat them darker.
CLASSES = (
    (86, 156, 214),
    (230, 159, 0),
    (0, 158, 115),
    (213, 94, 0),
    (204, 121, 167),
    (240, 228, 66),
    (148, 103, 189),
    (140, 200, 90),
    (227, 119, 194),
    (188, 143, 100),
    (23, 190, 207),
    (214, 61, 84),
    (170, 170, 170),
    (255, 187, 120),
    (152, 223, 138),
    (197, 176, 213),
    (255, 152, 150),
    (199, 199, 120),
    (120, 120, 220),
    (90, 180, 160),
)
MOST_CLASSES = 256


@dataclass(frozen=True)
class Panel:
    """One cloud of a page: a PointCloud or an (N, 3) array, and its title."""

    cloud: object
    title: str = ""


@dataclass(frozen=True)
class Layer:
    name: str
    kind: str
    low: float = 0.0
    high: float = 0.0
    entries: tuple = ()  # of classes: (value, name, color)


@dataclass(frozen=True)
class Drawn:
    """A panel ready to be drawn: points (n, 3) float32 around the scene's center; values by layer."""

    title: str
    points: np.ndarray
    values: dict
    total: int
    bad: int


@dataclass(frozen=True)
class Scene:
    layers: tuple
    panels: tuple
    center: np.ndarray  # float64, subtracted from all points
    radius: float
    first: str  # the layer to begin with


def ramp(t):
    """Colors (n, 3) float of values in 0..1."""
    t = np.clip(np.nan_to_num(t), 0, 1) * (len(STOPS) - 1)
    i = np.minimum(t.astype(int), len(STOPS) - 2)
    return STOPS[i] + (STOPS[i + 1] - STOPS[i]) * (t - i)[:, None]


def class_color(i):
    shade = 1 - 0.3 * (i // len(CLASSES) % 3)
    return tuple(int(c * shade) for c in CLASSES[i % len(CLASSES)])


def scene(panels, color=None, classes=None, limit=1_000_000):
    """limit: points of all panels together. classes names the values of the integer column `color`, else of `label`: a list,
    {value: name} or {value: (name, (r, g, b))}."""
    panels = [panels] if isinstance(panels, (Panel, PointCloud, np.ndarray)) else list(panels)
    panels = [p if isinstance(p, Panel) else Panel(p) for p in panels]
    if not 1 <= len(panels) <= 16:
        raise ValueError(f"[viewer] panels: found {len(panels)}, expected 1 to 16")
    if limit < len(panels):
        raise ValueError(f"[viewer] limit: found {limit}, expected a positive number of points")
    clouds = [
        p.cloud if isinstance(p.cloud, PointCloud) else PointCloud(np.asarray(p.cloud))
        for p in panels
    ]
    shown = [_sample(cloud, limit // len(panels)) for cloud in clouds]
    points = [c.points.astype(np.float64) for c in shown]
    every = np.concatenate(points)
    center, radius = np.zeros(3), 1.0
    if len(every):
        low, high = np.percentile(every, [1, 99], axis=0)
        center = (low + high) / 2
        radius = max(float(np.linalg.norm(high - low)) / 2, 1e-6)
    whole = any(color in c.columns and c.columns[color].dtype.kind in "iub" for c in shown)
    layers = _layers(shown, color if whole else "label", _named(classes))
    names = [layer.name for layer in layers]
    first = color or next((n for n in ("rgb", "label") if n in names), "height")
    if first not in names:
        raise ValueError(f"[viewer] color: found {first!r}, expected one of {', '.join(names)}")
    drawn = [
        Drawn(
            p.title,
            (xyz - center).astype(np.float32),
            {layer.name: _values(c, layer) for layer in layers if _has(c, layer)},
            len(all_),
            int((~all_.finite()).sum()),
        )
        for p, c, xyz, all_ in zip(panels, shown, points, clouds)
    ]
    return Scene(tuple(layers), tuple(drawn), center, radius, first)


def colors(layer, drawn):
    """(n, 3) float colors 0..255 of one panel, for the PNG; a panel without the layer is gray."""
    if layer.name not in drawn.values:
        return np.full((len(drawn.points), 3), 140.0)
    values = drawn.values[layer.name]
    if layer.kind == "rgb":
        return values.astype(float)
    if layer.kind == "class":
        return np.array([e[2] for e in layer.entries], float).reshape(-1, 3)[values]
    return ramp((values - layer.low) / max(layer.high - layer.low, 1e-12))


def _sample(cloud, limit):
    """The finite points; above the limit a fixed random choice, the same one for clouds of equal length."""
    cloud = cloud[cloud.finite()]
    if len(cloud) <= limit:
        return cloud
    return cloud[np.sort(np.random.default_rng(0).choice(len(cloud), limit, replace=False))]


def _layers(clouds, classified, classes):
    z = np.concatenate([c.points[:, 2] for c in clouds]).astype(np.float64)
    layers = [Layer("height", "height", *_range(z))]
    for name in dict.fromkeys(n for c in clouds for n in c.columns):
        arrays = [c.columns[name] for c in clouds if name in c.columns]
        if name == "color" and all(a.ndim == 2 and a.shape[1] >= 3 for a in arrays):
            layers.append(Layer("rgb", "rgb"))
        elif all(a.ndim == 1 for a in arrays):
            joined = np.concatenate(arrays)
            named = classes if name == classified else {}
            entries = (
                _entries(joined, named)
                if joined.dtype.kind in "iub" and name != "intensity"
                else None
            )
            layers.append(
                Layer(name, "class", entries=entries)
                if entries
                else Layer(name, "scalar", *_range(joined))
            )
    return layers


def _named(classes):
    named = dict(enumerate(classes)) if isinstance(classes, (list, tuple)) else dict(classes or {})
    bad = [v for v in named if not isinstance(v, (int, np.integer))]
    if bad:
        raise ValueError(f"[viewer] classes: found {bad[0]!r}, expected integers as keys")
    return named


def _entries(values, named):
    """((value, name, color), ...) or None when there are too many for classes."""
    found = np.unique(values)
    if not 0 < len(found) <= MOST_CLASSES:
        return None
    entries = []
    for i, value in enumerate(sorted({int(v) for v in found} | set(named))):
        name = named.get(value, str(value))
        text, color = name if isinstance(name, tuple) else (name, class_color(i))
        entries.append((value, str(text), tuple(color)))
    return tuple(entries)


def _range(values):
    values = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    return tuple(float(v) for v in np.percentile(values, [1, 99])) if len(values) else (0.0, 1.0)


def _has(cloud, layer):
    return (
        layer.kind == "height" or ("color" if layer.kind == "rgb" else layer.name) in cloud.columns
    )


def _values(cloud, layer):
    if layer.kind == "height":
        return cloud.points[:, 2].astype(np.float64)
    if layer.kind == "rgb":
        return color8(cloud.columns["color"][:, :3])
    values = cloud.columns[layer.name]
    if layer.kind == "class":
        return np.searchsorted([e[0] for e in layer.entries], values.astype(np.int64)).astype(
            np.uint16
        )
    return values.astype(np.float64)
