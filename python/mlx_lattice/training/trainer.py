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
from functools import partial
from pathlib import Path

import mlx.core as mx
import mlx.nn
import numpy as np
from mlx.utils import tree_flatten, tree_map, tree_unflatten

from . import checkpoint
from .distributed import Ranks, TrainingError
from .optimizers import AdamW
from .progress import Progress

__all__ = ["Trainer", "TrainingError", "adamw", "classification_loss", "warm_cosine"]


def warm_cosine(rate, steps, warm=0.1):
    """Learning rate over `steps` steps: a linear rise to `rate`, then a cosine fall to rate / 100.

    warm: the share of the steps in which the rate rises.
    """
    rise = max(1, round(steps * warm))

    def schedule(step):
        turn = mx.clip((step - rise) / max(1, steps - rise), 0, 1)
        return rate * mx.minimum((step + 1) / rise, 0.505 + 0.495 * mx.cos(math.pi * turn))

    return schedule


def adamw(rate, steps):
    """The optimizer of the commands: AdamW with `warm_cosine` and weight decay 1e-3."""
    return AdamW(warm_cosine(rate, steps), weight_decay=1e-3)


def classification_loss(logits, labels, weights=None):
    """Mean cross-entropy over the rows with label >= 0, weighted by the class of each row.

    Without such a row the loss is 0. The gradient, share * (softmax - one-hot), is written out,
    which takes half the time of MLX's own derivative; most of the rest is exp.
    """
    known = labels >= 0
    index = mx.where(known, labels, 0)
    share = known.astype(mx.float32) if weights is None else mx.where(known, weights[index], 0.0)
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
    ):
        if batch < 1:
            raise ValueError(f"[Trainer] batch: found {batch}, expected >= 1")
        self.model, self.optimizer, self.batch, self.seed = model, optimizer, batch, seed
        self.ranks = ranks or Ranks()
        self.epoch, self.history = 0, []
        if checkpoint_file is None and directory is not None:
            checkpoint_file = Path(directory) / checkpoint.NAME
        self._path = checkpoint_file
        self._quiet = quiet or not self.ranks.first
        self._batch_number = 0
        self._gradient = mlx.nn.value_and_grad(model, partial(loss, model))
        optimizer.init(model.trainable_parameters())

    def resume(self):
        """Continues from the checkpoint. Rank 0 reads the file; the other ranks get its values."""
        state = {}
        if self.ranks.first:
            state = checkpoint.load(self._path, self.model, self.optimizer)
            if state["seed"] != self.seed:
                raise TrainingError(
                    f"{self._path}: was started with seed {state['seed']}, found {self.seed}"
                )
        about = self.ranks.total(mx.array([state.get("epoch", 0)]))
        self.ranks.eval(about)
        self.epoch, self.history = about.item(), state.get("history", [])

    def fit(self, items, epochs, validate=None, on_epoch=None, on_checkpoint=None):
        """Trains until `epochs` epochs are done in all. Returns the history: one dict per epoch.

        validate(model, ranks): all ranks call it; it returns numbers by name.
        on_checkpoint(row), on_epoch(row): rank 0 calls them in this order after the checkpoint
        is written, to write more files and to print.
        """
        self._copy_from_first()
        while self.epoch < epochs:
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
                row |= validate(self.model, self.ranks)
            self.epoch += 1
            self.history.append(row)
            if self.ranks.first:
                self._save()
                for call in filter(None, (on_checkpoint, on_epoch)):
                    call(row)
        self.model.eval()
        return self.history

    def seed_epoch(self):
        """Seeds MLX's random numbers by (seed, epoch, rank), so that a resumed run repeats them."""
        state = np.random.SeedSequence([self.seed, self.epoch, self.ranks.rank]).generate_state(1)
        mx.random.seed(int(state[0]))

    def order(self, count):
        """The items of this epoch in global batches; the same on every rank."""
        mixed = np.random.default_rng([self.seed, self.epoch]).permutation(count)
        size = self.batch * self.ranks.size
        return [mixed[i : i + size] for i in range(0, count, size)]

    def batches(self, items):
        """Yields (this rank's items of a batch, number of items of all ranks)."""
        if not len(items):
            raise ValueError("[Trainer] items: found none, expected at least one")
        for batch in self.order(len(items)):
            yield [items[i] for i in self.ranks.share(batch)], len(batch)

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
        if not math.isfinite(mean):
            raise TrainingError(
                f"the loss is {mean} in epoch {self.epoch + 1}, batch {self._batch_number}: "
                "a smaller learning rate may help; weights and last checkpoint are unchanged"
            )
        self.optimizer.update(self.model, gradients)
        mx.eval(self.model.parameters(), self.optimizer.state)
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
        checkpoint.save(self._path, self.model, self.optimizer, **state)

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
