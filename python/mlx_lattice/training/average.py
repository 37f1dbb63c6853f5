"""EMA: an exponential moving average of parameters, for validation and the saved network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import mlx.core as mx
from mlx.utils import tree_map, tree_unflatten

from ..core import _checks
from ..nn._arrays import named_arrays

if TYPE_CHECKING:
    from mlx.nn import Module


class WeightAverage:
    """An exponential moving average of the parameters of a model (Polyak and Juditsky, 1992).

        average = d average + (1 - d) parameter after each step, d = min(decay, (1 + t) / (10 + t))

    The first steps weigh more, so that the average does not remember the random start. Running
    statistics of batch normalization are averaged like weights. Integers, such as the codes of
    quantized layers, stay as they are. `Trainer(average=0.999)` makes one and updates it.

    Args:
        model: The network, an `mlx.nn.Module`.
        decay: The share of the old average that remains after a step, between 0 and 1.

    Raises:
        TypeError, ValueError: `model` is no module, or `decay` is no number between 0 and 1.

    Examples:
        >>> import mlx.core as mx, mlx.nn
        >>> from mlx_lattice import training
        >>> net = mlx.nn.Linear(2, 1, bias=False)
        >>> average = training.WeightAverage(net, decay=0.5)
        >>> before = net.weight
        >>> net.weight = before + 1
        >>> average.update()  # d = 2 / 11 in the first step
        >>> with average.applied():
        ...     mx.allclose(net.weight, before + 9 / 11).item()
        True
    """

    def __init__(self, model: Module, decay: float = 0.999) -> None:
        self._model = _checks.model("WeightAverage", model)
        self._decay = _checks.number(
            self, "decay", decay, 0, 1, low_included=False, high_included=False
        )
        self.steps = 0
        self.values = tree_map(
            lambda a: a.astype(mx.float32) if _averaged(a) else a, model.parameters()
        )

    def update(self) -> None:
        """Takes in the parameters after a step."""
        self.mix()
        mx.eval(self.values)

    def mix(self) -> None:
        """The same without evaluating it."""
        self.steps += 1
        d = min(self._decay, (1 + self.steps) / (10 + self.steps))
        now = dict(named_arrays(self._model.parameters()))
        mixed = [
            (k, d * v + (1 - d) * now[k] if _averaged(v) else now[k])
            for k, v in named_arrays(self.values)
        ]
        self.values = tree_unflatten(mixed)

    @contextmanager
    def applied(self) -> Iterator[Module]:
        """A context in which the model has the averaged parameters."""
        own = self._model.parameters()
        self._model.update(tree_map(lambda a, b: a.astype(b.dtype), self.values, own))
        try:
            yield self._model
        finally:
            self._model.update(own)


def _averaged(a: mx.array) -> bool:
    """Whether an average of the values means something."""
    return mx.issubdtype(a.dtype, mx.floating)
