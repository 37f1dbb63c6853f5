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
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import mlx.core as mx

from ..core import _checks
from .distributed import Ranks, TrainingError
from .trainer import Items, Trainer

if TYPE_CHECKING:
    from mlx.nn import Module
    from mlx.optimizers import Optimizer


# Labels and either "batch" or "positions", "features" and "lengths".
Batch: TypeAlias = "dict[str, Any]"
LossFunction: TypeAlias = Callable[[mx.array, mx.array], mx.array]
Forward: TypeAlias = "Callable[[Module, Batch], mx.array]"


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
    loss_fn: LossFunction,
    epochs: int = 10,
    *,
    forward: Forward | None = None,
    eval_loader: Iterable[Batch] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    seed: int = 0,
    log: Callable[[str], object] | None = print,
) -> list[dict[str, float]]:
    """Trains a point network on the batches of a loader until `epochs` epochs are done in all.

    Args:
        model: The network.
        data_loader: Anything that can be iterated again, of dicts with "labels" and either "batch"
            (a `PointCloudBatch`) or "positions", "features" and "lengths".
        optimizer: An optimizer of `mlx.optimizers` or `training.AdamW`.
        loss_fn: Called with (outputs, labels); returns a scalar.
        epochs: The number of epochs in all, also of a resumed run.
        forward: Called with (model, batch); by default model(batch["batch"]), or
            model(positions, features, lengths=...).
        eval_loader: Batches on which the model is measured after each epoch.
        checkpoint: A path that ends in .safetensors, written after each epoch.
        resume: Whether to continue from `checkpoint` if that file exists.
        seed: Each epoch seeds MLX's random numbers with seed + epoch.
        log: A function that gets one line per epoch; None is silent.

    Returns:
        The history: one dict per epoch with epoch, loss, seconds and accuracy, and, with
        `eval_loader`, eval_loss and eval_accuracy.

    Raises:
        TypeError, ValueError: An argument is of another kind.
        TrainingError: The loss is not finite; the weights are those before that step.
    """
    forward = _checked("train_pointcnn", model, data_loader, loss_fn, forward)
    trainer = _LoaderTrainer(
        model,
        optimizer,
        lambda model, batch: _loss_and_outputs(model, batch, loss_fn, forward),
        checkpoint_file=_checkpoint_path(checkpoint, resume),
        seed=seed,
        quiet=log is None,
    )
    if resume and checkpoint is not None and Path(checkpoint).is_file():
        trainer.resume()

    def validate(model: Module, _ranks: Ranks) -> dict[str, float | None]:
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
    loss_fn: LossFunction,
    forward: Forward | None = None,
) -> dict[str, float | None]:
    """Measures a point network on the batches of a loader, in evaluation mode.

    The mode of the model is restored. The arguments are those of `train_pointcnn`.

    Args:
        model: The network.
        loader: Batches.
        loss_fn: Called with (outputs, labels); returns a scalar.
        forward: Called with (model, batch); gives the outputs.

    Returns:
        A dict with the mean loss of the batches, and the accuracy over all rows; the accuracy is
        None where the outputs are no scores of classes.

    Raises:
        TypeError: An argument is of another kind.
        TrainingError: The loss is not finite.
    """
    forward = _checked("evaluate", model, loader, loss_fn, forward)
    training = model.training
    model.eval()
    mean = _Mean()
    for batch in loader:
        loss, outputs = _loss_and_outputs(model, batch, loss_fn, forward)
        if not math.isfinite(float(loss)):
            raise TrainingError(
                f"[evaluate] the loss is {loss.item()} in batch {mean.batches + 1}; "
                "check its inputs and the weights"
            )
        mean.add(loss, outputs, batch["labels"])
    model.train(training)
    return mean.row()


def _checked(
    call: str, model: object, loader: object, loss_fn: object, forward: Forward | None
) -> Forward:
    _checks.model(call, model)
    _checks.function(call, "loss_fn", loss_fn)
    if not isinstance(loader, Iterable):
        name = "loader" if call == "evaluate" else "data_loader"
        _checks.wrong_type(call, name, loader, "batches that can be iterated")
    if forward is not None:
        _checks.function(call, "forward", forward)
    return forward or call_model


def _loss_and_outputs(
    model: Module, batch: Batch, loss_fn: LossFunction, forward: Forward
) -> tuple[mx.array, mx.array]:
    outputs = forward(model, batch)
    return loss_fn(outputs, batch["labels"]), outputs


class _LoaderTrainer(Trainer):
    """A Trainer whose items are the batches of a loader, in the loader's order, one per step."""

    unit = "batches"

    def seed_epoch(self) -> None:
        mx.random.seed(self.seed + self.epoch + 1)
        self.mean = _Mean()

    def seed_step(self) -> None:
        """The loader may draw random numbers too: the whole epoch follows from its seed."""

    def batches(self, items: Items) -> Iterator[tuple[list[Batch], int]]:
        for batch in cast("Iterable[Batch]", items):
            yield [batch], self.ranks.size
        if not self._batch_number:
            raise ValueError(
                "[train_pointcnn] data_loader gave no batch; an iterator can be read only once: "
                "pass a list"
            )

    def observe(self, item: Batch, loss: mx.array, outputs: object) -> None:
        self.mean.add(loss, cast("mx.array", outputs), item["labels"])


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
            with mx.stream(mx.cpu):  # on the GPU it would wait for the step that runs now
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


def _checkpoint_path(path: str | os.PathLike[str] | None, resume: bool) -> Path | None:
    if path is None:
        if resume:
            raise ValueError("[train_pointcnn] resume=True needs checkpoint")
        return None
    path = Path(path)
    if path.suffix != ".safetensors":
        raise ValueError(f"[train_pointcnn] checkpoint must end in .safetensors, got {path.name!r}")
    return path
