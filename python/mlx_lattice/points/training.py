"""Training of point networks: `train_pointcnn` is `training.Trainer` on the batches of a loader.

    history = train_pointcnn(model, batches, optimizer, loss_fn, epochs=10,
                             eval_loader=tests, checkpoint="run.safetensors")

Each epoch seeds MLX's random numbers with seed + epoch, so that a resumed run gives the same bits.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import mlx.core as mx

from ..training.distributed import TrainingError
from ..training.trainer import Trainer

if TYPE_CHECKING:
    from mlx.nn import Module
    from mlx.optimizers import Optimizer


# Labels and either "batch" or "positions", "features" and "lengths".
Batch: TypeAlias = "dict[str, Any]"


def call_model(model: Module, batch: Batch) -> mx.array:
    """model(batch["batch"]), or model(positions, features, lengths=...)."""
    if "batch" in batch:
        return model(batch["batch"])
    lengths = {"lengths": batch["lengths"]} if "lengths" in batch else {}
    return model(batch["positions"], batch.get("features"), **lengths)


def train_pointcnn(
    model: Module,
    data_loader: Iterable[Batch],
    optimizer: Optimizer,
    loss_fn: Callable[[mx.array, mx.array], mx.array],
    epochs: int = 10,
    *,
    forward: Callable[[Module, Batch], mx.array] | None = None,
    eval_loader: Iterable[Batch] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    seed: int = 0,
    log: Callable[[str], object] | None = print,
) -> list[dict[str, float]]:
    """Trains until `epochs` epochs are done in all. Returns the history: one dict per epoch.

    The keys of a dict are epoch, loss, seconds and accuracy, and, with `eval_loader`, eval_loss
    and eval_accuracy.

    data_loader, eval_loader: anything that can be iterated again, of dicts with "labels" and
        either "batch" (a PointCloudBatch) or "positions", "features" and "lengths".
    loss_fn(outputs, labels): returns a scalar.
    forward(model, batch): replaces call_model.
    checkpoint: a path that ends in .safetensors, written after each epoch.
    resume: continues from `checkpoint` if that file exists.
    log: a function that gets one line per epoch; None is silent.

    A loss that is not finite raises TrainingError; the weights are those before that step.
    """
    forward = forward or call_model
    path = None if checkpoint is None else _checkpoint_path(checkpoint)
    if resume and path is None:
        raise ValueError("[train_pointcnn] resume=True needs checkpoint")

    def loss(model: Module, batch: Any) -> tuple[Any, ...]:
        outputs = forward(model, batch)
        return loss_fn(outputs, batch["labels"]), outputs

    trainer = _LoaderTrainer(
        model, optimizer, loss, checkpoint_file=path, seed=seed, quiet=log is None
    )
    if resume and path and path.is_file():
        trainer.resume()

    def validate(model: Module, _ranks: Any) -> Any:
        row = {"accuracy": trainer.mean.row()["accuracy"]}
        if eval_loader is not None:
            found = evaluate(model, eval_loader, loss_fn, forward)
            row |= {f"eval_{name}": value for name, value in found.items()}
        return row

    on_epoch = None if log is None else lambda row: log(_line(row))
    return trainer.fit(data_loader, epochs, validate, on_epoch)


def evaluate(
    model: Module,
    loader: Iterable[Batch],
    loss_fn: Callable[[mx.array, mx.array], mx.array],
    forward: Callable[[Module, Batch], mx.array] | None = None,
) -> dict[str, float | None]:
    """dict(loss, accuracy) in evaluation mode; the mode of the model is restored."""
    forward = forward or call_model
    training = model.training
    model.eval()
    mean = _Mean()
    for batch in loader:
        outputs = forward(model, batch)
        loss = loss_fn(outputs, batch["labels"])
        if not math.isfinite(float(loss)):
            raise TrainingError(
                f"[evaluate] the loss is {loss.item()} in batch {mean.batches + 1}; "
                "check its inputs and the weights"
            )
        mean.add(loss, outputs, batch["labels"])
    model.train(training)
    return mean.row()


class _LoaderTrainer(Trainer):
    """A Trainer whose items are the batches of a loader, in the loader's order, one per step."""

    unit = "batches"

    def seed_epoch(self) -> None:
        mx.random.seed(self.seed + self.epoch + 1)
        self.mean = _Mean()

    def seed_step(self) -> None:
        """The loader may draw random numbers too: the whole epoch follows from its seed."""

    def batches(self, items: Any) -> Iterator[Any]:
        for batch in items:
            yield [batch], self.ranks.size
        if not self._batch_number:
            raise ValueError(
                "[train_pointcnn] data_loader gave no batch; an iterator can be read only once: "
                "pass a list"
            )

    def observe(self, item: Any, loss: Any, outputs: Any) -> None:
        self.mean.add(loss, outputs, item["labels"])


class _Mean:
    """Mean loss of the batches and the share of right labels over all rows.

    The share is None where outputs are no scores of classes.
    """

    def __init__(self) -> None:
        self.batches, self._loss, self._right, self._rows = 0, 0.0, 0, 0

    def add(self, loss: mx.array, outputs: mx.array, labels: mx.array) -> None:
        self.batches += 1
        self._loss += float(loss)
        scores = outputs.ndim == 2 and labels.ndim == 1 and mx.issubdtype(labels.dtype, mx.integer)
        if scores and outputs.shape[0]:
            self._right += int((outputs.argmax(axis=1) == labels).sum())
            self._rows += outputs.shape[0]

    def row(self) -> dict[str, float | None]:
        return {
            "loss": self._loss / self.batches if self.batches else math.nan,
            "accuracy": self._right / self._rows if self._rows else None,
        }


def _line(row: dict[str, float | None]) -> str:
    return "  ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in row.items()
        if value is not None
    )


def _checkpoint_path(path: str | os.PathLike[str]) -> Path:
    path = Path(path)
    if path.suffix != ".safetensors":
        raise ValueError(f"[train_pointcnn] checkpoint must end in .safetensors, got {path.name!r}")
    return path
