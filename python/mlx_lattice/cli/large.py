"""`predict` on a cloud that is larger than memory."""

from __future__ import annotations

import argparse
import errno
import shlex
import time
from pathlib import Path

from ..nn import pack
from ..streams import Job, Prediction
from ..training.tiled import bytes_of
from .options import classes_option, say_next
from .outputs import check_output
from .run_folder import RunFolder


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a large cloud to the parser of `predict`."""
    group = parser.add_argument_group("clouds larger than memory")
    group.add_argument(
        "--memory", metavar="SIZE", help="run by tiles in so much memory, such as 2GB"
    )
    side = "largest side of a tile in voxels (default: as the memory allows)"
    group.add_argument("--tile", type=int, default=0, metavar="N", help=side)
    group.add_argument(
        "--part", metavar="K/N", help="run only the K-th of N parts of the tiles, K from 0"
    )
    group.add_argument("--workers", type=int, metavar="N", help="N processes by Dask")
    group.add_argument("--scheduler", metavar="ADDRESS", help="the Dask cluster to run on")
    group.add_argument(
        "--work", metavar="FOLDER", help="folder of the passes (default: OUTPUT.tiles)"
    )


def is_large(arguments: argparse.Namespace) -> bool:
    """Whether options ask for a run by tiles, or the cloud is a folder."""
    if arguments.memory:
        return True
    for name in ("part", "workers", "scheduler", "work"):
        if getattr(arguments, name) is not None:
            raise ValueError(f"--{name}: expected --memory beside it, such as --memory 2GB")
    return False


def predict(arguments: argparse.Namespace) -> None:
    """Labels the cloud tile by tile."""
    check_output(arguments.output, arguments.cloud)
    folder = RunFolder.of(arguments.model)
    model, pipeline = folder.load()
    pack(model.eval())
    work = Path(arguments.work or f"{arguments.output}.tiles")
    job = Job(
        model,
        pipeline,
        folder.model,
        Path(arguments.cloud),
        arguments.output,
        work,
        bytes_of("predict", "--memory", arguments.memory),
        arguments.tile,
        _part(arguments.part),
        arguments.format,
    )
    begin = time.perf_counter()
    prediction = Prediction(job)
    for file in prediction.files:
        if not file.count:
            print(f"{file.path}: no points")
    if not prediction.total:
        raise ValueError(f"{arguments.cloud}: no points, so there is nothing to label")
    prediction.begin()
    kept = f"{work} keeps what is done; the same command goes on"
    try:
        _passes(prediction, arguments, begin)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(kept) from None
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise ValueError(f"the disk is full; {kept} when there is space") from None
        raise


def _passes(prediction: Prediction, arguments: argparse.Namespace, begin: float) -> None:
    manifest = prediction.points()
    print(
        f"{manifest['points']:,} points, {manifest['voxels']:,} voxels, "
        f"{len(manifest['tiles']):,} tiles",
        flush=True,
    )
    if arguments.workers or arguments.scheduler:
        from ..streams.cluster import run_on_cluster

        run_on_cluster(prediction, manifest, arguments.workers, arguments.scheduler)
    else:
        prediction.tiles(manifest)
    left = prediction.left(manifest)
    if left and not prediction.run.ended():
        print(f"this part is done; {len(left):,} tiles of other parts are not yet")
        return
    with prediction.run.locked():
        if prediction.run.ended():
            print(f"another process has written {arguments.output}")
            return
        confusion = prediction.write(manifest)
        prediction.run.remove()
    seconds = time.perf_counter() - begin
    rate = manifest["points"] / seconds
    print(f"{seconds:.0f} s, {rate:,.0f} points per second")
    if confusion is not None:
        print(f"\nIoU per point\n{confusion}\n")
    print(f"wrote {arguments.output}")
    names = classes_option(prediction.job.pipeline.classes)
    folder = str(Path(arguments.output).with_suffix(""))
    say_next("view", arguments.output, "--output", folder, "--color", "label", *names)


def _part(text: str | None) -> tuple[int, int]:
    if text is None:
        return (0, 1)
    words = text.split("/")
    if len(words) == 2 and all(w.isdecimal() for w in words):
        k, n = map(int, words)
        if 0 <= k < n:
            return (k, n)
    raise ValueError(
        f"--part: found {shlex.quote(text)}, expected K/N with 0 <= K < N, such as 0/4"
    )
