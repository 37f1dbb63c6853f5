"""Boxes that a detector found, and the rules by which they are chosen.

The rules are written with operations that a program can hold, so that an exported detector chooses
the same boxes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ... import ops

Floats = NDArray[np.float32]
Integers = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Detections:
    """The boxes of one frame, by class group and falling score.

    Attributes:
        boxes: (K, 7) float32: x, y, z of the center, dx, dy, dz, heading.
        scores: (K,) float32 in 0..1.
        labels: (K,) int32: the number of the class, counted from 1.
        names: The name of each box's class.
        velocities: (K, 2) float32 in meters per second, or None if the network gives none.
        dropped: Points of the frame that did not enter a voxel, by reason.
    """

    boxes: Floats
    scores: Floats
    labels: Integers
    names: tuple[str, ...]
    velocities: Floats | None = None
    dropped: dict[str, int] | None = None

    def __len__(self) -> int:
        return len(self.scores)

    def __str__(self) -> str:
        lines = [f"{len(self)} boxes"]
        for box, score, name in zip(self.boxes, self.scores, self.names):
            x, y, z, dx, dy, dz, turn = box
            lines.append(
                f"{name:20} {score:.2f}  at {x:.1f} {y:.1f} {z:.1f}  "
                f"size {dx:.1f} {dy:.1f} {dz:.1f}  heading {np.degrees(turn):.0f} deg"
            )
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Candidates:
    """Boxes (N, 7 or more), scores (N,) and classes (N,) int32, counted from 0 over all groups."""

    boxes: mx.array
    scores: mx.array
    classes: mx.array
    iou: mx.array | None = None

    def take(self, rows: mx.array) -> Candidates:
        """Some of the rows."""
        iou = None if self.iou is None else self.iou[rows]
        return Candidates(self.boxes[rows], self.scores[rows], self.classes[rows], iou)


def joined(parts: Sequence[Candidates]) -> Candidates:
    """The rows of all parts, one after the other."""
    if len(parts) == 1:
        return parts[0]
    qualities = [p.iou for p in parts if p.iou is not None]
    return Candidates(
        mx.concatenate([p.boxes for p in parts]),
        mx.concatenate([p.scores for p in parts]),
        mx.concatenate([p.classes for p in parts]),
        mx.concatenate(qualities) if len(qualities) == len(parts) else None,
    )


def suppressed(
    found: Candidates,
    threshold: float,
    kind: str = "nms_gpu",
    pre: int = -1,
    post: int = -1,
) -> Candidates:
    """The boxes that non-maximum suppression keeps, by falling score; kind as in OpenPCDet."""
    kinds = {"nms_gpu": "rotated", "nms_normal_gpu": "upright", "circle_nms": "circle"}
    if kind not in kinds:
        raise ValueError(f"[detection] NMS_TYPE must be one of {', '.join(kinds)}, got {kind!r}")
    rows = ops.nms(
        found.boxes[:, :7], found.scores, float(threshold), kind=kinds[kind], pre=pre, post=post
    )
    return found.take(rows)


def per_class(
    found: Candidates,
    n_classes: int,
    threshold: float | Sequence[float],
    pre: int | Sequence[int] = -1,
    post: int | Sequence[int] = -1,
    kind: str = "nms_gpu",
) -> Candidates:
    """Suppression inside of each class, classes one after the other, each with its own limits."""

    def of(value: Any, c: int) -> Any:
        return value[c] if isinstance(value, (list, tuple)) else value

    parts = []
    for c in range(n_classes):
        alone = found.take(ops.rows_where(found.classes == c))
        limits = {"pre": int(of(pre, c)), "post": int(of(post, c))}
        parts.append(suppressed(alone, float(of(threshold, c)), kind, **limits))
    return joined(parts)


def rectified(found: Candidates, exponents: float | Sequence[float]) -> Candidates:
    """score^(1 - a) q^a with q = clip((iou + 1) / 2, 0, 1) and a per class."""
    if found.iou is None:
        raise ValueError("[detection] scores cannot be rectified: the head has no output iou")
    quality = mx.minimum(mx.maximum((found.iou + 1) * 0.5, 0), 1)
    given = np.asarray(exponents, np.float32).reshape(-1)
    if len(given) > 1:
        a = mx.array(given)[found.classes]
        scores = found.scores ** (1 - a) * quality**a
    else:
        scores = found.scores ** (1 - float(given[0])) * quality ** float(given[0])
    return Candidates(found.boxes, scores, found.classes, found.iou)


def detections(found: Candidates, class_names: Sequence[str], dropped: mx.array) -> Detections:
    """The result for a user; dropped is that of `ops.point_voxels`."""
    mx.eval(found.boxes, found.scores, found.classes)
    boxes, classes = np.array(found.boxes), np.array(found.classes)
    outside, full_voxel, full_grid = map(int, np.array(dropped))
    lost = {"outside": outside, "full_voxel": full_voxel, "full_grid": full_grid}
    return Detections(
        np.ascontiguousarray(boxes[:, :7]),
        np.array(found.scores),
        classes + 1,
        tuple(class_names[c] for c in classes),
        np.ascontiguousarray(boxes[:, 7:9]) if boxes.shape[1] >= 9 else None,
        lost,
    )
