"""`quantize model.safetensors`: what packed weights would save and cost per layer.

`--output` writes the packed weights.
"""

from __future__ import annotations

import json
import pathlib
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from .. import dequantize_weight, quantize_weight
from .._atomic import atomic_path, save_safetensors, write_bytes
from ..models._model import save_parts
from .run_files import PIPELINE

if TYPE_CHECKING:
    import argparse

    from mlx.nn import Module

_FLOATS = (mx.float32, mx.float16, mx.bfloat16)


def add_command(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser(
        "quantize", help="packs the weights of a file to int4 or int8 and reports size and error"
    )
    parser.add_argument("model", help="a .safetensors file that save_weights wrote")
    parser.add_argument("--bits", type=int, choices=[4, 8], default=4)
    parser.add_argument(
        "--group-size", type=int, choices=[32, 64, 128], help="default: 64 when C_in >= 64, else 32"
    )
    parser.add_argument(
        "--skip",
        nargs="+",
        default=[],
        metavar="TEXT",
        help="leave layers whose name contains one of these",
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        help=(
            "a .safetensors file to write; of a network that `train` or `save` wrote, models.load"
            " and predict take it"
        ),
    )
    parser.add_argument(
        "--check",
        nargs="+",
        default=[],
        metavar="CLOUD",
        help=(
            "labeled clouds: accuracy and mean IoU before and after packing (a network that `train`"
            " wrote)"
        ),
    )
    parser.set_defaults(run=run)


def _load(path: Any) -> Any:
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    if path.suffix != ".safetensors":
        raise ValueError(f"expected a .safetensors file, got {path}")
    try:
        return mx.load(str(path))
    except RuntimeError as error:
        raise ValueError(f"{path} is no safetensors file: {error}") from None


def _is_weight(name: str, value: Any) -> Any:
    return (
        name.split(".")[-1] == "weight"
        and value.ndim in (2, 3, 5)
        and value.dtype in _FLOATS
        and value.size > 0
    )


def _relative_error(weight: Any, restored: Any) -> Any:
    """|W - W'| / |W| in the L2 norm."""
    weight, restored = weight.astype(mx.float32), restored.astype(mx.float32)
    norm = float(mx.linalg.norm(weight.flatten()))
    return float(mx.linalg.norm((weight - restored).flatten())) / norm if norm > 0 else 0.0


def pack(arrays: Any, bits: int, group_size: int | None = None, skip: Any = ()) -> tuple[Any, ...]:
    """(arrays with packed weights, rows for the printed table, forms of the packed weights).

    A row is (name, text of the packing, bytes before, bytes after, error or None).
    """
    packed, rows, forms = {}, [], {}
    for name, value in arrays.items():
        packed[name] = value
        if not _is_weight(name, value):
            continue
        if any(text in name for text in skip):
            rows.append((name, "skipped", value.nbytes, value.nbytes, None))
            continue
        q = quantize_weight(value, group_size=group_size, bits=bits)
        if q.nbytes >= value.nbytes:  # C_in is padded to the group
            rows.append((name, f"kept: C_in {q.in_channels}", value.nbytes, value.nbytes, None))
            continue
        stem = name[: -len("weight")]
        packed |= {name: q.weight, f"{stem}scales": q.scales, f"{stem}biases": q.biases}
        forms[name] = q.form
        rows.append(
            (
                name,
                f"int{bits}/{q.group_size}",
                value.nbytes,
                q.nbytes,
                _relative_error(value, dequantize_weight(q)),
            )
        )
    return packed, rows, forms


def run(arguments: argparse.Namespace) -> None:
    source = pathlib.Path(arguments.model)
    target = pathlib.Path(arguments.output) if arguments.output else None
    arrays = _load(source)
    model = _network(source)
    skip = arguments.skip
    if model is not None:  # weights of layers that have no packed form stay
        able = {name for name, module in model.named_modules() if hasattr(module, "to_quantized")}
        fixed = [n for n in arrays if n.endswith(".weight") and n[: -len(".weight")] not in able]
        skip = [*skip, *fixed]
    elif arguments.check:
        raise ValueError(
            f"--check needs a network that `train` wrote; there is no {source.with_suffix('.json')}"
        )
    if target and target.suffix != ".safetensors":
        raise ValueError(f"--output must be a .safetensors file, got {target}")
    if target and target.exists() and target.samefile(source):
        raise ValueError(f"--output must be another file than the model, got {target} for both")
    if target and not target.resolve().parent.is_dir():
        raise ValueError(f"there is no folder {target.resolve().parent} for --output")
    packed, rows, forms = pack(arrays, arguments.bits, arguments.group_size, skip)
    if not any(error is not None for *_, error in rows):
        raise ValueError(
            f"{source} has no float weight that packing makes smaller: "
            'expected names ending in "weight" of 2, 3 or 5 axes'
        )
    width = max(len(name) for name, *_ in rows)
    print(
        f"{'layer':{width}} {'packing':>14} {'bytes':>12} {'packed':>12} {'ratio':>6} {'error':>9}"
    )
    for name, packing, before, after, error in rows:
        told = "" if error is None else f"{error:9.2e}"
        print(
            f"{name:{width}} {packing:>14} {before:12} {after:12} {before / after:6.2f} {told:>9}"
        )
    before, after = (sum(v.nbytes for v in group.values()) for group in (arrays, packed))
    print(f"{'whole file':{width}} {'':>14} {before:12} {after:12} {before / after:6.2f}")
    if target:
        if model is None:
            form = {"bits": arguments.bits, "group_size": arguments.group_size}
            with atomic_path(target) as temporary:
                save_safetensors(temporary, packed, {"quantization": json.dumps(form), **forms})
        else:
            layers = {
                name[: -len(".weight")]: {"group_size": int(size), "bits": arguments.bits}
                for name, form, *_, error in rows
                if error is not None
                for size in [form.split("/")[1]]
            }
            save_parts(target, packed, type(model).__name__, model.config, layers, forms)
            pipeline = source.with_name(PIPELINE)
            if pipeline.is_file() and not target.with_name(PIPELINE).exists():
                write_bytes(target.with_name(PIPELINE), pipeline.read_bytes())
        print(f"wrote {target}")
    if arguments.check:
        layers = {n[: -len(".weight")]: f.split("/") for n, f, *_, e in rows if e is not None}
        _report_accuracy(source, model, layers, arguments)


def _network(source: Any) -> Any:
    """The network whose weights these are, or None when there is no configuration beside them."""
    if not source.with_suffix(".json").is_file():
        return None
    from ..models import load

    return load(source)


def _report_accuracy(
    source: Any, model: Module, layers: Any, arguments: argparse.Namespace
) -> None:
    """Prints accuracy and mean IoU on labeled clouds, dense and packed."""
    import mlx.nn

    from .. import io
    from ..training import scans

    if not source.with_name(PIPELINE).is_file():
        raise ValueError(f"--check: {source.with_name(PIPELINE)} is missing")
    pipeline = scans.VoxelPipeline.load(source.with_name(PIPELINE))
    made = [pipeline.scan(io.read(path), path) for path in arguments.check]
    for scan in made:
        if scan.labels is None:
            raise ValueError(f"--check: {scan.name} has no column {pipeline.label!r}")
    before = scans.evaluate(model, made, pipeline.names)
    mlx.nn.quantize(
        model,
        class_predicate=lambda name, _: (
            {"group_size": int(layers[name][1]), "bits": arguments.bits}
            if name in layers
            else False
        ),
    )
    after = scans.evaluate(model, made, pipeline.names)
    print(f"accuracy  {before.accuracy:.4f} dense, {after.accuracy:.4f} packed")
    print(f"mean IoU  {before.mean_iou:.4f} dense, {after.mean_iou:.4f} packed")
