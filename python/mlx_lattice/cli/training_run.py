"""One training of the command line, on files or by a recipe, and the network that it keeps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np

from ..training import Confusion, Loader, Scan, Trainer, VoxelPipeline, evaluate_points
from ..training.metrics import epoch_score
from ..training.recipes import Recipe, planned
from .run_folder import RunFolder

if TYPE_CHECKING:
    from mlx.nn import Module

    from ..datasets import Dataset
    from ..io import PointCloud
    from ..training import Ranks

Row = dict[str, float]
MOST_CACHE = 4 << 30


def bound_cache() -> None:
    """Lets MLX keep as much freed memory as one step used at most, so that memory stays flat."""
    mx.set_cache_limit(min(MOST_CACHE, max(32 << 20, mx.get_peak_memory())))


@dataclass(frozen=True)
class TrainingRun:
    """The data of a training, how results are measured, and where they go.

    about: one line that describes the training data.
    """

    trainer: Trainer
    items: Sequence[Scan] | Loader
    pipeline: VoxelPipeline
    validate: Callable[[Module, Ranks], Row] | None
    about: str
    folder: RunFolder | None = None
    recipe: Recipe | None = None

    def fit(self, epochs: int, resume: bool = False) -> bool:
        """Trains until `epochs` epochs are done in all; False if nothing was left to do."""
        trainer, folder = self.trainer, self.folder
        self._say(self.about)
        if resume:
            trainer.resume()
            self._say(f"resumed {trainer.where}")
        begun = resume and folder is not None and folder.pipeline_path.exists()
        if folder is not None and trainer.ranks.first and not begun:
            folder.begin(self.pipeline, self.recipe)
        if trainer.epoch >= epochs:
            self._say(
                f"nothing to do: the checkpoint has {trainer.epoch} epochs; "
                "--epochs is the number in all"
            )
            return False
        trainer.on_step = bound_cache
        trainer.fit(
            self.items,
            epochs,
            self.validate,
            on_epoch=self._report,
            on_checkpoint=self._keep_best,
        )
        return True

    def best_epoch(self) -> Row:
        """The row of the epoch whose network is kept."""
        return max(self.trainer.history, key=lambda row: (epoch_score(row), row["epoch"]))

    def _say(self, text: str) -> None:
        if self.trainer.ranks.first:
            print(text, flush=True)

    def _keep_best(self, row: Row) -> None:
        best = max(map(epoch_score, self.trainer.history[:-1]), default=-math.inf)
        if self.folder is None or (epoch_score(row) < best and self.folder.model.exists()):
            return
        with self.trainer.averaged() as model:
            model.save(self.folder.model)

    def _report(self, row: Row) -> None:
        told = f"  mean IoU {row['mean_iou']:.3f}" if "mean_iou" in row else ""
        if math.isnan(row.get("mean_iou", 0.0)):
            told = "  mean IoU unknown: no validation label counts; the last network is kept"
        if isinstance(self.items, Loader):
            told += f"  waited {self.items.waited:.1f} s" if self.items.waited >= 0.05 else ""
            self.items.waited = 0.0
        self._say(f"epoch {row['epoch']:3}  loss {row['loss']:.4f}{told}  {row['seconds']:.1f} s")


def run_by_recipe(
    recipe: Recipe,
    train: Dataset,
    valid: Dataset | None,
    ranks: Ranks,
    folder: RunFolder | None = None,
) -> TrainingRun:
    """The training that a recipe describes, on two data sets."""
    pipeline = recipe.pipeline(train)
    of_files = pipeline.of_files(train.table, train.label)
    network, shape = recipe.network(pipeline), recipe.network(pipeline)
    counts = recipe.counts(train)
    loader = recipe.loader(train, planned(shape, pipeline), counts)
    trainer = recipe.trainer(
        network,
        len(pipeline.classes),
        len(loader),
        directory=None if folder is None else folder.path,
        ranks=ranks,
        about=recipe.about(train),
        counts=counts,
    )

    def measured(model: Module, ranks: Ranks) -> Row:
        assert valid is not None
        found = evaluate_points(model, pipeline, valid, ranks)
        return {"mean_iou": round(found.mean_iou, 6), "accuracy": round(found.accuracy, 6)}

    held = "" if valid is None else f", {len(valid):,} to measure on"
    about = f"{len(train):,} clouds to learn from{held}; {len(pipeline.classes)} classes"
    validate = None if valid is None else measured
    return TrainingRun(trainer, loader, of_files, validate, about, folder, recipe)


def count_points(
    confusion: Confusion,
    pipeline: VoxelPipeline,
    scan: Scan,
    classes: np.ndarray,
    cloud: PointCloud,
) -> None:
    """Adds the points of one cloud, by the classes of its voxels.

    Points without a voxel, or with a label that is ignored or unknown, do not count.
    """
    if pipeline.label not in cloud.columns or not len(classes):
        return
    index = pipeline.class_indices(cloud, scan.name, strict=False)
    inside = scan.rows >= 0
    confusion.add(index[inside], classes[scan.rows[inside]])
