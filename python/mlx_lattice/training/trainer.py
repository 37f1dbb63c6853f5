"""Trainer: the one training loop, with validation, checkpoints, resume and any number of ranks.

    trainer = Trainer(model, optimizer, loss, directory="run", batch=2)
    trainer.fit(items, epochs=10, validate=lambda model, ranks: {"mean_iou": ...})

`loss(model, item)` returns the mean loss of one item, a scalar, or the pair (scalar, outputs).
One step takes `batch` items per rank. The gradient of a step is the mean of the gradients of all
items of all ranks. Items are not collated: each item keeps its coordinates, so that no relation
is built after the first epoch. Batch normalization sees one item at a time. The ranks average
their running statistics at the end of an epoch. Two ranks with batch b follow one rank with
batch 2 b within rounding.
"""

import math
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import mlx.core as mx
import mlx.nn
import mlx.optimizers
import numpy as np
from mlx.utils import tree_flatten, tree_map, tree_unflatten

from . import checkpoint
from .average import WeightAverage
from .callbacks import HISTORY, write_history
from .distributed import Ranks, TrainingError
from .labels import check_labels
from .optimizers import AdamW
from .precision import Precision
from .precision import value_and_grad as cast_value_and_grad
from .progress import Progress
from .schedules import warm_cosine
from .sync_norm import synchronize_batch_norm

__all__ = ["Trainer", "TrainingError", "adamw", "classification_loss", "warm_cosine"]


def adamw(rate, steps):
    """The optimizer of the commands: AdamW with `warm_cosine` and weight decay 1e-3."""
    return AdamW(warm_cosine(rate, steps), weight_decay=1e-3)


def classification_loss(logits, labels, weights=None):
    """Mean cross-entropy over the rows with label >= 0, weighted by the class of each row.

    Without such a row the loss is 0. The gradient, share * (softmax - one-hot), is written out,
    which takes half the time of MLX's own derivative; most of the rest is exp.
    """
    check_labels("classification_loss", logits, labels, weights)
    known = labels >= 0
    # In range whatever the labels are: traced ones have no values to check, and a wrong one makes
    # the loss NaN.
    index = mx.clip(labels, 0, logits.shape[1] - 1)
    right = mx.where(labels < logits.shape[1], 1.0, math.nan)
    share = mx.where(known, right if weights is None else right * weights[index], 0.0)
    return _cross_entropy(logits.astype(mx.float32), index, share / mx.maximum(share.sum(), 1e-12))[
        0
    ]


@mx.custom_function
def _cross_entropy(logits, index, share):
    """Sum over rows of share * (logsumexp(logits) - logits[index]), and the gradient of that sum.

    Classes lie along the first axis, because MLX reduces a few long rows faster than many short
    ones.
    """
    x = mx.contiguous(logits.T)
    x = x - x.max(axis=0)
    e = mx.exp(x)
    total = e.sum(axis=0)
    one_hot = mx.arange(x.shape[0])[:, None] == index
    loss = ((mx.log(total) - mx.where(one_hot, x, 0.0).sum(axis=0)) * share).sum()
    return loss, mx.contiguous(((e / total - one_hot) * share).T)


@_cross_entropy.vjp
def _cross_entropy_vjp(inputs, cotangents, outputs):
    return cotangents[0] * outputs[1], mx.zeros_like(inputs[1]), mx.zeros_like(inputs[2])


class Trainer:
    """Trains `model`. `checkpoint_file` is by default directory/checkpoint.safetensors.

    batch: items per step and rank. They are not collated, so that this is gradient accumulation.
    clip_norm: the largest norm of the gradient of all parameters; None for any.
    average: decay of the exponential moving average of the weights, which validation then sees.
    precision: float32, bfloat16 or float16; see training.precision.
    patience: ends after so many epochs in which `monitor`, a value of `validate`, was not higher.
    sync_batch_norm: statistics over all ranks. Every rank then takes as many items as the others;
    what is left over at the end of an epoch is left out.
    about: plain values that a checkpoint keeps and `resume` compares, such as the voxel size.
    directory also gets history.csv, the rows of all epochs.

    A subclass may replace `seed_epoch`, `batches` and `observe`; points.train_pointcnn does.
    """

    unit = "scans"  # what the line of progress counts

    def __init__(
        self,
        model,
        optimizer,
        loss,
        *,
        directory=None,
        checkpoint_file=None,
        batch=1,
        seed=0,
        ranks=None,
        quiet=False,
        clip_norm=None,
        average=None,
        precision="float32",
        patience=None,
        monitor="mean_iou",
        sync_batch_norm=False,
        about=None,
    ):
        if batch < 1:
            raise ValueError(f"[Trainer] batch: found {batch}, expected >= 1")
        if clip_norm is not None and not clip_norm > 0:
            raise ValueError(f"[Trainer] clip_norm: found {clip_norm}, expected a positive number")
        if patience is not None and patience < 1:
            raise ValueError(f"[Trainer] patience: found {patience}, expected >= 1")
        self.model, self.optimizer, self.batch, self.seed = model, optimizer, batch, seed
        self.ranks, self.about = ranks or Ranks(), dict(about or {})
        self.epoch, self.history = 0, []
        if checkpoint_file is None and directory is not None:
            checkpoint_file = Path(directory) / checkpoint.NAME
        self._path = checkpoint_file
        self._quiet = quiet or not self.ranks.first
        self._batch_number = 0
        self._history_path = None if directory is None else Path(directory) / HISTORY
        self._clip_norm, self._patience, self._monitor = clip_norm, patience, monitor
        self._even = sync_batch_norm and self.ranks.size > 1
        if sync_batch_norm:
            synchronize_batch_norm(model, self.ranks)
        self.precision = Precision(precision)
        if self.precision.plain:
            self._gradient = mlx.nn.value_and_grad(model, partial(loss, model))
        else:
            self._gradient = cast_value_and_grad(model, loss, self.precision)
        optimizer.init(model.trainable_parameters())
        self.average = None if average is None else WeightAverage(model, average)

    def resume(self):
        """Continues from the checkpoint. Rank 0 reads the file; the other ranks get its values."""
        state = {}
        if self.ranks.first:
            state = checkpoint.load(self._path, self.model, self.optimizer, self.average)
            if state["seed"] != self.seed:
                raise TrainingError(
                    f"{self._path}: was started with seed {state['seed']}, found {self.seed}"
                )
            for name, value in state.get("about", {}).items():
                if name in self.about and self.about[name] != value:
                    raise TrainingError(
                        f"{self._path}: was started with {name} {value}, found {self.about[name]}; "
                        "give the same, or begin anew in another folder"
                    )
        about = self.ranks.total(mx.array([state.get("epoch", 0)]))
        self.ranks.eval(about)
        self.epoch, self.history = about.item(), state.get("history", [])
        if self.average is not None and self.ranks.size > 1:
            self.average.values = self.ranks.from_first(self.average.values)
            steps = self.ranks.total(mx.array([self.average.steps if self.ranks.first else 0]))
            self.average.steps = steps.item()
        if "precision" in state:
            self.precision.state = state["precision"]

    def fit(self, items, epochs, validate=None, on_epoch=None, on_checkpoint=None):
        """Trains until `epochs` epochs are done in all. Returns the history: one dict per epoch.

        validate(model, ranks): all ranks call it; it returns numbers by name.
        on_checkpoint(row), on_epoch(row): rank 0 calls them in this order after the checkpoint
        is written, to write more files and to print.
        """
        self._copy_from_first()
        while self.epoch < epochs and not self._stalled():
            begin = time.perf_counter()
            loss = self._run_epoch(items, epochs)
            row = {
                "epoch": self.epoch + 1,
                "loss": loss,
                "seconds": round(time.perf_counter() - begin, 3),
            }
            self._average_statistics()
            if validate is not None:
                self.model.eval()
                with self.averaged():
                    row |= validate(self.model, self.ranks)
            self.epoch += 1
            self.history.append(row)
            if self.ranks.first:
                self._save()
                if self._history_path is not None:
                    write_history(self._history_path, self.history)
                for call in filter(None, (on_checkpoint, on_epoch)):
                    call(row)
        self.model.eval()
        return self.history

    def averaged(self):
        """A context in which the model has its averaged weights, where there is an average."""
        return nullcontext(self.model) if self.average is None else self.average.applied()

    def _stalled(self):
        """Whether `patience` epochs have passed since `monitor` was highest.

        The same on all ranks.
        """
        if self._patience is None:
            return False
        values = [row.get(self._monitor, float("-inf")) for row in self.history]
        stop = bool(values) and len(values) - 1 - int(np.argmax(values)) >= self._patience
        if values and self._monitor not in self.history[-1]:
            raise TrainingError(
                f"[Trainer] monitor: validation gave no {self._monitor!r}; "
                f"found {', '.join(self.history[-1])}"
            )
        if self.ranks.size > 1:
            stop = self.ranks.total(mx.array([int(stop and self.ranks.first)])).item() > 0
        return stop

    def seed_epoch(self):
        """Seeds MLX's random numbers by (seed, epoch, rank), so that a resumed run repeats them."""
        state = np.random.SeedSequence([self.seed, self.epoch, self.ranks.rank]).generate_state(1)
        mx.random.seed(int(state[0]))

    def order(self, count):
        """The items of this epoch in global batches; the same on every rank."""
        mixed = np.random.default_rng([self.seed, self.epoch]).permutation(count)
        size = self.batch * self.ranks.size
        if self._even:
            mixed = mixed[: count - count % self.ranks.size]
        return [mixed[i : i + size] for i in range(0, len(mixed), size)]

    def batches(self, items):
        """Yields (this rank's items of a batch, number of items of all ranks)."""
        if not len(items):
            raise ValueError("[Trainer] items: found none, expected at least one")
        order = self.order(len(items))
        if not hasattr(items, "stream"):
            for batch in order:
                yield [items[i] for i in self.ranks.share(batch)], len(batch)
            return
        mine = [self.ranks.share(batch) for batch in order]
        stream = items.stream([i for part in mine for i in part], self.epoch)
        try:
            for part, batch in zip(mine, order, strict=True):
                yield [next(stream) for _ in part], len(batch)
        finally:
            stream.close()  # ends the threads of a Loader, also after an error

    def observe(self, item, loss, outputs):
        """Called after the gradient of each item with what the loss function returned for it."""

    def step(self, items, count=None):
        """One update with this rank's items of a batch of `count`; returns the mean loss."""
        count = len(items) * self.ranks.size if count is None else count
        loss, gradients, seen = mx.array(0.0), None, []
        for item in items:
            value, g = self._gradient(item)
            value, outputs = value if isinstance(value, tuple) else (value, None)
            seen.append((item, value, outputs))
            loss = loss + value
            gradients = g if gradients is None else tree_map(mx.add, gradients, g)
            if len(items) > 1:
                mx.eval(loss, gradients)  # holds the memory of one item at a time
        if gradients is None:
            gradients = tree_map(mx.zeros_like, self.model.trainable_parameters())
        if count != self.ranks.size:
            gradients = tree_map(lambda g: g * (self.ranks.size / count), gradients)
        gradients = self.ranks.average_gradients(gradients)
        loss = self.ranks.total(loss) / count
        self.ranks.eval(loss, gradients)
        mean = loss.item()
        if not self.precision.usable(gradients):
            return mean if math.isfinite(mean) else 0.0  # the scale of the loss was too large
        if not math.isfinite(mean):
            raise TrainingError(
                f"the loss is {mean} in epoch {self.epoch + 1}, batch {self._batch_number}: "
                "a smaller learning rate may help; weights and last checkpoint are unchanged"
            )
        if self._clip_norm is not None:
            gradients, _ = mlx.optimizers.clip_grad_norm(gradients, self._clip_norm)
        self.optimizer.update(self.model, gradients)
        mx.eval(self.model.parameters(), self.optimizer.state)
        if self.average is not None:
            self.average.update()
        for item, value, outputs in seen:
            self.observe(item, value, outputs)
        return mean

    def _run_epoch(self, items, epochs):
        """Mean loss of the items of one epoch."""
        self.model.train()
        self.seed_epoch()
        total, done, self._batch_number = 0.0, 0, 0
        stream = {"stream": _Silent()} if self._quiet else {}
        size = len(items) if hasattr(items, "__len__") else None
        with Progress(f"epoch {self.epoch + 1}/{epochs}", size, self.unit, **stream) as bar:
            for mine, count in self.batches(items):
                self._batch_number += 1
                loss = self.step(mine, count)
                total += loss * count
                done += count
                bar.advance(count, f"loss {loss:.4f}")
        return total / done

    def _save(self):
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        state = {"epoch": self.epoch, "seed": self.seed, "history": self.history}
        if not self.precision.plain:
            state["precision"] = self.precision.state
        state["about"] = self.about
        checkpoint.save(self._path, self.model, self.optimizer, self.average, **state)

    def _copy_from_first(self):
        """Every rank begins with rank 0's weights and optimizer state."""
        if self.ranks.size > 1:
            self.model.update(self.ranks.from_first(self.model.parameters()))
            self.optimizer.state = self.ranks.from_first(self.optimizer.state)

    def _average_statistics(self):
        """Averages the running statistics of batch normalization over the ranks."""
        own = [
            (k, v)
            for k, v in tree_flatten(self.model.parameters())
            if k.split(".")[-1].startswith("running_")
        ]
        if own and self.ranks.size > 1:
            self.model.update(self.ranks.mean(tree_unflatten(own)))


class _Silent:
    """A stream that is no terminal: Progress prints nothing."""

    def write(self, text):
        pass
