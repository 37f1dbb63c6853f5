"""AdamW whose step is one pass over memory on the CPU; docs/ops/optimizer.md."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.optimizers

from .. import ops

__all__ = ["AdamW"]


class AdamW(mlx.optimizers.AdamW):
    """`mlx.optimizers.AdamW` with the same arguments, state and, within rounding, results."""

    def apply_single(
        self, gradient: mx.array, parameter: mx.array, state: dict[str, mx.array]
    ) -> mx.array:
        if any(a.dtype != mx.float32 for a in (gradient, parameter, state["m"])):
            return super().apply_single(gradient, parameter, state)
        b1, b2 = self.betas
        step, state["m"], state["v"] = ops.adamw_step(
            parameter, gradient, state["m"], state["v"], self._rates(), b1=b1, b2=b2, eps=self.eps
        )
        return step

    def _rates(self) -> Any:
        """(3,): decay, rate and correction of this step, for all parameters; see ops.adamw_step."""
        made_for, rates = getattr(self, "_made", (None, None))
        if made_for is not self.step:
            rates = self._new_rates()
            self._made = self.step, rates
        return rates

    def _new_rates(self) -> Any:
        rate, one = self.learning_rate.astype(mx.float32), mx.array(1.0)
        decay = 1 - rate * self.weight_decay
        if not self.bias_correction:
            return mx.stack([decay, rate, one])
        b1, b2 = self.betas
        return mx.stack([decay, rate / (1 - b1**self.step), mx.rsqrt(1 - b2**self.step)])
