"""`compress --memory`: a folder of .mlat files from a cloud that is larger than memory."""

from __future__ import annotations

import argparse
import re
import shlex
import time
from pathlib import Path

from .. import ops
from ..io.atomic_files import write_bytes
from ..streams.buckets import Buckets, memory_of
from ..streams.clouds import files_of
from ..streams.manifest import Run
from ..training.progress import Progress
from .compress import _cells, _voxels
from .options import say_next


def compress_large(arguments: argparse.Namespace) -> None:
    """A cloud that is larger than memory, as a folder of files that count as one cloud."""
    if arguments.model != "octree":
        raise ValueError(f"--model: found {arguments.model} beside --memory, expected octree")
    target = Path(arguments.output)
    if not target.is_dir():
        cure = shlex.join(["mkdir", "-p", str(target)])
        raise ValueError(
            f"output: --memory writes a folder, and there is no folder {target}; make it with: "
            f"{cure}"
        )
    others = [p.name for p in target.iterdir() if not re.fullmatch(r"-?\d+_-?\d+\.mlat", p.name)]
    if others:
        raise ValueError(
            f"output: {target} holds {min(others)}, expected an empty folder, or one that "
            "compress --memory wrote"
        )
    memory = memory_of("compress", arguments.memory)
    files = files_of(arguments.input)
    begin = time.perf_counter()
    for path in target.iterdir():
        path.unlink()
    run = Run(Path(f"{target.absolute()}.tiles"))
    run.begin({})
    size, voxels, after = arguments.voxel, 0, 0
    with run.locked():
        buckets = Buckets(run, files, lambda cloud, low: _cells(cloud, low, size), memory)
        with Progress("pass 2 of 2, code", buckets.finite, "points") as bar:
            for (x, y), cloud, _ in buckets.cells():
                kept = not arguments.no_attributes
                coords, attributes, origin, _ = _voxels(cloud, size, kept, buckets.low)
                data = ops.encode_points(coords, attributes, voxel_size=size, origin=origin)
                write_bytes(target / f"{x}_{y}.mlat", data)
                voxels, after = voxels + len(coords), after + len(data)
                bar.advance(len(cloud))
        run.remove()
    before = sum(file.path.stat().st_size for file in files)
    print(
        f"{buckets.total:,} points, {voxels:,} voxels of {size:g} in {len(buckets.counts):,} "
        f"files; {before:,} -> {after:,} bytes, ratio {before / max(after, 1):.1f}, "
        f"{8 * after / max(voxels, 1):.3f} bits per voxel; {time.perf_counter() - begin:.1f} s"
    )
    say_next("view", target, "--output", f"{target}_page")
