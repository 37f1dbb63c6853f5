"""Command `train`: labeled clouds in, a network out; on files, or on a data set by a recipe."""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np

from .. import io, models, ops
from ..datasets.folder import clouds_below, is_notes
from ..training import (
    Confusion,
    Ranks,
    Scan,
    Trainer,
    VoxelPipeline,
    adamw,
    class_weights,
    evaluate_voxels,
    pipeline_of,
    predict_voxels,
    segmentation_loss,
)
from ..training.labeled_clouds import uneven_columns
from ..training.progress import progress
from ..training.recipes import load_recipe
from .networks import NETWORKS, RATES, coarsest, sizes_of
from .options import (
    CLASSES_HELP,
    FORMATS,
    Commands,
    add_device,
    add_format,
    add_parser,
    check_positive,
    parse_classes,
    say_next,
)
from .run_folder import RunFolder
from .training_run import TrainingRun, count_points, run_by_recipe

if TYPE_CHECKING:
    from mlx.nn import Module

DEFAULTS = {"epochs": 20, "batch": 1, "seed": 0}
DESCRIPTION = """\
Trains a network that predicts one class per point. Each cloud needs a
column with the class of its points: whole numbers, with gaps if you like. The output folder gets
  model.safetensors, model.json  the network of the best epoch on the validation part
  pipeline.json                  how clouds become voxels
  checkpoint.safetensors         after every epoch; --resume continues from it"""
EPILOG = f"""\
examples:
  mlx-lattice train scans/ --voxel 0.1 --output run
  mlx-lattice train a.ply b.ply c.ply --voxel 0.05 --columns intensity --ignore 0 --output run
  mlx-lattice train scans/ --voxel 0.1 --output run --epochs 40 --resume
  mlx-lattice train --recipe semantickitti-minkunet34 --data /data/SemanticKITTI --output run
  mlx.launch -n 2 --backend ring -- python -m mlx_lattice train scans/ --voxel 0.1 --output run

--config is a JSON file such as {{"depth": 18, "width": 32, "stem_kernel_size": 3}};
its keys are the arguments of models.MinkUNet, PointTransformerV3 or WindowUNet;
see docs/models.md.
{FORMATS}"""


def add_command(commands: Commands) -> None:
    train = add_parser(
        commands, "train", "trains a network on labeled point clouds", DESCRIPTION, EPILOG
    )
    _add_data(train)
    _add_training(train)
    add_device(train)
    train.set_defaults(run=_train)


def _add_data(train: argparse.ArgumentParser) -> None:
    """Options of the training data and of what the network sees of it."""
    add = train.add_argument
    add("files", nargs="*", metavar="data", help="files, or folders; their folders count too")
    add(
        "--recipe",
        metavar="R",
        help="a recipe of the package, or a .toml file: data set, network, losses, augmentation",
    )
    add_format(train, "the files where their extensions do")
    add("--data", metavar="PATH", help="where the data set of the recipe lies")
    add(
        "--voxel",
        type=float,
        metavar="S",
        help="side of a voxel, in the files' unit; a recipe has its own",
    )
    share = "part of the clouds that is not learned from but measured on (default: %(default)s)"
    add("--validation", type=float, default=0.2, metavar="SHARE", help=share)
    named = "column of the classes (default: %(default)s)"
    add("--label", default="label", metavar="COLUMN", help=named)
    seen = "further columns the network sees, such as intensity,color"
    add("--columns", default="", metavar="A,B", help=seen)
    even = "those of them to divide by their size in each cloud, where files have other units"
    add("--normalize", default="", metavar="A,B", help=even)
    add("--ignore", type=int, nargs="+", default=[], metavar="L", help="labels that do not count")
    add("--classes", metavar="A,B", help=CLASSES_HELP)


def _add_training(train: argparse.ArgumentParser) -> None:
    """Options of the network, of its training and of the output."""
    add = train.add_argument
    add("--output", required=True, metavar="FOLDER", help="where network and checkpoint go")
    epochs = "in all, also with --resume (default: 20, or the recipe's)"
    add("--epochs", type=int, metavar="N", help=epochs)
    batch = "clouds in a step on each rank (default: 1, or the recipe's)"
    add("--batch", type=int, metavar="N", help=batch)
    rate = "the highest (default: 0.004, with ptv3 0.001, or the recipe's)"
    add("--learning-rate", type=float, metavar="R", help=rate)
    add(
        "--model",
        choices=sorted(NETWORKS),
        default="minkunet",
        help="kind of the network; a recipe has its own (default: %(default)s)",
    )
    add("--config", metavar="JSON", help="sizes of the network")
    add("--seed", type=int, help="of weights, order and split (default: 0, or the recipe's)")
    add("--resume", action="store_true", help="go on from the checkpoint in the output folder")
    wait = "wait for other ranks (default: %(default)s)"
    add("--timeout", type=float, default=600.0, metavar="SECONDS", help=wait)


def _train(arguments: argparse.Namespace) -> None:
    (_check_recipe if arguments.recipe else _check_files)(arguments)
    folder = RunFolder(arguments.output)
    folder.check_free(arguments.resume)
    ranks = Ranks(timeout=arguments.timeout)
    mx.reset_peak_memory()
    try:
        (_train_by_recipe if arguments.recipe else _train_on_files)(arguments, folder, ranks)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(folder.kept(arguments.words)) from None


def _check_recipe(arguments: argparse.Namespace) -> None:
    if not arguments.data or arguments.files:
        raise ValueError("--recipe needs --data PATH, where the data set lies, and no other files")
    if arguments.voxel is not None or arguments.config is not None:
        raise ValueError("--voxel and --config belong to the recipe: copy it and change the copy")


def _check_files(arguments: argparse.Namespace) -> None:
    if arguments.format:
        io.format_of("--format", arguments.format)  # before the work
    if arguments.data:
        raise ValueError("--data belongs to --recipe; without it, name files or folders")
    if not arguments.files:
        raise ValueError("no data: name files or folders, or give --recipe R --data PATH")
    if arguments.voxel is None:
        raise ValueError("--voxel is missing: the side of a voxel, in the files' unit")
    for name, value in {**DEFAULTS, "learning_rate": RATES[arguments.model]}.items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)
    check_positive(arguments, "voxel", "learning_rate", "epochs", "batch", "timeout")
    if arguments.seed < 0:
        raise ValueError(f"--seed: found {arguments.seed}, expected 0 or more")


def _train_by_recipe(arguments: argparse.Namespace, folder: RunFolder, ranks: Ranks) -> None:
    recipe = load_recipe(arguments.recipe).changed(
        epochs=arguments.epochs,
        batch=arguments.batch,
        rate=arguments.learning_rate,
        seed=arguments.seed,
    )
    train, valid = (recipe.dataset(arguments.data, recipe["data"][s]) for s in ("train", "valid"))
    with folder.locked() if ranks.first else nullcontext():
        run = run_by_recipe(recipe, train, valid, ranks, folder)
        run.fit(recipe["train"]["epochs"], arguments.resume)
    if ranks.first:
        print(f"network: {folder.model}")
        say_next("evaluate", folder.path, "--data", arguments.data)


def _train_on_files(arguments: argparse.Namespace, folder: RunFolder, ranks: Ranks) -> None:
    sizes = sizes_of(arguments.model, arguments.config)
    files = _files(arguments.files)
    clouds = _clouds(files, arguments.format, ranks)
    pipeline = _pipeline(arguments, clouds, ranks)
    made = [pipeline.scan(cloud, name) for name, cloud in clouds.items()]
    _check_sizes(made, coarsest(arguments.model, sizes))
    learned, held = _split(made, arguments.validation, arguments.seed)
    about = {
        "voxel": pipeline.voxel,
        "classes": [value for value, _ in pipeline.classes],
        "columns": list(pipeline.columns),
        "label": pipeline.label,
        "ignored": list(pipeline.ignored),
        "normalized": list(pipeline.normalized),
        "validation": arguments.validation,
        "files": [[Path(name).name, len(cloud)] for name, cloud in clouds.items()],
    }
    mx.random.seed(arguments.seed)
    model = NETWORKS[arguments.model][0](pipeline.channels, len(pipeline.classes), **sizes)
    steps = arguments.epochs * -(-len(learned) // (arguments.batch * ranks.size))
    trainer = Trainer(
        model,
        adamw(arguments.learning_rate, steps),
        segmentation_loss(class_weights(learned, len(pipeline.classes))),
        directory=folder.path,
        batch=arguments.batch,
        seed=arguments.seed,
        ranks=ranks,
        checkpoint_seconds=60,
        about=about,
    )
    run = _run(trainer, pipeline, learned, held, folder)
    with folder.locked() if ranks.first else nullcontext():
        if run.fit(arguments.epochs, arguments.resume) and ranks.first:
            _finish(run, folder, held, clouds)


def _files(data: list[str]) -> list[Path]:
    """The files that are named, and the clouds in the folders and in the folders below them."""
    found: list[Path] = []
    for path in map(Path, data):
        if path.is_dir():
            inside = clouds_below(path)
            if not inside:
                raise ValueError(f"{path}: no point-cloud file inside; {FORMATS}")
            found += inside
            for notes in sorted(p for p in path.rglob("*") if p.is_file() and is_notes(p)):
                print(f"{notes}: no points, passed over")
        elif path.is_file():
            found.append(path)
        else:
            raise ValueError(f"there is no file or folder {path}")
    return list(dict.fromkeys(found))


def _clouds(files: list[Path], format: str | None, ranks: Ranks) -> dict[str, io.PointCloud]:
    """The clouds by path; those without a finite point are skipped with a message."""
    clouds, empty = {}, []
    for path in progress(files, "reading") if ranks.first else files:
        cloud = io.read(path, format)
        if cloud.finite().any():
            clouds[str(path)] = cloud
        else:
            empty.append(path)
    for path in empty if ranks.first else []:
        print(f"{path}: no points, passed over")
    if not clouds:
        raise ValueError(f"no points in {', '.join(map(str, empty))}: nothing to learn from")
    return clouds


def _pipeline(
    arguments: argparse.Namespace, clouds: dict[str, io.PointCloud], ranks: Ranks
) -> VoxelPipeline:
    """Classes and columns of the clouds; warns where a column has several units."""
    columns, even = (
        [c for c in text.split(",") if c] for text in (arguments.columns, arguments.normalize)
    )
    if set(even) - set(columns):
        raise ValueError(f"--normalize {arguments.normalize}: expected columns of --columns")
    pipeline = pipeline_of(
        clouds.items(),
        arguments.voxel,
        columns,
        arguments.label,
        arguments.ignore,
        parse_classes(arguments.classes),
        even,
    )
    for told in uneven_columns(clouds.items(), [c for c in columns if c not in even]):
        if ranks.first:
            column = told.split()[1]
            print(f"warning: {told}; --normalize {column} brings clouds to one scale, and predict")
            print("  will do the same, because the run stores it")
    return pipeline


def _check_sizes(scans: list[Scan], cell: int) -> None:
    for scan in scans:
        if len(ops.downsample_coords(scan.tensor.coords, cell)) < 2:
            raise ValueError(
                f"{scan.name}: all its voxels fall into one cell of {cell}, "
                "the network's coarsest level, where nothing can "
                "be normalized; a smaller --voxel or a larger cloud is needed"
            )


def _split(scans: list[Scan], share: float, seed: int) -> tuple[list[Scan], list[Scan]]:
    """(scans to learn from, scans to measure on)"""
    if not 0 <= share < 1:
        raise ValueError(f"--validation: found {share}, expected 0 or a part below 1")
    count = len(scans)
    held = min(max(1, round(count * share)), count - 1) if share else 0
    order = np.random.default_rng([seed, 99]).permutation(count).tolist()
    return [scans[i] for i in sorted(order[held:])], [scans[i] for i in sorted(order[:held])]


def _run(
    trainer: Trainer,
    pipeline: VoxelPipeline,
    learned: list[Scan],
    held: list[Scan],
    folder: RunFolder,
) -> TrainingRun:
    def measured(model: Module, ranks: Ranks) -> dict[str, float]:
        found = evaluate_voxels(model, held, pipeline.names, ranks)
        return {"mean_iou": round(found.mean_iou, 6)}

    size = trainer.ranks.size
    about = (
        f"{len(learned)} clouds to learn from, {len(held)} to measure on; "
        f"{sum(len(s.tensor.coords) for s in [*learned, *held]):,} voxels; "
        f"classes {', '.join(pipeline.names)}" + (f"; {size} ranks" if size > 1 else "")
    )
    return TrainingRun(trainer, learned, pipeline, measured if held else None, about, folder)


def _finish(
    run: TrainingRun, folder: RunFolder, held: list[Scan], clouds: dict[str, io.PointCloud]
) -> None:
    """The class tables of the best epoch, and what to type next."""
    if held:
        kept = run.best_epoch()
        word = "last" if np.isnan(kept["mean_iou"]) else "best"
        plural = "s" * (len(held) > 1)
        print(f"\n{word} epoch {kept['epoch']}, on {len(held)} unseen cloud{plural}:")
        model, pipeline = models.load(folder.model), run.pipeline
        voxels, points = (Confusion(pipeline.names, unit=unit) for unit in ("voxels", "points"))
        for scan in held:
            classes = predict_voxels(model, scan)
            if scan.labels is not None:
                voxels.add(scan.labels, classes)
            count_points(points, pipeline, scan, classes, clouds[scan.name])
        print(f"\nIoU per voxel\n{voxels}\n\nIoU per point\n{points}")
    example = held[0].name if held else next(iter(clouds))
    print(f"\nnetwork: {folder.model}\nhistory: {folder.history}")
    say_next("predict", folder.path, example, "look.html")
