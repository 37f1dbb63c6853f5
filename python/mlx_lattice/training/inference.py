"""Predictions for points: test-time augmentation, and windows for clouds that do not fit.

    probabilities(model, pipeline, cloud)                          (P, C), one pass
    probabilities(model, pipeline, cloud, views=standard_views())  the mean over augmented views
    probabilities(model, pipeline, cloud, window=20.0)             windows of 20 units, half
    overlapping

A point that no voxel holds, because it is not finite, gets probabilities 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np

from ..io import PointCloud
from ..transforms.base import linear
from ..transforms.geometry import turn
from .metrics import Confusion

if TYPE_CHECKING:
    from mlx.nn import Module

    from mlx_lattice.training.distributed import Ranks
    from mlx_lattice.training.scans import VoxelPipeline

    from ..datasets import Dataset

__all__ = ["evaluate_points", "predict_points", "probabilities", "standard_views", "windows"]


def standard_views() -> list[np.ndarray]:
    """Eight matrices: four turns about z, each with and without a mirror."""
    mirror = np.diag([-1.0, 1.0, 1.0])
    turns = [turn(k * np.pi / 2) for k in range(4)]
    return [m for t in turns for m in (t, t @ mirror)]


def probabilities(
    model: Module,
    pipeline: VoxelPipeline,
    cloud: PointCloud,
    *,
    views: Sequence[np.ndarray] = (),
    window: float | None = None,
    overlap: float = 0.5,
) -> np.ndarray:
    """(P, C) float32 class probabilities of the points: means over the views and the windows.

    views: (3, 3) matrices that move the points. window: side of upright windows in x and y.
    overlap: part of a window that the next one shares, 0 or more and below 1.
    """
    model.eval()
    total = np.zeros((len(cloud), len(pipeline.classes)), np.float32)
    passes = np.zeros(len(cloud), np.int32)
    bare = PointCloud(cloud.points, {n: v for n, v in cloud.columns.items() if n != pipeline.label})
    for rows in windows(cloud, window, overlap):
        part = bare if rows is None else bare[rows]
        for matrix in views or (np.eye(3),):
            seen = part if np.array_equal(matrix, np.eye(3)) else linear(part, matrix)
            scan = pipeline.scan(seen, str(cloud.meta.get("name", "")))
            if not len(scan.tensor.coords):
                continue
            p = np.array(mx.softmax(model(scan.tensor).feats.astype(mx.float32), axis=1))
            known = scan.rows >= 0
            at = np.flatnonzero(known) if rows is None else rows[known]
            total[at] += p[scan.rows[known]]
            passes[at] += 1
    return total / np.maximum(passes, 1)[:, None]


def predict_points(
    model: Module, pipeline: VoxelPipeline, cloud: PointCloud, **options: Any
) -> np.ndarray:
    """(P,) class index of each point; see probabilities."""
    return probabilities(model, pipeline, cloud, **options).argmax(axis=1).astype(np.int32)


def evaluate_points(
    model: Module,
    pipeline: VoxelPipeline,
    dataset: Dataset,
    ranks: Ranks | None = None,
    on_item: Callable[[int, np.ndarray], object] | None = None,
    **options: Any,
) -> Confusion:
    """Confusion over the points of a data set, as the benchmarks count: -1 does not count.

    ranks: each takes its share and all get the sum. on_item(i, classes): called with the prediction
    of each item, also where the data set has no labels. Points with `time` below 0, of earlier
    scans, are not predicted. options: see probabilities.
    """
    confusion = Confusion(dataset.classes)
    mine = range(len(dataset)) if ranks is None else ranks.share(range(len(dataset)))
    for i in mine:
        cloud = dataset[i]
        classes = predict_points(model, pipeline, cloud, **options)
        now = cloud.columns["time"] == 0 if "time" in cloud.columns else np.ones(len(cloud), bool)
        if dataset.labeled:
            confusion.add(cloud.columns["label"][now], classes[now])
        if on_item is not None:
            on_item(i, classes[now])
    if ranks is not None and ranks.size > 1:
        # int32 holds 2^31 points; two halves hold the points of any data set
        low, high = confusion.counts & 0xFFFFFF, confusion.counts >> 24
        halves = ranks.total(mx.array(np.stack([low, high]).astype(np.int32)))
        ranks.eval(halves)
        low, high = np.array(halves).astype(np.int64)
        confusion = Confusion(dataset.classes, low + (high << 24))
    return confusion


def windows(
    cloud: PointCloud, window: float | None, overlap: float = 0.5
) -> Iterator[np.ndarray | None]:
    """Rows of each window that holds a point; None once for the whole cloud."""
    if window is None:
        yield None
        return
    if not window > 0:
        raise ValueError(f"[windows] window: found {window}, expected a positive number")
    if not 0 <= overlap < 1:
        raise ValueError(f"[windows] overlap: found {overlap}, expected 0 or more and below 1")
    bounds = cloud.bounds()
    if bounds is None:
        return
    step = window * (1 - overlap)
    xy = cloud.points[:, :2].astype(np.float64) - bounds[0][:2]
    counts = np.maximum(np.ceil((bounds[1] - bounds[0])[:2] / step - overlap / (1 - overlap)), 1)
    for i in range(int(counts[0])):
        in_x = (xy[:, 0] >= i * step) & (xy[:, 0] <= i * step + window)
        for j in range(int(counts[1])):
            inside = in_x & (xy[:, 1] >= j * step) & (xy[:, 1] <= j * step + window)
            rows = np.flatnonzero(inside)
            if len(rows):
                yield rows
