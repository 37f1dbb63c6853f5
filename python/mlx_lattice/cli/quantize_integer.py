"""`quantize --integer net scans/`: makes a network of exact integers, with errors per layer."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from .. import models
from ..datasets.folder import clouds_below
from ..io.atomic_files import write_bytes
from ..models.integer import layer_errors, rounded
from ..training import evaluate_voxels
from ..training.progress import progress
from .options import read_cloud, say_next
from .outputs import check_output
from .run_folder import PIPELINE, RunFolder

if TYPE_CHECKING:
    from ..training import Scan, VoxelPipeline

CALIBRATION = 4  # scans that set the ranges


def quantize_integer(arguments: argparse.Namespace) -> None:
    """Prints range and error per layer and the mean IoU before and after; writes --output."""
    folder = RunFolder.of(arguments.model)
    target = Path(arguments.output) if arguments.output else None
    if not folder.model.with_suffix(".json").is_file() or not folder.pipeline_path.is_file():
        raise ValueError(
            f"--integer needs a folder that `train` wrote; {arguments.model} lacks the "
            "configuration of the network or the pipeline"
        )
    if target is not None:
        if target.suffix != ".safetensors":
            raise ValueError(f"--output must be a .safetensors file, got {target}")
        check_output(target, folder.model)
    scans = _scans(arguments.scans, folder.pipeline())
    net = models.load(folder.model)
    few = [scan.tensor for scan in scans[:CALIBRATION]]
    made, rounding = rounded(net, few, arguments.percentile)
    shares, errors = made.shares, layer_errors(net, made, rounding, few[-1])
    width = max(len(name) for name in shares)
    print(f"{'layer':{width}} {'input':>7} {'output':>7} {'int32 used':>10} {'error':>9}")
    for name, layer in made.integer_layers().items():
        form, error = layer._form, f"{errors[name]:9.2e}" if name in errors else " " * 9
        used = f"{shares[name]:10.2%}"
        print(f"{name:{width}} {form['input']:>7} {form['output']:>7} {used} {error}")
    labeled = [scan for scan in scans if scan.labels is not None]
    if labeled:
        names = folder.pipeline().names
        before = evaluate_voxels(net, labeled, names)
        after = evaluate_voxels(made, labeled, names)
        print(f"accuracy  {before.accuracy:.4f} in floats, {after.accuracy:.4f} in integers")
        print(f"mean IoU  {before.mean_iou:.4f} in floats, {after.mean_iou:.4f} in integers")
    if target is None:
        again = (arguments.model, *arguments.scans, "--output", "integer.safetensors")
        say_next("quantize", "--integer", *again)
        return
    made.save(target)
    if not (there := target.with_name(PIPELINE)).exists():
        write_bytes(there, folder.pipeline_path.read_bytes())
    print(f"wrote {target}")
    say_next("predict", target, arguments.scans[0], "look.html")


def _scans(given: list[str], pipeline: VoxelPipeline) -> list[Scan]:
    paths = [str(p) for path in given for p in _files(path)]
    if not paths:
        raise ValueError("--integer needs clouds, or a folder of clouds, to measure ranges on")
    made = progress(paths, "reading clouds")
    return [pipeline.scan(read_cloud(path), path, strict=False) for path in made]


def _files(path: str) -> list[Path]:
    found = Path(path)
    return list(clouds_below(found)) if found.is_dir() else [found]
