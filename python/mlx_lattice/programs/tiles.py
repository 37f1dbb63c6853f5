"""Networks on clouds that are larger than memory, through the C++ of a program."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING

import mlx.core as mx

from .. import _ext
from .._ext import LoadedProgram
from ..core import SparseTensor
from ..core.types import Triple
from ..models._model import packed_layers
from ..nn._arrays import named_arrays
from . import examples
from .export import _check_evaluation, program_bytes

if TYPE_CHECKING:
    from mlx.nn import Module


@dataclass(frozen=True)
class ReceptiveField:
    """How far a row of the output looks, in steps of the input along x, y and z.

    Args:
        before: Steps that a tile needs below its low corner.
        after: Steps that a tile needs above its high corner.
        alignment: Corners of tiles are multiples of it; other tiles need more.
        output_stride: Steps of the input in one step of the output.
    """

    before: Triple
    after: Triple
    alignment: Triple
    output_stride: Triple


def tile_program(
    model: Module, channels: int, dtype: mx.Dtype = mx.float32, stride: Triple = (1, 1, 1)
) -> LoadedProgram:
    """The program of a network of one sparse tensor, recorded on a few rows.

    Raises:
        ExportError: The network cannot be written as a program.
        ValueError: The network is in training mode, or takes points instead of a sparse tensor.
    """
    _check_evaluation(model)
    if "lengths" in inspect.signature(type(model).__call__).parameters:
        raise ValueError(
            f"[receptive_field] {type(model).__name__} is not local: it takes points with lengths, "
            "whose neighbors may be any others of the cloud; a run by tiles needs a network of one "
            "sparse tensor"
        )
    rows = [[0, i % 3, i // 3 % 2, i // 6] for i in range(12)]
    feats = mx.random.normal((12, channels), key=mx.random.key(0)).astype(dtype)
    first = examples.inputs_of(model, SparseTensor(mx.array(rows, mx.int32), feats, stride))
    data = program_bytes(
        functools.partial(examples.call, model),
        dict(named_arrays(model.parameters())),
        packed_layers(model)[1],
        first,
        examples.second(first),
    )
    return LoadedProgram.load_memory(data)


def receptive_field(program: LoadedProgram) -> ReceptiveField:
    """The receptive field of a program with one sparse input and one output with rows."""
    return ReceptiveField(*_ext.receptive_field(program))
