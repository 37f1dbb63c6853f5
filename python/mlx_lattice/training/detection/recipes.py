"""Two recipes: one memorizes a scene, the other trains on streets and is measured on new ones."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

from ... import nn, ops, samples
from ...core._checks import integer, positive
from ...io.box_frame import BoxFrame
from ...models.detection import Detector
from ...models.detection.published import PUBLISHED
from ..trainer import Trainer, adamw
from .frames import Samples, flip, rotate, scale, varied
from .losses import detection_loss

STREET_CLASSES = ("Car", "Pedestrian")


def street_config(half: float = 25.6, width: int = 16) -> dict[str, Any]:
    """A small PointPillars for `samples.street_boxes`, around the scanner up to `half` meters."""
    half = positive("street_config", "half", half)
    width = integer("street_config", "width", width)
    base = PUBLISHED["pointpillars_kitti"]
    head = dict(base["model"]["DENSE_HEAD"])
    anchors = [dict(entry) for entry in head["ANCHOR_GENERATOR_CONFIG"][:2]]
    for entry, size, bottom in zip(anchors, ([4.4, 1.75, 1.7], [0.4, 0.56, 1.7]), (0.0, 0.0)):
        entry["anchor_sizes"], entry["anchor_bottom_heights"] = [size], [bottom]
    anchors[1]["matched_threshold"], anchors[1]["unmatched_threshold"] = 0.35, 0.2
    head["ANCHOR_GENERATOR_CONFIG"] = anchors
    return {
        "class_names": list(STREET_CLASSES),
        "point_cloud_range": [-half, -half, -1.0, half, half, 3.0],
        "voxel_size": [0.2, 0.2, 4.0],
        "max_points_per_voxel": 16,
        "max_voxels": 30000,
        "model": {
            "NAME": "PointPillar",
            "VFE": {**base["model"]["VFE"], "NUM_FILTERS": [width]},
            "BACKBONE_2D": {
                "NAME": "BaseBEVBackbone",
                "LAYER_NUMS": [1, 2],
                "LAYER_STRIDES": [2, 2],
                "NUM_FILTERS": [width, 2 * width],
                "UPSAMPLE_STRIDES": [1, 2],
                "NUM_UPSAMPLE_FILTERS": [width, width],
            },
            "DENSE_HEAD": head,
            "POST_PROCESSING": base["model"]["POST_PROCESSING"],
        },
    }


def overfit(
    config: dict[str, Any],
    frame: BoxFrame,
    steps: int = 150,
    rate: float = 1e-2,
    quiet: bool = True,
) -> tuple[Detector, list[float]]:
    """A detector that has memorized one frame, and the loss of each step."""
    mx.random.seed(0)
    net = Detector(config, in_channels=frame.points.shape[1])
    trainer = Trainer(net, adamw(rate, steps=steps), detection_loss, quiet=quiet)
    trainer.fit([frame], epochs=steps)
    settle_norms(net, [frame])
    return net, [row["loss"] for row in trainer.history]


def settle_norms(net: Detector, frames: list[BoxFrame]) -> None:
    """Sets the running statistics of all norms to the means over frames; evaluation mode after.

    Detectors average their statistics over some hundred steps, more than a short training has.
    """
    norms = [m for m in net.modules() if isinstance(m, nn.BatchNorm)]
    before = [norm._momentum for norm in norms]
    net.train()
    for i, frame in enumerate(frames, 1):
        for norm in norms:
            norm._momentum = 1 / i
        mx.eval(net([frame.points]), net.parameters())
    for norm, momentum in zip(norms, before):
        norm._momentum = momentum
    net.eval()


def learn_streets(
    streets: int = 24, epochs: int = 30, rate: float = 3e-3, quiet: bool = False
) -> tuple[Detector, dict[str, float]]:
    """A detector of cars and people, and the share of unseen boxes that it finds, by class.

    The default numbers take one core a minute or two.
    """
    mx.random.seed(0)
    config = street_config()
    frames = [samples.street_boxes(seed) for seed in range(streets)]
    stock, rng = Samples(frames), np.random.default_rng(0)
    changes = [stock.paste({1: 10, 2: 10}), flip("x"), flip("y"), rotate(np.pi / 8), scale()]
    net = Detector(config)
    trainer = Trainer(net, adamw(rate, steps=streets * epochs), detection_loss, quiet=quiet)
    for epoch in range(epochs):
        trainer.fit([varied(frame, changes, rng) for frame in frames], epochs=epoch + 1)
    settle_norms(net, frames)
    return net, found_share(net, [samples.street_boxes(1000 + seed) for seed in range(4)])


def found_share(net: Detector, frames: list[BoxFrame], overlap: float = 0.3) -> dict[str, float]:
    """The share of true boxes inside of the grid that some box of their class overlaps so much."""
    hits = {name: [0, 0] for name in net.settings.class_names}
    low, high = np.array(net.settings.low[:2]), np.array(net.settings.high[:2])
    for frame in frames:
        found = net.detect(frame.points)
        inside = ((frame.boxes[:, :2] > low) & (frame.boxes[:, :2] < high)).all(1)
        for number, name in enumerate(net.settings.class_names, 1):
            truth = frame.boxes[inside & (frame.labels == number)]
            mine = found.boxes[found.labels == number]
            hits[name][1] += len(truth)
            if len(truth) and len(mine):
                best = np.array(ops.box_overlap(truth, mine)).max(1)
                hits[name][0] += int((best > overlap).sum())
    return {name: hit / max(total, 1) for name, (hit, total) in hits.items()}
