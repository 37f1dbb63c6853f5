"""EMA: an exponential moving average of parameters, for validation and the saved network.

    average = d average + (1 - d) parameter after each step, d = min(decay, (1 + t) / (10 + t))

The first steps weigh more, so that the average does not remember the random start (Polyak and
Juditsky, 1992). Running statistics of batch normalization are averaged like weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import mlx.core as mx
from mlx.utils import tree_map, tree_unflatten

from .._trees import leaves

if TYPE_CHECKING:
    from mlx.nn import Module


class WeightAverage:
    def __init__(self, model: Module, decay: float = 0.999) -> None:
        if not 0 < decay < 1:
            raise ValueError(
                f"[WeightAverage] decay: found {decay}, expected 0 to 1, both excluded"
            )
        self._model, self._decay, self.steps = model, decay, 0
        self.values = tree_map(lambda a: a.astype(mx.float32), model.parameters())

    def update(self) -> None:
        """Takes in the parameters after a step."""
        self.steps += 1
        d = min(self._decay, (1 + self.steps) / (10 + self.steps))
        now = dict(leaves(self._model.parameters()))
        mixed = [(k, d * v + (1 - d) * now[k]) for k, v in leaves(self.values)]
        self.values = tree_unflatten(mixed)
        mx.eval(self.values)

    @contextmanager
    def applied(self) -> Iterator[Module]:
        """Inside, the model has the averaged parameters."""
        own = self._model.parameters()
        self._model.update(self.values)
        try:
            yield self._model
        finally:
            self._model.update(own)
