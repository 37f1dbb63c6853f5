"""Norms that know which data set a batch comes from (point prompt training)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn

from ..core._checks import array, flag, function, integer, names, one_of
from ._features import _on_rows
from ._linear import Linear

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..core.types import Rows

CONTEXT = 256  # numbers that describe a condition, as published


class ConditionalNorm(nn.Module):
    """One norm per condition, such as a data set; `select` chooses which of them counts.

    Wu et al., "Towards Large-scale 3D Representation Learning with Multi-dataset Point Prompt
    Training", CVPR 2024. With `adaptive` the result y becomes y (1 + scale) + shift, where
    (shift, scale) = linear(silu(context)).

    Args:
        channels: Those of the rows.
        conditions: The names to choose from.
        make: Makes one norm from its channels.
        adaptive: Whether a context of 256 numbers shifts and scales the result.
    """

    def __init__(
        self,
        channels: int,
        conditions: Sequence[str],
        make: Callable[[int], nn.Module],
        adaptive: bool = False,
    ) -> None:
        super().__init__()
        channels = integer(self, "channels", channels)
        self._conditions = names(self, "conditions", conditions)
        function(self, "make", make)
        self._chosen: int | None = None
        self._context: mx.array | None = None
        self.norms = [make(channels) for _ in self._conditions]
        if flag(self, "adaptive", adaptive):
            self.modulation = Linear(CONTEXT, 2 * channels)

    def select(self, condition: str, context: mx.array | None = None) -> None:
        """Chooses the norm of a condition; an unknown one is a ValueError.

        context: (1, 256) numbers, which adaptive norms need.
        """
        one_of(self, "condition", condition, self._conditions)
        if "modulation" in self:
            if context is None:
                raise ValueError(
                    f"[ConditionalNorm] adaptive norms need a context of (1, {CONTEXT}) numbers: "
                    "the row of the condition in the embedding table"
                )
            self._context = array(self, "context", context, 1, CONTEXT)
        self._chosen = self._conditions.index(condition)

    def __call__(self, x: Rows) -> Rows:
        if self._chosen is None:
            raise ValueError(
                "[ConditionalNorm] no condition is chosen; call the network with condition= one of "
                + ", ".join(self._conditions)
            )
        y = self.norms[self._chosen](x)
        if "modulation" not in self:
            return y
        shift, scale = mx.split(self.modulation(nn.silu(self._context)), 2, axis=1)
        return _on_rows(self, y, lambda f: f * (1 + scale) + shift)

    def _extra_repr(self) -> str:
        return f"conditions={self._conditions}, adaptive={'modulation' in self}"
