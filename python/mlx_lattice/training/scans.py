"""From point clouds to what a network sees: voxels with features and labels, and back to points.

The pipeline is written beside a trained network, so that prediction treats a cloud as training did.
The features of a voxel, with lengths in voxels, are:

- the number 1
- the mean offset of its points from its center (3)
- its height above the second percentile of z, divided by 10
- log(1 + points) / 2
- the means of the chosen columns (integers divided by 255 or 65535)

This module needs NumPy.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np

from .. import ops
from .._atomic import write_bytes
from ..core import SparseTensor
from .losses import classification_loss
from .metrics import Confusion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mlx.nn import Module

    from mlx_lattice.io.cloud import PointCloud
    from mlx_lattice.training.distributed import Ranks

    from .._types import ArrayLike

__all__ = [
    "Scan",
    "VoxelPipeline",
    "balanced_weights",
    "class_weights",
    "evaluate",
    "pipeline_of",
    "predict",
    "segmentation_loss",
]

FORMAT, VERSION = "mlx-lattice-scans", 1
MOST_CLASSES = 256


@dataclass(frozen=True, eq=False)
class Scan:
    """The voxels of a cloud.

    tensor: the voxels.
    labels: the class index of each voxel, -1 if unknown; or None.
    rows: the voxel of each point, -1 for none.
    """

    tensor: SparseTensor
    labels: mx.array | None
    rows: np.ndarray
    name: str = ""

    def with_feats(self, cast: Callable[[mx.array], mx.array]) -> Scan:
        """The same scan with the features cast(feats), for mixed precision."""
        tensor = self.tensor.replace(feats=cast(self.tensor.feats))
        return Scan(tensor, self.labels, self.rows, self.name)


@dataclass(frozen=True)
class VoxelPipeline:
    """How clouds become scans. classes: (label value, name), in the order of the outputs."""

    voxel: float
    classes: tuple[tuple[int, str], ...]
    columns: tuple[str, ...] = ()
    widths: tuple[int, ...] = ()
    label: str = "label"
    ignored: tuple[int, ...] = field(default=())

    def __post_init__(self) -> None:
        def fail(name: str, value: Any, expected: Any) -> None:
            raise ValueError(f"[VoxelPipeline] {name}: found {value!r}, expected {expected}")

        if isinstance(self.voxel, bool) or not isinstance(self.voxel, (int, float)):
            fail("voxel", self.voxel, "a number")
        if not 0 < self.voxel < float("inf"):
            fail("voxel", self.voxel, "a positive number")
        for name in ("classes", "columns", "widths", "ignored"):
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

    @property
    def channels(self) -> int:
        return 6 + sum(self.widths)

    @property
    def names(self) -> list[str]:
        return [name for _, name in self.classes]

    @property
    def values(self) -> np.ndarray:
        return np.array([value for value, _ in self.classes], np.int64)

    def scan(self, cloud: PointCloud, name: str = "") -> Scan:
        finite = cloud.finite()
        kept = cloud if finite.all() else cloud[finite]
        points, _ = kept.local()
        q = ops.sparse_quantize(points, self.voxel)
        rows = np.full(len(cloud), -1, np.int64)
        rows[finite] = np.array(q.inverse_rows)
        xyz = np.array(points) / np.float32(self.voxel)
        table = np.empty((len(xyz), 4 + sum(self.widths)), np.float32)
        inside = np.floor(xyz)
        np.subtract(xyz, inside, out=inside)
        table[:, :3] = inside
        table[:, :3] -= np.float32(0.5)
        low = np.percentile(xyz[:, 2], 2) if len(xyz) else 0
        table[:, 3] = (xyz[:, 2] - np.float32(low)) / 10
        at = 4
        for column, width in zip(self.columns, self.widths, strict=True):
            table[:, at : at + width] = _scaled(kept, column, width, name)
            at += width
        means = ops.voxelize_with_quantization(q, mx.array(table), reduction="mean").feats
        mean = np.array(means)
        feats = np.empty((len(mean), 2 + table.shape[1]), np.float32)
        feats[:, 0] = 1
        feats[:, 1:5] = mean[:, :4]
        feats[:, 5] = np.log1p(np.array(q.counts, np.float32)) / 2
        feats[:, 6:] = mean[:, 4:]
        labels = None
        if self.label in cloud.columns:
            labels = mx.array(
                _vote(
                    self._indices(kept.columns[self.label], name),
                    rows[finite],
                    len(feats),
                    len(self.classes),
                )
            )
        return Scan(SparseTensor(q.coords, mx.array(feats)), labels, rows, name)

    def point_labels(self, scan: Scan, classes: ArrayLike) -> np.ndarray:
        """(P,) label values of the points of a scan, from the class indices of its voxels.

        A point without a voxel gets -1. The dtype is int32 where that holds every class, else
        int64.
        """
        wide = np.abs(self.values).max() > np.iinfo(np.int32).max
        labels = self.values[np.asarray(classes)[scan.rows]] if len(classes) else -1
        return np.where(scan.rows >= 0, labels, -1).astype(np.int64 if wide else np.int32)

    def save(self, path: str | os.PathLike[str]) -> None:
        text = json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}, indent=2) + "\n"
        write_bytes(path, text.encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> VoxelPipeline:
        def fail(what: str) -> None:
            raise ValueError(f"{path}: {what}")

        try:
            text = json.loads(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            fail(f"not JSON: {error}")
        if (
            not isinstance(text, dict)
            or text.get("format") != FORMAT
            or text.get("version") != VERSION
        ):
            fail(f'expected an object with "format": "{FORMAT}", "version": {VERSION}')
        try:
            pipeline = cls(
                float(text["voxel"]),
                tuple((int(v), str(n)) for v, n in text["classes"]),
                tuple(map(str, text["columns"])),
                tuple(map(int, text["widths"])),
                str(text["label"]),
                tuple(map(int, text["ignored"])),
            )
        except (KeyError, TypeError, ValueError) as error:
            fail(f"not a pipeline: {error!r}")
        return pipeline

    def _indices(self, labels: np.ndarray, name: str) -> np.ndarray:
        """Class index of each point; ignored values are -1."""
        if labels.ndim != 1:
            raise ValueError(
                f"{name}: column {self.label!r} has {labels.ndim} axes, "
                "expected one label per point"
            )
        labels, values = labels.astype(np.int64, copy=False), self.values
        if np.array_equal(values, np.arange(len(values))):  # class indices already
            at, known = labels, (labels >= 0) & (labels < len(values))
        else:
            order = np.argsort(values, kind="stable")
            at = order[np.clip(np.searchsorted(values[order], labels), 0, len(order) - 1)]
            known = values[at] == labels
        unknown = np.setdiff1d(labels[~known], self.ignored)
        if unknown.size:
            raise ValueError(
                f"{name}: label {unknown[0]} is not one of the classes {self.values.tolist()}"
            )
        return np.where(known, at, -1)


def pipeline_of(
    clouds: Iterable[tuple[str, PointCloud]],
    voxel: float,
    columns: Sequence[str] = (),
    label: str = "label",
    ignored: Sequence[int] = (),
    names: Sequence[str] | None = None,
) -> VoxelPipeline:
    """The pipeline of labeled clouds, given as (name, cloud).

    Its classes are the label values found, without the ignored ones.
    """
    found: set[int] = set()
    widths: dict[str, int] = {}
    for name, cloud in clouds:
        if label not in cloud.columns:
            raise ValueError(
                f"{name}: no column {label!r}; found {', '.join(cloud.columns) or 'none'}"
            )
        if cloud.columns[label].dtype.kind not in "iub":
            raise ValueError(
                f"{name}: column {label!r} is {cloud.columns[label].dtype}, expected integers"
            )
        found |= {int(v) for v in np.unique(cloud.columns[label])}
        for column in columns:
            if column not in cloud.columns:
                raise ValueError(
                    f"{name}: no column {column!r}; found {', '.join(cloud.columns) or 'none'}"
                )
            width = (
                cloud.columns[column].reshape(len(cloud), -1).shape[1]
                if len(cloud)
                else widths.get(column, 1)
            )
            if widths.setdefault(column, width) != width:
                raise ValueError(
                    f"{name}: column {column!r} has {width} values per point, "
                    f"expected {widths[column]} as in the other clouds"
                )
    values = sorted(found - set(ignored))
    if not 2 <= len(values) <= MOST_CLASSES:
        raise ValueError(
            f"column {label!r}: found {len(values)} classes, expected 2 to {MOST_CLASSES}"
        )
    if names is not None and len(names) != len(values):
        raise ValueError(
            f"found {len(names)} names of classes, expected {len(values)} for the labels {values}"
        )
    classes = tuple(zip(values, names or map(str, values)))
    return VoxelPipeline(
        voxel, classes, tuple(columns), tuple(widths[c] for c in columns), label, tuple(ignored)
    )


def class_weights(scans: Iterable[Scan], count: int) -> mx.array:
    """(classes,) 1 / sqrt(share of the voxels), so that rare classes count; the mean is 1."""
    counts = np.zeros(count, np.int64)
    for scan in scans:
        labels = np.array(scan.labels)
        counts += np.bincount(labels[labels >= 0], minlength=count)
    return mx.array(balanced_weights(counts))


def balanced_weights(counts: np.ndarray) -> np.ndarray:
    """(classes,) float32: 1 / sqrt(share) of counts per class; their mean over the rows is 1."""
    share = counts / max(counts.sum(), 1)
    weights = 1 / np.sqrt(np.maximum(share, 1e-4))
    return (weights / max((weights * share).sum(), 1e-12)).astype(np.float32)


def segmentation_loss(weights: mx.array | None = None) -> Callable[[Module, Scan], mx.array]:
    """Function loss(model, scan) for a `Trainer`: cross-entropy of the voxels."""

    def loss(model: Module, scan: Scan) -> mx.array:
        if not isinstance(scan, Scan):
            raise TypeError(
                f"[segmentation_loss] scan: found {type(scan).__name__}, expected a Scan; "
                "VoxelPipeline.scan makes one of a cloud."
            )
        if scan.labels is None:
            raise ValueError(f"[segmentation_loss] scan {scan.name!r} has no labels")
        return classification_loss(model(scan.tensor).feats, scan.labels, weights)

    return loss


def predict(model: Module, scan: Scan) -> np.ndarray:
    """Class index of each voxel, a NumPy array (voxels,)."""
    if not len(scan.tensor.coords):
        return np.zeros(0, np.int64)
    return np.array(mx.argmax(model(scan.tensor).feats, axis=1))


def evaluate(
    model: Module, scans: Sequence[Scan], names: Sequence[str], ranks: Ranks | None = None
) -> Confusion:
    """Confusion over the scans; with ranks, each takes its share and all get the sum."""
    confusion = Confusion(names)
    for scan in scans if ranks is None else ranks.share(scans):
        confusion.add(np.array(scan.labels), predict(model, scan))
    if ranks is not None and ranks.size > 1:
        counts = ranks.total(mx.array(confusion.counts.astype(np.int32)))
        ranks.eval(counts)
        confusion = Confusion(names, np.array(counts))
    return confusion


def _scaled(cloud: PointCloud, column: str, width: int, name: str) -> np.ndarray:
    if column not in cloud.columns:
        raise ValueError(f"{name}: no column {column!r}, which the network was trained with")
    values = cloud.columns[column].reshape(len(cloud), -1)
    if values.shape[1] != width:
        raise ValueError(
            f"{name}: column {column!r} has {values.shape[1]} values per point, expected {width}"
        )
    scale = {"u1": 255.0, "u2": 65535.0}.get(values.dtype.str[1:], 1.0)
    values = values / scale
    if not np.isfinite(values).all():
        raise ValueError(f"{name}: column {column!r} has values that are not finite")
    return values


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
