"""Confusion: counts of (truth, prediction), which give intersection over union and accuracy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..core import _checks

if TYPE_CHECKING:
    from ..core.types import ArrayLike

__all__ = ["Confusion", "PartIoU", "epoch_score"]


def epoch_score(row: dict[str, float]) -> float:
    """The number by which the kept network is chosen: the mean IoU, or without one the epoch.

    NaN, the mean IoU of labels that are all ignored, is the lowest: then the last network is kept.

    Args:
        row: The values of an epoch by name.

    Returns:
        A number; the epoch with the highest one is kept.

    Raises:
        TypeError, ValueError: `row` is no dict, or has neither "mean_iou" nor "epoch".
    """
    _checks.instance("epoch_score", "row", row, dict, "the values of an epoch by name")
    value = row.get("mean_iou", row.get("epoch"))
    if isinstance(value, float) and np.isnan(value):
        return float("-inf")
    return _checks.number("epoch_score", 'row["mean_iou"] or row["epoch"]', value)


class Confusion:
    """Counts of (truth, prediction) for named classes; prints as a table with recall and IoU.

        IoU(c) = |truth = c and prediction = c| / |truth = c or prediction = c|

    A class that is in neither has no IoU (NaN) and does not enter the mean.

    Args:
        classes: The names of the classes.
        counts: Counts (C, C) to begin with, rows are the truth; by default 0.
        unit: What is counted, for the heading of the table.

    Raises:
        TypeError, ValueError: `classes` are no names, or `counts` have another shape.

    Examples:
        >>> from mlx_lattice import training
        >>> c = training.Confusion(["road", "car"])
        >>> c.add(truth=[0, 0, 1, -1], prediction=[0, 1, 1, 0])  # -1 does not count
        >>> c.iou().tolist(), c.mean_iou, round(c.accuracy, 3)
        ([0.5, 0.5], 0.5, 0.667)
    """

    def __init__(
        self,
        classes: Sequence[str],
        counts: ArrayLike | None = None,
        unit: str = "voxels",
    ) -> None:
        names = _checks.listed("Confusion", "classes", classes, "the names of the classes")
        self.classes, self.unit = tuple(names), unit
        n = len(self.classes)
        self.counts = np.zeros((n, n), np.int64)
        if counts is not None:
            self.counts += _indices("Confusion", "counts", counts, n * n).reshape(n, n)

    def add(self, truth: ArrayLike, prediction: ArrayLike) -> None:
        """Counts rows, given by their class indices; a negative truth does not count.

        Raises ValueError if there are not as many predictions, or an index is no class.
        """
        truth = _indices("Confusion", "truth", truth)
        prediction = _indices("Confusion", "prediction", prediction)
        n = len(self.classes)
        if len(truth) != len(prediction):
            raise ValueError(
                f"[Confusion] prediction: found {len(prediction)} rows, expected {len(truth)}"
            )
        kept = truth >= 0
        truth, prediction = truth[kept], prediction[kept]
        for name, values in (("truth", truth), ("prediction", prediction)):
            if values.size and not 0 <= values.min() <= values.max() < n:
                raise ValueError(
                    f"[Confusion] {name}: found {values.min()}..{values.max()}, expected 0..{n - 1}"
                )
        self.counts += np.bincount(truth * n + prediction, minlength=n * n).reshape(n, n)

    def iou(self) -> np.ndarray:
        """(classes,) float64; NaN where a class is absent."""
        both = np.diag(self.counts)
        either = self.counts.sum(0) + self.counts.sum(1) - both
        return np.where(either > 0, both / np.maximum(either, 1), np.nan)

    @property
    def mean_iou(self) -> float:
        """The mean IoU of the classes present; NaN without one."""
        iou = self.iou()
        return float(np.nanmean(iou)) if np.isfinite(iou).any() else float("nan")

    @property
    def accuracy(self) -> float:
        """The share of the rows that are right."""
        return float(np.diag(self.counts).sum() / max(self.counts.sum(), 1))

    @property
    def mean_accuracy(self) -> float:
        """Mean over the classes present of the share of their rows that are right."""
        rows = self.counts.sum(1)
        share = np.diag(self.counts)[rows > 0] / rows[rows > 0]
        return float(share.mean()) if len(share) else float("nan")

    def __str__(self) -> str:
        width = max(len(str(c)) for c in (*self.classes, "class"))
        lines = [f"{'class':<{width}}  {self.unit:>10}  {'recall':>6}  {'IoU':>6}"]
        rows, hits = self.counts.sum(1), np.diag(self.counts)
        for name, n, hit, iou in zip(self.classes, rows, hits, self.iou()):
            lines.append(
                f"{name!s:<{width}}  {n:>10,}  {hit / n if n else float('nan'):6.3f}  {iou:6.3f}"
            )
        mean = f"{self.mean_accuracy:6.3f}  {self.mean_iou:6.3f}"
        lines.append(f"{'mean':<{width}}  {'':>10}  {mean}")
        lines.append(f"{'all':<{width}}  {rows.sum():>10,}  {self.accuracy:6.3f}  {'':>6}")
        return "\n".join(lines)


class PartIoU:
    """IoU of parts as ShapeNetPart counts it: per object, the mean over the parts of its category.

    A part that neither truth nor prediction has counts as 1. `instance_iou` is the mean over all
    objects, `category_iou` the mean over the categories of the mean over their objects.

    Args:
        parts: The parts of each category.

    Raises:
        TypeError: `parts` are no lists of integers.

    Examples:
        >>> from mlx_lattice import training
        >>> score = training.PartIoU([(0, 1)])
        >>> score.add(0, truth=[0, 1], prediction=[0, 0])  # IoU 1/2 of part 0 and 0 of part 1
        >>> score.instance_iou
        0.25
    """

    def __init__(self, parts: Iterable[Sequence[int]]) -> None:
        expected = "the parts of each category"
        _checks.instance("PartIoU", "parts", parts, (list, tuple), expected)
        for some in parts:
            _checks.instance("PartIoU", "parts", some, (list, tuple, range), expected)
        self._parts = list(parts)
        self._found: list[list[float]] = [[] for _ in self._parts]

    def add(self, category: int, truth: ArrayLike, prediction: ArrayLike) -> None:
        """Counts one object: its category and the part of each point, true and predicted."""
        _checks.integer(self, "category", category, 0, len(self._parts) - 1)
        expected = "the part of each point"
        truth = _checks.numpy_array(self, "truth", truth, expected)
        prediction = _checks.numpy_array(self, "prediction", prediction, expected)
        if truth.shape != prediction.shape or truth.ndim != 1:
            raise ValueError(
                f"[PartIoU] prediction: found shape {prediction.shape}, expected {truth.shape}"
            )
        scores = []
        for part in self._parts[category]:
            either = ((truth == part) | (prediction == part)).sum()
            both = ((truth == part) & (prediction == part)).sum()
            scores.append(both / either if either else 1.0)
        self._found[category].append(float(np.mean(scores)))

    @property
    def instance_iou(self) -> float:
        """The mean over all objects; NaN without one."""
        every = [score for scores in self._found for score in scores]
        return float(np.mean(every)) if every else float("nan")

    @property
    def category_iou(self) -> float:
        """The mean over the categories of the mean over their objects."""
        means = [np.mean(scores) for scores in self._found if scores]
        return float(np.mean(means)) if means else float("nan")


def _indices(call: str, name: str, values: ArrayLike, count: int | None = None) -> np.ndarray:
    """The values as int64 of one axis, `count` of them if that is given."""
    found = _checks.numpy_array(call, name, values, "integers").ravel()
    if found.dtype.kind == "f" and not (found == np.floor(found)).all():
        _checks.wrong_type(call, name, values, "integers")
    if count is not None and len(found) != count:
        _checks.wrong_value(call, name, values, f"{count} integers")
    return found.astype(np.int64)
