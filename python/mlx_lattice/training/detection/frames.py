"""Augmentation of frames with boxes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ... import ops
from ...core._checks import finite, function, instance, integer, listed, number, one_of
from ...io.box_frame import BoxFrame

Floats = NDArray[np.float32]

Change = Callable[[BoxFrame, np.random.Generator], BoxFrame]


def _check(who: str, frame: object, rng: object) -> None:
    instance(who, "frame", frame, BoxFrame, "a BoxFrame")
    instance(who, "rng", rng, np.random.Generator, "a generator of NumPy")


def flip(axis: str, chance: float = 0.5) -> Change:
    """Mirrors points, boxes and velocities at the axis "x" or "y"."""
    one_of("flip", "axis", axis, ("x", "y"))
    chance = number("flip", "chance", chance, 0, 1)
    column = {"x": 1, "y": 0}[axis]

    def change(frame: BoxFrame, rng: np.random.Generator) -> BoxFrame:
        _check("flip", frame, rng)
        if rng.random() >= chance:
            return frame
        points, boxes = frame.points.copy(), frame.boxes.copy()
        points[:, column] *= -1
        boxes[:, column] *= -1
        boxes[:, 6] = -boxes[:, 6] if axis == "x" else np.float32(np.pi) - boxes[:, 6]
        if boxes.shape[1] == 9:
            boxes[:, 7 + column] *= -1
        return replace(frame, points=points, boxes=boxes)

    return change


def rotate(most: float = np.pi / 4) -> Change:
    """Turns the frame about z by an angle in -most .. most."""
    most = finite("rotate", "most", most, 0)

    def change(frame: BoxFrame, rng: np.random.Generator) -> BoxFrame:
        _check("rotate", frame, rng)
        angle = rng.uniform(-most, most)
        c, s = np.cos(angle), np.sin(angle)
        turn = np.array([[c, s], [-s, c]], np.float32)
        points, boxes = frame.points.copy(), frame.boxes.copy()
        points[:, :2] = points[:, :2] @ turn
        boxes[:, :2] = boxes[:, :2] @ turn
        boxes[:, 6] += np.float32(angle)
        if boxes.shape[1] == 9:
            boxes[:, 7:9] = boxes[:, 7:9] @ turn
        return replace(frame, points=points, boxes=boxes)

    return change


def scale(low: float = 0.95, high: float = 1.05) -> Change:
    """Multiplies places and sizes by one factor."""
    low = finite("scale", "low", low, 0)
    high = finite("scale", "high", high, low)

    def change(frame: BoxFrame, rng: np.random.Generator) -> BoxFrame:
        _check("scale", frame, rng)
        factor = np.float32(rng.uniform(low, high))
        points, boxes = frame.points.copy(), frame.boxes.copy()
        points[:, :3] *= factor
        boxes[:, :6] *= factor
        boxes[:, 7:] *= factor
        return replace(frame, points=points, boxes=boxes)

    return change


class Samples:
    """Objects cut out of frames, which `paste` puts into others (Yan, Mao and Li, 2018).

    Args:
        frames: Where objects are cut out: the points inside of each box.
        least_points: Objects with fewer points are left out.
    """

    def __init__(self, frames: Sequence[BoxFrame], least_points: int = 5) -> None:
        self._objects: dict[int, list[tuple[Floats, Floats]]] = {}
        least_points = integer(self, "least_points", least_points, 0)
        for frame in listed(self, "frames", frames, "a list of BoxFrames"):
            instance(self, "frames", frame, BoxFrame, "a list of BoxFrames")
            owner = np.array(ops.points_in_boxes(frame.points[:, :3], frame.boxes[:, :7]))
            for i, (box, label) in enumerate(zip(frame.boxes, frame.labels)):
                points = frame.points[owner == i]
                if len(points) >= least_points:
                    self._objects.setdefault(int(label), []).append((points, box))

    def __len__(self) -> int:
        return sum(map(len, self._objects.values()))

    def paste(self, counts: dict[int, int]) -> Change:
        """Adds objects until a frame has `counts` of a class; those that would overlap are left."""
        instance("Samples.paste", "counts", counts, dict, "a dict: how many of each label")
        for wanted in counts.values():
            integer("Samples.paste", "counts", wanted, 0)

        def change(frame: BoxFrame, rng: np.random.Generator) -> BoxFrame:
            _check("Samples.paste", frame, rng)
            points, boxes, labels = frame.points, frame.boxes, frame.labels
            for label, wanted in counts.items():
                stock = self._objects.get(label, [])
                missing = min(wanted - int((labels == label).sum()), len(stock))
                for pick in rng.permutation(len(stock))[: max(missing, 0)]:
                    inside, box = stock[pick]
                    if len(boxes) and np.array(ops.box_overlap(box[None], boxes)).max() > 0:
                        continue
                    owner = np.array(ops.points_in_boxes(points[:, :3], box[None, :7]))
                    points = np.concatenate([points[owner < 0], inside])
                    boxes = np.concatenate([boxes, box[None]])
                    labels = np.append(labels, np.int32(label))
            return BoxFrame(points, boxes, labels)

        return change


def varied(frame: BoxFrame, changes: Sequence[Change], rng: np.random.Generator) -> BoxFrame:
    """All changes, one after the other."""
    _check("varied", frame, rng)
    for change in listed("varied", "changes", changes, "a list of functions"):
        function("varied", "changes", change)
        frame = change(frame, rng)
    return frame
