"""Loader: items of a data set, read, augmented and prepared ahead of the training step by threads.

    loader = Loader(dataset, pipeline.scan, transform=Compose([...]), seed=1, workers=2)
    Trainer(model, optimizer, loss).fit(loader, epochs=10)

The item at position p of epoch e is made from (seed, e, p) alone: any number of workers gives the
same bits. At most `ahead` items wait at a time, so that memory does not grow with the data set.
Threads are enough: NumPy and the kernels of this library run without Python's lock. An error in a
worker is raised where its item would have come, and names the item. The threads end with the epoch,
with an error and with Ctrl-C.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..core import _checks
from ..io import PointCloud
from ..transforms import rng_of
from .distributed import TrainingError

if TYPE_CHECKING:
    from ..datasets import Dataset


class LoaderError(TrainingError):
    """An item that cannot be read or prepared; the message begins with its name."""


class Sampler(Protocol):
    """What chooses the item of each position of an epoch; `ClassBalanced` is one."""

    def __len__(self) -> int:
        """The number of positions of an epoch."""

    def index(self, position: int, epoch: int) -> int:
        """The number of the item at a position of an epoch."""


class Loader:
    """Items of a data set, read, augmented and prepared ahead of the training step by threads.

    The item at position p of epoch e is made from (seed, e, p) alone: any number of workers gives
    the same bits. `waited` counts the seconds that the caller spent waiting for items.

    Args:
        dataset: A sequence of clouds, or a data set of `mlx_lattice.datasets`.
        prepare: Called with (cloud, name); makes what the loss takes, such as `VoxelPipeline.scan`.
        transform: Augmentation of each cloud; see `mlx_lattice.transforms`.
        seed: Seed of the augmentation.
        workers: Number of threads; 0 prepares in the caller.
        ahead: Number of prepared items that may wait, so that memory does not grow.
        sampler: Gives the item of each position of an epoch; by default every item once.

    Raises:
        TypeError, ValueError: An argument is of another kind, or the data set is empty.
        LoaderError: While it runs: an item cannot be read or prepared.

    Examples:
        >>> from mlx_lattice import samples, training
        >>> clouds = [samples.scan(0), samples.scan(1)]
        >>> loader = training.Loader(clouds, lambda cloud, name: (name, len(cloud)), workers=2)
        >>> list(loader.stream([1, 0], epoch=0))
        [('item 1', 6000), ('item 0', 6000)]
    """

    def __init__(
        self,
        dataset: Sequence[PointCloud],
        prepare: Callable[[PointCloud, str], Any],
        *,
        transform: Callable[..., Any] | None = None,
        seed: int = 0,
        workers: int = 2,
        ahead: int = 4,
        sampler: Sampler | None = None,
    ) -> None:
        if not hasattr(dataset, "__getitem__") or getattr(dataset, "ndim", 1) == 0:
            _checks.wrong_type("Loader", "dataset", dataset, "a sequence of clouds")
        _checks.function("Loader", "prepare", prepare)
        if transform is not None:
            _checks.function("Loader", "transform", transform)
        # A list has an index() too, which looks for a value.
        if isinstance(sampler, Sequence) or (sampler is not None and not hasattr(sampler, "index")):
            _checks.wrong_type("Loader", "sampler", sampler, "a sampler, such as ClassBalanced")
        workers = _checks.integer(self, "workers", workers, 0)
        ahead = _checks.integer(self, "ahead", ahead)
        if not len(dataset):
            raise ValueError("[Loader] dataset: found no item, expected at least one")
        self._dataset, self._prepare, self._transform = dataset, prepare, transform
        self._seed, self._workers, self._ahead, self._sampler = seed, workers, ahead, sampler
        self.waited = 0.0  # seconds that the caller spent waiting for items

    def __len__(self) -> int:
        return len(self._dataset) if self._sampler is None else len(self._sampler)

    def item(self, position: int, epoch: int) -> object:
        """The prepared item at a position of an epoch, made here and now.

        Raises LoaderError, with the name of the item, if it cannot be read or prepared.
        """
        if not isinstance(position, (int, np.integer)) or not 0 <= position < len(self):
            # MLX arrays do not check indices: an index past the end would read other memory.
            raise ValueError(f"[Loader] position: found {position!r}, expected 0..{len(self) - 1}")
        index = position if self._sampler is None else self._sampler.index(position, epoch)
        name = self._dataset.name(index) if hasattr(self._dataset, "name") else f"item {index}"
        try:
            cloud = self._dataset[index]
            if self._transform is not None:
                cloud = self._transform(cloud, rng_of(self._seed, epoch, position), self._draw)
            return self._prepare(cloud, name)
        except Exception as error:  # of any file, transform or preparation
            raise LoaderError(f"{name}: {error}") from error

    def _draw(self, rng: np.random.Generator) -> PointCloud:
        return self._dataset[int(rng.integers(len(self._dataset)))]

    def stream(self, positions: Sequence[int], epoch: int) -> Generator[object, None, None]:
        """The items at the positions, in their order. Close the iterator to end the threads."""
        if self._workers == 0:
            for position in positions:
                begin = time.perf_counter()
                item = self.item(int(position), epoch)
                self.waited += time.perf_counter() - begin
                yield item
            return
        work = _Work(self, positions, epoch)
        threads = [
            threading.Thread(target=work.run, name=f"loader {i}", daemon=True)
            for i in range(min(self._workers, max(1, len(positions))))
        ]
        for thread in threads:
            thread.start()
        try:
            for ticket in range(len(positions)):
                begin = time.perf_counter()
                item = work.take(ticket)
                self.waited += time.perf_counter() - begin
                yield item
        finally:
            work.stop()
            for thread in threads:
                thread.join()


class _Work:
    """Tickets 0, 1, ...: worker threads make them in any order, the caller takes them in order."""

    def __init__(self, loader: Loader, positions: Sequence[int], epoch: int) -> None:
        self._loader, self._positions, self._epoch = loader, positions, epoch
        self._changed = threading.Condition()
        self._next = self._taken = 0
        self._ready: dict[int, tuple[object, BaseException | None]] = {}
        self._stopped = False

    def run(self) -> None:
        while True:
            with self._changed:
                while not self._stopped and self._next >= self._taken + self._loader._ahead:
                    self._changed.wait()
                if self._stopped or self._next >= len(self._positions):
                    return
                ticket = self._next
                self._next += 1
            made: tuple[object, BaseException | None]
            try:
                made = (self._loader.item(int(self._positions[ticket]), self._epoch), None)
            except BaseException as error:
                made = (None, error)
            with self._changed:
                self._ready[ticket] = made
                self._changed.notify_all()

    def take(self, ticket: int) -> object:
        with self._changed:
            while ticket not in self._ready:
                self._changed.wait(0.5)  # wakes up for Ctrl-C
            item, error = self._ready.pop(ticket)
            self._taken = ticket + 1
            self._changed.notify_all()
        if error is not None:
            raise error
        return item

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


def class_counts(dataset: Dataset) -> np.ndarray:
    """Counts the points of each class in each item; reads every item once.

    Args:
        dataset: A data set of `mlx_lattice.datasets`.

    Returns:
        An int64 array of shape (items, classes).

    Raises:
        TypeError: `dataset` has no classes.
    """
    if not hasattr(dataset, "classes"):
        _checks.wrong_type("class_counts", "dataset", dataset, "a data set of mlx_lattice.datasets")
    counts = np.zeros((len(dataset), len(dataset.classes)), np.int64)
    for i in range(len(dataset)):
        label = dataset[i].columns["label"]
        counts[i] = np.bincount(label[label >= 0], minlength=counts.shape[1])
    return counts


class ClassBalanced:
    """A sampler that draws a class, then an item that has it, so that rare classes come often.

    Classes that no item has are left out.

    Args:
        counts: Points of each class in each item, (items, classes); see `class_counts`.
        seed: Seed of what is drawn.
        length: Positions of an epoch; by default the number of items.

    Raises:
        TypeError, ValueError: `counts` is no table of numbers, or no item has a class that counts.

    Examples:
        >>> import numpy as np
        >>> from mlx_lattice import training
        >>> rare = np.array([[9, 0], [9, 0], [9, 0], [9, 1]])  # class 1 is in the last item only
        >>> sampler = training.ClassBalanced(rare, seed=0, length=1000)
        >>> drawn = [sampler.index(position, epoch=0) for position in range(len(sampler))]
        >>> drawn.count(3) > 500
        True
    """

    def __init__(self, counts: np.ndarray, *, seed: int = 0, length: int | None = None) -> None:
        expected = "numbers of shape (items, classes)"
        table = _checks.numpy_array("ClassBalanced", "counts", counts, expected)
        if table.ndim != 2:
            _checks.wrong_type("ClassBalanced", "counts", counts, expected)
        self._rows = [np.flatnonzero(c) for c in table.T if c.any()]
        if not self._rows:
            raise ValueError("[ClassBalanced] counts: no item has a class that counts")
        self._seed = _checks.integer(self, "seed", seed, 0)
        self._length = len(table) if length is None else _checks.integer(self, "length", length)

    def __len__(self) -> int:
        return self._length

    def index(self, position: int, epoch: int) -> int:
        """The item at a position of an epoch."""
        position = _checks.integer(self, "position", position, 0)
        epoch = _checks.integer(self, "epoch", epoch, 0)
        rng = np.random.default_rng([self._seed, epoch, position, 7])
        rows = self._rows[rng.integers(len(self._rows))]
        return int(rows[rng.integers(len(rows))])
