"""Average precision of KITTI: 2D, bird's-eye view, 3D and orientation, at 11 and 40 recalls.

Geiger, Lenz and Urtasun, "Are we ready for autonomous driving? The KITTI vision benchmark suite",
CVPR 2012; 40 recalls: Simonelli et al., "Disentangling monocular 3D object detection", ICCV 2019.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ... import ops
from ...core._checks import instance, names

Floats = NDArray[np.float64]
Columns = Mapping[str, "NDArray[np.generic]"]

CLASSES = ("Car", "Pedestrian", "Cyclist")
LEVELS = ("easy", "moderate", "hard")
METRICS = ("bbox", "bev", "3d")
_HEIGHT, _OCCLUSION, _TRUNCATION = (40, 25, 25), (0, 1, 2), (0.15, 0.3, 0.5)
_RECALLS = 41
_NEIGHBORS = {"car": "van", "pedestrian": "person_sitting"}  # ignored: neither hit nor miss


@dataclass(frozen=True)
class KittiScores:
    """`ap` by "bbox_R11", "aos_R40" and so on: (class, level, overlap set) in percent.

    `precision` by "bbox", "bev", "3d", "aos": (class, level, overlap set, 41 recalls). The first
    overlap set is the official one, the second asks for less in "bev" and "3d".
    """

    classes: tuple[str, ...]
    ap: dict[str, Floats]
    precision: dict[str, Floats]

    def __str__(self) -> str:
        lines = [f"{'AP R40, percent':18} {'easy':>7} {'moderate':>9} {'hard':>7}"]
        for c, name in enumerate(self.classes):
            for metric in (*METRICS, "aos"):
                easy, moderate, hard = self.ap[f"{metric}_R40"][c, :, 0]
                lines.append(f"{name + ' ' + metric:18} {easy:7.2f} {moderate:9.2f} {hard:7.2f}")
        return "\n".join(lines)


def min_overlaps(classes: Sequence[str]) -> Floats:
    """(2 sets, metric, class): above which overlap a detection is a hit."""
    strict = [[0.7 if c.lower() == "car" else 0.5 for c in classes]] * 3
    loose = [0.5 if c.lower() == "car" else 0.25 for c in classes]
    return np.array([strict, [strict[0], loose, loose]], np.float64)


def kitti_metrics(truth: Columns, found: Columns, classes: Sequence[str] = CLASSES) -> KittiScores:
    """The scores of detections against ground truth, both as columns with one row per object.

    Args:
        truth: "frame", "name", "truncated", "occluded", "alpha", "bbox" (N, 4), "dimensions" (N, 3)
            as length, height, width, "location" (N, 3) in the frame of the camera (x right, y down,
            z forward, the center of the bottom), "rotation_y". Names "DontCare" mark regions.
        found: The same without "truncated" and "occluded", and with "score".
        classes: Their names; upper and lower case are the same.

    Raises:
        ValueError: A column is missing or has another number of rows.
    """
    classes = names("kitti_metrics", "classes", classes)
    truth = _checked("truth", truth, ("truncated", "occluded"))
    found = _checked("found", found, ("score",))
    frames = [
        _Frame(_rows(truth, truth["frame"] == f), _rows(found, found["frame"] == f))
        for f in np.unique(np.concatenate([truth["frame"], found["frame"]]))
    ]
    shape = (len(classes), len(LEVELS), 2, _RECALLS)
    precision = {name: np.zeros(shape) for name in (*METRICS, "aos")}
    limits = min_overlaps(classes)
    for c, name in enumerate(classes):
        for level in range(len(LEVELS)):
            marks = [_marks(frame, name.lower(), level) for frame in frames]
            for s in range(2):
                for m, metric in enumerate(METRICS):
                    curve, aos = _curve(frames, marks, metric, float(limits[s, m, c]))
                    precision[metric][c, level, s] = curve
                    if metric == "bbox":
                        precision["aos"][c, level, s] = aos
    ap = {f"{k}_R11": v[..., ::4].mean(-1) * 100 for k, v in precision.items()}
    ap |= {f"{k}_R40": v[..., 1:].mean(-1) * 100 for k, v in precision.items()}
    return KittiScores(tuple(classes), ap, precision)


def _checked(what: str, columns: Columns, more: Sequence[str]) -> dict[str, NDArray[np.generic]]:
    needed = ("frame", "name", "alpha", "bbox", "dimensions", "location", "rotation_y", *more)
    instance("kitti_metrics", what, columns, Mapping, "columns by name")
    missing = [name for name in needed if name not in columns]
    if missing:
        raise ValueError(f"[kitti_metrics] {what} lacks the columns {', '.join(missing)}")
    made = {name: np.asarray(columns[name]) for name in needed}
    n = len(made["frame"])
    for name, column in made.items():
        if len(column) != n:
            raise ValueError(
                f"[kitti_metrics] {what}[{name!r}] has {len(column)} rows, 'frame' has {n}"
            )
    made["name"] = np.char.lower(made["name"].astype(str)) if n else made["name"].astype(str)
    return made


def _rows(columns: dict[str, NDArray[np.generic]], keep: NDArray[np.bool_]) -> dict[str, Floats]:
    return {name: column[keep] for name, column in columns.items()}  # type: ignore[misc]


class _Frame:
    """One image: its objects, detections and overlaps [detection, object] by metric."""

    def __init__(self, truth: dict[str, Floats], found: dict[str, Floats]) -> None:
        self.truth, self.found = truth, found
        care = truth["name"] == "dontcare"
        self.regions = _box_overlap(found["bbox"], truth["bbox"][care], of_first=True)
        bev = _overlap_from_above(found, truth, "bev")
        self.overlap = {
            "bbox": _box_overlap(found["bbox"], truth["bbox"]),
            "bev": bev,
            "3d": _overlap_of_volumes(found, truth),
        }


def _box_overlap(a: Floats, b: Floats, of_first: bool = False) -> Floats:
    """Intersection over union of image boxes, or over the first box alone."""
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    shared = np.prod(np.clip(high - low, 0, None), -1)
    area_a = np.prod(a[:, 2:] - a[:, :2], -1)[:, None]
    area_b = np.prod(b[:, 2:] - b[:, :2], -1)[None]
    whole = area_a + 0 * area_b if of_first else area_a + area_b - shared
    return np.divide(shared, whole, out=np.zeros_like(shared), where=whole > 0)


def _overlap_from_above(a: dict[str, Floats], b: dict[str, Floats], kind: str) -> Floats:
    def boxes(objects: dict[str, Floats]) -> mx.array:
        place, size = objects["location"], objects["dimensions"]
        rows = np.zeros((len(place), 7))
        # DontCare regions have sizes of -1.
        rows[:, :2], rows[:, 3:5] = place[:, [0, 2]], np.clip(size[:, [0, 2]], 0, None)
        rows[:, 5], rows[:, 6] = 1, -objects["rotation_y"]  # it turns clockwise
        return mx.array(rows, dtype=mx.float64)

    with mx.stream(mx.cpu):
        return np.array(ops.box_overlap(boxes(a), boxes(b), kind=kind), np.float64)


def _overlap_of_volumes(a: dict[str, Floats], b: dict[str, Floats]) -> Floats:
    area = _overlap_from_above(a, b, "area")
    bottom_a, bottom_b = a["location"][:, 1][:, None], b["location"][:, 1][None]
    high_a, high_b = a["dimensions"][:, 1][:, None], b["dimensions"][:, 1][None]
    tall = np.minimum(bottom_a, bottom_b) - np.maximum(bottom_a - high_a, bottom_b - high_b)
    shared = area * np.clip(tall, 0, None)
    volume_a = np.prod(a["dimensions"], -1)[:, None]
    volume_b = np.prod(b["dimensions"], -1)[None]
    return shared / np.maximum(volume_a + volume_b - shared, 1e-12)


@dataclass(frozen=True)
class _Marks:
    """0 counts, 1 is ignored, -1 is not looked at; for each object and detection of a frame."""

    truth: NDArray[np.int64]
    found: NDArray[np.int64]


def _marks(frame: _Frame, name: str, level: int) -> _Marks:
    t, d = frame.truth, frame.found
    height = t["bbox"][:, 3] - t["bbox"][:, 1]
    hard = (
        (t["occluded"] > _OCCLUSION[level])
        | (t["truncated"] > _TRUNCATION[level])
        | (height <= _HEIGHT[level])
    )
    same, near = t["name"] == name, t["name"] == _NEIGHBORS.get(name, "")
    truth = np.where(same & ~hard, 0, np.where(same | near, 1, -1))
    low = np.abs(d["bbox"][:, 3] - d["bbox"][:, 1]) < _HEIGHT[level]
    found = np.where(low, 1, np.where(d["name"] == name, 0, -1))
    return _Marks(truth, found)


def _curve(
    frames: Sequence[_Frame], marks: Sequence[_Marks], metric: str, limit: float
) -> tuple[Floats, Floats]:
    """Precision and orientation similarity at 41 recalls, made non-increasing."""
    hits = [_best_scores(f, m, f.overlap[metric], limit) for f, m in zip(frames, marks)]
    n_truth = sum(int((m.truth == 0).sum()) for m in marks)
    thresholds = _thresholds(np.concatenate([np.zeros(0), *hits]), n_truth)
    precision, aos = np.zeros(_RECALLS), np.zeros(_RECALLS)
    for i, threshold in enumerate(thresholds):
        counts = [_count(f, m, metric, limit, float(threshold)) for f, m in zip(frames, marks)]
        tp, fp, similarity = (sum(column) for column in zip(*counts))
        if tp + fp > 0:
            precision[i], aos[i] = tp / (tp + fp), similarity / (tp + fp)
    n = len(thresholds)
    for curve in (precision, aos):
        curve[:n] = np.maximum.accumulate(curve[:n][::-1])[::-1]
    return precision, aos


def _best_scores(frame: _Frame, marks: _Marks, overlap: Floats, limit: float) -> Floats:
    """Scores of the hits when each object takes the unused detection of the best score."""
    score, free = frame.found["score"], marks.found >= 0
    found = []
    for i in np.flatnonzero(marks.truth >= 0):
        fits = free & (overlap[:, i] > limit)
        if not fits.any():
            continue
        j = int(np.where(fits, score, -np.inf).argmax())
        free[j] = False
        if marks.truth[i] == 0 and marks.found[j] == 0:
            found.append(score[j])
    return np.array(found, np.float64)


def _thresholds(scores: Floats, n_truth: int) -> list[float]:
    """The scores whose recalls lie nearest to 0, 1/40, 2/40 and so on."""
    made: list[float] = []
    wanted = 0.0
    ordered = np.sort(scores)[::-1]
    last = len(ordered) - 1
    for i, score in enumerate(ordered):
        recall, following = (i + 1) / n_truth, (i + 2) / n_truth
        if i < last and following - wanted < wanted - recall:
            continue
        made.append(float(score))
        wanted += 1 / (_RECALLS - 1)
    return made[:_RECALLS]


def _count(
    frame: _Frame, marks: _Marks, metric: str, limit: float, threshold: float
) -> tuple[int, int, float]:
    """Hits, false alarms and the sum of orientation similarities above a score."""
    overlap = frame.overlap[metric]
    above = frame.found["score"] >= threshold
    free = (marks.found >= 0) & above
    tp, similarity = 0, 0.0
    for i in np.flatnonzero(marks.truth >= 0):
        fits = free & (overlap[:, i] > limit)
        if not fits.any():
            continue
        counted = fits & (marks.found == 0)
        # Detections of the class by overlap; only if there is none, the first ignored one.
        j = int(np.where(counted, overlap[:, i], -1).argmax() if counted.any() else fits.argmax())
        free[j] = False
        if marks.truth[i] == 0 and marks.found[j] == 0:
            tp += 1
            turn = frame.truth["alpha"][i] - frame.found["alpha"][j]
            similarity += float((1 + np.cos(turn)) / 2)
    left = free & (marks.found == 0)
    if metric == "bbox" and frame.regions.shape[1]:
        left &= ~(frame.regions > limit).any(1)
    return tp, int(left.sum()), similarity
