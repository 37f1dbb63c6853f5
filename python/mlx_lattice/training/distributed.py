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
from typing import TYPE_CHECKING, TypeVar, cast

import mlx.core as mx
import mlx.nn
from mlx.utils import tree_map, tree_unflatten

from ..core import _checks
from ..nn._arrays import named_arrays

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Ranks", "TrainingError"]

Item = TypeVar("Item")
Tree = TypeVar("Tree")  # an array, or a tree of arrays as mlx.utils has them
LOST = 3  # exit status of a rank whose wait timed out


class TrainingError(ValueError):
    """Training cannot continue: a loss is not finite, a rank is gone, a checkpoint does not fit.

    It is a ValueError.
    """


class Ranks:
    """This process as rank `rank` of `size`; one process alone is rank 0 of 1.

    Args:
        group: What `mx.distributed.init` returned; by default it is called here.
        timeout: The seconds that a rank waits for the others inside one collective operation.

    Raises:
        TypeError, ValueError: `timeout` is no positive number.

    Examples:
        >>> from mlx_lattice import training
        >>> ranks = training.Ranks()  # a process of its own
        >>> ranks.rank, ranks.size, ranks.first
        (0, 1, True)
        >>> ranks.share(["a", "b", "c"])
        ['a', 'b', 'c']
    """

    def __init__(self, group: mx.distributed.Group | None = None, timeout: float = 600.0) -> None:
        self._timeout = _checks.positive(self, "timeout", timeout)
        self._group = mx.distributed.init() if group is None else group
        self.rank, self.size = self._group.rank(), self._group.size()

    @property
    def first(self) -> bool:
        """True on the rank that prints and writes."""
        return self.rank == 0

    def share(self, items: Sequence[Item]) -> Sequence[Item]:
        """This rank's part: every size-th item."""
        return items[self.rank :: self.size]

    def average_gradients(self, gradients: Tree) -> Tree:
        """The mean of a tree of gradients over the ranks."""
        return cast(Tree, mlx.nn.average_gradients(gradients, self._group))

    def total(self, tree: Tree) -> Tree:
        """The sum over the ranks of an array, or of every array of a tree.

        Arrays of a tree are summed in the order of their names, the same on every rank.
        """
        if self.size == 1:
            return tree
        if isinstance(tree, mx.array):
            return cast(Tree, mx.distributed.all_sum(tree, group=self._group))
        found = sorted(named_arrays(tree), key=lambda leaf: leaf[0])
        sums = [(name, mx.distributed.all_sum(a, group=self._group)) for name, a in found]
        self.eval([a for _, a in sums])
        return cast(Tree, tree_unflatten(sums))

    def mean(self, tree: Tree) -> Tree:
        """The mean over the ranks of every array of a tree."""
        if self.size == 1:
            return tree
        return cast(Tree, tree_map(lambda a: a / self.size, self.total(tree)))

    def from_first(self, tree: Tree) -> Tree:
        """Rank 0's arrays on every rank; the others pass arrays of the same shapes."""
        return self.total(tree if self.first else tree_map(mx.zeros_like, tree))

    def eval(self, *trees: object) -> None:
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
    def _watched(self) -> Iterator[None]:
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


def check_ranks(who: str, value: object) -> None:
    """Raises where the argument `ranks` is neither None nor shares items as `Ranks` does."""
    if value is not None and not hasattr(value, "share"):
        _checks.wrong_type(who, "ranks", value, "training.Ranks")
