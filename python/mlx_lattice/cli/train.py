"""Command `train`: labeled clouds in, a network out."""

from __future__ import annotations

import argparse
import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from .. import ops
from .._atomic import folder_lock
from ..training.progress import progress
from .device import add_device
from .files import FORMATS
from .networks import NETWORKS, RATES, coarsest, sizes_of
from .recipe import train_recipe
from .run_files import HISTORY
from .train_run import Job, modules, run_training

if TYPE_CHECKING:
    pass

DEFAULTS = {"epochs": 20, "batch": 1, "seed": 0}


def add_command(commands: argparse._SubParsersAction[Any]) -> None:
    raw = argparse.RawDescriptionHelpFormatter
    train = commands.add_parser(
        "train",
        help="trains a network on labeled point clouds",
        formatter_class=raw,
        description="Trains a network that predicts one class per point. Each cloud needs an\n"
        "integer column with the class of its points. The output folder gets\n"
        "  model.safetensors, model.json  the network of the best epoch on the validation part\n"
        "  recipe.json                    how clouds become voxels\n"
        "  checkpoint.safetensors         after every epoch; --resume continues from it",
        epilog="examples:\n  mlx-lattice train scans/ --voxel 0.1 --output run\n"
        "  mlx-lattice train a.ply b.ply c.ply --voxel 0.05 --columns intensity --ignore 0 "
        "--output run\n"
        "  mlx-lattice train scans/ --voxel 0.1 --output run --epochs 40 --resume\n"
        "  mlx-lattice train --recipe semantickitti-minkunet34 --data /data/SemanticKITTI "
        "--output run\n"
        "  mlx.launch -n 2 --backend ring -- python -m mlx_lattice train scans/ --voxel 0.1 "
        "--output run\n\n"
        '--config is a JSON file such as {"depth": 18, "width": 32, "stem_kernel_size": 3};\n'
        "its keys are the arguments of models.MinkUNet, PointTransformerV3 or WindowUNet;\n"
        f"see docs/models.md.\n{FORMATS}",
    )
    train.add_argument("files", nargs="*", metavar="data", help="files, or folders of files")
    train.add_argument(
        "--recipe",
        metavar="R",
        help="a recipe of the package, or a .toml file: data set, network, losses, augmentation",
    )
    train.add_argument(
        "--format", metavar="F", help="format of the files where their extensions do not tell"
    )
    train.add_argument("--data", metavar="PATH", help="where the data set of the recipe lies")
    train.add_argument(
        "--voxel",
        type=float,
        metavar="S",
        help="side of a voxel, in the files' unit; a recipe has its own",
    )
    train.add_argument(
        "--output", required=True, metavar="FOLDER", help="where the network and the checkpoint go"
    )
    train.add_argument(
        "--epochs",
        type=int,
        metavar="N",
        help="in all, also with --resume (default: 20, or the recipe's)",
    )
    train.add_argument(
        "--batch",
        type=int,
        metavar="N",
        help="clouds in a step on each rank (default: 1, or the recipe's)",
    )
    train.add_argument(
        "--learning-rate",
        type=float,
        metavar="R",
        help="the highest (default: 0.004, with ptv3 0.001, or the recipe's)",
    )
    train.add_argument(
        "--validation",
        type=float,
        default=0.2,
        metavar="SHARE",
        help="part of the clouds that is not learned from but measured on (default: %(default)s)",
    )
    train.add_argument(
        "--model",
        choices=sorted(NETWORKS),
        default="minkunet",
        help="kind of the network; a recipe has its own (default: %(default)s)",
    )
    train.add_argument("--config", metavar="JSON", help="sizes of the network")
    train.add_argument(
        "--label",
        default="label",
        metavar="COLUMN",
        help="column of the classes (default: %(default)s)",
    )
    train.add_argument(
        "--columns",
        default="",
        metavar="A,B",
        help="further columns the network sees, such as intensity,color",
    )
    train.add_argument(
        "--ignore", type=int, nargs="+", default=[], metavar="L", help="labels that do not count"
    )
    train.add_argument("--classes", metavar="A,B", help="names of the classes, by ascending label")
    train.add_argument(
        "--seed", type=int, help="of weights, order and split (default: 0, or the recipe's)"
    )
    train.add_argument(
        "--resume", action="store_true", help="go on from the checkpoint in the output folder"
    )
    train.add_argument(
        "--timeout",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="wait for other ranks (default: %(default)s)",
    )
    add_device(train)
    train.set_defaults(run=_train)


def _files(data: Any, io: Any) -> Any:
    """The files that are named, and those of the folders whose format is known."""
    found = []
    for path in map(Path, data):
        if path.is_dir():
            inside = sorted(p for p in path.iterdir() if p.is_file() and _known(p, io))
            if not inside:
                raise ValueError(f"{path}: no point-cloud file inside; {FORMATS}")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise ValueError(f"there is no file or folder {path}")
    return list(dict.fromkeys(found))


def _known(path: str | os.PathLike[str], io: Any) -> bool:
    """A file of a folder that is a cloud; notes in .txt are told and passed over.

    So is the history of a training whose --output is the folder.
    """
    try:
        name = io.format_of(path)
    except ValueError:
        return False
    if (name == "txt" or Path(path).name == HISTORY) and not io.text.is_points(path):
        print(f"{path}: no points, passed over")
        return False
    return True


def _split(count: int, share: Any, seed: int) -> tuple[Any, ...]:
    """(indices to learn from, indices to measure on)"""
    import numpy as np

    if not 0 <= share < 1:
        raise ValueError(f"--validation: found {share}, expected 0 or a part below 1")
    held = min(max(1, round(count * share)), count - 1) if share else 0
    order = np.random.default_rng([seed, 99]).permutation(count).tolist()
    return sorted(order[held:]), sorted(order[:held])


def _train(arguments: argparse.Namespace) -> None:
    if arguments.recipe:
        train_recipe(arguments)
        return
    if arguments.format:
        modules()[0].format_of("--format", arguments.format)  # before the work
    if arguments.data:
        raise ValueError("--data belongs to --recipe; without it, name files or folders")
    if not arguments.files:
        raise ValueError("no data: name files or folders, or give --recipe R --data PATH")
    if arguments.voxel is None:
        raise ValueError("--voxel is missing: the side of a voxel, in the files' unit")
    for name, value in {**DEFAULTS, "learning_rate": RATES[arguments.model]}.items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)
    io, scans, training, distributed, checkpoint = modules()
    for name, least in (
        ("voxel", 0),
        ("learning_rate", 0),
        ("epochs", 0),
        ("batch", 0),
        ("seed", -1),
        ("timeout", 0),
    ):
        if not least < getattr(arguments, name) < float("inf"):
            raise ValueError(
                f"--{name.replace('_', '-')}: found {getattr(arguments, name)}, "
                f"expected more than {least}"
            )
    sizes, output = sizes_of(arguments.model, arguments.config), Path(arguments.output)
    if output.exists() and not output.is_dir():
        raise ValueError(f"--output: {output} is a file, expected a folder")
    if (output / checkpoint.NAME).exists() and not arguments.resume:
        raise ValueError(
            f"{output} holds a checkpoint: --resume goes on from it, another --output begins anew"
        )
    ranks = distributed.Ranks(timeout=arguments.timeout)

    files = _files(arguments.files, io)
    clouds = [
        (str(path), io.read(path, arguments.format))
        for path in (progress(files, "reading") if ranks.first else files)
    ]
    names = arguments.classes.split(",") if arguments.classes else None
    columns = [c for c in arguments.columns.split(",") if c]
    pipeline = scans.pipeline_of(
        clouds, arguments.voxel, columns, arguments.label, arguments.ignore, names
    )
    made = [pipeline.scan(cloud, name) for name, cloud in clouds]
    cell = coarsest(arguments.model, sizes)
    for scan in made:
        if len(ops.downsample_coords(scan.tensor.coords, cell)) < 2:
            raise ValueError(
                f"{scan.name}: all its voxels fall into one cell of {cell}, "
                "the network's coarsest level, where nothing can "
                "be normalized; a smaller --voxel or a larger cloud is needed"
            )
    learned, held = (
        [made[i] for i in part] for part in _split(len(made), arguments.validation, arguments.seed)
    )
    if ranks.first:
        print(
            f"{len(learned)} clouds to learn from, {len(held)} to measure on; "
            f"{sum(len(s.tensor.coords) for s in made):,} voxels; "
            f"classes {', '.join(pipeline.names)}"
            + (f"; {ranks.size} ranks" if ranks.size > 1 else "")
        )

    mx.set_cache_limit(
        4 << 30
    )  # MLX keeps 32 MB by default; larger arrays are then new memory in every step
    mx.random.seed(arguments.seed)
    network = NETWORKS[arguments.model][0]
    model = network(pipeline.channels, len(pipeline.classes), **sizes)
    steps = arguments.epochs * -(-len(learned) // (arguments.batch * ranks.size))
    loss = scans.segmentation_loss(scans.class_weights(learned, len(pipeline.classes)))
    trainer = training.Trainer(
        model,
        training.adamw(arguments.learning_rate, steps),
        loss,
        directory=output,
        batch=arguments.batch,
        seed=arguments.seed,
        ranks=ranks,
        checkpoint_seconds=60,
        about={
            "voxel": pipeline.voxel,
            "classes": [value for value, _ in pipeline.classes],
            "columns": list(pipeline.columns),
            "label": pipeline.label,
            "ignored": list(pipeline.ignored),
            "validation": arguments.validation,
            "files": [[Path(name).name, len(cloud)] for name, cloud in clouds],
        },
    )
    job = Job(trainer, ranks, pipeline, learned, held, dict(clouds), output)
    with folder_lock(output) if ranks.first else nullcontext():
        run_training(job, arguments.epochs, arguments.resume)
