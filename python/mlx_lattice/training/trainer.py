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

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import mlx.core as mx
import mlx.nn
import mlx.optimizers
import numpy as np
from mlx.utils import tree_map, tree_unflatten

from .._ext import start
from ..core import _checks
from ..devices import arrays_of, keep_memory
from ..nn import pack
from ..nn._arrays import named_arrays
from . import checkpoint
from .average import WeightAverage
from .callbacks import HISTORY, write_history
from .distributed import Ranks, TrainingError, check_ranks
from .loader import Loader
from .optimizers import AdamW, guarded_update
from .precision import Precision
from .precision import value_and_grad as cast_value_and_grad
from .progress import Progress
from .schedules import warm_cosine
from .sync_norm import synchronize_batch_norm

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from mlx.nn import Module
    from mlx.optimizers import Optimizer

# What the loss takes, one by one; a Loader makes them ahead of the step.
Items: TypeAlias = Sequence[Any] | Iterable[Any] | Loader

__all__ = ["Trainer", "TrainingError", "adamw", "warm_cosine"]


def adamw(rate: float, steps: int) -> AdamW:
    """The optimizer of the commands: AdamW with `warm_cosine` and weight decay 1e-3.

    Args:
        rate: The highest learning rate.
        steps: The number of steps of the whole training.

    Returns:
        An `AdamW`.

    Raises:
        TypeError, ValueError: An argument is no number, or outside its range.
    """
    return AdamW(warm_cosine(rate, steps), weight_decay=1e-3)


def _check_parts(model: object, optimizer: object, loss: object, ranks: object) -> None:
    check_ranks("Trainer", ranks)
    _checks.model("Trainer", model)
    expected = "an optimizer of mlx.optimizers"
    _checks.instance("Trainer", "optimizer", optimizer, mlx.optimizers.Optimizer, expected)
    _checks.function("Trainer", "loss", loss)


@dataclass(frozen=True)
class _Step:
    """A step that was started; loss and usable are lazy."""

    loss: mx.array
    usable: mx.array
    seen: list[tuple[Any, mx.array, object]]  # item, loss and outputs
    count: int  # items of all ranks
    batch: int  # its number in the epoch


class Trainer:
    """The training loop, with validation, checkpoints, resume and any number of ranks.

    One step takes `batch` items per rank, and its gradient is the mean over all items of all ranks.
    `history` has one dict per epoch. The trainer waits for the loss of a step while the next step
    runs, so that a GPU always has work; results do not depend on this. A subclass may replace
    `seed_epoch`, `seed_step`, `batches` and `observe`; `points.train_pointcnn` does.

    Args:
        model: The network.
        optimizer: An optimizer of `mlx.optimizers` or `training.AdamW`.
        loss: Called with (model, item); returns the mean loss of one item, a scalar, or the pair
            (scalar, outputs).
        directory: Folder that gets the checkpoint, and history.csv with the rows of all epochs.
        checkpoint_file: Path of the checkpoint; by default directory/checkpoint.safetensors.
        batch: Items per step and rank. They are not collated: this is gradient accumulation.
        seed: Seed of the order of the items and of random numbers in the network.
        ranks: The ranks that train together; by default those of `mx.distributed`.
        quiet: Whether the line of progress is left out.
        clip_norm: The largest norm of the gradient of all parameters; None for any.
        average: Decay of a `WeightAverage`, whose weights validation then sees.
        precision: float32, bfloat16 or float16; see `training.precision`.
        patience: Ends after so many epochs in which `monitor` was not higher.
        monitor: A value of `validate`.
        sync_batch_norm: Whether statistics are those of all ranks. Every rank then takes as many
            items as the others; what is left over at the end of an epoch is left out.
        checkpoint_seconds: Writes a checkpoint also inside an epoch, so long after the last one; 0
            for each step, None for ends of epochs only. Several ranks write none inside an epoch.
        about: Plain values that a checkpoint keeps and `resume` compares, such as the voxel size.

    Raises:
        TypeError, ValueError: An argument is of another kind or size.

    Examples:
        >>> from mlx_lattice import nn, samples, training
        >>> net, x = nn.Linear(4, 2), samples.tensor()
        >>> loss = lambda net, x: net(x).feats.square().mean()
        >>> trainer = training.Trainer(net, training.AdamW(1e-2), loss, quiet=True)
        >>> history = trainer.fit([x], epochs=5)
        >>> len(history), history[4]["loss"] < history[0]["loss"]
        (5, True)
    """

    unit = "scans"  # what the line of progress counts
    on_step: Callable[[], object] | None = None  # called after each step

    def __init__(
        self,
        model: Module,
        optimizer: Optimizer,
        loss: Callable[..., mx.array | tuple[mx.array, object]],
        *,
        directory: str | os.PathLike[str] | None = None,
        checkpoint_file: str | os.PathLike[str] | None = None,
        batch: int = 1,
        seed: int = 0,
        ranks: Ranks | None = None,
        quiet: bool = False,
        clip_norm: float | None = None,
        average: float | None = None,
        precision: str = "float32",
        patience: int | None = None,
        monitor: str = "mean_iou",
        sync_batch_norm: bool = False,
        checkpoint_seconds: float | None = None,
        about: dict[str, Any] | None = None,
    ) -> None:
        _check_parts(model, optimizer, loss, ranks)
        self.batch = _checks.integer(self, "batch", batch)
        self.seed = _checks.integer(self, "seed", seed, 0, 2**63)
        if clip_norm is not None:
            _checks.positive(self, "clip_norm", clip_norm)
        if patience is not None:
            _checks.integer(self, "patience", patience)
        if checkpoint_seconds is not None:
            _checks.number(self, "checkpoint_seconds", checkpoint_seconds, 0)
        if about is not None:
            _checks.instance("Trainer", "about", about, dict, "plain values by name")
        self.model, self.optimizer = model, optimizer
        self.ranks, self.about = ranks or Ranks(), dict(about or {})
        self.epoch = 0
        self.history: list[dict[str, Any]] = []
        for name, path in (("directory", directory), ("checkpoint_file", checkpoint_file)):
            if path is not None:
                _checks.path(self, path, name)
        if checkpoint_file is None and directory is not None:
            checkpoint_file = Path(directory) / checkpoint.NAME
        self._path = checkpoint_file
        self._quiet = _checks.flag(self, "quiet", quiet) or not self.ranks.first
        self._batch_number = 0
        self._failed = mx.array(False)  # whether the loss of a step was not finite
        self._within: dict[str, Any] | None = None  # where a resumed epoch continues
        self._checkpoint_seconds = checkpoint_seconds if self.ranks.size == 1 else None
        self._history_path = None if directory is None else Path(directory) / HISTORY
        self._clip_norm, self._patience, self._monitor = clip_norm, patience, monitor
        sync_batch_norm = _checks.flag(self, "sync_batch_norm", sync_batch_norm)
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

    @property
    def where(self) -> str:
        """Says after which epoch a resumed run continues, and how far inside the next one."""
        inside = (
            "" if self._within is None else f", {self._within['done']} {self.unit} into the next"
        )
        return f"after epoch {self.epoch}{inside}"

    def resume(self) -> None:
        """Continues from the checkpoint. Rank 0 reads the file; the other ranks get its values.

        Raises TrainingError if there is no checkpoint, or if it belongs to another training.
        """
        if self._path is None:
            raise TrainingError("[Trainer] resume needs directory or checkpoint_file")
        state: dict[str, Any] = {}
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
        about = self.ranks.total(mx.array(state.get("epoch", 0)))
        self.ranks.eval(about)
        self.epoch, self.history = int(about), state.get("history", [])
        if self.average is not None and self.ranks.size > 1:
            self.average.values = self.ranks.from_first(self.average.values)
            steps = self.ranks.total(mx.array(self.average.steps if self.ranks.first else 0))
            self.average.steps = int(steps)
        if "precision" in state:
            self.precision.state = state["precision"]
        self._within = state.get("within")
        if self._within is not None and self.ranks.size > 1:
            raise TrainingError(
                f"{self._path}: was written inside an epoch by one rank, found {self.ranks.size} "
                "ranks; let one rank end the epoch"
            )

    def fit(
        self,
        items: Items,
        epochs: int,
        validate: Callable[[Module, Ranks], dict[str, Any]] | None = None,
        on_epoch: Callable[[dict[str, Any]], object] | None = None,
        on_checkpoint: Callable[[dict[str, Any]], object] | None = None,
    ) -> list[dict[str, Any]]:
        """Trains until `epochs` epochs are done in all.

        Args:
            items: A sequence of what the loss takes, or a `Loader`.
            epochs: The number of epochs in all, also of a resumed run.
            validate: Called with (model, ranks) by all ranks; returns numbers by name.
            on_epoch: Rank 0 calls it with the row of an epoch after its checkpoint is written.
            on_checkpoint: Rank 0 calls it with the row before the checkpoint is written, to write
                more files. A run that ends in between repeats the epoch and writes them again.

        Returns:
            The history: one dict per epoch with epoch, loss, seconds and what `validate` returned.

        Raises:
            TrainingError: A loss is not finite, or a rank is gone.
        """
        keep_memory()
        self._copy_from_first()
        if self.ranks.first:
            for path in (p for p in (self._path, self._history_path) if p):
                Path(path).parent.mkdir(parents=True, exist_ok=True)
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
                    row |= validate(pack(self.model), self.ranks)
            self.epoch += 1
            self.history.append(row)
            if self.ranks.first:
                if on_checkpoint is not None:
                    on_checkpoint(row)
                if self._history_path is not None:
                    write_history(self._history_path, self.history)
                self._save()
                if on_epoch is not None:
                    on_epoch(row)
        self.model.eval()
        return self.history

    def averaged(self) -> AbstractContextManager[Module]:
        """A context in which the model has its averaged weights, where there is an average."""
        return nullcontext(self.model) if self.average is None else self.average.applied()

    def _stalled(self) -> bool:
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
            stop = bool(self.ranks.total(mx.array([int(stop and self.ranks.first)])).item())
        return stop

    def seed_epoch(self) -> None:
        """Called at the beginning of an epoch, before its first batch is read."""

    def seed_step(self) -> None:
        """Seeds MLX's random numbers by (seed, epoch, rank, step): a resumed run repeats them."""
        about = [self.seed, self.epoch, self.ranks.rank, self._batch_number]
        mx.random.seed(int(np.random.SeedSequence(about).generate_state(1)[0]))

    def order(self, count: int) -> list[np.ndarray]:
        """The items of this epoch in global batches; the same on every rank."""
        count = _checks.integer("Trainer", "count", count, 0)
        mixed = np.random.default_rng([self.seed, self.epoch]).permutation(count)
        size = self.batch * self.ranks.size
        if self._even:
            mixed = mixed[: count - count % self.ranks.size]
        return [mixed[i : i + size] for i in range(0, len(mixed), size)]

    def batches(self, items: Items) -> Iterator[tuple[list[Any], int]]:
        """Yields (this rank's items of a batch, number of items of all ranks)."""
        if not isinstance(items, Sized):
            _checks.wrong_type("Trainer", "items", items, "a list of items, or a Loader")
        if not len(items):
            raise ValueError("[Trainer] items: found none, expected at least one")
        order = self.order(len(items))[self._batch_number :]
        mine = [self.ranks.share(batch.tolist()) for batch in order]
        if not isinstance(items, Loader):
            yield from (([items[i] for i in part], len(b)) for part, b in zip(mine, order))
            return
        stream = items.stream([i for part in mine for i in part], self.epoch)
        try:
            for part, batch in zip(mine, order, strict=True):
                yield [next(stream) for _ in part], len(batch)
        finally:
            stream.close()  # ends the threads of a Loader, also after an error

    def observe(self, item: Any, loss: mx.array, outputs: object) -> None:
        """Called after the gradient of each item with what the loss function returned for it."""

    def step(self, items: Sequence[Any], count: int | None = None) -> float:
        """One update with this rank's items of a batch of `count`; returns the mean loss."""
        return self._finish(self._start(items, count))

    def _start(self, items: Sequence[Any], count: int | None = None) -> _Step:
        """Starts an update and waits for nothing, so that the next one can be prepared meanwhile.

        Whether the update counts is a lazy value too. It does not count if a gradient or the loss
            is not finite, or after a step whose loss was not.
        """
        items = _checks.listed(self, "items", items, "the items of a batch")
        count = _checks.integer(
            self, "count", len(items) * self.ranks.size if count is None else count
        )
        loss, gradients, seen = mx.array(0.0), None, []
        scale = self.precision.lazy_scale
        for item in items:
            value, g = self._gradient(item)
            value, outputs = value if isinstance(value, tuple) else (value, None)
            seen.append((item, value, outputs))
            loss = loss + value
            gradients = g if gradients is None else tree_map(mx.add, gradients, g)
            if len(items) > 1:
                start(arrays_of([loss, gradients]))  # holds the memory of one item at a time
        if gradients is None:
            gradients = tree_map(mx.zeros_like, self.model.trainable_parameters())
        factor = mx.array(self.ranks.size / count) / scale
        if self.ranks.size > 1:
            gradients = tree_map(lambda g: g * factor, gradients)
            gradients, factor = self.ranks.average_gradients(gradients), mx.array(1.0)
        loss = self.ranks.total(loss) / count
        if self.ranks.size > 1:
            self.ranks.eval(loss, gradients)
        usable = self.precision.usable(gradients)
        if self._clip_norm is not None:
            gradients = tree_map(lambda g: g * factor, gradients)
            gradients, _ = mlx.optimizers.clip_grad_norm(gradients, self._clip_norm)
            factor = mx.array(1.0)
        sound = mx.isfinite(loss)
        counts = usable & sound & ~self._failed
        self._failed = self._failed | (usable & ~sound)
        guarded_update(self.optimizer, self.model, gradients, counts, factor)
        if self.average is not None:
            self.average.mix()
        kept = [] if self.average is None else self.average.values
        start(
            arrays_of(
                [loss, usable, self._failed, self.precision.arrays, [s[1:] for s in seen]]
                + [self.model.parameters(), self.optimizer.state, kept]
            )
        )
        return _Step(loss, usable, seen, count, self._batch_number)

    def _finish(self, step: _Step) -> float:
        """Waits for a step that was started; returns its mean loss."""
        self.ranks.eval(step.loss, step.usable)
        mean = float(step.loss)
        if not bool(step.usable):
            return mean if math.isfinite(mean) else 0.0  # the scale of the loss was too large
        if not math.isfinite(mean):
            self._failed = mx.array(False)
            raise TrainingError(
                f"the loss is {mean} in epoch {self.epoch + 1}, batch {step.batch}: "
                "a smaller learning rate may help; weights and last checkpoint are unchanged"
            )
        for item, value, outputs in step.seen:
            self.observe(item, value, outputs)
        if self.on_step is not None:
            self.on_step()
        return mean

    def _run_epoch(self, items: Items, epochs: int) -> float:
        """Mean loss of the items of one epoch."""
        self.model.train()
        self.seed_epoch()
        within, self._within = self._within or {"batch": 0, "total": 0.0, "done": 0}, None
        total, done, self._batch_number = within["total"], within["done"], within["batch"]
        saved = time.monotonic()
        pending: _Step | None = None  # one that was started and not finished
        stream = StringIO() if self._quiet else None  # no terminal: nothing is printed
        size = len(items) if isinstance(items, Sized) else None
        with Progress(f"epoch {self.epoch + 1}/{epochs}", size, self.unit, stream) as bar:
            bar.advance(done)

            def finish(step: _Step) -> None:
                nonlocal total, done
                loss = self._finish(step)
                total += loss * step.count
                done += step.count
                bar.advance(step.count, f"loss {loss:.4f}")

            for mine, count in self.batches(items):
                self.seed_step()
                self._batch_number += 1
                last, pending = pending, self._start(mine, count)
                if last is not None:
                    finish(last)  # while this step runs
                wait = self._checkpoint_seconds
                if wait is not None and time.monotonic() - saved >= wait:
                    finish(pending)
                    pending = None
                    self._save({"batch": self._batch_number, "total": total, "done": done})
                    saved = time.monotonic()
            if pending is not None:
                finish(pending)
        return total / done

    def _save(self, within: dict[str, Any] | None = None) -> None:
        """Writes the checkpoint. within: where the epoch under way stands."""
        if self._path is None:
            return
        state = {"epoch": self.epoch, "seed": self.seed, "history": self.history}
        if not self.precision.plain:
            state["precision"] = self.precision.state
        state["about"] = self.about
        if within is not None:
            state["within"] = within
        checkpoint.save(self._path, self.model, self.optimizer, self.average, **state)

    def _copy_from_first(self) -> None:
        """Every rank begins with rank 0's weights and optimizer state."""
        if self.ranks.size > 1:
            self.model.update(self.ranks.from_first(self.model.parameters()))
            self.optimizer.state = self.ranks.from_first(self.optimizer.state)

    def _average_statistics(self) -> None:
        """Averages the running statistics of batch normalization over the ranks."""
        own = [
            (k, v)
            for k, v in named_arrays(self.model.parameters())
            if k.split(".")[-1].startswith("running_")
        ]
        if own and self.ranks.size > 1:
            self.model.update(self.ranks.mean(tree_unflatten(own)))
