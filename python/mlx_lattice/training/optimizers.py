"""AdamW whose step is one pass over memory on the CPU; docs/ops/optimizer.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.optimizers
from mlx.utils import tree_map

from .. import ops
from ..core import _checks

if TYPE_CHECKING:
    from mlx.nn import Module

__all__ = ["AdamW"]


class AdamW(mlx.optimizers.AdamW):
    """`mlx.optimizers.AdamW` with the same arguments, state and, within rounding, results.

    A step over float32 parameters is one pass over memory on the CPU.

    Args:
        learning_rate: The learning rate, or a schedule: a function of the step.
        betas: Decay of the two moments.
        eps: Small number that is added before a division.
        weight_decay: Share by which weights shrink per unit of learning rate.
        bias_correction: Whether the moments are corrected for their start at 0.

    Examples:
        >>> import mlx.core as mx, mlx.nn
        >>> from mlx_lattice import training
        >>> net = mlx.nn.Linear(2, 1, bias=False)
        >>> net.weight = mx.ones((1, 2))
        >>> optimizer = training.AdamW(0.1, weight_decay=0.0, bias_correction=True)
        >>> value, gradients = mlx.nn.value_and_grad(net, lambda x: net(x).sum())(mx.ones((4, 2)))
        >>> optimizer.update(net, gradients)
        >>> [round(w, 3) for w in net.weight[0].tolist()]
        [0.9, 0.9]
    """

    _made: tuple[mx.array, mx.array] | None = None  # the step and its rates
    _guard: mx.array | None = None  # (2,): whether the step counts, a factor of the gradients

    def apply_single(
        self, gradient: mx.array, parameter: mx.array, state: dict[str, mx.array]
    ) -> mx.array:
        """The parameter after a step; `state` holds its moments."""
        _checks.instance("AdamW", "state", state, dict, "a dict of moments")
        if any(a.dtype != mx.float32 for a in (gradient, parameter, state["m"])):
            return self._apply_other(gradient, parameter, state)
        b1, b2 = self.betas
        step, state["m"], state["v"] = ops.adamw_step(
            parameter, gradient, state["m"], state["v"], self._rates(), b1=b1, b2=b2, eps=self.eps
        )
        return step

    def _apply_other(
        self, gradient: mx.array, parameter: mx.array, state: dict[str, mx.array]
    ) -> mx.array:
        """MLX's step, for other dtypes than float32."""
        if self._guard is None:
            return super().apply_single(gradient, parameter, state)
        old = dict(state)
        step = super().apply_single(
            (gradient * self._guard[1]).astype(gradient.dtype), parameter, state
        )
        counts = self._guard[0] != 0
        state.update({name: mx.where(counts, state[name], old[name]) for name in old})
        return mx.where(counts, step, parameter)

    def _rates(self) -> mx.array:
        """(3,): decay, rate and correction of this step, for all parameters; see ops.adamw_step.

        Inside of `guarded_update` the guard follows them.
        """
        if self._made is None or self._made[0] is not self.step:
            rates = self._new_rates()
            self._made = (
                self.step,
                rates if self._guard is None else mx.concatenate([rates, self._guard]),
            )
        return self._made[1]

    def _new_rates(self) -> mx.array:
        rate, one = self.learning_rate.astype(mx.float32), mx.array(1.0)
        decay = 1 - rate * self.weight_decay
        if not self.bias_correction:
            return mx.stack([decay, rate, one])
        b1, b2 = self.betas
        return mx.stack([decay, rate / (1 - b1**self.step), mx.rsqrt(1 - b2**self.step)])


def guarded_update(
    optimizer: mlx.optimizers.Optimizer,
    model: Module,
    gradients: dict[str, Any],
    counts: mx.array,
    factor: mx.array,
) -> None:
    """A step with gradients times `factor` that keeps all values where `counts` is false.

    Nothing is evaluated: whether a step counts may still be unknown. `AdamW` reads both in its own
    pass over memory; other optimizers take two more passes.
    """
    state = tree_map(lambda a: a, optimizer.state)

    def chosen(new: Any, old: Any) -> Any:
        """Entries that the old tree lacks, such as those of a first step, come from the new one."""
        if isinstance(new, dict):
            return {k: chosen(v, old[k]) if k in old else v for k, v in new.items()}
        if isinstance(new, list):
            return [chosen(a, b) for a, b in zip(new, old)]
        return mx.where(counts, new, old)

    if isinstance(optimizer, AdamW):
        optimizer._guard = mx.stack([counts.astype(mx.float32), factor])
        try:
            optimizer.update(model, gradients)
        finally:
            optimizer._guard = optimizer._made = None
        for name in ("step", "learning_rate"):
            optimizer.state[name] = chosen(optimizer.state[name], state[name])
        return
    parameters = model.trainable_parameters()
    optimizer.update(model, tree_map(lambda g: g * factor.astype(g.dtype), gradients))
    model.update(chosen(model.trainable_parameters(), parameters))
    optimizer.state = chosen(optimizer.state, state)
