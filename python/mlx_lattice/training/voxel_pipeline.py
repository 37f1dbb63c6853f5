"""Turns point clouds into the input of a network, voxels with features and labels, and back.

The pipeline is written beside a trained network, so that prediction treats a cloud as training did.
The features of a voxel, with lengths in voxels, are:

- the number 1
- the mean offset of its points from its center (3)
- its height above the second percentile of z, divided by 10
- log(1 + points) / 2
- the means of the chosen columns (integers divided by 255 or 65535; of columns in `normalized`,
  divided by the 99th percentile of their size in this cloud)
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeAlias

import mlx.core as mx
import numpy as np

from .. import ops
from ..core import SparseTensor, _checks
from ..datasets import LabelTable
from ..io import PointCloud
from ..io.atomic_files import write_bytes
from ..io.cloud import labels_of

if TYPE_CHECKING:
    from ..core.types import ArrayLike

Corner: TypeAlias = tuple[float, float, float]

FORMAT = "mlx-lattice-scans"
VERSIONS = (1, 2, 3)  # version 1 had no `joined` and no `normalized`, version 2 no `crop`


@dataclass(frozen=True, eq=False)
class Scan:
    """A cloud as a network sees it; `VoxelPipeline.scan` makes one.

    Args:
        tensor: The voxels, a `SparseTensor`.
        labels: The class index of each voxel, (voxels,), -1 if unknown; or None.
        rows: The voxel of each point, integers (P,); -1 for none.
        name: A name for messages.
    """

    tensor: SparseTensor
    labels: mx.array | None
    rows: np.ndarray
    name: str = ""

    def with_feats(self, cast: Callable[[mx.array], mx.array]) -> Scan:
        """The same scan with the features cast(feats), for mixed precision."""
        _checks.function("with_feats", "cast", cast)
        tensor = self.tensor.replace(feats=cast(self.tensor.feats))
        return Scan(tensor, self.labels, self.rows, self.name)


@dataclass(frozen=True)
class VoxelPipeline:
    """How clouds become scans, the same in training and prediction.

    The module's text lists the features of a voxel.

    Args:
        voxel: The side of a voxel, in units of the points.
        classes: Pairs (label value, name), in the order of the outputs of the network.
        columns: The columns of a cloud whose means become features.
        widths: The number of values per point of each of these columns.
        label: The column of the classes.
        ignored: Label values that do not count.
        joined: Pairs (label value, class index): further values that mean a class.
        normalized: The columns that are divided by their own size in each cloud, because files
            have them in different units.
        crop: A box ((x, y, z), (x, y, z)) in units of the points, its low and its high corner.
            Points outside of it have no voxel and get the label -1.

    Raises:
        ValueError: An argument does not fit.

    Examples:
        >>> from mlx_lattice import samples, training
        >>> pipeline = training.VoxelPipeline(
        ...     0.2, tuple(enumerate(samples.CLASSES)), columns=("intensity",), widths=(1,)
        ... )
        >>> pipeline.channels, pipeline.names
        (7, ['ground', 'wall', 'box', 'ball'])
        >>> scan = pipeline.scan(samples.scan())
        >>> pipeline.point_labels(scan, scan.labels).shape  # of voxels, back to points
        (6000,)
    """

    voxel: float
    classes: tuple[tuple[int, str], ...]
    columns: tuple[str, ...] = ()
    widths: tuple[int, ...] = ()
    label: str = "label"
    ignored: tuple[int, ...] = field(default=())
    joined: tuple[tuple[int, int], ...] = field(default=())
    normalized: tuple[str, ...] = field(default=())
    crop: tuple[Corner, Corner] | None = None

    def __post_init__(self) -> None:
        def fail(name: str, value: object, expected: str) -> NoReturn:
            _checks.wrong_value("VoxelPipeline", name, value, expected)

        _checks.positive("VoxelPipeline", "voxel", self.voxel)
        for name in ("classes", "columns", "widths", "ignored", "joined", "normalized"):
            if not isinstance(getattr(self, name), (tuple, list)):
                fail(name, getattr(self, name), "a tuple")
        pairs = [c for c in self.classes if isinstance(c, (tuple, list)) and len(c) == 2]
        if len(pairs) != len(self.classes) or not pairs:
            fail("classes", self.classes, "pairs (label value, name)")
        if not all(isinstance(w, int) and w > 0 for w in self.widths):
            fail("widths", self.widths, "the numbers of values per point of each column")
        if len(self.columns) != len(self.widths):
            fail("widths", self.widths, f"one for each of {len(self.columns)} columns")
        if not isinstance(self.label, str):
            fail("label", self.label, "the name of a column")
        for pair in self.joined:
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                fail("joined", self.joined, "pairs (label value, class index)")
            _checks.integer("VoxelPipeline", "joined", pair[1], 0, len(pairs) - 1)
        for name in self.normalized:
            _checks.one_of("VoxelPipeline", "normalized", name, self.columns)
        box = np.zeros((2, 3)) if self.crop is None else np.array(self.crop, np.float64)
        if box.shape != (2, 3) or not (box[0] <= box[1]).all():
            fail("crop", self.crop, "the low and the high corner of a box, ((x, y, z), (x, y, z))")

    @property
    def channels(self) -> int:
        """The number of features of a voxel."""
        return 6 + sum(self.widths)

    @property
    def names(self) -> list[str]:
        """The names of the classes, by class index."""
        return [name for _, name in self.classes]

    @property
    def values(self) -> np.ndarray:
        """The label values of the classes, int64, by class index."""
        return np.array([value for value, _ in self.classes], np.int64)

    def of_files(self, table: LabelTable, label: str = "label") -> VoxelPipeline:
        """The same pipeline for files of a data set.

        A data set gives class indices. The files have the ids of `table`, in a column `label`, and
        the result gives the first id of a class to its points.
        """
        _checks.instance("VoxelPipeline", "table", table, LabelTable, "a LabelTable")
        ids: list[list[int]] = [[] for _ in self.classes]
        for value, index in table.ids.items():
            if index >= 0:
                ids[index].append(value)
        first = [own[0] if own else table.written[i] for i, own in enumerate(ids)]
        return replace(
            self,
            classes=tuple(zip(first, self.names)),
            label=label,
            ignored=tuple(value for value, index in table.ids.items() if index < 0),
            joined=tuple((v, i) for i, own in enumerate(ids) for v in own[1:]),
        )

    def table(self, *, strict: bool = True) -> LabelTable:
        """The meaning of the labels of files, for data sets such as `datasets.Folder`."""
        ids = dict.fromkeys(self.ignored, -1) | dict(self.joined)
        ids |= {value: i for i, (value, _) in enumerate(self.classes)}
        values = tuple(value for value, _ in self.classes)
        return LabelTable(tuple(self.names), ids, values, strict)

    def scan(self, cloud: PointCloud, name: str = "", *, strict: bool = True) -> Scan:
        """The voxels of a cloud. The class of a voxel is the most frequent one of its points.

        Raises ValueError if the cloud lacks a column, or has a label that is no class and not
        ignored, unless `strict` is False; `name` is what the message calls the cloud.
        """
        _checks.instance("VoxelPipeline.scan", "cloud", cloud, PointCloud, "a PointCloud")
        columns = [
            self._feature(cloud, column, width, name)
            for column, width in zip(self.columns, self.widths, strict=True)
        ]
        tensor, voxels = ops.voxel_features(self._positions(cloud), self.voxel, columns)
        rows = np.array(voxels).astype(np.int64)
        labels = None
        if self.label in cloud.columns:
            inside = rows >= 0
            kept = cloud if inside.all() else cloud[inside]
            of_points = self.class_indices(kept, name, strict=strict)
            labels = mx.array(_vote(of_points, rows[inside], len(tensor), len(self.classes)))
        return Scan(tensor, labels, rows, name)

    def _positions(self, cloud: PointCloud) -> mx.array:
        """The points; those outside of the crop are NaN. A crop reads float32, as programs do."""
        if self.crop is None:
            return _exact(cloud.points)
        return ops.crop_points(cloud.points.astype(np.float32), *self.crop)

    def _feature(self, cloud: PointCloud, column: str, width: int, name: str) -> mx.array:
        """The values of a column as `ops.voxel_features` takes them."""
        if column not in self.normalized:
            return _exact(_column(cloud, column, width, name))
        values = scaled(cloud, column, width, name)
        sizes = np.abs(values[cloud.finite()]).reshape(-1)
        return _exact(values / typical_size(sizes, sizes.size))

    def point_labels(self, scan: Scan, classes: ArrayLike) -> np.ndarray:
        """(P,) label values of the points of a scan, from the class indices of its voxels.

        A point without a voxel gets -1. The dtype is int32 where that holds every class, else
        int64. Raises ValueError if there is not one class per voxel.
        """
        _checks.instance("point_labels", "scan", scan, Scan, "a Scan; VoxelPipeline.scan makes one")
        expected = f"one class index per voxel, integers ({len(scan.tensor)},)"
        indices = _checks.numpy_array("point_labels", "classes", classes, expected, "iu")
        if indices.shape != (len(scan.tensor),):
            _checks.wrong_value("point_labels", "classes", indices, expected)
        wide = np.abs(self.values).max() > np.iinfo(np.int32).max
        labels = self.values[indices[scan.rows]] if len(indices) else -1
        return np.where(scan.rows >= 0, labels, -1).astype(np.int64 if wide else np.int32)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the pipeline as JSON."""
        about = {"format": FORMAT, "version": VERSIONS[-1], **asdict(self)}
        write_bytes(path, (json.dumps(about, indent=2) + "\n").encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> VoxelPipeline:
        """The pipeline that `save` wrote; ValueError, with the path, if the file holds none."""

        def fail(what: str) -> NoReturn:
            raise ValueError(f"{path}: {what}")

        try:
            text = json.loads(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            fail(f"not JSON: {error}")
        if (
            not isinstance(text, dict)
            or text.get("format") != FORMAT
            or text.get("version") not in VERSIONS
        ):
            fail(f'expected an object with "format": "{FORMAT}", "version": {VERSIONS[-1]}')
        try:
            pipeline = cls(
                float(text["voxel"]),
                tuple((int(v), str(n)) for v, n in text["classes"]),
                tuple(map(str, text["columns"])),
                tuple(map(int, text["widths"])),
                str(text["label"]),
                tuple(map(int, text["ignored"])),
                tuple((int(v), int(i)) for v, i in text.get("joined", ())),
                tuple(map(str, text.get("normalized", ()))),
                text.get("crop"),
            )
        except (KeyError, TypeError, ValueError) as error:
            fail(f"not a pipeline: {error!r}")
        return pipeline

    def class_indices(
        self, cloud: PointCloud, name: str = "", *, strict: bool = True
    ) -> np.ndarray:
        """(P,) class index of each point by its label; -1 where the label does not count.

        Raises ValueError if the cloud has no labels, or one that is no class and not ignored,
        unless `strict` is False.
        """
        _checks.instance("VoxelPipeline", "cloud", cloud, PointCloud, "a PointCloud")
        labels, classes = labels_of(cloud, self.label, name), len(self.classes)
        values = np.concatenate([self.values, np.array([v for v, _ in self.joined], np.int64)])
        index = np.array([*range(classes), *(i for _, i in self.joined)])
        if np.array_equal(values, index):  # class indices already
            at, known = labels, (labels >= 0) & (labels < classes)
        else:
            order = np.argsort(values, kind="stable")
            found = order[np.clip(np.searchsorted(values[order], labels), 0, len(order) - 1)]
            at, known = index[found], values[found] == labels
        unknown = np.setdiff1d(labels[~known], self.ignored) if strict else labels[:0]
        if unknown.size:
            raise ValueError(
                f"{name}: label {unknown[0]} is not one of the classes {self.values.tolist()}"
            )
        return np.where(known, at, -1)


def scaled(cloud: PointCloud, column: str, width: int, name: str) -> np.ndarray:
    """(P, width) values of a column; 8 and 16 bits become 0..1."""
    return to_unit(_column(cloud, column, width, name), width)


def to_unit(values: np.ndarray, width: int) -> np.ndarray:
    """(P, width) the same values; 8 and 16 bits become 0..1."""
    scale = {"u1": 255.0, "u2": 65535.0}.get(values.dtype.str[1:], 1.0)
    return values.reshape(len(values), width) / scale


def typical_size(largest: np.ndarray, count: int) -> float:
    """The 99th percentile of `count` sizes, from the largest of them; 1 for none or zeros."""
    if not count:
        return 1.0
    at = (count - 1) * 0.99
    before = int(at)
    places = [before, min(before + 1, count - 1)]
    places = [place - (count - len(largest)) for place in places]
    low, high = (float(v) for v in np.partition(largest, places)[places])
    t = at - before
    return (low + (high - low) * t if t < 0.5 else high - (high - low) * (1 - t)) or 1.0


def _column(cloud: PointCloud, column: str, width: int, name: str) -> np.ndarray:
    if column not in cloud.columns:
        raise ValueError(f"{name}: no column {column!r}, which the network was trained with")
    values = cloud.columns[column]
    found = math.prod(values.shape[1:])
    if found != width:
        raise ValueError(
            f"{name}: column {column!r} has {found} values per point, expected {width}"
        )
    if not np.isfinite(values).all() and not np.isfinite(values[cloud.finite()]).all():
        raise ValueError(f"{name}: column {column!r} has values that are not finite")
    return values


def _exact(values: np.ndarray) -> mx.array:
    """The values with their own dtype; MLX would make float32 of float64."""
    wide = values.dtype == np.float64
    return mx.array(values, dtype=mx.float64) if wide else mx.array(values)


def _vote(labels: np.ndarray, rows: np.ndarray, n: int, classes: int) -> np.ndarray:
    """(n,) int32: the most frequent class of the points of each voxel.

    Ties go to the first class; -1 where no class is known.
    """
    known = labels >= 0
    labels, rows = labels[known], rows[known]
    found = np.full(n, -1, np.int32)
    found[rows] = labels
    # Most voxels have points of one class: only the others are counted.
    mixed = np.zeros(n, bool)
    mixed[rows[found[rows] != labels]] = True
    if mixed.any():
        number = np.cumsum(mixed) - 1
        inside = mixed[rows]
        pairs = number[rows[inside]] * classes + labels[inside]
        votes = np.bincount(pairs, minlength=int(mixed.sum()) * classes)
        found[mixed] = votes.reshape(-1, classes).argmax(axis=1)
    return found
