"""From raw points to labels: a VoxelPipeline around a network, as one function of arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx

from .. import ops
from ..core import SparseTensor
from .examples import Inputs, other_values

if TYPE_CHECKING:
    from mlx.nn import Module

    from ..io import PointCloud
    from ..training import VoxelPipeline


def cloud_values(
    widths: dict[str, int], cloud: PointCloud, keep_place: bool = False
) -> dict[str, mx.array]:
    """The inputs of a program by name: `points`, and columns of these widths, all float32.

    float64 points are taken relative to their low corner, as the pipeline does, unless they keep
    their place; 8 and 16 bits of a column become 0..1.
    """
    import numpy as np

    points = cloud.points
    if points.dtype != np.float32 and not keep_place:
        finite = cloud.finite()
        low = points[finite].min(axis=0) if finite.any() else 0.0
        points = points - low
    values = {"points": mx.array(np.asarray(points, np.float32))}
    scales = {np.dtype(np.uint8): 255.0, np.dtype(np.uint16): 65535.0}
    for name, width in widths.items():
        if name not in cloud.columns:
            raise ValueError(
                f"[Program] the cloud has no column {name!r}, which the network was trained with"
            )
        column = cloud.columns[name]
        column = (column / scales.get(column.dtype, 1.0)).astype(np.float32)
        if not np.isfinite(column).all() and not np.isfinite(column[cloud.finite()]).all():
            raise ValueError(f"[Program] column {name!r} has values that are not finite")
        values[name] = mx.array(
            column.reshape(len(column), -1) if width > 1 else column.reshape(-1)
        )
    return values


def cloud_inputs(pipeline: VoxelPipeline, cloud: PointCloud) -> Inputs:
    """The same as inputs of an export; ValueError if the pipeline normalizes columns."""
    if pipeline.normalized:
        raise ValueError(
            f"[export] pipeline divides {', '.join(pipeline.normalized)} by the size in each "
            "cloud, which a program does not do; give the files one unit and train without "
            "normalization"
        )
    widths = dict(zip(pipeline.columns, pipeline.widths, strict=True))
    values = cloud_values(widths, cloud, keep_place=pipeline.crop is not None)
    return Inputs(dict(values), dict(values), {})


def fewer_points(inputs: Inputs) -> Inputs:
    """The first two thirds of the points with other values, which have other voxels."""
    every = _arrays(inputs)
    values = {n: other_values(v[: -(-2 * v.shape[0] // 3)]) for n, v in every.items()}
    return Inputs(dict(values), dict(values), {})


def _arrays(inputs: Inputs) -> dict[str, mx.array]:
    return {name: value for name, value in inputs.values.items() if isinstance(value, mx.array)}


def labels_of(model: Module, pipeline: VoxelPipeline, inputs: Inputs) -> dict[str, mx.array]:
    """`labels`: the label value of each point, -1 without a voxel; `scores`: its probability."""
    points, *columns = _arrays(inputs).values()
    if pipeline.crop is not None:
        points = ops.crop_points(points, *pipeline.crop)
    tensor, rows = ops.voxel_features(points, pipeline.voxel, columns)
    logits: Any = model(tensor)
    if not isinstance(logits, SparseTensor):
        raise ValueError("[export] with a pipeline the network must give one row for each voxel")
    feats = logits.feats
    values = mx.array([value for value, _ in pipeline.classes], dtype=mx.int32)
    labels = values[mx.argmax(feats, axis=1)]
    scores = mx.max(mx.softmax(feats.astype(mx.float32), axis=1), axis=1)
    return {
        "labels": ops.to_points(labels, rows, -1),
        "scores": ops.to_points(scores, rows, 0.0),
    }
