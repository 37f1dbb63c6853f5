"""Boxes at the centers of objects, on a dense map (CenterPoint) or on sparse rows (VoxelNeXt)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import mlx.core as mx
import mlx.nn
import numpy as np
from numpy.typing import NDArray

from ... import nn, ops
from .bev import FLAT, rows_of
from .layers import MOMENTUM, run, subm
from .results import Candidates, joined, per_class, rectified, suppressed
from .settings import Settings

if TYPE_CHECKING:
    from ...core import SparseTensor

Outputs: TypeAlias = "list[dict[str, mx.array]]"


class GroupHead(mlx.nn.Module):
    """The outputs of one class group, each by its own layers of `size` x `size` and a last one."""

    def __init__(
        self,
        channels: int,
        outputs: dict[str, tuple[int, int]],
        size: int,
        last_size: int,
        bias: bool,
        eps: float,
    ) -> None:
        super().__init__()
        self._names = tuple(outputs)
        flat, last = (1, size, size), (1, last_size, last_size)
        for name, (width, count) in outputs.items():
            layers: list[Any] = [
                subm(channels, channels, flat, bias=bias, eps=eps) for _ in range(count - 1)
            ]
            layers.append(nn.SubmConv3d(channels, width, last))
            if name == "hm":  # training begins with scores of 0.1: almost all cells are empty
                layers[-1].bias = mx.full((width,), -math.log(9))
            setattr(self, name, layers)

    def __call__(self, x: SparseTensor) -> dict[str, mx.array]:
        """Rows (N, width) by name."""
        made = {}
        for name in self._names:
            y, layers = x, self[name]
            for pair in layers[:-1]:
                y = run(pair, y)
            made[name] = layers[-1](y).feats
        return made


class _CenterHead(mlx.nn.Module):
    """What dense and sparse center heads share: groups, decoding, the choice of boxes."""

    def __init__(self, settings: Settings, channels: int, size: int, last_size: int) -> None:
        super().__init__()
        config = settings.model["DENSE_HEAD"]
        self._settings, self._config = settings, config
        self._groups = [list(group) for group in config["CLASS_NAMES_EACH_HEAD"]]
        missing = {n for g in self._groups for n in g} - set(settings.class_names)
        if missing:
            raise ValueError(
                f"[CenterHead] CLASS_NAMES_EACH_HEAD names {sorted(missing)}, which class_names "
                f"lacks: {list(settings.class_names)}"
            )
        heads = config["SEPARATE_HEAD_CFG"]
        bias = bool(config.get("USE_BIAS_BEFORE_NORM", False))
        eps = 1e-5 if config["NAME"] == "VoxelNeXtHead" else float(config.get("BN_EPS", 1e-5))
        self.heads_list = []
        for group in self._groups:
            outputs = {
                name: (entry["out_channels"], entry["num_conv"])
                for name, entry in heads["HEAD_DICT"].items()
            }
            outputs["hm"] = (len(group), int(config.get("NUM_HM_CONV", 2)))
            self.heads_list.append(GroupHead(channels, outputs, size, last_size, bias, eps))

    def _stride(self) -> int:
        return int(self._config["TARGET_ASSIGNER_CONFIG"]["FEATURE_MAP_STRIDE"])

    def _boxes(self, pick: dict[str, mx.array], cells: mx.array) -> mx.array:
        """(K, 7 or 9) of outputs (K, width) at cells (K, 2) as x, y."""
        low, size = np.array(self._settings.low[:2]), np.array(self._settings.voxel_size[:2])
        step = mx.array((self._stride() * size).astype(np.float32))
        xy = (cells + pick["center"]) * step + mx.array(low.astype(np.float32))
        dim, rot = mx.exp(pick["dim"]), pick["rot"]
        if self._settings.family == "det3d":  # w, l, h and (sin, cos) of another angle
            dim = mx.concatenate([dim[:, 1:2], dim[:, :1], dim[:, 2:]], axis=1)
            turn = -mx.arctan2(rot[:, :1], rot[:, 1:]) - math.pi / 2
        else:
            turn = mx.arctan2(rot[:, 1:], rot[:, :1])
        parts = [xy, pick["center_z"], dim, turn]
        if "vel" in pick:
            parts.append(pick["vel"])
        return mx.concatenate(parts, axis=1).astype(mx.float32)

    def candidates(
        self, group: int, out: dict[str, mx.array], cells: mx.array, some: mx.array
    ) -> Candidates:
        """Boxes of one group and frame that are in range and above the least score.

        out: the rows of the frame by name; cells (N, 2): x, y of the rows; some: whether the frame
        has a voxel at all.
        """
        post = self._config["POST_PROCESSING"]
        out = {name: values.astype(mx.float32) for name, values in out.items()}
        heat = mx.sigmoid(out["hm"])
        if self._settings.family == "det3d":
            classes, scores = mx.argmax(heat, axis=1).astype(mx.int32), mx.max(heat, axis=1)
        else:
            rows, classes, scores = _best(heat, int(post["MAX_OBJ_PER_SAMPLE"]))
            out, cells = {name: values[rows] for name, values in out.items()}, cells[rows]
        boxes = self._boxes(out, cells)
        keep = mx.logical_and(scores > float(post.get("SCORE_THRESH", -1.0)), some)
        limit = post.get("POST_CENTER_LIMIT_RANGE")
        if limit is not None:
            low, high = mx.array(limit[:3], mx.float32), mx.array(limit[3:], mx.float32)
            inside = mx.logical_and(boxes[:, :3] >= low, boxes[:, :3] <= high)
            keep = mx.logical_and(keep, mx.min(inside.astype(mx.int32), axis=1) > 0)
        kept = ops.rows_where(keep)
        numbers = [self._settings.class_names.index(n) for n in self._groups[group]]
        iou = out["iou"][:, 0][kept] if "iou" in out else None
        labels = mx.array(numbers, mx.int32)[classes[kept]]
        return Candidates(boxes[kept], scores[kept], labels, iou)

    def _suppressed(self, groups: Sequence[Candidates]) -> Candidates:
        """Suppression in each group, or over all groups where the network rates its own boxes."""
        post = self._config["POST_PROCESSING"]
        nms = post["NMS_CONFIG"]
        n_classes = len(self._settings.class_names)
        if self._config.get("IOU_BRANCH", False):
            exponents = self._config.get("RECTIFIER", post.get("RECTIFIER", 0.5))
            every = rectified(joined(groups), exponents)
            return per_class(
                every, n_classes, nms["NMS_THRESH"], nms["NMS_PRE_MAXSIZE"], nms["NMS_POST_MAXSIZE"]
            )
        made = []
        for g, group in enumerate(groups):
            if post.get("USE_IOU_TO_RECTIFY_SCORE", False):
                group = rectified(group, post["IOU_RECTIFIER"])
            kind = nms.get("NMS_TYPE", "nms_gpu")
            pre, threshold = nms["NMS_PRE_MAXSIZE"], nms.get("NMS_THRESH")
            if kind == "class_specific_nms":  # without a limit of what stays
                made.append(per_class(group, n_classes, threshold, pre))
                continue
            if kind == "circle_nms":
                threshold, pre = post["MIN_RADIUS"][g], -1
            made.append(
                suppressed(group, float(threshold), kind, int(pre), int(nms["NMS_POST_MAXSIZE"]))
            )
        return joined(made)

    def _choose_in(
        self, outputs: Outputs, rows: slice | mx.array, cells: mx.array, some: mx.array
    ) -> Candidates:
        """The boxes of one frame, whose rows and cells these are."""
        return self._suppressed(
            [
                self.candidates(g, {k: v[rows] for k, v in out.items()}, cells, some)
                for g, out in enumerate(outputs)
            ]
        )


def _best(heat: mx.array, count: int) -> tuple[mx.array, mx.array, mx.array]:
    """Rows, classes and scores of the best `count` cells of each class, then of these."""
    rows, classes, scores = [], [], []
    for c in range(heat.shape[1]):
        column = heat[:, c]
        order = mx.argsort(-column, axis=0)[:count].astype(mx.int32)
        rows.append(order)
        classes.append(mx.zeros_like(order) + c)
        scores.append(column[order])
    every = mx.concatenate(scores)
    best = mx.argsort(-every, axis=0)[:count]
    return mx.concatenate(rows)[best], mx.concatenate(classes)[best], every[best]


class DenseCenterHead(_CenterHead):
    """CenterHead: a shared 3 x 3 convolution, then the groups, on a map (B, H, W, C)."""

    def __init__(self, in_channels: int, settings: Settings) -> None:
        config = settings.model["DENSE_HEAD"]
        channels = int(config.get("SHARED_CONV_CHANNEL", 64))
        super().__init__(settings, channels, 3, 3)
        bias = bool(config.get("USE_BIAS_BEFORE_NORM", False))
        conv = nn.SubmConv3d(in_channels, channels, FLAT, bias=bias)
        eps = float(config.get("BN_EPS", 1e-5))
        self.shared_conv = [conv, nn.BatchNorm(channels, eps, MOMENTUM)]

    def __call__(self, dense: mx.array) -> list[dict[str, mx.array]]:
        """For each group the rows (B H W, width) by name."""
        x = run(self.shared_conv, rows_of(dense))
        return [head(x) for head in self.heads_list]

    def choose(
        self, outputs: Outputs, shape: tuple[int, int], filled: Sequence[mx.array]
    ) -> list[Candidates]:
        """The boxes of each frame; shape is (H, W) of the map."""
        cells = mx.array(map_cells((1, *shape))[0][:, ::-1].astype(np.float32))
        n = shape[0] * shape[1]
        return [
            self._choose_in(outputs, slice(i * n, (i + 1) * n), cells, some)
            for i, some in enumerate(filled)
        ]


def map_cells(shape: tuple[int, int, int]) -> tuple[NDArray[Any], list[NDArray[Any]]]:
    """Cells (B H W, 2) as y, x, and the rows of each frame."""
    b, h, w = shape
    y, x = np.divmod(np.arange(h * w), w)
    cells = np.tile(np.stack([y, x], 1), (b, 1))
    return cells, [np.arange(i * h * w, (i + 1) * h * w) for i in range(b)]


class SparseCenterHead(_CenterHead):
    """VoxelNeXtHead: the groups on the rows of a sparse map; last layers have one cell."""

    def __init__(self, in_channels: int, settings: Settings) -> None:
        config = settings.model["DENSE_HEAD"]
        size = int(config.get("KERNEL_SIZE_HEAD", 3))
        channels = int(config.get("SHARED_CONV_CHANNEL", in_channels))
        super().__init__(settings, channels, size, 1)

    def __call__(self, x: SparseTensor) -> list[dict[str, mx.array]]:
        """For each group the rows (N, width) by name."""
        return [head(x) for head in self.heads_list]

    def choose(
        self, outputs: Outputs, x: SparseTensor, filled: Sequence[mx.array]
    ) -> list[Candidates]:
        """The boxes of each frame."""
        made = []
        for i, some in enumerate(filled):
            rows = ops.rows_where(x.coords[:, 0] == i)
            cells = x.coords[rows]
            place = mx.concatenate([cells[:, 3:], cells[:, 2:3]], axis=1).astype(mx.float32)
            made.append(self._choose_in(outputs, rows, place, some))
        return made


def sparse_cells(x: SparseTensor, batch: int) -> tuple[NDArray[Any], list[NDArray[Any]]]:
    """Cells (N, 2) as y, x of a sparse map, and the rows of each frame."""
    rows = np.array(x.coords)
    return rows[:, 2:], [np.flatnonzero(rows[:, 0] == b) for b in range(batch)]
