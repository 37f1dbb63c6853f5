"""The input of published encoders: centered points, one per grid cell, with feature columns.

    pipeline = transforms.encoder_pipeline("sonata")
    given = pipeline(cloud)              # EncoderInput: tensor, positions, inverse, index
    net(given.tensor)

Nothing is random unless the caller asks for it, so the generator may be left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..core import SparseTensor
from ..core._checks import flag, instance, listed, names, one_of, positive, told
from ..io.cloud import PointCloud, check_cloud, color8
from .base import Draw, Transform, moved
from .geometry import Normalize

if TYPE_CHECKING:
    from collections.abc import Sequence

FNV_START, FNV_PRIME = np.uint64(14695981039346656037), np.uint64(1099511628211)
GRID, INVERSE, INDEX = "grid_coord", "inverse", "index"


class _Fixed(Transform):
    """A transform that needs no generator."""

    def __call__(
        self, cloud: PointCloud, rng: np.random.Generator | None = None, draw: Draw | None = None
    ) -> PointCloud:
        check_cloud(type(self).__name__, cloud)
        return self.apply(cloud, rng if rng is not None else np.random.default_rng(0), draw)


@dataclass(frozen=True)
class CenterShift(_Fixed):
    """Subtracts the middle of the box in x and y, and with `z` the lowest z."""

    z: bool = True

    def __post_init__(self) -> None:
        flag(self, "z", self.z)

    def apply(self, cloud: PointCloud, rng: np.random.Generator, draw: Draw | None) -> PointCloud:
        if not len(cloud):
            return cloud
        low, high = cloud.points.min(axis=0), cloud.points.max(axis=0)
        middle = (low + high) / 2
        shift = np.array([middle[0], middle[1], low[2] if self.z else 0], cloud.points.dtype)
        return moved(cloud, cloud.points - shift)


@dataclass(frozen=True)
class Rescale(_Fixed):
    """All lengths times a factor; the product is rounded once to the dtype of the points."""

    factor: float = 1.0

    def __post_init__(self) -> None:
        positive(self, "factor", self.factor)

    def apply(self, cloud: PointCloud, rng: np.random.Generator, draw: Draw | None) -> PointCloud:
        return moved(cloud, cloud.points.astype(np.float64) * self.factor)


@dataclass(frozen=True)
class GridSample(_Fixed):
    """One point per grid cell, in the order of the published code.

    The cell of a point is floor(point / size), less the lowest cell of the cloud per axis. Rows
    ascend by the 64-bit FNV hash of their cell. The result has the column `grid_coord`, and in
    `meta` the arrays `inverse` (the row of each point that came in) and `index` (the point that
    each row is).

    Args:
        size: The side of a cell.
        division: "float32" divides as NumPy 1.26 did, which the published READMEs pin; "float64"
            as NumPy 2. Points that lie on the borders of cells, such as coordinates in whole
            centimeters, fall into other cells.
        pick: Which point of a cell stays: the "first", the one nearest to the "center" of the cell,
            or a "random" one. The published code draws one, in an order that differs between
            machines.
    """

    size: float = 0.02
    division: str = "float32"
    pick: str = "first"

    def __post_init__(self) -> None:
        positive(self, "size", self.size)
        one_of(self, "division", self.division, ("float32", "float64"))
        one_of(self, "pick", self.pick, ("first", "center", "random"))

    def apply(self, cloud: PointCloud, rng: np.random.Generator, draw: Draw | None) -> PointCloud:
        if not cloud.finite().all():
            raise ValueError("[GridSample] points must be finite; keep cloud[cloud.finite()]")
        places = cloud.points.astype(self.division) / np.dtype(self.division).type(self.size)
        cells = np.floor(places).astype(np.int64)
        cells -= cells.min(axis=0) if len(cells) else 0
        _, first, inverse = np.unique(cell_keys(cells), return_index=True, return_inverse=True)
        index = self._picked(first, inverse.reshape(-1), places, rng)
        kept = cloud[index]
        columns = dict(kept.columns) | {GRID: cells[first].astype(np.int32)}
        found = {INVERSE: inverse.reshape(-1).astype(np.int32), INDEX: index.astype(np.int32)}
        return PointCloud(kept.points, columns, dict(cloud.meta) | found)

    def _picked(
        self, first: np.ndarray, inverse: np.ndarray, places: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """The row of each cell that stays."""
        if self.pick == "first" or not len(first):
            return first
        if self.pick == "random":
            rank = rng.random(len(inverse))
        else:
            rank = ((places - np.floor(places) - 0.5) ** 2).sum(axis=1)
        order = np.lexsort([rank, inverse])
        starts = np.searchsorted(inverse[order], np.arange(len(first)))
        picked: np.ndarray = order[starts]
        return picked


def cell_keys(cells: np.ndarray) -> np.ndarray:
    """(N,) uint64: the FNV-1 hash of cells (N, 3), one number of 64 bits per axis."""
    keys = np.full(len(cells), FNV_START, np.uint64)
    for axis in range(3):
        keys *= FNV_PRIME
        keys ^= cells[:, axis].astype(np.uint64)
    return keys


@dataclass(frozen=True, eq=False)
class EncoderInput:
    """A cloud as an encoder takes it.

    Attributes:
        tensor: The features of the rows on their grid cells.
        positions: (M, 3) float32: the transformed points of the rows, which Utonia turns by.
        inverse: (N,) the row of each point of the cloud: `values[inverse]` goes back to points.
        index: (M,) the point that each row is.
    """

    tensor: SparseTensor
    positions: np.ndarray
    inverse: np.ndarray
    index: np.ndarray


@dataclass(frozen=True)
class EncoderPipeline:
    """Steps that end in grid cells, and the columns that become features: cloud -> EncoderInput.

    Args:
        steps: Transforms, among them one GridSample.
        features: Names from "coord" (the transformed points), "color" (0 to 1), "normal" and
            "strength" (the column strength or intensity), side by side. A missing color or normal
            is 0, as in the published demos.
    """

    steps: tuple[Transform, ...]
    features: tuple[str, ...] = ("coord", "color", "normal")

    def __post_init__(self) -> None:
        steps = listed(self, "steps", self.steps, "transforms")
        for step in steps:
            instance(self, "steps", step, Transform, "transforms")
        if not names(self, "features", self.features):
            raise ValueError(
                f"[EncoderPipeline] features: found {told(self.features)}, expected one name "
                "at least"
            )
        if sum(isinstance(step, GridSample) for step in steps) != 1:
            raise ValueError(
                f"[EncoderPipeline] steps: found {told(self.steps)}, expected one "
                "GridSample among them"
            )
        for name in self.features:
            one_of(self, "features", name, ("coord", "color", "normal", "strength"))

    def __call__(self, cloud: PointCloud, rng: np.random.Generator | None = None) -> EncoderInput:
        """The rows of a cloud; rng: for a GridSample that picks at random."""
        check_cloud("EncoderPipeline", cloud)
        rng = np.random.default_rng(0) if rng is None else rng
        for step in self.steps:
            cloud = step(cloud, rng)
        feats = [_feature(cloud, name) for name in self.features]
        cells = cloud.columns[GRID]
        coords = np.concatenate([np.zeros((len(cells), 1), np.int32), cells], axis=1)
        tensor = SparseTensor(coords, np.concatenate(feats, axis=1).astype(np.float32))
        points = cloud.points.astype(np.float32)
        return EncoderInput(tensor, points, cloud.meta[INVERSE], cloud.meta[INDEX])


def _feature(cloud: PointCloud, name: str) -> np.ndarray:
    if name == "coord":
        return cloud.points.astype(np.float32)
    if name == "color" and "color" in cloud.columns:
        color = cloud.columns["color"]
        return (color8(color) / 255.0)[:, :3].astype(np.float32)
    if name == "strength":
        column = cloud.columns.get("strength", cloud.columns.get("intensity"))
        if column is None:
            raise ValueError(
                "[EncoderPipeline] features: the cloud has no column strength or intensity; found "
                + (", ".join(n for n in cloud.columns if n != GRID) or "none")
            )
        return column.reshape(len(cloud), -1)[:, :1].astype(np.float32)
    return cloud.columns.get(name, np.zeros((len(cloud), 3))).astype(np.float32)


PIPELINES = ("sonata", "concerto-outdoor", "utonia", "utonia-outdoor", "utonia-object") + (
    "litept-lidar",
    "ptv3-scannet",
)


def encoder_pipeline(
    name: str,
    *,
    size: float | None = None,
    scale: float | None = None,
    division: str = "float32",
    pick: str = "first",
) -> EncoderPipeline:
    """The published steps of a network by name, one of `PIPELINES`.

    Args:
        name: "sonata" (also Concerto indoors), "concerto-outdoor", "utonia" (indoors),
            "utonia-outdoor", "utonia-object", "litept-lidar" or "ptv3-scannet".
        size: The side of a cell; by default as published.
        scale: The factor of lengths of Utonia and of Concerto outdoors; larger is finer.
        division, pick: As in `GridSample`.

    Examples:
        >>> from mlx_lattice import samples, transforms
        >>> given = transforms.encoder_pipeline("sonata", size=0.5)(samples.scan())
        >>> given.tensor.channels, len(given.inverse) == len(samples.scan())
        (9, True)
    """
    one_of("encoder_pipeline", "name", name, PIPELINES)
    sizes = {"sonata": 0.02, "ptv3-scannet": 0.02, "litept-lidar": 0.05}
    grid = GridSample(size or sizes.get(name, 0.01), division, pick)
    scales = {"concerto-outdoor": 0.2, "utonia": 0.5, "utonia-outdoor": 0.2, "utonia-object": 1.0}
    scaled = Rescale(scale or scales.get(name, 1.0))
    steps: dict[str, Sequence[Transform]] = {
        "sonata": (CenterShift(), grid),
        "concerto-outdoor": (scaled, grid, CenterShift(z=False)),
        "utonia": (scaled, CenterShift(), grid),
        "utonia-outdoor": (scaled, grid),
        "utonia-object": (Normalize(), scaled, CenterShift(), grid),
        "litept-lidar": (grid,),
        "ptv3-scannet": (CenterShift(), grid, CenterShift(z=False)),
    }
    features = {"litept-lidar": ("coord", "strength"), "ptv3-scannet": ("color", "normal")}
    return EncoderPipeline(tuple(steps[name]), features.get(name, ("coord", "color", "normal")))
