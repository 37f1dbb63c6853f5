"""Inputs of an export: an example, a second one of other sizes, and their types."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import mlx.core as mx

from .. import _ext
from ..core import SparseTensor
from ..core._checks import told
from ..points.batches import OffsetPointCloudBatch, PointCloudBatch
from .arrays import DTYPES

if TYPE_CHECKING:
    from mlx.nn import Module


@dataclass
class Inputs:
    """The arguments of a network, and the values among them that a program gets by name."""

    arguments: dict[str, Any]
    values: dict[str, mx.array | SparseTensor]
    lengths_of: dict[str, str]


def inputs_of(model: Module, example: Any) -> Inputs:
    """The arguments of a call from an example: one value, a tuple of them, or a dict by name."""
    names = list(inspect.signature(type(model).__call__).parameters)[1:]
    if isinstance(example, dict):
        arguments = dict(example)
    else:
        given = example if isinstance(example, tuple) else (example,)
        arguments = {n: v for n, v in zip(names, given) if v is not None}
    for name in arguments:
        if name not in names:
            raise ValueError(f"[export] example has {name!r}, but the network takes {names}")
    clouds = any(
        isinstance(v, (PointCloudBatch, OffsetPointCloudBatch)) for v in arguments.values()
    )
    if "lengths" in names and not clouds and "lengths" not in arguments:
        rows = next(v.shape[0] for v in arguments.values() if isinstance(v, mx.array))
        arguments["lengths"] = mx.array([rows], dtype=mx.int32)
    return _split(arguments)


def _split(arguments: dict[str, Any]) -> Inputs:
    values: dict[str, mx.array | SparseTensor] = {}
    lengths_of: dict[str, str] = {}
    made: dict[str, Any] = {}
    for name, value in arguments.items():
        if isinstance(value, OffsetPointCloudBatch):
            value = value.to_lengths()
        if isinstance(value, PointCloudBatch):
            lengths = mx.array(value.lengths)
            made[name] = (value.positions, value.features, lengths)
            values[name] = value.positions
            if value.features is not None:
                values["features"] = value.features
            values["lengths"] = lengths
            lengths_of["lengths"] = name
        elif isinstance(value, (mx.array, SparseTensor)):
            if name == "lengths":
                value = mx.array(cast("mx.array", value)).astype(mx.int32)
                lengths_of[name] = next(n for n in ("positions", "coords", *values) if n in values)
            values[name] = made[name] = value
        elif hasattr(value, "__array__") or isinstance(value, list):
            values[name] = made[name] = mx.array(value)
            if name == "lengths":
                values[name] = made[name] = mx.array(value, dtype=mx.int32)
                lengths_of[name] = next(n for n in ("positions", "coords", *values) if n in values)
        else:
            raise TypeError(
                f"[export] example: {name} must be a SparseTensor, a PointCloudBatch or an array, "
                f"found {told(value)}"
            )
    seen: set[int] = set()
    for name, value in values.items():
        if isinstance(value, mx.array) and _ext.array_id(value) in seen:
            values[name] = mx.array(value)  # an array of its own: inputs are told apart by identity
            if not isinstance(made[name], tuple):
                made[name] = values[name]
            else:
                made[name] = (values[name], *made[name][1:])
        own = values[name]
        if isinstance(own, mx.array):
            seen.add(_ext.array_id(own))
    if not values:
        raise ValueError("[export] example must hold at least one value")
    for value in values.values():
        if isinstance(value, mx.array) and value.ndim and value.shape[0] == 0:
            raise ValueError("[export] example must have rows")
        if isinstance(value, SparseTensor) and value.active_count == 0:
            raise ValueError("[export] example must have rows")
    return Inputs(made, values, lengths_of)


def call(model: Module, inputs: Inputs) -> Any:
    """model(...); batches of points are made here, so that their parts are recorded."""
    arguments = {
        name: PointCloudBatch(*value) if isinstance(value, tuple) else value
        for name, value in inputs.arguments.items()
    }
    return model(**arguments)


def second(inputs: Inputs) -> Inputs:
    """Inputs of other sizes, other values and one more cloud.

    A number that the network reads from the data then differs: rows, the first value, the largest
    value or coordinate.
    """
    values = {name: _more(name, value, inputs) for name, value in inputs.values.items()}
    arguments: dict[str, Any] = {}
    for name, value in inputs.arguments.items():
        if isinstance(value, tuple):
            arguments[name] = (values[name], values.get("features"), values["lengths"])
        else:
            arguments[name] = values[name]
    return Inputs(arguments, values, inputs.lengths_of)


def other_values(value: mx.array) -> mx.array:
    """The array with other numbers; integers may be indices, and stay."""
    return value * 0.875 if mx.issubdtype(value.dtype, mx.floating) else value


def _more(name: str, value: mx.array | SparseTensor, inputs: Inputs) -> mx.array | SparseTensor:
    if isinstance(value, SparseTensor):
        return _more_voxels(value)
    if name in inputs.lengths_of:
        rows = math.ceil(inputs.values[inputs.lengths_of[name]].shape[0] * 2 / 3)
        return mx.concatenate([value, mx.array([rows], dtype=mx.int32)])
    value = other_values(value)
    if value.ndim == 0:
        return value
    return mx.concatenate([value, value[: math.ceil(value.shape[0] * 2 / 3)]])


def _more_voxels(x: SparseTensor) -> SparseTensor:
    """Without the upper faces of the bounding box, as far as half of the rows are left; then all
    clouds twice more."""
    import numpy as np

    coords = np.array(x.coords)
    kept = np.arange(len(coords))
    for axis in (1, 2, 3):
        lower = kept[coords[kept, axis] < coords[:, axis].max()]
        if 2 * len(lower) >= len(coords):
            kept = lower
    clouds = [coords[kept] + [i * x.batch_size, 0, 0, 0] for i in range(3)]
    counts = x.batch_counts
    if counts is not None:
        found = np.bincount(coords[kept, 0].astype(np.int64), minlength=len(counts))
        counts = 3 * tuple(found.tolist())
    return SparseTensor(
        mx.array(np.concatenate(clouds).astype(coords.dtype)),
        mx.take(other_values(x.feats), mx.array(np.tile(kept, 3)), axis=0),
        x.stride,
        batch_counts=counts,
    )


def type_text(
    first: mx.array | SparseTensor, other: mx.array | SparseTensor, of: str | None
) -> str:
    """The type of an input as the graph writes it; sizes that differ are `?`."""
    if isinstance(first, SparseTensor):
        stride = ",".join(str(n) for n in first.stride)
        return f"sparse {DTYPES[first.dtype]}[?, {first.channels}] stride=[{stride}]"
    sizes = ", ".join("?" if m != n else str(m) for m, n in zip(first.shape, other.shape))
    return f"{DTYPES[first.dtype]}[{sizes}]" + (f" lengths of {of}" if of else "")
