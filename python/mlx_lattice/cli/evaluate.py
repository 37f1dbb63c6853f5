"""Command `evaluate`: measures a trained network on a data set and writes benchmark files."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from .. import datasets
from ..datasets.folder import clouds_below
from ..nn import pack
from ..streams import Job, Prediction
from ..training import Confusion, inference
from ..training.progress import Progress
from ..training.tiled import bytes_of
from .options import Commands, add_device, add_parser, say_next
from .run_folder import RunFolder


def add_command(commands: Commands) -> None:
    parser = add_parser(
        commands,
        "evaluate",
        "measures a network on a data set and writes benchmark submissions",
        "Prints the IoU per class and the mean over the points of a split, as the\n"
        "benchmarks count. --submission writes predictions in the layout of SemanticKITTI,\n"
        "nuScenes or ScanNet. A test split has no labels, so that there are predictions only.",
        "examples:\n  mlx-lattice evaluate run --data /data/SemanticKITTI\n"
        "  mlx-lattice evaluate run --data /data/SemanticKITTI --views 8\n"
        "  mlx-lattice evaluate run --data /data/SemanticKITTI --split test --submission out",
    )
    parser.add_argument("folder", metavar="RUN", help="folder that `train` wrote")
    parser.add_argument(
        "--data", required=True, metavar="PATH", help="where the data set lies, or labeled clouds"
    )
    parser.add_argument("--split", help="default: the recipe's validation split, or all clouds")
    parser.add_argument(
        "--views",
        type=int,
        default=1,
        metavar="N",
        help="1 to 8 turned and mirrored views whose probabilities are averaged (default: 1)",
    )
    parser.add_argument(
        "--window",
        type=float,
        metavar="S",
        help="side of windows, half overlapping, for clouds that do not fit",
    )
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        help="run by tiles in so much memory, such as 2GB, for clouds that do not fit",
    )
    parser.add_argument("--submission", metavar="FOLDER", help="where predictions are written")
    add_device(parser)
    parser.set_defaults(run=_evaluate)


def _evaluate(arguments: argparse.Namespace) -> None:
    if not 1 <= arguments.views <= 8:
        raise ValueError(f"--views: found {arguments.views}, expected 1 to 8")
    folder = RunFolder.of(arguments.folder)
    if arguments.memory:
        _evaluate_large(arguments, folder)
        return
    model, pipeline = folder.load()
    dataset = folder.dataset(arguments.data, arguments.split)
    if not dataset.labeled and not arguments.submission:
        raise ValueError(f"the split {dataset.split} has no labels: --submission FOLDER is needed")
    views = inference.standard_views()[: arguments.views]
    with Progress("evaluate", len(dataset), "clouds") as bar:

        def took(i: int, classes: np.ndarray) -> None:
            if arguments.submission:
                datasets.write_prediction(dataset, i, classes, arguments.submission)
            bar.advance()

        try:
            confusion = inference.evaluate_points(
                model, pipeline, dataset, on_item=took, views=views, window=arguments.window
            )
        except KeyboardInterrupt:
            where = f" in {arguments.submission}" if arguments.submission else ""
            left = f"{bar.done} of {len(dataset)} clouds are done{where}"
            raise KeyboardInterrupt(f"{left}; the same command begins again") from None
    if dataset.labeled:
        print(confusion)
        print(
            f"mean IoU {confusion.mean_iou:.4f}  accuracy {confusion.accuracy:.4f}  "
            f"mean class accuracy {confusion.mean_accuracy:.4f}"
        )
    if arguments.submission:
        datasets.write_submission_notes(dataset, arguments.submission)
        print(f"predictions: {arguments.submission}")
    say_next("predict", arguments.folder, dataset.source(0)[0], "look.html")


def _evaluate_large(arguments: argparse.Namespace, folder: RunFolder) -> None:
    """The same on labeled files that do not fit into memory, one after the other, by tiles."""
    for name in ("submission", "window", "split"):
        if getattr(arguments, name) is not None:
            raise ValueError(f"--memory: found --{name} beside it, expected one of the two")
    if arguments.views != 1:
        raise ValueError("--memory: found --views beside it, expected one of the two")
    model, pipeline = folder.load()
    pack(model.eval())
    given = Path(arguments.data)
    clouds = clouds_below(given) if given.is_dir() else [given]
    total = Confusion(pipeline.names, unit="points")
    for cloud in clouds:
        with tempfile.TemporaryDirectory(prefix="mlx-lattice-") as work:
            memory = bytes_of("evaluate", "--memory", arguments.memory)
            job = Job(model, pipeline, folder.model, cloud, None, Path(work) / "run", memory)
            prediction = Prediction(job)
            prediction.begin()
            manifest = prediction.points()
            prediction.tiles(manifest)
            found = prediction.write(manifest)
        if found is None:
            print(f"{cloud}: no labels")
        else:
            total.counts += found.counts
    if not total.counts.any():
        raise ValueError(f"{given}: no labels of the classes of the network")
    print(total)
    print(f"mean IoU {total.mean_iou:.4f}  accuracy {total.accuracy:.4f}")
