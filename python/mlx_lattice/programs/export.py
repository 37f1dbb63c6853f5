"""A network in evaluation mode becomes a program: one file that C++ and C run without Python."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from .._ext import LoadedProgram
from .._ext import program_bytes as file_bytes
from ..core import SparseTensor, _checks
from ..models._model import packed_layers
from ..nn._arrays import named_arrays
from . import examples, graph
from .listening import listening
from .recorder import ExportError, Node, Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mlx.nn import Module

    from ..training import VoxelPipeline

    Run = Callable[[examples.Inputs], Any]

ENDING = ".lattice.safetensors"


def export(
    model: Module,
    path: str | os.PathLike[str],
    example: Any,
    *,
    pipeline: VoxelPipeline | None = None,
    classes: Sequence[tuple[int, str]] | None = None,
    keep_example: bool = False,
) -> None:
    """Writes the network as a program.

    The network runs twice, on the example and on one of other sizes. The file is loaded, run and
    compared with the network bit by bit before it is put in its place.

    Args:
        model: A network of this package, or your own module that uses its layers and the functions
            of MLX that docs/programs.md lists; in evaluation mode.
        path: The file, which ends in `.lattice.safetensors`.
        example: The arguments of the network: one value, a tuple, or a dict by argument.
        pipeline: With a VoxelPipeline the program takes raw points and columns, and gives `labels`
            and `scores` of the points; the example is a PointCloud. A detector needs none: its
            example is a PointCloud or points (N, C), and its program gives `boxes`, `scores`,
            `labels`, `dropped` and, where it has them, `velocities`.
        classes: Pairs (label value, name), kept in the file; by default those of the pipeline.
        keep_example: Whether the example and its result go into the file, for `selftest`.

    Raises:
        ExportError: The network cannot be written as a program; the message names the operation
            and the line of Python.
        ValueError: The network is in training mode, or path has another ending.
    """
    _checks.path("export", path)
    if not Path(path).name.endswith(ENDING):
        raise ValueError(f"[export] path must end in {ENDING}, found {Path(path).name!r}")
    _check_evaluation(model)
    run, inputs, other, named = _what_to_record(model, example, pipeline)
    tensors, forms = dict(named_arrays(model.parameters())), packed_layers(model)[1]
    data = program_bytes(
        run,
        tensors,
        forms,
        inputs,
        other,
        classes=named if classes is None else classes,
        keep_example=keep_example,
    )
    from ..io.atomic_files import write_bytes

    write_bytes(Path(path), data)


def _what_to_record(
    model: Module, example: Any, pipeline: VoxelPipeline | None
) -> tuple[Run, examples.Inputs, examples.Inputs, Sequence[tuple[int, str]] | None]:
    """The function that is recorded, its two inputs, and the classes if the network names them."""
    from ..models.detection import Detector
    from . import detectors
    from . import pipeline as clouds

    if isinstance(model, Detector):
        if pipeline is not None:
            raise ValueError("[export] pipeline is for networks that label points; leave it out")
        inputs = detectors.inputs_of(model, example)
        names = list(enumerate(model.settings.class_names, 1))
        boxes_of = functools.partial(detectors.boxes_of, model)
        return boxes_of, inputs, clouds.fewer_points(inputs), names
    if pipeline is None:
        inputs = examples.inputs_of(model, example)
        return functools.partial(examples.call, model), inputs, examples.second(inputs), None
    from ..io import PointCloud

    _checks.instance("export", "example", example, PointCloud, "a PointCloud")
    inputs = clouds.cloud_inputs(pipeline, example)
    labels_of = functools.partial(clouds.labels_of, model, pipeline)
    return labels_of, inputs, clouds.fewer_points(inputs), pipeline.classes


def _check_evaluation(model: Module) -> None:
    learning = [name for name, module in model.named_modules() if module.training]
    if learning:
        raise ValueError(
            "[export] the network is in training mode; call model.eval() first"
            + (f" (the first module: {learning[0]!r})" if learning[0] else "")
        )


def program_bytes(
    run: Run,
    tensors: dict[str, mx.array],
    forms: dict[str, str],
    first: examples.Inputs,
    other: examples.Inputs,
    *,
    classes: Sequence[tuple[int, str]] | None = None,
    keep_example: bool = False,
) -> bytes:
    """The bytes of the program of a function of inputs, checked against the function."""
    recordings, results = [], []
    for inputs in (first, other):
        recorder = Recorder(tensors)
        values = [recorder.define(value) for value in inputs.values.values()]
        assert [v.number for v in values] == list(range(len(values)))
        with listening(recorder):
            made = _outputs(_recorded(run, inputs))
            numbers = {name: _number(recorder, name, value) for name, value in made.items()}
        recordings.append(recorder)
        results.append((made, numbers))
    nodes = graph.merged(*recordings)
    if results[0][1] != results[1][1]:
        raise ExportError("[export] the outputs are other values on another input")
    outputs = list(results[0][1].items())
    nodes = graph.needed(nodes, [number for _, number in outputs])
    ports = [
        (name, examples.type_text(value, other.values[name], first.lengths_of.get(name)))
        for name, value in first.values.items()
    ]
    text = graph.text_of(ports, nodes, outputs)
    arrays, notes = _tensors(nodes, recordings[0], forms)
    if classes is not None:
        notes["classes"] = json.dumps([[int(value), str(name)] for value, name in classes])
    if keep_example:
        arrays |= _example(first.values, results[0][0])
    data = file_bytes(text, arrays, notes)
    _verify(data, [(first, results[0][0]), (other, results[1][0])])
    return data


def _recorded(run: Run, inputs: examples.Inputs) -> Any:
    return run(inputs)  # the recorder looks for the name of this function in the stack


def _outputs(result: Any) -> dict[str, Any]:
    """Outputs by name: "output", or those of a dict, or "output0", "output1", ... of a list."""
    if isinstance(result, dict):
        named = dict(result)
    elif isinstance(result, (list, tuple)):
        named = {f"output{i}": value for i, value in enumerate(result)}
    else:
        named = {"output": result}
    for name, value in named.items():
        if not isinstance(value, (mx.array, SparseTensor)):
            raise ExportError(
                f"[export] {name} must be an array or a SparseTensor, found {type(value).__name__}"
            )
    return named


def _number(recorder: Recorder, name: str, value: Any) -> int:
    if isinstance(value, SparseTensor):
        return recorder.sparse(value, name).number
    found = recorder.array(value)
    number = getattr(found, "number", None)
    if number is None:
        raise ExportError(
            f"[export] {name} is not made of recorded calls: it does not depend on the inputs, or "
            "another thread computed it"
        )
    return int(number)


def _tensors(
    nodes: list[Node], recorder: Recorder, forms: dict[str, str]
) -> tuple[dict[str, mx.array], dict[str, str]]:
    arrays: dict[str, mx.array] = {}
    notes: dict[str, str] = {}
    for name in graph.tensor_names(nodes):
        if name in recorder.constants:
            arrays[name] = recorder.constants[name]
            continue
        arrays[name] = recorder.tensors[name]
        if name in forms:
            stem = name.removesuffix("weight")
            notes[name] = forms[name]
            for part in ("scales", "biases"):
                arrays[stem + part] = recorder.tensors[stem + part]
    return arrays, notes


def _example(inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, mx.array]:
    arrays: dict[str, mx.array] = {}
    for side, values in (("input", inputs), ("output", outputs)):
        for name, value in values.items():
            key = f"example.{side}.{name}"
            if isinstance(value, SparseTensor):
                counts = [] if value.batch_counts is None else list(value.batch_counts)
                arrays |= {
                    f"{key}.coords": value.coords,
                    f"{key}.feats": value.feats,
                    f"{key}.counts": mx.array(counts, dtype=mx.int64),
                }
            else:
                arrays[key] = value
    return arrays


def _verify(data: bytes, cases: list[tuple[examples.Inputs, dict[str, Any]]]) -> None:
    session = LoadedProgram.load_memory(data).session()
    for inputs, expected in cases:
        found = session.run(dict(inputs.values))
        for name, value in expected.items():
            if not same_bits(found[name], value):
                raise ExportError(
                    f"[export] output {name!r} of the program differs from the network's; please "
                    "report this with the network"
                )


def same_bits(a: Any, b: Any) -> bool:
    """Whether two arrays or tensors are equal bit by bit."""
    if isinstance(a, SparseTensor) and isinstance(b, SparseTensor):
        same = same_bits(a.coords, b.coords) and a.stride == b.stride
        return same and same_bits(a.feats, b.feats)
    if type(a) is not type(b) or a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(mx.array_equal(a.view(mx.uint8), b.view(mx.uint8))) if a.size else True
