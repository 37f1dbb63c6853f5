"""Confusion: counts of (truth, prediction), which give intersection over union and accuracy.

Needs NumPy only.

    IoU(c) = |truth = c and prediction = c| / |truth = c or prediction = c|
A class that is in neither has no IoU (NaN) and does not enter the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .._types import ArrayLike

__all__ = ["Confusion", "PartIoU", "epoch_score"]


def epoch_score(row: dict[str, float]) -> float:
    """What the kept network is chosen by: the mean IoU, or without one the epoch.

    NaN, the mean IoU of labels that are all ignored, is the lowest: then the last network is kept.
    """
    value = row.get("mean_iou", row["epoch"])
    return float("-inf") if np.isnan(value) else value


class Confusion:
    """Counts of (truth, prediction) for named classes; prints as a table with recall and IoU."""

    def __init__(
        self,
        classes: Sequence[str],
        counts: ArrayLike | None = None,
        unit: str = "voxels",
    ) -> None:
        self.classes, self.unit = tuple(classes), unit
        n = len(self.classes)
        self.counts = (
            np.zeros((n, n), np.int64)
            if counts is None
            else np.asarray(counts, np.int64).reshape(n, n)
        )

    def add(self, truth: ArrayLike, prediction: ArrayLike) -> None:
        """Arrays of class indices; rows whose truth is negative are not counted."""
        truth, prediction = np.asarray(truth).ravel(), np.asarray(prediction).ravel()
        n = len(self.classes)
        if len(truth) != len(prediction):
            raise ValueError(
                f"[Confusion] prediction: found {len(prediction)} rows, expected {len(truth)}"
            )
        kept = truth >= 0
        truth, prediction = truth[kept].astype(np.int64), prediction[kept].astype(np.int64)
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
        iou = self.iou()
        return float(np.nanmean(iou)) if np.isfinite(iou).any() else float("nan")

    @property
    def accuracy(self) -> float:
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
    """

    def __init__(self, parts: Iterable[Sequence[int]]) -> None:
        self._parts = list(parts)
        self._found: list[list[float]] = [[] for _ in self._parts]

    def add(self, category: int, truth: ArrayLike, prediction: ArrayLike) -> None:
        """One object: its category and the part of each point, true and predicted."""
        truth, prediction = np.asarray(truth), np.asarray(prediction)
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
        every = [score for scores in self._found for score in scores]
        return float(np.mean(every)) if every else float("nan")

    @property
    def category_iou(self) -> float:
        means = [np.mean(scores) for scores in self._found if scores]
        return float(np.mean(means)) if means else float("nan")
