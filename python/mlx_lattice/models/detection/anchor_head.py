"""Boxes relative to anchors, at every cell of a map (SECOND and PointPillars)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import mlx.nn
import numpy as np
from numpy.typing import NDArray

from ... import nn, ops
from .results import Candidates, joined, suppressed
from .settings import Settings

Floats = NDArray[np.float32]


def make_anchors(settings: Settings) -> list[Floats]:
    """For each class set (ny, nx, sizes, rotations, 7)."""
    made = []
    for entry in settings.model["DENSE_HEAD"]["ANCHOR_GENERATOR_CONFIG"]:
        stride = entry["feature_map_stride"]
        nx, ny = settings.grid[0] // stride, settings.grid[1] // stride
        (x0, y0, _), (x1, y1, _) = settings.low, settings.high
        if entry.get("align_center", False):
            dx, dy = (x1 - x0) / nx, (y1 - y0) / ny
            start_x, start_y = x0 + dx / 2, y0 + dy / 2
        else:
            dx, dy = (x1 - x0) / max(nx - 1, 1), (y1 - y0) / max(ny - 1, 1)
            start_x, start_y = x0, y0
        sizes = np.array(entry["anchor_sizes"], np.float32)
        turns = np.array(entry["anchor_rotations"], np.float32)
        bottoms = np.array(entry["anchor_bottom_heights"], np.float32)
        if len(bottoms) != 1:
            raise ValueError(
                f"[AnchorHead] {entry.get('class_name')}: one bottom height per class set is read, "
                f"got {len(bottoms)}"
            )
        anchors = np.zeros((ny, nx, len(sizes), len(turns), 7), np.float32)
        anchors[..., 0] = (start_x + np.arange(nx) * dx)[None, :, None, None]
        anchors[..., 1] = (start_y + np.arange(ny) * dy)[:, None, None, None]
        anchors[..., 2] = bottoms[0] + sizes[:, 2][None, None, :, None] / 2
        anchors[..., 3:6] = sizes[None, None, :, None]
        anchors[..., 6] = turns[None, None, None]
        made.append(anchors)
    return made


def decode_boxes(codes: mx.array, anchors: Sequence[mx.array]) -> mx.array:
    """Boxes (..., 7 or 9) of codes relative to anchors, given as x, y, z, dx, dy, dz, heading.

    Of 8 or 10 codes two are the cosine and sine of the heading, each less that of the anchor.
    """
    x, y, z, dx, dy, dz, turn = anchors
    code = [codes[..., i] for i in range(codes.shape[-1])]
    diagonal = mx.sqrt(dx * dx + dy * dy)
    boxes = [code[0] * diagonal + x, code[1] * diagonal + y, code[2] * dz + z]
    boxes += [mx.exp(code[i]) * size for i, size in ((3, dx), (4, dy), (5, dz))]
    if len(code) % 2:
        boxes += [code[6] + turn, *code[7:]]
    else:
        heading = mx.arctan2(code[7] + mx.sin(turn), code[6] + mx.cos(turn))
        boxes += [heading, *code[8:]]
    return mx.stack(boxes, axis=-1)


def encode_boxes(boxes: Floats, anchors: Floats) -> Floats:
    """The inverse of `decode_boxes`; sizes are at least 1e-5."""
    sizes, anchor_sizes = np.maximum(boxes[..., 3:6], 1e-5), np.maximum(anchors[..., 3:6], 1e-5)
    diagonal = np.sqrt(anchor_sizes[..., 0] ** 2 + anchor_sizes[..., 1] ** 2)
    codes = np.empty_like(boxes)
    codes[..., 0] = (boxes[..., 0] - anchors[..., 0]) / diagonal
    codes[..., 1] = (boxes[..., 1] - anchors[..., 1]) / diagonal
    codes[..., 2] = (boxes[..., 2] - anchors[..., 2]) / anchor_sizes[..., 2]
    codes[..., 3:6] = np.log(sizes / anchor_sizes)
    codes[..., 6] = boxes[..., 6] - anchors[..., 6]
    codes[..., 7:] = boxes[..., 7:] - anchors[..., 7 : boxes.shape[-1]]
    return codes


class AnchorHead(mlx.nn.Module):
    """Scores of all classes, box codes and directions for every anchor of every cell."""

    def __init__(self, in_channels: int, settings: Settings) -> None:
        super().__init__()
        config = settings.model["DENSE_HEAD"]
        self._settings = settings
        self._sets = make_anchors(settings)
        counts = {a.shape[3] for a in self._sets}
        if len({a.shape[:2] for a in self._sets}) > 1 or len(counts) > 1:
            raise ValueError(
                "[AnchorHead] all class sets need the same feature_map_stride and equally many "
                "anchor_rotations"
            )
        per_cell = sum(a.shape[2] * a.shape[3] for a in self._sets)
        agnostic = bool(config.get("CLASS_AGNOSTIC", False))
        self._classes = 1 if agnostic else len(settings.class_names)
        self.conv_cls = nn.Linear(in_channels, per_cell * self._classes)
        # Training begins with scores of 0.01, because almost all anchors are background.
        self.conv_cls.bias = mx.full(self.conv_cls.bias.shape, -math.log(99))
        self.code_size = _code_size(config)
        self.conv_box = nn.Linear(in_channels, per_cell * self.code_size)
        self._bins = int(config.get("NUM_DIR_BINS", 2))
        if config.get("USE_DIRECTION_CLASSIFIER", True):
            self.conv_dir_cls = nn.Linear(in_channels, per_cell * self._bins)

    @property
    def anchors(self) -> Floats:
        """(ny, nx, per cell, 7) in the order of the outputs: class set, size, rotation."""
        ny, nx = self._sets[0].shape[:2]
        return np.concatenate(self._sets, axis=2).reshape(ny, nx, -1, 7)

    def __call__(self, dense: mx.array) -> dict[str, mx.array]:
        """A map (B, H, W, C) -> "cls_preds", "box_preds", "dir_cls_preds" (B, H, W, ..)."""
        b, h, w, c = dense.shape
        ny, nx = self._sets[0].shape[:2]
        if (h, w) != (ny, nx):
            raise ValueError(
                f"[AnchorHead] the map has {h} x {w} cells, the anchors {ny} x {nx}: "
                "feature_map_stride does not fit to the strides of the backbone"
            )
        rows = dense.reshape(b * h * w, c)
        outputs = {"cls_preds": self.conv_cls, "box_preds": self.conv_box}
        if "conv_dir_cls" in self:
            outputs["dir_cls_preds"] = self.conv_dir_cls
        return {name: layer(rows).reshape(b, h, w, -1) for name, layer in outputs.items()}

    def decode(self, outputs: dict[str, mx.array]) -> tuple[mx.array, mx.array]:
        """Scores before the sigmoid (B, A, classes) and boxes (B, A, 7 or 9) of all anchors."""
        batch, ny, nx, _ = outputs["cls_preds"].shape
        grid = self.anchors
        anchors = [grid[0, :, :, 0], grid[:, :1, :, 1], *grid[0, 0].T[2:]]  # without what repeats
        codes = outputs["box_preds"].reshape(batch, ny, nx, grid.shape[2], self.code_size)
        boxes = decode_boxes(codes, [mx.array(a) for a in anchors])
        if "dir_cls_preds" in outputs:
            config = self._settings.model["DENSE_HEAD"]
            offset = float(config.get("DIR_OFFSET", 0.78539))
            limit = float(config.get("DIR_LIMIT_OFFSET", 0.0))
            logits = outputs["dir_cls_preds"].reshape(batch, ny, nx, -1, self._bins)
            period = 2 * math.pi / self._bins
            v = boxes[..., 6:7] - offset
            turn = v - mx.floor(v / period + limit) * period
            bins = mx.argmax(logits, axis=-1, keepdims=True).astype(mx.float32)
            heading = turn + offset + period * bins
            boxes = mx.concatenate([boxes[..., :6], heading, boxes[..., 7:]], axis=-1)
        scores = outputs["cls_preds"].reshape(batch, -1, self._classes)
        return scores, boxes.reshape(batch, -1, boxes.shape[-1])

    def choose(self, outputs: dict[str, mx.array], filled: Sequence[mx.array]) -> list[Candidates]:
        """The boxes of each frame; filled says whether it has a voxel at all."""
        raw, boxes = self.decode(outputs)
        post = self._settings.model["POST_PROCESSING"]
        return [choose(boxes[i], mx.sigmoid(raw[i]), post, some) for i, some in enumerate(filled)]


def _code_size(config: dict[str, Any]) -> int:
    assign = config.get("TARGET_ASSIGNER_CONFIG", {})
    coder = assign.get("BOX_CODER", "ResidualCoder")
    if coder != "ResidualCoder":
        raise ValueError(f"[AnchorHead] BOX_CODER must be ResidualCoder, got {coder!r}")
    options = assign.get("BOX_CODER_CONFIG") or {}
    size = int(options.get("code_size", 7))
    if size not in (7, 9):
        raise ValueError(f"[AnchorHead] code_size must be 7, or 9 with velocities, got {size}")
    return size + int(bool(options.get("encode_angle_by_sincos", False)))


def choose(boxes: mx.array, scores: mx.array, post: dict[str, Any], some: mx.array) -> Candidates:
    """The rules of POST_PROCESSING on boxes (N, 7 or 9) with scores (N, classes) in 0..1."""
    nms = post["NMS_CONFIG"]
    least = float(post.get("SCORE_THRESH", 0.0))
    limits = {"pre": int(nms["NMS_PRE_MAXSIZE"]), "post": int(nms["NMS_POST_MAXSIZE"])}
    kind, threshold = nms.get("NMS_TYPE", "nms_gpu"), float(nms["NMS_THRESH"])

    def above(values: mx.array, classes: mx.array) -> Candidates:
        rows = ops.rows_where(mx.logical_and(values >= least, some))
        found = Candidates(boxes[rows], values[rows], classes[rows])
        return suppressed(found, threshold, kind, **limits)

    if not nms.get("MULTI_CLASSES_NMS", False):
        return above(mx.max(scores, axis=1), mx.argmax(scores, axis=1).astype(mx.int32))
    zeros = mx.zeros_like(scores[:, 0]).astype(mx.int32)
    return joined([above(scores[:, c], zeros + c) for c in range(scores.shape[1])])
