"""`mlx-lattice train --recipe R --data PATH`: a data set as downloaded in, a network out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from .._atomic import folder_lock, write_bytes
from .run_files import MODEL, PIPELINE, RECIPE

if TYPE_CHECKING:
    import argparse

    from mlx.nn import Module

    from mlx_lattice.training.distributed import Ranks

MOST_CACHE = 4 << 30  # MLX keeps 32 MB; larger arrays would be new memory in every step


def bound_cache() -> None:
    """Lets MLX keep as much freed memory as one step used at most, so that memory stays flat."""
    mx.set_cache_limit(min(MOST_CACHE, max(32 << 20, mx.get_peak_memory())))


def train_recipe(arguments: argparse.Namespace) -> None:
    try:
        from ..training import checkpoint, recipes
        from ..training.distributed import Ranks
    except ImportError as error:
        raise ValueError(str(error)) from None
    if not arguments.data or arguments.files:
        raise ValueError("--recipe needs --data PATH, where the data set lies, and no other files")
    if arguments.voxel is not None or arguments.config is not None:
        raise ValueError("--voxel and --config belong to the recipe: copy it and change the copy")
    recipe = recipes.load_recipe(arguments.recipe).changed(
        epochs=arguments.epochs,
        batch=arguments.batch,
        rate=arguments.learning_rate,
        seed=arguments.seed,
    )
    output = Path(arguments.output)
    if output.exists() and not output.is_dir():
        raise ValueError(f"--output: {output} is a file, expected a folder")
    if (output / checkpoint.NAME).exists() and not arguments.resume:
        raise ValueError(
            f"{output} holds a checkpoint: --resume goes on from it, another --output begins anew"
        )
    ranks = Ranks(timeout=arguments.timeout)
    mx.set_cache_limit(MOST_CACHE)
    mx.reset_peak_memory()
    train = recipe.dataset(arguments.data, recipe["data"]["train"])
    valid = recipe.dataset(arguments.data, recipe["data"]["valid"])
    with folder_lock(output) if ranks.first else nullcontext():
        fit(recipe, train, valid, output, ranks, arguments.resume)


def fit(
    recipe: Any,
    train: Any,
    valid: Any,
    output: Path | None,
    ranks: Ranks,
    resume: bool = False,
    say: Callable[..., Any] = print,
) -> tuple[Any, ...]:
    """Trains by a recipe on two data sets; returns (network, pipeline, trainer).

    output: gets the best network, the pipeline, the recipe, the checkpoint and history.csv.
    """
    from ..training.inference import evaluate_points
    from ..training.metrics import epoch_score
    from ..training.recipes import planned

    if not ranks.first:
        say = lambda *_, **__: None  # noqa: E731
    pipeline = recipe.pipeline(train)
    network, shape = recipe.network(pipeline), recipe.network(pipeline)
    counts = recipe.counts(train)
    loader = recipe.loader(train, planned(shape, pipeline), counts)
    trainer = recipe.trainer(
        network,
        len(pipeline.classes),
        len(loader),
        directory=output,
        ranks=ranks,
        about=recipe.about(train),
        counts=counts,
    )
    trainer.on_step = bound_cache
    if resume:
        trainer.resume()
        say(f"resumed {trainer.where}")
    if ranks.first and output is not None and not (resume and (output / RECIPE).exists()):
        pipeline.save(output / PIPELINE)
        write_bytes(output / RECIPE, recipe.text.encode())
    held = "" if valid is None else f", {len(valid):,} to measure on"
    say(f"{len(train):,} clouds to learn from{held}; {len(pipeline.classes)} classes")

    def validate(model: Module, ranks: Ranks) -> dict[Any, Any]:
        found = evaluate_points(model, pipeline, valid, ranks)
        return {"mean_iou": round(found.mean_iou, 6), "accuracy": round(found.accuracy, 6)}

    def saved(row: Any) -> None:
        best = max(map(epoch_score, trainer.history[:-1]), default=float("-inf"))
        if output is None or epoch_score(row) < best:
            return
        with trainer.averaged() as model:
            model.save(output / MODEL)

    def report(row: Any) -> None:
        told = f"  mean IoU {row['mean_iou']:.3f}" if "mean_iou" in row else ""
        waited = f"  waited {loader.waited:.1f} s" if loader.waited >= 0.05 else ""
        loader.waited = 0.0
        say(
            f"epoch {row['epoch']:3}  loss {row['loss']:.4f}{told}  {row['seconds']:.1f} s{waited}",
            flush=True,
        )

    epochs = recipe["train"]["epochs"]
    if trainer.epoch >= epochs:
        say(f"nothing to do: the checkpoint has {trainer.epoch} epochs of {epochs}")
    trainer.fit(
        loader,
        epochs,
        None if valid is None else validate,
        on_epoch=report,
        on_checkpoint=saved,
    )
    if output is not None:
        say(f"network: {output / MODEL}")
    return network, pipeline, trainer
