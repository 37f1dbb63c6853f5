"""Turns clouds into what is drawn: sub-sampled points around one center, and colored layers.

    height  z between its 1st and 99th percentile
    rgb     the column color, or another column (N, 3) of uint8
    scalar  a column of numbers between its percentiles
    class   an integer column with at most 256 values, one color each, with names
    errors  where the integer columns label and truth differ
    similar a column (N, d) of int8, vectors of features: how near each is to that of a picked point
Layers of one name share range, colors and legend over all panels, so that pictures can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from ..core import SparseTensor
from ..core._checks import finite, integer, listed, number, numpy_array, told, wrong_value
from ..io.cloud import PointCloud, color8, whole_numbers

if TYPE_CHECKING:
    import mlx.core as mx

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
BACKGROUNDS = {"dark": (13, 17, 27), "light": (250, 250, 248)}
BACKGROUND = BACKGROUNDS["dark"]
FARTHEST, LARGEST = 1e30, 1e300  # coordinates become float32; a range of values stays float64
# Where the viewer stands at first: the page and the PNG look from the same direction.
AZIMUTH, TILT = np.radians(32), np.radians(36)
RIGHT_POINT, WRONG_POINT, UNCOUNTED = (120, 130, 145), (220, 50, 47), (190, 190, 190)
# Colors of 20 classes. Neighbors in the list differ also for the color-blind. More classes repeat
# the colors darker.
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
LARGE = 1 << 53  # floats hold all whole numbers up to it


@dataclass(frozen=True)
class Panel:
    """One picture of a page.

    Args:
        cloud: A `PointCloud`, or positions of shape (N, 3).
        title: The caption.
        color: The layer that this panel shows first; `None` takes the layer of the page.
        marks: Words at places: (x, y, z, text) of each.
    """

    cloud: PointCloud | SparseTensor | np.ndarray | mx.array
    title: str = ""
    color: str | None = None
    marks: Sequence[tuple[float, float, float, str]] = ()

    def __post_init__(self) -> None:
        text("title", self.title)
        for mark in listed("Panel", "marks", self.marks, "a list of (x, y, z, text)"):
            if not isinstance(mark, (tuple, list)) or len(mark) != 4:
                wrong_value("Panel", "marks", mark, "(x, y, z, text)")
            *place, words = mark
            text("marks", words)
            for value in place:
                finite("Panel", "marks", value)
        if self.color is not None:
            text("color", self.color)


Picture: TypeAlias = "Panel | PointCloud | SparseTensor | np.ndarray | mx.array"
Panels: TypeAlias = "Picture | Sequence[Picture]"
Color: TypeAlias = tuple[int, ...]
# Names of the classes, by index or by value, each also as (name, (r, g, b)).
ClassName: TypeAlias = "str | tuple[str, Color]"
Classes: TypeAlias = "Sequence[str] | Mapping[int, ClassName] | None"
# (value, name, color) of each class of a layer
Entries: TypeAlias = tuple[tuple[int, str, Color], ...]


@dataclass(frozen=True)
class Layer:
    """One way to color points: its kind, range of values, or entries (value, name, color)."""

    name: str
    kind: str
    low: float = 0.0
    high: float = 0.0
    entries: Entries = ()
    column: str = ""  # of the cloud; its name may differ from the layer's


@dataclass(frozen=True)
class Drawn:
    """A panel ready to be drawn: points (n, 3) float32 around the center; values by layer."""

    title: str
    color: str | None
    cloud: int  # panels of the same cloud have the same number
    points: np.ndarray
    values: dict[str, np.ndarray]
    total: int
    bad: int
    marks: list[tuple[float, float, float, str]]  # around the center too


@dataclass(frozen=True)
class Scene:
    """The contents of the page and of the PNG."""

    layers: tuple[Layer, ...]
    panels: tuple[Drawn, ...]
    center: np.ndarray  # float64, subtracted from all points
    radius: float
    first: str  # the layer to begin with
    scores: list[dict[str, Any]] = field(default_factory=list)  # IoU of clouds with truth


def ramp(t: np.ndarray) -> np.ndarray:
    """Colors (n, 3) float of values in 0..1."""
    t = np.clip(np.nan_to_num(t), 0, 1) * (len(STOPS) - 1)
    i = np.minimum(t.astype(int), len(STOPS) - 2)
    return STOPS[i] + (STOPS[i + 1] - STOPS[i]) * (t - i)[:, None]


def class_color(i: int) -> Color:
    shade = 1 - 0.3 * (i // len(CLASSES) % 3)
    return tuple(int(c * shade) for c in CLASSES[i % len(CLASSES)])


def scene(
    panels: Panels,
    color: str | None = None,
    classes: Classes = None,
    limit: int = 1_000_000,
) -> Scene:
    """The scene of some panels; the arguments are those of `page`."""
    if color is not None:
        text("color", color)
    pictures = _panel_list(panels)
    owners = {id(p.cloud): p.cloud for p in pictures}
    numbers = {key: i for i, key in enumerate(owners)}
    limit = integer("viewer", "limit", limit, len(owners), 2**63 - 1)
    clouds = [_with_labels(as_cloud(cloud), color) for cloud in owners.values()]
    shown = [_sample(cloud, limit // len(clouds)) for cloud in clouds]
    points = [c.points.astype(np.float64) for c in shown]
    center, radius = _center(np.concatenate(points))
    begins = {p.color for p in pictures}
    common = begins.pop() if len(begins) == 1 else None
    layers = _layers(shown, _classified(shown, color or common), _named(classes))
    first = _first_layer([layer.name for layer in layers], color, pictures)
    drawn = []
    for p in pictures:
        i = numbers[id(p.cloud)]
        drawn.append(
            Drawn(
                p.title,
                p.color,
                i,
                (points[i] - center).astype(np.float32),
                {layer.name: _values(shown[i], layer) for layer in layers if _has(shown[i], layer)},
                len(clouds[i]),
                int((~clouds[i].finite()).sum()),
                [(*(np.array(mark[:3]) - center).tolist(), mark[3]) for mark in p.marks],
            )
        )
    titles = [
        next(p.title for p in pictures if numbers[id(p.cloud)] == i) for i in range(len(clouds))
    ]
    scores = [
        _score(cloud, title, layers) for cloud, title in zip(clouds, titles) if _has_truth(cloud)
    ]
    return Scene(tuple(layers), tuple(drawn), center, radius, first, scores)


def _panel_list(panels: Panels) -> list[Panel]:
    """One panel or cloud, or several, as a list of panels."""
    if isinstance(panels, (Panel, PointCloud, np.ndarray)) or hasattr(panels, "shape"):
        listed = [cast("Picture", panels)]
    elif isinstance(panels, (list, tuple)):
        listed = list(panels)
    else:
        raise TypeError(
            f"[viewer] panels: found {told(panels)}, expected a PointCloud, a SparseTensor, an"
            " array (N, 3), a Panel, or a list of them"
        )
    if not 1 <= len(listed) <= 16:
        raise ValueError(f"[viewer] panels: found {len(listed)}, expected 1 to 16")
    return [p if isinstance(p, Panel) else Panel(p) for p in listed]


def _center(points: np.ndarray) -> tuple[np.ndarray, float]:
    """The middle of 98 of 100 points, float64, and how far they reach from it."""
    if not len(points):
        return np.zeros(3), 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        low, high = np.percentile(points, [1, 99], axis=0)
    if not np.abs([low, high]).max() <= FARTHEST:
        raise ValueError(
            f"[viewer] panels: found coordinates beyond {FARTHEST:g}, which cannot be drawn; "
            "drop such points, or give another unit"
        )
    return (low + high) / 2, max(float(np.linalg.norm(high - low)) / 2, 1e-6)


def _classified(clouds: list[PointCloud], color: str | None) -> str:
    """The column whose values the classes name."""
    for columns in (cloud.columns for cloud in clouds):
        if color is not None and color in columns and columns[color].dtype.kind in "iub":
            return color
    return "label"


def _first_layer(names: list[str], color: str | None, panels: list[Panel]) -> str:
    """The layer to begin with; raises where there is no layer of a name that was given."""
    first = color or next((n for n in ("rgb", "label") if n in names), "height")
    for name in (first, *(p.color for p in panels if p.color)):
        if name not in names:
            raise ValueError(f"[viewer] color: found {name!r}, expected one of {', '.join(names)}")
    return first


def text(name: str, value: str) -> str:
    """An argument that must be a text."""
    if not isinstance(value, str):
        raise TypeError(f"[viewer] {name}: found {told(value)}, expected a text")
    return value


def check_point_size(size: float | None) -> float:
    """The diameter of a point in pixels."""
    return 2.0 if size is None else number("viewer", "point_size", size, 0, 64, low_included=False)


def as_cloud(cloud: PointCloud | SparseTensor | np.ndarray | mx.array) -> PointCloud:
    """A PointCloud from a cloud, positions (N, 3), or coordinates and channels of a tensor."""
    if isinstance(cloud, PointCloud):
        return cloud
    if isinstance(cloud, SparseTensor):
        return _voxel_cloud(cloud)
    return PointCloud(numpy_array("viewer", "panels", cloud))


def _with_labels(cloud: PointCloud, color: str | None) -> PointCloud:
    """The cloud with labels as integers, where a file has them as floats that are whole numbers."""
    made = {}
    for name, values in cloud.columns.items():
        wanted = name in ("label", "truth", color) and values.ndim == 1
        if wanted and values.dtype.kind == "f" and not whole_numbers(values, -LARGE, LARGE):
            made[name] = values.astype(np.int64)
    return PointCloud(cloud.points, {**cloud.columns, **made}, cloud.meta) if made else cloud


def _voxel_cloud(x: SparseTensor) -> PointCloud:
    """The centers of voxels, with their batch item and up to eight channels."""
    import mlx.core as mx

    coords = np.asarray(x.coords)
    columns: dict[str, np.ndarray] = {"batch": coords[:, 0]}
    if x.channels <= 64:
        table = np.asarray(x.feats.astype(mx.float32))
        columns |= {f"channel {i}": table[:, i] for i in range(min(table.shape[1], 8))}
    return PointCloud((coords[:, 1:] + 0.5).astype(np.float32), columns)


def _has_truth(cloud: PointCloud) -> bool:
    return all(
        name in cloud.columns
        and cloud.columns[name].ndim == 1
        and cloud.columns[name].dtype.kind in "iub"
        for name in ("label", "truth")
    )


def _score(cloud: PointCloud, title: str, layers: list[Layer]) -> dict[str, Any]:
    """Points and intersection over union per class, over the points with a truth of 0 or more."""
    truth, label = (cloud.columns[name].astype(np.int64) for name in ("truth", "label"))
    entries = next((x.entries for x in layers if x.name == "truth"), ())
    rows: list[tuple[str, int, float | None]] = []
    counted = truth >= 0
    for value, name, _color in entries:
        if value < 0:
            continue
        is_truth, is_label = (truth == value) & counted, (label == value) & counted
        either = int((is_truth | is_label).sum())
        both = int((is_truth & is_label).sum())
        rows.append((name, int(is_truth.sum()), both / either if either else None))
    found = [row[2] for row in rows if row[2] is not None]
    return {"title": title, "rows": rows, "mean": sum(found) / len(found) if found else None}


def colors(layer: Layer, drawn: Drawn) -> np.ndarray:
    """(n, 3) float colors 0..255 of one panel, for the PNG; a panel without the layer is gray."""
    if layer.name not in drawn.values:
        return np.full((len(drawn.points), 3), 140.0)
    values = drawn.values[layer.name]
    if layer.kind == "rgb":
        return values.astype(float)
    if layer.kind == "similar":  # nobody picks a point of a PNG
        return np.full((len(drawn.points), 3), 140.0)
    if layer.kind == "class":
        return np.array([e[2] for e in layer.entries], float).reshape(-1, 3)[values]
    return ramp((values - layer.low) / max(layer.high - layer.low, 1e-12))


def _sample(cloud: PointCloud, limit: int) -> PointCloud:
    """The finite points; above the limit a fixed random choice.

    Clouds of equal length get the same choice.
    """
    cloud = cloud[cloud.finite()]
    if len(cloud) <= limit:
        return cloud
    return cloud[np.sort(np.random.default_rng(0).choice(len(cloud), limit, replace=False))]


def _layers(
    clouds: list[PointCloud], classified: str, classes: dict[int, ClassName]
) -> list[Layer]:
    """Height, then one layer per column that can be drawn, then errors where there is a truth."""
    z = np.concatenate([c.points[:, 2] for c in clouds]).astype(np.float64)
    layers = [Layer("height", "height", *_range(z))]
    compared = any(_has_truth(c) for c in clouds)
    for name in dict.fromkeys(n for c in clouds for n in c.columns):
        if name == "errors" and compared:
            continue  # the layer of that name compares label with truth
        arrays = [c.columns[name] for c in clouds if name in c.columns]
        if name == "color" and all(a.ndim == 2 and a.shape[1] >= 3 for a in arrays):
            layers.append(Layer("rgb", "rgb", column=name))
        elif all(a.ndim == 2 and a.dtype == np.uint8 and a.shape[1] == 3 for a in arrays):
            layers.append(Layer(name, "rgb", column=name))
        elif all(a.ndim == 2 and a.dtype == np.int8 and a.shape[1] > 1 for a in arrays):
            layers.append(Layer(name, "similar", high=arrays[0].shape[1], column=name))
        elif all(a.ndim == 1 for a in arrays):
            if compared and name in ("label", "truth"):  # the same colors for both
                pair = [c.columns[n] for c in clouds for n in ("label", "truth") if n in c.columns]
                arrays = [values.astype(np.int64) for values in pair]
                named = classes if classified in (name, "label") else {}
            else:
                named = classes if classified == name else {}
            layers.append(_column_layer(name, np.concatenate(arrays), named))
    if compared:
        outcomes: list[tuple[int, str, Color]] = [
            (0, "right", RIGHT_POINT),
            (1, "wrong", WRONG_POINT),
        ]
        if any((c.columns["truth"] < 0).any() for c in clouds if _has_truth(c)):
            outcomes.append((2, "no truth", UNCOUNTED))
        layers.append(Layer("errors", "class", entries=tuple(outcomes)))
    return layers


def _column_layer(name: str, values: np.ndarray, named: dict[int, ClassName]) -> Layer:
    """Classes where a column has few integers, else a range of colors."""
    shown = f"column {name}" if name in ("height", "rgb") else name  # the built-in layers
    whole = values.dtype.kind in "iub" and name != "intensity"
    entries = _entries(values, named) if whole else None
    if entries:
        return Layer(shown, "class", entries=entries, column=name)
    return Layer(shown, "scalar", *_range(values), column=name)


def _named(classes: Classes) -> dict[int, ClassName]:
    """Names by value."""
    if isinstance(classes, Mapping):
        named = dict(classes)
    elif classes is None or isinstance(classes, (list, tuple)):
        named = dict(enumerate(classes or ()))
    else:
        raise TypeError(
            f"[viewer] classes: found {told(classes)}, expected a list of names, or names by value"
        )
    for value, name in named.items():
        if not isinstance(value, (int, np.integer)):
            raise ValueError(f"[viewer] classes: found {value!r}, expected integers as keys")
        if isinstance(name, tuple) and not (len(name) == 2 and len(np.shape(name[1])) == 1):
            raise ValueError(f"[viewer] classes: found {name!r}, expected (name, (r, g, b))")
    return named


def _entries(values: np.ndarray, named: dict[int, ClassName]) -> Entries | None:
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


def _range(values: np.ndarray) -> tuple[float, float]:
    values = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    if not len(values):
        return 0.0, 1.0
    # The difference of two values must be a number too.
    low, high = np.percentile(np.clip(values.astype(np.float64), -LARGEST, LARGEST), [1, 99])
    return float(low), float(high)


def _has(cloud: PointCloud, layer: Layer) -> bool:
    if layer.name == "errors" and _has_truth(cloud):
        return True
    return layer.kind == "height" or layer.column in cloud.columns


def _values(cloud: PointCloud, layer: Layer) -> np.ndarray:
    if layer.kind == "height":
        return cloud.points[:, 2].astype(np.float64)
    if layer.kind == "rgb":
        return color8(cloud.columns[layer.column][:, :3])
    if layer.kind == "similar":
        return cloud.columns[layer.column]
    if layer.name == "errors" and _has_truth(cloud):
        truth = cloud.columns["truth"]
        wrong = (truth != cloud.columns["label"]).astype(np.uint16)
        return np.where(truth < 0, np.uint16(2), wrong)
    values = cloud.columns[layer.column]
    if layer.kind == "class":
        return np.searchsorted([e[0] for e in layer.entries], values.astype(np.int64)).astype(
            np.uint16
        )
    return values.astype(np.float64)
