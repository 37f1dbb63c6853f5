"""`quantize model.safetensors`: the memory and the error of packed weights, layer by layer.

`--integer net scans/` makes the whole network exact integers (quantize_integer.py).
`--output` writes the packed weights.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, field
from pathlib import Path

import mlx.core as mx
import mlx.nn

from .. import dequantize_weight, models, quantize_weight
from ..io.atomic_files import write_bytes
from ..models._model import save_parts
from ..nn._arrays import load_arrays, named_arrays, save_arrays
from ..training import evaluate_voxels
from ..training.progress import Progress, progress
from .options import Commands, add_parser, read_cloud, say_next
from .outputs import check_output
from .quantize_integer import quantize_integer
from .run_folder import PIPELINE, RunFolder

_FLOATS = (mx.float32, mx.float16, mx.bfloat16)


def add_command(commands: Commands) -> None:
    what = "packs the weights of a file to int4 or int8 and reports size and error"
    parser = add_parser(commands, "quantize", what)
    add = parser.add_argument
    add("model", help="a .safetensors file that save_weights wrote, or a folder that `train` wrote")
    add("scans", nargs="*", metavar="CLOUD", help="with --integer: clouds, or folders of clouds")
    add(
        "--integer",
        action="store_true",
        help="makes all layers exact integers: ranges from the first four clouds, then accuracy and"
        " mean IoU before and after on all that have labels",
    )
    share = "with --integer: larger values than this percentile are clamped; default: none are"
    add("--percentile", type=float, default=100, help=share)
    add("--bits", type=int, choices=[4, 8], default=4)
    groups = "default: 64 when C_in >= 64, else 32"
    add("--group-size", type=int, choices=[32, 64, 128], help=groups)
    skipped = "leave layers whose name contains one of these"
    add("--skip", nargs="+", default=[], metavar="TEXT", help=skipped)
    add(
        "--output",
        metavar="FILE",
        help="a .safetensors file to write; of a network that `train` or `save` wrote, models.load"
        " and predict take it",
    )
    add(
        "--check",
        nargs="+",
        default=[],
        metavar="CLOUD",
        help="labeled clouds: accuracy and mean IoU before and after packing (a network that"
        " `train` wrote)",
    )
    parser.set_defaults(run=_quantize)


@dataclass
class Line:
    """One line of the report; error is None where the weight stays as it is."""

    name: str
    packing: str
    before: int
    after: int
    error: float | None = None
    group_size: int = 0


@dataclass
class Packed:
    """Weights after packing: arrays and forms by name, and one line per weight."""

    arrays: dict[str, mx.array]
    forms: dict[str, str] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)

    def layers(self, bits: int) -> dict[str, dict[str, int]]:
        """The packed layers, as `mlx.nn.quantize` takes them."""
        return {
            line.name[: -len(".weight")]: {"group_size": line.group_size, "bits": bits}
            for line in self.lines
            if line.error is not None
        }


def pack(arrays: dict[str, mx.array], bits: int, group_size: int | None, skip: list[str]) -> Packed:
    """Packs every weight that becomes smaller by it; names that contain a text of skip stay."""
    packed = Packed(dict(arrays))
    for name, value in progress(list(arrays.items()), "packing", unit="arrays"):
        if not _is_weight(name, value):
            continue
        size = value.nbytes
        if any(text in name for text in skip):
            packed.lines.append(Line(name, "skipped", size, size))
            continue
        q = quantize_weight(value, group_size=group_size, bits=bits)
        if q.nbytes >= size:  # C_in is padded to the group
            packed.lines.append(Line(name, f"kept: C_in {q.in_channels}", size, size))
            continue
        stem = name[: -len("weight")]
        packed.arrays |= {name: q.weight, f"{stem}scales": q.scales, f"{stem}biases": q.biases}
        packed.forms[name] = q.form
        error = _relative_error(value, dequantize_weight(q))
        form = f"int{bits}/{q.group_size}"
        packed.lines.append(Line(name, form, size, q.nbytes, error, q.group_size))
    return packed


def _is_weight(name: str, value: mx.array) -> bool:
    return (
        name.split(".")[-1] == "weight"
        and value.ndim in (2, 3, 5)
        and value.dtype in _FLOATS
        and value.size > 0
    )


def _relative_error(weight: mx.array, restored: mx.array) -> float:
    """|W - W'| / |W| in the L2 norm."""
    weight, restored = weight.astype(mx.float32), restored.astype(mx.float32)
    norm = float(mx.linalg.norm(weight.flatten()))
    return float(mx.linalg.norm((weight - restored).flatten())) / norm if norm > 0 else 0.0


def _quantize(arguments: argparse.Namespace) -> None:
    if arguments.integer:
        return quantize_integer(arguments)
    if arguments.scans:
        raise ValueError(f"found {arguments.scans[0]}; only --integer takes clouds there")
    folder = RunFolder.of(arguments.model)
    source, target = folder.model, Path(arguments.output) if arguments.output else None
    arrays = _load(source)
    model = models.load(source) if source.with_suffix(".json").is_file() else None
    arrays = _in_order(arrays, model)
    skip = arguments.skip
    if model is not None:  # weights of layers that have no packed form stay
        able = {name for name, module in model.named_modules() if hasattr(module, "to_quantized")}
        fixed = [n for n in arrays if n.endswith(".weight") and n[: -len(".weight")] not in able]
        skip = [*skip, *fixed]
    elif arguments.check:
        raise ValueError(
            f"--check needs a network that `train` wrote; there is no {source.with_suffix('.json')}"
        )
    if target is not None:
        _check_target(source, target)
    packed = pack(arrays, arguments.bits, arguments.group_size, skip)
    if not packed.lines:
        done = "its weights are packed already; " * any(n.endswith(".scales") for n in arrays)
        raise ValueError(
            f"{source} has no float weight: {done}"
            'expected names ending in "weight" of 2, 3 or 5 axes'
        )
    _print(packed, arrays)
    if not packed.forms:
        raise ValueError(
            f"packing makes no weight of {source} smaller, because its layers have few input "
            "channels (the table says how many) and groups have at least 32"
        )
    if target is not None:
        _write(target, packed, model, folder, arguments)
        print(f"wrote {target}")
    if model is not None and arguments.check:
        _report_accuracy(folder, model, packed.layers(arguments.bits), arguments.check)
    if target is None:
        again = ("--bits", arguments.bits, "--output", "packed.safetensors")
        say_next("quantize", arguments.model, *again)
    elif folder.pipeline_path.is_file():
        say_next("predict", target, *(arguments.check[:1] or ["scan.ply"]), "look.html")
    else:
        print(f"next, in Python: mlx_lattice.models.load({str(target)!r})")


def _load(path: Path) -> dict[str, mx.array]:
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    if path.suffix != ".safetensors":
        raise ValueError(f"expected a .safetensors file, got {path}")
    try:
        return load_arrays(path)[0]
    except RuntimeError as error:
        raise ValueError(f"{path} is no safetensors file: {error}") from None


def _in_order(arrays: dict[str, mx.array], model: models.Model | None) -> dict[str, mx.array]:
    """The arrays in the order of the network; without one by name, layer 2 before layer 10."""
    if model is not None:
        place = {name: i for i, (name, _) in enumerate(named_arrays(model.parameters()))}
        return dict(sorted(arrays.items(), key=lambda item: place.get(item[0], len(place))))

    def parts(item: tuple[str, mx.array]) -> list[tuple[int, str]]:
        return [(int(p), "") if p.isdecimal() else (-1, p) for p in item[0].split(".")]

    return dict(sorted(arrays.items(), key=parts))


def _check_target(source: Path, target: Path) -> None:
    if target.suffix != ".safetensors":
        raise ValueError(f"--output must be a .safetensors file, got {target}")
    check_output(target, source)


def _print(packed: Packed, arrays: dict[str, mx.array]) -> None:
    width = max(len(line.name) for line in packed.lines)

    def row(name: str, packing: str, before: int, after: int, error: str = "") -> None:
        sizes = f"{before:12} {after:12} {before / after:6.2f}"
        print(f"{name:{width}} {packing:>14} {sizes} {error:>9}".rstrip())

    print(
        f"{'layer':{width}} {'packing':>14} {'bytes':>12} {'packed':>12} {'ratio':>6} {'error':>9}"
    )
    for line in packed.lines:
        error = "" if line.error is None else f"{line.error:9.2e}"
        row(line.name, line.packing, line.before, line.after, error)
    before, after = (sum(a.nbytes for a in g.values()) for g in (arrays, packed.arrays))
    row("whole file", "", before, after)


def _write(
    target: Path,
    packed: Packed,
    model: models.Model | None,
    folder: RunFolder,
    arguments: argparse.Namespace,
) -> None:
    """The packed weights; of a network also its configuration and its pipeline."""
    if model is None:
        form = {"bits": arguments.bits, "group_size": arguments.group_size}
        save_arrays(target, packed.arrays, {"quantization": json.dumps(form), **packed.forms})
        return
    layers = packed.layers(arguments.bits)
    save_parts(target, packed.arrays, type(model).__name__, model.config, layers, packed.forms)
    there = RunFolder(target.parent)
    if folder.pipeline_path.is_file() and not there.pipeline_path.exists():
        write_bytes(target.with_name(PIPELINE), folder.pipeline_path.read_bytes())


def _report_accuracy(
    folder: RunFolder, model: models.Model, layers: dict[str, dict[str, int]], clouds: list[str]
) -> None:
    """Prints accuracy and mean IoU on labeled clouds, dense and packed."""
    if not folder.pipeline_path.is_file():
        raise ValueError(f"--check: {folder.pipeline_path} is missing")
    pipeline = folder.pipeline()
    with Progress("check", 3, "steps") as bar:
        bar.advance(0, "reading")
        made = [pipeline.scan(read_cloud(path), path, strict=False) for path in clouds]
        for scan in made:
            if scan.labels is None:
                raise ValueError(f"--check: {scan.name} has no column {pipeline.label!r}")
        bar.advance(1, "dense weights")
        before = evaluate_voxels(model, made, pipeline.names)
        bar.advance(1, "packed weights")
        mlx.nn.quantize(model, class_predicate=lambda name, _: layers.get(name, False))
        after = evaluate_voxels(model, made, pipeline.names)
    print(f"accuracy  {before.accuracy:.4f} dense, {after.accuracy:.4f} packed")
    print(f"mean IoU  {before.mean_iou:.4f} dense, {after.mean_iou:.4f} packed")
