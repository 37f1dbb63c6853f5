"""One run of the command `train` on files: epochs, the best network, and its tables of classes."""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import models
from .run_files import HISTORY, MODEL, PIPELINE

if TYPE_CHECKING:
    from mlx.nn import Module

    from mlx_lattice.io.cloud import PointCloud
    from mlx_lattice.training.distributed import Ranks


def modules() -> list[Any]:
    """io, training.scans, training, training.distributed and training.checkpoint."""
    try:
        return [
            importlib.import_module(f"mlx_lattice.{name}")
            for name in (
                "io",
                "training.scans",
                "training",
                "training.distributed",
                "training.checkpoint",
            )
        ]
    except ImportError as error:
        raise ValueError(str(error)) from None


@dataclass(frozen=True)
class Job:
    """One call of the command: the trainer, its clouds, and where the results go."""

    trainer: Any
    ranks: Ranks
    pipeline: Any
    learned: list[Any]
    held: list[Any]
    clouds: dict[str, PointCloud]  # as they were read, by name
    output: Path

    def say(self, text: str) -> None:
        if self.ranks.first:
            print(text)


def run_training(job: Job, epochs: int, resume: bool) -> None:
    """Resumes, trains, and keeps the best network."""
    _, scans, *_ = modules()
    from ..training.metrics import epoch_score

    trainer, output = job.trainer, job.output
    if resume:
        trainer.resume()
        job.say(f"resumed {trainer.where}")
    if job.ranks.first:
        output.mkdir(parents=True, exist_ok=True)
        if not resume or not (output / PIPELINE).exists():
            job.pipeline.save(output / PIPELINE)

    def validate(model: Module, ranks: Ranks) -> dict[Any, Any]:
        found = scans.evaluate(model, job.held, job.pipeline.names, ranks)
        return {"mean_iou": round(found.mean_iou, 6)}

    def saved(row: Any) -> None:
        best = max(map(epoch_score, trainer.history[:-1]), default=float("-inf"))
        if epoch_score(row) >= best or not (output / MODEL).exists():
            trainer.model.save(output / MODEL)

    def report(row: Any) -> None:
        told = f"  mean IoU {row['mean_iou']:.3f}" if "mean_iou" in row else ""
        if told and math.isnan(row["mean_iou"]):
            told = "  mean IoU unknown: no validation label counts; the last network is kept"
        print(
            f"epoch {row['epoch']:3}  loss {row['loss']:.4f}{told}  {row['seconds']:.1f} s",
            flush=True,
        )

    if trainer.epoch >= epochs:
        job.say(
            f"nothing to do: the checkpoint has {trainer.epoch} epochs; "
            "--epochs is the number in all"
        )
        return
    check = validate if job.held else None
    trainer.fit(job.learned, epochs, check, on_epoch=report, on_checkpoint=saved)
    if job.ranks.first:
        _finish(job)


def _finish(job: Job) -> None:
    """The class tables of the best epoch, and what to type next."""
    from ..training.metrics import epoch_score

    _, scans, *_ = modules()
    held, output = job.held, job.output
    example = next(iter(job.clouds))
    if held:
        kept = max(job.trainer.history, key=lambda row: (epoch_score(row), row["epoch"]))
        word = "last" if math.isnan(kept.get("mean_iou", 0.0)) else "best"
        model = models.load(output / MODEL)
        plural = "s" * (len(held) > 1)
        print(f"\n{word} epoch {kept['epoch']}, on {len(held)} unseen cloud{plural}:")
        voxels, points = (scans.Confusion(job.pipeline.names, unit=u) for u in ("voxels", "points"))
        for scan in held:
            classes = scans.predict(model, scan)
            voxels.add(scan.labels, classes)
            count_points(points, job.pipeline, scan, classes, job.clouds[scan.name])
        print(f"\nIoU per voxel\n{voxels}\n\nIoU per point\n{points}")
        example = held[0].name
    print(f"\nnetwork: {output / MODEL}\nhistory: {output / HISTORY}")
    print(f"next: mlx-lattice predict {output} {example} look.html")


def count_points(confusion: Any, pipeline: Any, scan: Any, classes: Any, cloud: PointCloud) -> None:
    """Adds the points of one cloud.

    Points without a voxel or with an ignored label do not count.
    """
    import numpy as np

    truth = cloud.columns.get(pipeline.label)
    if truth is None or not len(classes):
        return
    order = {int(value): i for i, value in enumerate(pipeline.values)}
    known = np.array([order.get(int(v), -1) for v in np.unique(truth)])
    index = known[np.searchsorted(np.unique(truth), truth)]
    inside = scan.rows >= 0
    confusion.add(index[inside], np.asarray(classes)[scan.rows[inside]])
