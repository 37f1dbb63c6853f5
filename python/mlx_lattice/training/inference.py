"""Predictions of the classes of voxels and points, and their evaluation.

    predict_voxels(model, scan)                                    (voxels,) class of each voxel
    probabilities(model, pipeline, cloud)                          (P, C), one pass
    probabilities(model, pipeline, cloud, views=standard_views())  the mean over augmented views
    probabilities(model, pipeline, cloud, window=20.0)             windows of 20 units that overlap
                                                                   by a half
    evaluate_voxels(model, scans, names)                           a Confusion over voxels
    evaluate_points(model, pipeline, dataset)                      a Confusion over points

A point that no voxel holds, because it is not finite, gets probabilities 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np

from ..core import _checks
from ..io import PointCloud
from ..nn import pack
from ..transforms.base import linear
from ..transforms.geometry import turn
from .distributed import Ranks, check_ranks
from .metrics import Confusion
from .voxel_pipeline import Scan, VoxelPipeline

if TYPE_CHECKING:
    from mlx.nn import Module

    from ..datasets import Dataset

__all__ = [
    "evaluate_points",
    "evaluate_voxels",
    "predict_points",
    "predict_voxels",
    "probabilities",
    "standard_views",
    "windows",
]


def predict_voxels(model: Module, scan: Scan) -> np.ndarray:
    """The class of each voxel of a scan.

    Args:
        model: A network that gives one row of scores per voxel.
        scan: A scan that `VoxelPipeline.scan` made.

    Returns:
        Class indices, a NumPy array of shape (voxels,).

    Raises:
        TypeError: `scan` is no `Scan`.
    """
    _checks.instance("predict_voxels", "scan", scan, Scan, "a Scan; VoxelPipeline.scan makes one")
    if not len(scan.tensor.coords):
        return np.zeros(0, np.int64)
    return np.array(mx.argmax(model(scan.tensor).feats, axis=1))


def evaluate_voxels(
    model: Module, scans: Sequence[Scan], names: Sequence[str], ranks: Ranks | None = None
) -> Confusion:
    """Compares the predicted classes of voxels with the labels of the scans.

    Args:
        model: A network that gives one row of scores per voxel.
        scans: Scans with labels.
        names: The names of the classes.
        ranks: Each rank takes its share of the scans, and all get the sum.

    Returns:
        A `Confusion` over all voxels; those with label -1 do not count.

    Raises:
        ValueError: A scan has no labels.
    """
    check_ranks("evaluate_voxels", ranks)
    confusion = Confusion(names)
    scans = _checks.listed("evaluate_voxels", "scans", scans, "scans with labels")
    for scan in scans if ranks is None else ranks.share(scans):
        classes = predict_voxels(model, scan)
        if scan.labels is None:
            raise ValueError(f"[evaluate_voxels] scan {scan.name!r} has no labels")
        confusion.add(np.array(scan.labels), classes)
    return _over_ranks(confusion, ranks)


def standard_views() -> list[np.ndarray]:
    """Views for test-time augmentation: four turns about z, each with and without a mirror.

    Returns:
        Eight matrices (3, 3); the first is the identity.
    """
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
    """The class probabilities of points: means over the views and the windows.

    Args:
        model: The network; it is set to evaluation mode.
        pipeline: The `VoxelPipeline` with which the network was trained.
        cloud: A `PointCloud`.
        views: Matrices (3, 3) that move the points; see `standard_views`.
        window: The side of upright windows in x and y, for a cloud that does not fit; None takes
            the whole cloud at once.
        overlap: The part of a window that the next one shares, 0 or more and below 1.

    Returns:
        A float32 array of shape (P, C). Rows of points that are not finite are 0.

    Raises:
        TypeError, ValueError: An argument is of another kind or size; or the cloud lacks a column
            with which the network was trained.

    Examples:
        >>> from mlx_lattice import models, samples, training
        >>> pipeline = training.VoxelPipeline(0.2, tuple(enumerate(samples.CLASSES)))
        >>> net = models.MinkUNet(pipeline.channels, 4, depth=14, width=8)
        >>> p = training.probabilities(net, pipeline, samples.scan(), window=5.0)
        >>> p.shape, bool((abs(p.sum(axis=1) - 1) < 1e-5).all())
        ((6000, 4), True)
    """
    pack(_checks.model("probabilities", model).eval())
    _checks.instance("probabilities", "pipeline", pipeline, VoxelPipeline, "a VoxelPipeline")
    _checks.instance("probabilities", "cloud", cloud, PointCloud, "a PointCloud")
    matrices = _matrices(views)
    total = np.zeros((len(cloud), len(pipeline.classes)), np.float32)
    passes = np.zeros(len(cloud), np.int32)
    bare = PointCloud(cloud.points, {n: v for n, v in cloud.columns.items() if n != pipeline.label})
    for rows in windows(cloud, window, overlap):
        part = bare if rows is None else bare[rows]
        for matrix in matrices:
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


def _matrices(views: Sequence[np.ndarray]) -> list[np.ndarray]:
    expected = "matrices of shape (3, 3), as standard_views() gives them"
    _checks.instance("probabilities", "views", views, (list, tuple), expected)
    found = [np.asarray(view) for view in views]
    for view in found:
        if view.shape != (3, 3) or view.dtype.kind not in "fiu":
            raise ValueError(
                f"[probabilities] views: found {view.dtype} of shape {view.shape}, "
                f"expected {expected}"
            )
    return found or [np.eye(3)]


def predict_points(
    model: Module, pipeline: VoxelPipeline, cloud: PointCloud, **options: Any
) -> np.ndarray:
    """The most probable class of each point.

    Args:
        model: The network; it is set to evaluation mode.
        pipeline: The `VoxelPipeline` with which the network was trained.
        cloud: A `PointCloud`.
        options: `views`, `window` and `overlap` of `probabilities`.

    Returns:
        Class indices, int32 of shape (P,).

    Raises:
        TypeError, ValueError: As `probabilities`.
    """
    return probabilities(model, pipeline, cloud, **options).argmax(axis=1).astype(np.int32)


def evaluate_points(
    model: Module,
    pipeline: VoxelPipeline,
    dataset: Dataset,
    ranks: Ranks | None = None,
    on_item: Callable[[int, np.ndarray], object] | None = None,
    **options: Any,
) -> Confusion:
    """Compares the predicted classes of points with the labels of a data set.

    The benchmarks count points too. Points with `time` below 0, of earlier scans, are not counted.

    Args:
        model: The network; it is set to evaluation mode.
        pipeline: The `VoxelPipeline` with which the network was trained.
        dataset: A data set of `mlx_lattice.datasets`.
        ranks: Each rank takes its share of the items, and all get the sum.
        on_item: Called with the number of each item and its classes (P,), also where the data set
            has no labels.
        options: `views`, `window` and `overlap` of `probabilities`.

    Returns:
        A `Confusion` over all points; those with label -1 do not count.

    Raises:
        TypeError, ValueError: As `probabilities`.
    """
    for name in ("classes", "labeled"):
        if not hasattr(dataset, name):
            expected = "a data set of mlx_lattice.datasets"
            _checks.instance("evaluate_points", "dataset", dataset, (), expected)
    check_ranks("evaluate_points", ranks)
    confusion = Confusion(dataset.classes, unit="points")
    mine = range(len(dataset)) if ranks is None else ranks.share(range(len(dataset)))
    for i in mine:
        cloud = dataset[i]
        classes = predict_points(model, pipeline, cloud, **options)
        now = cloud.columns["time"] == 0 if "time" in cloud.columns else np.ones(len(cloud), bool)
        if dataset.labeled:
            confusion.add(cloud.columns["label"][now], classes[now])
        if on_item is not None:
            on_item(i, classes[now])
    return _over_ranks(confusion, ranks)


def _over_ranks(confusion: Confusion, ranks: Ranks | None) -> Confusion:
    """The sum of the counts of all ranks."""
    if ranks is None or ranks.size == 1:
        return confusion
    # MLX sums int32, which holds 2^31 rows; two halves hold the rows of any data set.
    low, high = confusion.counts & 0xFFFFFF, confusion.counts >> 24
    halves = ranks.total(mx.array(np.stack([low, high]).astype(np.int32)))
    ranks.eval(halves)
    low, high = np.array(halves).astype(np.int64)
    return Confusion(confusion.classes, low + (high << 24), confusion.unit)


def windows(
    cloud: PointCloud, window: float | None, overlap: float = 0.5
) -> Iterator[np.ndarray | None]:
    """The rows of each upright window that holds a point.

    Args:
        cloud: A `PointCloud`.
        window: The side of the windows in x and y; None is the whole cloud.
        overlap: The part of a window that the next one shares, 0 or more and below 1.

    Returns:
        An iterator of row numbers, one array per window; of None once for the whole cloud.

    Raises:
        TypeError, ValueError: `window` is no positive number, `overlap` is not in [0, 1), or the
            cloud spans more than 2^53 windows.

    Examples:
        >>> from mlx_lattice import samples, training
        >>> yard = samples.scan()  # 8 m by 8 m
        >>> parts = list(training.inference.windows(yard, window=4.5, overlap=0.0))
        >>> len(parts), sum(map(len, parts)) == len(yard)
        (4, True)
    """
    if window is None:
        yield None
        return
    _checks.instance("windows", "cloud", cloud, PointCloud, "a PointCloud")
    window = _checks.positive("windows", "window", window)
    overlap = _checks.share("windows", "overlap", overlap)
    bounds = cloud.bounds()
    if bounds is None:
        return
    step = window * (1 - overlap)
    span = bounds[1][:2] - bounds[0][:2]
    if not (span < step * 2**53).all():
        raise ValueError(
            f"[windows] window: found {window:g}, but the points span {span.max():g}, more than "
            "2^53 windows; give a larger window, or drop far points"
        )
    rows = np.flatnonzero(cloud.finite())
    xy = cloud.points[rows, :2].astype(np.float64) - bounds[0][:2]
    last = np.maximum(np.ceil((span - window) / step), 0).astype(np.int64).tolist()
    for column in _intervals(xy[:, 0], window, step, last[0]):
        for cell in _intervals(xy[column, 1], window, step, last[1]):
            yield np.sort(rows[column[cell]])


def _intervals(values: np.ndarray, window: float, step: float, last: int) -> Iterator[np.ndarray]:
    """The indices of the values (N,) in each interval [i step, i step + window], i <= last.

    The last interval has no end, so that rounding loses no value. Intervals without a value are
    skipped: the work does not grow with the empty space between values.
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    i = at = 0
    while at < len(ordered) and i <= last:
        # The first interval that may hold the next value; rounding may give the one before.
        i = min(max(i, int(np.ceil((ordered[at] - window) / step)) - 1), last)
        begin = np.searchsorted(ordered, i * step, "left")
        end = np.searchsorted(ordered, i * step + window, "right") if i < last else len(ordered)
        if begin < end:
            yield order[begin:end]
        i += 1
        at = int(np.searchsorted(ordered, i * step, "left"))
