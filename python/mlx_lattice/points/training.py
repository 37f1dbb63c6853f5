"""Training of point networks: epochs over batches with progress, evaluation, checkpoints and resume.

    history = train_pointcnn(model, batches, optimizer, loss_fn, epochs=10, eval_loader=tests, checkpoint="run.safetensors")

A checkpoint holds weights, optimizer state and history, and is replaced whole, as `mlx_lattice.training` writes it. Each epoch seeds MLX's random numbers with seed + epoch: a resumed run gives the same bits.
"""

import math
import time
from pathlib import Path

import mlx.core as mx
import mlx.nn

from ..training.checkpoint import load as load_checkpoint
from ..training.checkpoint import save as save_checkpoint
from ..training.distributed import TrainingError
from ..training.progress import progress


def call_model(model, batch):
    """model(batch["batch"]), or model(positions, features, lengths=...)."""
    if "batch" in batch:
        return model(batch["batch"])
    lengths = {"lengths": batch["lengths"]} if "lengths" in batch else {}
    return model(batch["positions"], batch.get("features"), **lengths)


def train_pointcnn(
    model,
    data_loader,
    optimizer,
    loss_fn,
    epochs=10,
    *,
    forward=None,
    eval_loader=None,
    checkpoint=None,
    resume=False,
    seed=0,
    log=print,
):
    """Trains up to `epochs` epochs in all; returns a dict for each: epoch, loss, accuracy, seconds, and eval_loss, eval_accuracy.

    data_loader, eval_loader: anything that can be iterated again, of dicts with "labels" and either "batch" (a PointCloudBatch) or
    "positions", "features", "lengths". loss_fn(outputs, labels) -> scalar. forward(model, batch) replaces call_model.
    checkpoint: a path ending in .safetensors, written after each epoch; resume=True continues from it where it exists.
    A loss that is not finite is a TrainingError; weights stay those before that step. log=None: silence.
    """
    forward = forward or call_model
    path = None if checkpoint is None else _checkpoint_path(checkpoint)
    if resume and path is None:
        raise ValueError("[train_pointcnn] resume=True needs checkpoint")
    optimizer.init(model.trainable_parameters())
    history = _resumed(path, model, optimizer, seed) if resume and path and path.is_file() else []

    def loss_and_outputs(batch):
        outputs = forward(model, batch)
        return loss_fn(outputs, batch["labels"]), outputs

    step = mlx.nn.value_and_grad(model, loss_and_outputs)
    for epoch in range(len(history) + 1, epochs + 1):
        begin = time.monotonic()
        mx.random.seed(seed + epoch)
        model.train()
        total = _Mean()
        batches = (
            data_loader
            if log is None
            else progress(data_loader, f"epoch {epoch}/{epochs}", unit="batches")
        )
        for batch in batches:
            (loss, outputs), gradients = step(batch)
            _finite(loss, f"epoch {epoch}, batch {total.batches + 1}")
            optimizer.update(model, gradients)
            mx.eval(model.parameters(), optimizer.state, loss)
            total.add(loss, outputs, batch["labels"])
        if not total.batches:
            raise ValueError(
                "[train_pointcnn] data_loader gave no batch; an iterator can be read only once, give a list"
            )
        row = {"epoch": epoch, **total.row()}
        if eval_loader is not None:
            row |= {
                f"eval_{name}": value
                for name, value in evaluate(model, eval_loader, loss_fn, forward).items()
            }
        row["seconds"] = time.monotonic() - begin
        history.append(row)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            save_checkpoint(path, model, optimizer, epoch=epoch, seed=seed, history=history)
        if log is not None:
            log(
                "  ".join(
                    f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}"
                    for k, v in row.items()
                    if v is not None
                )
            )
    model.eval()
    return history


def evaluate(model, loader, loss_fn, forward=None):
    """dict(loss, accuracy) in evaluation mode; the model's mode is restored."""
    forward = forward or call_model
    training = model.training
    model.eval()
    total = _Mean()
    for batch in loader:
        outputs = forward(model, batch)
        loss = loss_fn(outputs, batch["labels"])
        _finite(loss, f"evaluation, batch {total.batches + 1}")
        total.add(loss, outputs, batch["labels"])
    model.train(training)
    return total.row()


class _Mean:
    """Mean loss of the batches, share of right labels over all rows (None where outputs are no scores of classes)."""

    def __init__(self):
        self.batches, self._loss, self._right, self._rows = 0, 0.0, 0, 0

    def add(self, loss, outputs, labels):
        self.batches += 1
        self._loss += loss.item()
        scores = outputs.ndim == 2 and labels.ndim == 1 and mx.issubdtype(labels.dtype, mx.integer)
        if scores and outputs.shape[0]:
            self._right += (outputs.argmax(axis=1) == labels).sum().item()
            self._rows += outputs.shape[0]

    def row(self):
        return {
            "loss": self._loss / self.batches if self.batches else math.nan,
            "accuracy": self._right / self._rows if self._rows else None,
        }


def _finite(loss, where):
    if not math.isfinite(loss.item()):
        raise TrainingError(
            f"[train_pointcnn] the loss is {loss.item()} in {where}: a smaller learning rate may help"
        )


def _resumed(path, model, optimizer, seed):
    state = load_checkpoint(path, model, optimizer)
    if state["seed"] != seed:
        raise TrainingError(f"{path}: was started with seed {state['seed']}, found {seed}")
    return state["history"]


def _checkpoint_path(path):
    path = Path(path)
    if path.suffix != ".safetensors":
        raise ValueError(f"[train_pointcnn] checkpoint must end in .safetensors, got {path.name!r}")
    return path
