"""From raw points to boxes: a detector as one function of arrays, for an export."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import mlx.core as mx

from ..io import PointCloud
from .examples import Inputs
from .pipeline import cloud_values

if TYPE_CHECKING:
    from ..models.detection import Detector


def inputs_of(net: Detector, example: Any) -> Inputs:
    """`points` (N, 3) and the other columns of a PointCloud, or of an array (N, in_channels)."""
    if isinstance(example, PointCloud):
        values = cloud_values(dict.fromkeys(net.columns, 1), example, keep_place=True)
    else:
        rows = example if isinstance(example, mx.array) else mx.array(example, mx.float32)
        width = 3 + len(net.columns)
        if rows.ndim != 2 or rows.shape[1] != width or not rows.shape[0]:
            raise ValueError(
                f"[export] example must be a PointCloud or points of shape (N, {width}), found "
                f"shape {rows.shape}"
            )
        rows = rows.astype(mx.float32)
        values = {"points": mx.contiguous(rows[:, :3])}
        values |= {name: mx.contiguous(rows[:, 3 + i]) for i, name in enumerate(net.columns)}
    return Inputs(dict(values), dict(values), {})


def boxes_of(net: Detector, inputs: Inputs) -> dict[str, mx.array]:
    """`boxes` (K, 7), `scores`, `labels` from 1, `velocities` where there are any; and `dropped`,
    the points outside of the grid, in full voxels and beyond the last voxel."""
    points, *columns = cast("list[mx.array]", list(inputs.values.values()))
    rows = mx.concatenate([points, *(c[:, None] for c in columns)], axis=1)
    voxels = net.voxels([rows])
    found = net.choose(voxels)[0]
    made = {
        "boxes": found.boxes[:, :7],
        "scores": found.scores,
        "labels": found.classes + 1,
        "dropped": voxels.dropped[0],
    }
    if found.boxes.shape[1] >= 9:
        made["velocities"] = found.boxes[:, 7:9]
    return made
