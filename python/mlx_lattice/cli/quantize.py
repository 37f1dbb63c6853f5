"""`quantize model.safetensors`: what packed weights would save and cost per layer.

`--output` writes the packed weights.
"""

import json
import pathlib

import mlx.core as mx

from .. import dequantize_weight, quantize_weight

_FLOATS = (mx.float32, mx.float16, mx.bfloat16)


def add_command(commands):
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
        help="a .safetensors file to write; load it after mlx.nn.quantize",
    )
    parser.set_defaults(run=run)


def _load(path):
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    if path.suffix != ".safetensors":
        raise ValueError(f"expected a .safetensors file, got {path}")
    try:
        return mx.load(str(path))
    except RuntimeError as error:
        raise ValueError(f"{path} is no safetensors file: {error}") from None


def _is_weight(name, value):
    return (
        name.split(".")[-1] == "weight"
        and value.ndim in (2, 3, 5)
        and value.dtype in _FLOATS
        and value.size > 0
    )


def _relative_error(weight, restored):
    """|W - W'| / |W| in the L2 norm."""
    weight, restored = weight.astype(mx.float32), restored.astype(mx.float32)
    norm = mx.linalg.norm(weight.flatten()).item()
    return mx.linalg.norm((weight - restored).flatten()).item() / norm if norm > 0 else 0.0


def pack(arrays, bits, group_size=None, skip=()):
    """(arrays with packed weights, rows for the printed table).

    A row is (name, text of the packing, bytes before, bytes after, error or None).
    """
    packed, rows = {}, []
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
        rows.append(
            (
                name,
                f"int{bits}/{q.group_size}",
                value.nbytes,
                q.nbytes,
                _relative_error(value, dequantize_weight(q)),
            )
        )
    return packed, rows


def run(arguments):
    source = pathlib.Path(arguments.model)
    target = pathlib.Path(arguments.output) if arguments.output else None
    arrays = _load(source)
    if target and target.suffix != ".safetensors":
        raise ValueError(f"--output must be a .safetensors file, got {target}")
    if target and target.exists() and target.samefile(source):
        raise ValueError(f"--output must be another file than the model, got {target} for both")
    if target and not target.resolve().parent.is_dir():
        raise ValueError(f"there is no folder {target.resolve().parent} for --output")
    packed, rows = pack(arrays, arguments.bits, arguments.group_size, arguments.skip)
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
        form = {"bits": arguments.bits, "group_size": arguments.group_size}
        mx.save_safetensors(str(target), packed, {"quantization": json.dumps(form)})
        print(f"wrote {target}")
