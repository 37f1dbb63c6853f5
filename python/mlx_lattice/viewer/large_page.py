"""A page for a large cloud: an octree of chunks in a folder, which opens without a server.

A node of the octree holds the first point of each cell of a grid in its cube, and its children hold
the others. A chunk is a file of JavaScript that calls `chunk(name, text)`: script tags may load
files of a folder, where requests may not. The page draws nodes whose points lie far apart on the
screen first, until a budget of points is spent.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..io.atomic_files import write_bytes
from ..io.cloud import PointCloud, color8
from .scene import BACKGROUNDS, CLASSES, STOPS

TEMPLATE = Path(__file__).with_name("large_page.html")
GRID = 64  # cells along the cube of a node, of which each keeps one point
LEAF = 20_000  # points of a node that is not divided further
IN_MEMORY = 2_000_000  # points of a cube that is divided in memory
DEEPEST = 20  # levels
FILES = r"index\.html|r[0-7]*\.(js|rows)|\.writing-.*"  # of a page, or of one that was not finished
Tell = Callable[[int], object]


class Octree:
    """Points become the nodes of an octree in a folder.

    Args:
        folder: An empty folder.
        low: The low corner of all points.
        high: Their high corner.
        total: Their number, about.
        columns: The columns that are kept, one number per point each.
    """

    def __init__(
        self, folder: Path, low: np.ndarray, high: np.ndarray, total: int, columns: list[str]
    ) -> None:
        self.folder, self.low, self.columns = folder, np.asarray(low, np.float64), columns
        self.side = float(max((np.asarray(high) - low).max(), 1e-3)) * (1 + 1e-6)
        self.level = max(0, int(np.ceil(np.log(max(total, 1) / IN_MEMORY) / np.log(4))))
        self.nodes: dict[str, int] = {}
        self.ranges = {name: [np.inf, -np.inf] for name in columns}
        fields: list[Any] = [("at", "<u4", 3), ("rgb", "u1", 3)]
        self.dtype = np.dtype(fields + [(f"v{i}", "<f4") for i in range(len(columns))])
        self._taken: list[np.ndarray] = [np.empty(0, np.int64) for _ in range(self.level)]
        self.has_color = False

    def add(self, cloud: PointCloud) -> None:
        """Takes the finite points of a piece."""
        finite = cloud.finite()
        rows = np.zeros(int(finite.sum()), self.dtype)
        if not len(rows):
            return
        places = (cloud.points[finite].astype(np.float64) - self.low) / self.side
        rows["at"] = np.minimum(places * 2.0**32, 2**32 - 1)
        color = cloud.columns.get("color")
        if color is not None and color.ndim == 2 and color.shape[1] >= 3:
            rows["rgb"] = color8(color)[finite][:, :3]
            self.has_color = True
        for i, name in enumerate(self.columns):
            values = cloud.columns[name][finite].astype(np.float32)
            rows[f"v{i}"] = values
            known = values[np.isfinite(values)]
            if len(known):
                low, high = self.ranges[name]
                self.ranges[name] = [min(low, float(known.min())), max(high, float(known.max()))]
        for level in range(self.level):
            first = self._first(rows, level, self._taken[level])
            keys = _cells(rows["at"][first], level)
            self._taken[level] = np.union1d(self._taken[level], keys)
            self._append(rows[first], level)
            rows = np.delete(rows, first)
        self._append(rows, self.level)

    @staticmethod
    def _first(rows: np.ndarray, level: int, taken: np.ndarray) -> np.ndarray:
        """The first row of each cell of a level that is not taken."""
        keys, first = np.unique(_cells(rows["at"], level), return_index=True)
        return np.asarray(first[~np.isin(keys, taken, assume_unique=True)])

    def _append(self, rows: np.ndarray, level: int) -> list[str]:
        """Adds rows to the files of their nodes of a level; returns the nodes."""
        parts = _by_node(rows, level)
        for name, part in parts:
            with open(self.folder / f"{name}.rows", "ab") as file:
                file.write(part.tobytes())
            self.nodes[name] = self.nodes.get(name, 0) + len(part)
        return [name for name, _ in parts]

    def end(self, tell: Tell = lambda n: None) -> None:
        """Divides what is left, and writes the chunks."""
        for name in list(self.nodes):
            count = self.nodes[name]
            self._end_node(name)
            tell(count)

    def _end_node(self, name: str) -> None:
        path = self.folder / f"{name}.rows"
        level = len(name) - 1
        if level < self.level:
            self._chunk(name, np.fromfile(path, self.dtype))
        elif self.nodes[name] <= IN_MEMORY or level >= DEEPEST:
            self._divide(name, np.fromfile(path, self.dtype))
        else:
            self._divide_on_disk(name)
        path.unlink()

    def _divide_on_disk(self, name: str) -> None:
        """A cube with more points than fit, such as a town where one point lies far away."""
        level = len(name) - 1
        taken, kept, children = np.empty(0, np.int64), [], set()
        with open(self.folder / f"{name}.rows", "rb") as file:
            while len(rows := np.fromfile(file, self.dtype, IN_MEMORY)):
                first = self._first(rows, level, taken)
                taken = np.union1d(taken, _cells(rows["at"][first], level))
                kept.append(rows[first])
                children |= set(self._append(np.delete(rows, first), level + 1))
        self._chunk(name, np.concatenate(kept))
        for child in sorted(children):
            self._end_node(child)

    def _divide(self, name: str, rows: np.ndarray) -> None:
        level = len(name) - 1
        if len(rows) <= LEAF or level >= DEEPEST:
            self._chunk(name, rows)
            return
        first = self._first(rows, level, np.empty(0, np.int64))
        self._chunk(name, rows[first])
        for child, part in _by_node(np.delete(rows, first), level + 1):
            self._divide(child, part)

    def _chunk(self, name: str, rows: np.ndarray) -> None:
        """Positions as 16 bits inside of the cube of the node, colors, then the columns."""
        level = len(name) - 1
        inside = (rows["at"] << np.uint32(level)) >> np.uint32(16)
        parts = [inside.astype("<u2").tobytes(), rows["rgb"].tobytes()]
        parts += [rows[f"v{i}"].tobytes() for i in range(len(self.columns))]
        text = base64.b64encode(b"".join(parts)).decode("ascii")
        (self.folder / f"{name}.js").write_text(f'chunk("{name}","{text}")', encoding="ascii")
        self.nodes[name] = len(rows)


def _cells(at: np.ndarray, level: int) -> np.ndarray:
    """One number for the grid cell of each position, of the nodes of a level."""
    bits = min(int(np.log2(GRID)) + level, 21)
    cell = (at >> np.uint32(32 - bits)).astype(np.int64)
    return (cell[:, 0] << 2 * bits) | (cell[:, 1] << bits) | cell[:, 2]


def _by_node(rows: np.ndarray, level: int) -> list[tuple[str, np.ndarray]]:
    """The rows of each node of a level; a node is "r" and one digit for each level."""
    if not len(rows):
        return []
    if level == 0:
        return [("r", rows)]
    cell = (rows["at"] >> np.uint32(32 - level)).astype(np.int64)
    key = np.zeros(len(rows), np.int64)
    for bit in reversed(range(level)):
        x, y, z = ((cell >> bit) & 1).T
        key = key << 3 | x << 2 | y << 1 | z
    order = np.argsort(key, kind="stable")
    cuts = np.flatnonzero(np.diff(key[order])) + 1
    parts = np.split(order, cuts)
    return [(f"r{int(key[p[0]]):0{level}o}", rows[p]) for p in parts]


def write_page(
    octree: Octree,
    title: str,
    color: str | None = None,
    classes: Mapping[int, str] | None = None,
    budget: int = 2_000_000,
) -> Path:
    """Writes `index.html` of an octree that has ended; returns its path.

    Args:
        octree: The chunks.
        title: The heading.
        color: The layer to begin with: "height", "rgb" or a column.
        classes: Names of the values of `label` and `truth`.
        budget: The number of points that are drawn at once.

    Raises:
        ValueError: There is no layer `color`.
    """
    layers: list[dict[str, Any]] = [{"name": "height", "kind": "height"}]
    if octree.has_color:
        layers.append({"name": "rgb", "kind": "rgb"})
    for i, name in enumerate(octree.columns):
        low, high = octree.ranges[name]
        layers.append({"name": name, "kind": "scalar", "column": i, "low": low, "high": high})
        if name in ("label", "truth") and high < 256:
            layers[-1] |= {"kind": "class", "entries": _entries(int(max(high, 0)), classes or {})}
    names = [layer["name"] for layer in layers]
    first = color or next((n for n in ("rgb", "label") if n in names), "height")
    if first not in names:
        raise ValueError(f"--color: found {first!r}, expected one of {', '.join(names)}")
    data = {
        "title": title,
        "low": octree.low.tolist(),
        "side": octree.side,
        "grid": GRID,
        "nodes": octree.nodes,
        "columns": octree.columns,
        "layers": layers,
        "first": first,
        "budget": budget,
        "stops": STOPS.tolist(),
        "backgrounds": BACKGROUNDS,
    }
    inside = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    values = {"__TITLE__": html.escape(title), "__DATA__": inside}
    page = re.sub(
        "__TITLE__|__DATA__", lambda m: values[m[0]], TEMPLATE.read_text(encoding="utf-8")
    )
    path = octree.folder / "index.html"
    write_bytes(path, page.encode())
    return path


def _entries(most: int, classes: Mapping[int, str]) -> list[list[Any]]:
    return [[v, classes.get(v, str(v)), list(CLASSES[v % len(CLASSES)])] for v in range(most + 1)]


def build(
    folder: Path,
    pieces: Callable[[], Iterable[PointCloud]],
    bounds: tuple[np.ndarray, np.ndarray],
    total: int,
    columns: list[str],
    tell: Tell = lambda n: None,
) -> Octree:
    """The octree of a cloud that is read by pieces.

    Args:
        folder: The folder to make; one of an earlier page is replaced.
        pieces: Gives the points.
        bounds: The corners of all points.
        total: The number of points.
        columns: The columns that picking shows.
        tell: Hears of points that are done, twice each.

    Returns:
        The octree, whose chunks lie in the folder.

    Raises:
        ValueError: The folder holds files of others.
    """
    folder.mkdir(parents=True, exist_ok=True)
    before = list(folder.iterdir())
    others = [path.name for path in before if not re.fullmatch(FILES, path.name)]
    if (folder / "index.html").exists() and not (folder / "r.js").exists():
        others.append("index.html")
    if others:
        raise ValueError(
            f"--output: {folder} holds {min(others)}, which is no file of such a page; name "
            "another folder"
        )
    for path in before:
        path.unlink()
    octree = Octree(folder, *bounds, total, columns)
    for piece in pieces():
        octree.add(piece)
        tell(len(piece))
    octree.end(tell)
    return octree
