"""Losses of detectors: loss(detector, frame) of one `BoxFrame`, for a `Trainer`.

Anchors: focal loss of the classes (Lin et al., ICCV 2017), smooth L1 of the codes with the sine of
the angle, cross-entropy of the direction. Centers: the penalty-reduced focal loss of the heat map
(Zhou, Wang and Krähenbühl, 2019) and L1 of the codes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn
import numpy as np

from ...core._checks import instance
from ...io.box_frame import BoxFrame
from ...models.detection.anchor_head import AnchorHead
from ...models.detection.center_head import DenseCenterHead, map_cells, sparse_cells
from .targets import anchor_targets, center_targets, direction_targets

if TYPE_CHECKING:
    from ...models.detection import Detector


def detection_loss(net: Detector, frame: BoxFrame) -> mx.array:
    """The loss of the family that the detector belongs to, a scalar.

    A frame whose points all lie outside of the grid is a ValueError.
    """
    from ...models.detection import Detector

    instance("detection_loss", "net", net, Detector, "a Detector")
    instance("detection_loss", "frame", frame, BoxFrame, "a BoxFrame")
    voxels = net.voxels([frame.points])
    if len(voxels.cells) == 0:
        raise ValueError("[detection_loss] no point of the frame lies inside of the grid")
    made = net.stages(voxels)
    head = net.dense_head
    if isinstance(head, AnchorHead):
        return anchor_loss(net, made["dense_head"], frame)
    if isinstance(head, DenseCenterHead):
        _, h, w, _ = made["backbone_2d"].shape
        cells, _ = map_cells((1, h, w))
        return center_loss(net, made["dense_head"], frame, cells, (h, w))
    rows = made["backbone_3d"]["shared_conv"]
    _, (_, h, w) = rows.bounds
    return center_loss(net, made["dense_head"], frame, sparse_cells(rows, 1)[0], (h, w))


def anchor_loss(net: Detector, outputs: dict[str, mx.array], frame: BoxFrame) -> mx.array:
    """Class, box and direction losses of an anchor head, weighted by LOSS_WEIGHTS."""
    settings = net.settings
    config = settings.model["DENSE_HEAD"]
    if net.dense_head.code_size != 7:
        raise ValueError(
            f"[anchor_loss] the head has {net.dense_head.code_size} codes per box; training is for "
            "7: leave BOX_CODER_CONFIG out"
        )
    weights = config.get("LOSS_CONFIG", {}).get("LOSS_WEIGHTS", {})
    labels, codes = anchor_targets(settings, frame)
    found = np.flatnonzero(labels > 0)
    n = max(len(found), 1)
    scores = outputs["cls_preds"].reshape(len(labels), -1)
    one_hot = np.zeros(scores.shape, np.float32)
    one_hot[found, labels[found] - 1 if scores.shape[1] > 1 else 0] = 1
    counted = mx.array((labels >= 0).astype(np.float32))[:, None]
    loss = mx.sum(_focal(scores, mx.array(one_hot)) * counted) / n * weights.get("cls_weight", 1.0)
    if not len(found):
        return loss
    rows = mx.array(found.astype(np.int32))
    guess, truth = outputs["box_preds"].reshape(-1, 7)[rows], mx.array(codes[found])
    a, b = guess[:, 6:], truth[:, 6:]
    guess = mx.concatenate([guess[:, :6], mx.sin(a) * mx.cos(b)], axis=1)
    truth = mx.concatenate([truth[:, :6], mx.cos(a) * mx.sin(b)], axis=1)
    gap = mx.abs(guess - truth) * mx.array(weights.get("code_weights", [1.0] * 7)[:7])
    beta = 1 / 9
    box = mx.where(gap < beta, 0.5 * gap * gap / beta, gap - 0.5 * beta)
    loss = loss + mx.sum(box) / n * weights.get("loc_weight", 2.0)
    if "dir_cls_preds" in outputs:
        bins = int(config.get("NUM_DIR_BINS", 2))
        anchors = net.dense_head.anchors.reshape(-1, 7)[found]
        offset = float(config.get("DIR_OFFSET", 0.78539))
        target = direction_targets(codes[found], anchors, offset, bins)
        logits = outputs["dir_cls_preds"].reshape(-1, bins)[rows]
        cross = mlx.nn.losses.cross_entropy(logits, mx.array(target), reduction="sum")
        loss = loss + cross / n * weights.get("dir_weight", 0.2)
    return loss


def center_loss(
    net: Detector,
    outputs: list[dict[str, mx.array]],
    frame: BoxFrame,
    cells: Any,
    shape: tuple[int, int],
) -> mx.array:
    """Heat map and code losses of a center head, summed over its groups."""
    config = net.settings.model["DENSE_HEAD"]
    weights = config.get("LOSS_CONFIG", {}).get("LOSS_WEIGHTS", {})
    loss = mx.array(0.0)
    for out, target in zip(outputs, center_targets(net.settings, frame, cells, shape)):
        heat, n = mx.array(target["heat"]), max(len(target["rows"]), 1)
        p = mx.clip(mx.sigmoid(out["hm"]), 1e-4, 1 - 1e-4)
        hit = (heat == 1).astype(mx.float32)
        per_cell = -hit * mx.log(p) * (1 - p) ** 2
        per_cell = per_cell - (1 - hit) * mx.log(1 - p) * p**2 * (1 - heat) ** 4
        loss = loss + mx.sum(per_cell) / n * weights.get("cls_weight", 1.0)
        if len(target["rows"]):
            rows = mx.array(target["rows"])
            names = ["center", "center_z", "dim", "rot", *(["vel"] if "vel" in out else [])]
            guess = mx.concatenate([out[name][rows] for name in names], axis=1)
            width = guess.shape[1]
            codes = np.zeros((len(rows), width), np.float32)
            given = min(width, target["codes"].shape[1])
            codes[:, :given] = target["codes"][:, :given]
            by = mx.array(_code_weights(weights, width))
            gap = mx.abs(guess - mx.array(codes)) * by
            loss = loss + mx.sum(gap) / n * weights.get("loc_weight", 0.25)
    return loss


def _code_weights(weights: dict[str, Any], width: int) -> list[float]:
    """OpenPCDet lists them as center, z, dim, rot, vel."""
    given = list(weights.get("code_weights", [1.0] * width))
    return (given + [1.0] * width)[:width]


def _focal(logits: mx.array, target: mx.array, alpha: float = 0.25) -> mx.array:
    p = mx.sigmoid(logits)
    cross = mx.logaddexp(mx.zeros_like(logits), logits) - logits * target
    share = target * alpha + (1 - target) * (1 - alpha)
    miss = target * (1 - p) + (1 - target) * p
    return share * miss**2 * cross
