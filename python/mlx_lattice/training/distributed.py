"""Ranks of a data-parallel run through mlx.core.distributed; one process alone is one rank.

    mlx.launch -n 2 --backend ring -- python train.py

Every rank calls the same methods in the same order. The ring notices a rank that dies ("connection
lost"). A watchdog notices a rank that hangs: after `timeout` seconds in one collective the process
says so and exits with status 3. See docs/distributed.md.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import mlx.core as mx
import mlx.nn
from mlx.utils import tree_map, tree_unflatten

from .._trees import leaves

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Ranks", "TrainingError"]

Item = TypeVar("Item")
LOST = 3  # exit status of a rank that waits in vain


class TrainingError(ValueError):
    """Training cannot continue: a loss is not finite, a rank is gone, a checkpoint does not fit."""


class Ranks:
    """This process as rank `rank` of `size`.

    group: what mx.distributed.init returned; by default it is called here.
    """

    def __init__(self, group: mx.distributed.Group | None = None, timeout: float = 600.0) -> None:
        if not 0 < timeout < float("inf"):
            raise ValueError(
                f"[Ranks] timeout: found {timeout}, expected a positive number of seconds"
            )
        self._group = mx.distributed.init() if group is None else group
        self._timeout = timeout
        self.rank, self.size = self._group.rank(), self._group.size()

    @property
    def first(self) -> bool:
        """True on the rank that prints and writes."""
        return self.rank == 0

    def share(self, items: Sequence[Item]) -> Sequence[Item]:
        """This rank's part: every size-th item."""
        return items[self.rank :: self.size]

    def average_gradients(self, gradients: Any) -> Any:
        return mlx.nn.average_gradients(gradients, self._group)

    def total(self, tree: Any) -> Any:
        """The sum over the ranks of an array, or of every array of a tree.

        Arrays of a tree are summed in the order of their names, the same on every rank.
        """
        if self.size == 1:
            return tree
        if isinstance(tree, mx.array):
            return mx.distributed.all_sum(tree, group=self._group)
        found = sorted(leaves(tree), key=lambda leaf: leaf[0])
        sums = [(name, mx.distributed.all_sum(a, group=self._group)) for name, a in found]
        self.eval([a for _, a in sums])
        return tree_unflatten(sums)

    def mean(self, tree: Any) -> Any:
        return tree if self.size == 1 else tree_map(lambda a: a / self.size, self.total(tree))

    def from_first(self, tree: Any) -> Any:
        """Rank 0's arrays on every rank; the others pass arrays of the same shapes."""
        return self.total(tree if self.first else tree_map(mx.zeros_like, tree))

    def eval(self, *trees: Any) -> None:
        """mx.eval that does not wait forever; a lost rank is a TrainingError."""
        with self._watched():
            try:
                mx.eval(*trees)
            except RuntimeError as error:
                if self.size > 1 and ("[ring]" in str(error) or "connection" in str(error)):
                    raise TrainingError(
                        f"rank {self.rank} of {self.size}: another rank is gone ({error}); "
                        "start all ranks again with --resume"
                    ) from None
                raise

    @contextmanager
    def _watched(self) -> Iterator[Any]:
        if self.size == 1:
            yield
            return
        timer = threading.Timer(self._timeout, self._give_up)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _give_up(self) -> None:
        print(
            f"mlx_lattice: rank {self.rank} of {self.size} has waited {self._timeout:g} s for "
            "the other ranks; one of them hangs or its "
            "network does. Start all ranks again with --resume.",
            file=sys.stderr,
            flush=True,
        )
        os._exit(LOST)
