"""`mlx-lattice evaluate`: a trained network on a data set; the metrics, and files for the
benchmark.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..training.progress import Progress
from .device import add_device
from .run_files import MODEL, PIPELINE, RECIPE


def add_command(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser(
        "evaluate",
        help="measures a network on a data set and writes benchmark submissions",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Prints the IoU per class and the mean over the points of a split, as the\n"
        "benchmarks count. --submission writes predictions in the layout of SemanticKITTI,\n"
        "nuScenes or ScanNet. A test split has no labels, so that there are predictions only.",
        epilog="examples:\n  mlx-lattice evaluate run --data /data/SemanticKITTI\n"
        "  mlx-lattice evaluate run --data /data/SemanticKITTI --views 8\n"
        "  mlx-lattice evaluate run --data /data/SemanticKITTI --split test --submission out",
    )
    parser.add_argument("folder", metavar="RUN", help="folder that `train --recipe` wrote")
    parser.add_argument("--data", required=True, metavar="PATH", help="where the data set lies")
    parser.add_argument("--split", help="default: the recipe's validation split")
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
    parser.add_argument("--submission", metavar="FOLDER", help="where predictions are written")
    add_device(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    try:
        from .. import datasets, models
        from ..training import inference, recipes
        from ..training.scans import VoxelPipeline
    except ImportError as error:
        raise ValueError(str(error)) from None
    folder = Path(arguments.folder)
    for name in (MODEL, PIPELINE, RECIPE):
        if not (folder / name).is_file():
            raise ValueError(f"{folder / name} is missing: expected a folder of `train --recipe`")
    if not 1 <= arguments.views <= 8:
        raise ValueError(f"--views: found {arguments.views}, expected 1 to 8")
    recipe = recipes.load_recipe(folder / RECIPE)
    pipeline, model = VoxelPipeline.load(folder / PIPELINE), models.load(folder / MODEL)
    dataset = recipe.dataset(arguments.data, arguments.split or recipe["data"]["valid"])
    if not dataset.labeled and not arguments.submission:
        raise ValueError(f"the split {dataset.split} has no labels: --submission FOLDER is needed")
    views = inference.standard_views()[: arguments.views]
    with Progress("evaluate", len(dataset), "clouds") as bar:

        def took(i: Any, classes: Any) -> None:
            if arguments.submission:
                datasets.write_prediction(dataset, i, classes, arguments.submission)
            bar.advance()

        confusion = inference.evaluate_points(
            model, pipeline, dataset, on_item=took, views=views, window=arguments.window
        )
    if dataset.labeled:
        print(confusion)
        print(
            f"mean IoU {confusion.mean_iou:.4f}  accuracy {confusion.accuracy:.4f}  "
            f"mean class accuracy {confusion.mean_accuracy:.4f}"
        )
    if arguments.submission:
        datasets.write_submission_notes(dataset, arguments.submission)
        print(f"predictions: {arguments.submission}")
