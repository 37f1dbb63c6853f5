"""AdamW whose step is one pass over memory on the CPU; docs/ops/optimizer.md."""

from __future__ import annotations

import mlx.core as mx
import mlx.optimizers

from .. import ops
from ..core import _checks

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

    _made: tuple[mx.array, mx.array] | None = None  # a step, and its rates

    def apply_single(
        self, gradient: mx.array, parameter: mx.array, state: dict[str, mx.array]
    ) -> mx.array:
        """The parameter after a step; `state` holds its moments."""
        _checks.instance("AdamW", "state", state, dict, "a dict of moments")
        if any(a.dtype != mx.float32 for a in (gradient, parameter, state["m"])):
            return super().apply_single(gradient, parameter, state)
        b1, b2 = self.betas
        step, state["m"], state["v"] = ops.adamw_step(
            parameter, gradient, state["m"], state["v"], self._rates(), b1=b1, b2=b2, eps=self.eps
        )
        return step

    def _rates(self) -> mx.array:
        """(3,): decay, rate and correction of this step, for all parameters; see ops.adamw_step."""
        if self._made is None or self._made[0] is not self.step:
            self._made = self.step, self._new_rates()
        return self._made[1]

    def _new_rates(self) -> mx.array:
        rate, one = self.learning_rate.astype(mx.float32), mx.array(1.0)
        decay = 1 - rate * self.weight_decay
        if not self.bias_correction:
            return mx.stack([decay, rate, one])
        b1, b2 = self.betas
        return mx.stack([decay, rate / (1 - b1**self.step), mx.rsqrt(1 - b2**self.step)])
