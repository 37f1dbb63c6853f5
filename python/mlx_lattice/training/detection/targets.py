"""The targets of the heads of detectors for the boxes of a frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import ops
from ...core._checks import instance, numpy_array, sizes
from ...io.box_frame import BoxFrame
from ...models.detection.anchor_head import encode_boxes, make_anchors
from ...models.detection.settings import Settings

Floats = NDArray[np.float32]
Integers = NDArray[np.int32]


def _upright(boxes: Floats) -> Floats:
    """Boxes along the nearest axis."""
    made = boxes[:, :7].copy()
    turn = np.abs((made[:, 6] + np.pi / 2) % np.pi - np.pi / 2)
    across = turn > np.pi / 4
    made[across, 3:5] = made[across, 4:2:-1]
    made[:, 6] = 0
    return made


def _part(who: str, settings: Settings, frame: BoxFrame, key: str) -> Any:
    """The value of a key in the configuration of the head."""
    instance(who, "settings", settings, Settings, "the Settings of a detector")
    instance(who, "frame", frame, BoxFrame, "a BoxFrame")
    head = settings.model.get("DENSE_HEAD", {})
    if key not in head:
        raise ValueError(f"[{who}] settings: the head {head.get('NAME')!r} has no {key}")
    return head[key]


def anchor_targets(settings: Settings, frame: BoxFrame) -> tuple[Integers, Floats]:
    """(labels (A,), codes (A, 7)) of all anchors; label -1 is ignored, 0 is the background.

    In each class set an anchor takes the box that it overlaps most, seen from above along the axes:
    above matched_threshold it learns that box, below unmatched_threshold it is background. Every
    box has the anchors that overlap it most, however little that is.
    """
    entries = _part("anchor_targets", settings, frame, "ANCHOR_GENERATOR_CONFIG")
    all_labels, all_codes = [], []
    for entry, grid in zip(entries, make_anchors(settings)):
        number = settings.class_names.index(entry["class_name"]) + 1
        anchors = grid.reshape(-1, 7)
        labels = np.zeros(len(anchors), np.int32)
        codes = np.zeros((len(anchors), 7), np.float32)
        boxes = frame.boxes[frame.labels == number][:, :7]
        if len(boxes):
            overlap = np.array(ops.box_overlap(_upright(anchors), _upright(boxes), kind="upright"))
            best, most = overlap.argmax(1), overlap.max(1)
            labels[most >= entry["unmatched_threshold"]] = -1
            forced = (overlap == overlap.max(0)) & (overlap > 0)
            best = np.where(forced.any(1), forced.argmax(1), best)
            positive = (most >= entry["matched_threshold"]) | forced.any(1)
            labels[positive] = number
            codes[positive] = encode_boxes(boxes[best[positive]], anchors[positive])
        # Class sets stand side by side in each cell.
        shape = (*grid.shape[:2], -1)
        all_labels.append(labels.reshape(shape))
        all_codes.append(codes.reshape(*shape, 7))
    labels = np.concatenate(all_labels, axis=2).reshape(-1)
    return labels, np.concatenate(all_codes, axis=2).reshape(-1, 7)


def direction_targets(codes: Floats, anchors: Floats, offset: float, bins: int) -> Integers:
    """The direction bin of each encoded box."""
    turn = codes[:, 6] + anchors[:, 6] - offset
    turn = turn - np.floor(turn / (2 * np.pi)) * (2 * np.pi)
    return np.clip(np.floor(turn / (2 * np.pi / bins)), 0, bins - 1).astype(np.int32)


def gaussian_radius(height: float, width: float, overlap: float) -> float:
    """How far corners may move so that boxes still overlap so much (Law and Deng, ECCV 2018)."""
    a, b, c = 1.0, height + width, width * height * (1 - overlap) / (1 + overlap)
    first = (b + np.sqrt(max(b * b - 4 * a * c, 0))) / 2
    a, b, c = 4.0, 2 * (height + width), (1 - overlap) * width * height
    second = (b + np.sqrt(max(b * b - 4 * a * c, 0))) / 2
    a, b, c = 4 * overlap, -2 * overlap * (height + width), (overlap - 1) * width * height
    third = (b + np.sqrt(max(b * b - 4 * a * c, 0))) / 2
    return float(min(first, second, third))


def center_targets(
    settings: Settings, frame: BoxFrame, cells: NDArray[Any], shape: Sequence[int]
) -> list[dict[str, NDArray[Any]]]:
    """For each class group: "heat" (N, classes), "rows" (M,) and "codes" (M, 8 or 10).

    cells (N, 2) are y, x of the rows that the head has; shape is (H, W) of the full map. The center
    of a box becomes the row of its cell, or of the nearest one if there is none. Codes are the
    place inside of the cell, z, log sizes, cos and sin of the heading, and velocities.
    """
    who = "center_targets"
    assign = _part(who, settings, frame, "TARGET_ASSIGNER_CONFIG")
    groups = _part(who, settings, frame, "CLASS_NAMES_EACH_HEAD")
    cells, shape = (
        numpy_array(who, "cells", cells, "integers (N, 2)", "iu"),
        sizes(who, "shape", shape, 2),
    )
    if cells.ndim != 2 or cells.shape[1] != 2:
        raise ValueError(f"[{who}] cells must have shape (N, 2), found {cells.shape}")
    stride = assign["FEATURE_MAP_STRIDE"]
    step = np.array(settings.voxel_size[:2]) * stride
    place = (frame.boxes[:, :2] - np.array(settings.low[:2])) / step
    made = []
    for group in groups:
        heat = np.zeros((len(cells), len(group)), np.float32)
        rows, codes = [], []
        for c, name in enumerate(group):
            for i in np.flatnonzero(frame.labels == settings.class_names.index(name) + 1):
                x, y = place[i]
                if not (0 <= x < shape[1] and 0 <= y < shape[0]) or not len(cells):
                    continue
                box = frame.boxes[i]
                size = box[3:5] / step
                radius = gaussian_radius(size[1], size[0], assign.get("GAUSSIAN_OVERLAP", 0.1))
                radius = max(int(radius), int(assign.get("MIN_RADIUS", 2)))
                d2 = (cells[:, 0] - int(y)) ** 2 + (cells[:, 1] - int(x)) ** 2
                row = int(d2.argmin())
                spread = np.exp(-d2 / (2 * ((2 * radius + 1) / 6) ** 2)).astype(np.float32)
                near = (np.abs(cells - [int(y), int(x)]) <= radius).all(1)
                heat[:, c] = np.maximum(heat[:, c], np.where(near, spread, 0))
                heat[row, c] = 1
                turn = [np.cos(box[6]), np.sin(box[6])]
                inside = [x - cells[row, 1], y - cells[row, 0], box[2]]
                codes.append([*inside, *np.log(np.maximum(box[3:6], 1e-5)), *turn, *box[7:]])
                rows.append(row)
        width = 8 + frame.boxes.shape[1] - 7
        made.append(
            {
                "heat": heat,
                "rows": np.array(rows, np.int32),
                "codes": np.array(codes, np.float32).reshape(-1, width),
            }
        )
    return made
