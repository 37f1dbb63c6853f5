"""Learning rates by step, and the optimizers that recipes name.

    one_cycle    rises as a cosine to `rate`, then falls as a cosine to rate / 10^4 (Smith, 2018)
    cosine       rises linearly, then falls as a cosine to rate / 100: warm_cosine
    polynomial   rises linearly, then rate (1 - t)^power
    constant     rises linearly, then stays

`warm` is the share of the steps in which the rate rises.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.optimizers

from .optimizers import AdamW

if TYPE_CHECKING:
    from mlx.optimizers import Optimizer

__all__ = ["constant", "make_optimizer", "one_cycle", "polynomial", "warm_cosine"]

Schedule = Callable[[mx.array], mx.array]


def _checked(name: str, rate: float, steps: int, warm: float) -> int:
    """Steps in which the rate rises."""
    for argument, value in (("rate", rate), ("warm", warm)):
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            raise TypeError(f"[{name}] {argument}: found {value!r}, expected a finite number")
    if not isinstance(steps, int) or not 0 <= steps < 2**53:
        raise TypeError(f"[{name}] steps: found {steps!r}, expected a whole number of 0 or more")
    if not 0 <= warm <= 1:
        raise ValueError(f"[{name}] warm: found {warm!r}, expected a share of 0 to 1")
    return max(1, round(steps * warm))


def one_cycle(rate: float, steps: int, warm: float = 0.3) -> Schedule:
    """Learning rate that rises as a cosine to `rate`, then falls as a cosine to rate / 10^4.

    It begins at rate / 25 (Smith, 2018).
    """
    rise = _checked("one_cycle", rate, steps, warm)

    def schedule(step: Any) -> Any:
        up = 0.5 - 0.5 * mx.cos(math.pi * mx.clip((step + 1) / rise, 0, 1))
        turn = mx.clip((step + 1 - rise) / max(1, steps - rise), 0, 1)
        down = 0.5 + 0.5 * mx.cos(math.pi * turn)
        low = mx.where(step + 1 <= rise, 1 / 25, 1e-4)
        return rate * (low + (1 - low) * mx.where(step + 1 <= rise, up, down))

    return schedule


def warm_cosine(rate: float, steps: int, warm: float = 0.1) -> Schedule:
    """Learning rate over `steps` steps: a linear rise to `rate`, then a cosine fall to rate / 100.

    warm: the share of the steps in which the rate rises.
    """
    rise = _checked("warm_cosine", rate, steps, warm)

    def schedule(step: Any) -> Any:
        turn = mx.clip((step - rise) / max(1, steps - rise), 0, 1)
        return rate * mx.minimum((step + 1) / rise, 0.505 + 0.495 * mx.cos(math.pi * turn))

    return schedule


def polynomial(rate: float, steps: int, warm: float = 0.0, power: float = 0.9) -> Schedule:
    """Learning rate that rises linearly to `rate`, then falls as rate (1 - t)^power.

    t is the share of the remaining steps that are over.
    """
    rise = _checked("polynomial", rate, steps, warm)

    def schedule(step: Any) -> Any:
        turn = mx.clip((step - rise) / max(1, steps - rise), 0, 1)
        return rate * mx.minimum((step + 1) / rise, (1 - turn) ** power)

    return schedule


def constant(rate: float, steps: int, warm: float = 0.0) -> Schedule:
    """Learning rate that rises linearly to `rate` and stays there."""
    rise = _checked("constant", rate, steps, warm)
    return lambda step: rate * mx.minimum((step + 1) / rise, 1.0)


SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "one_cycle": one_cycle,
    "cosine": warm_cosine,
    "polynomial": polynomial,
    "constant": constant,
}


def make_optimizer(
    name: str, schedule: Schedule, weight_decay: float = 0.0, momentum: float = 0.9
) -> Optimizer:
    """Optimizer by its name: "adamw", or "sgd" with Nesterov momentum."""
    if name == "adamw":
        return AdamW(schedule, weight_decay=weight_decay)
    if name == "sgd":
        return mlx.optimizers.SGD(
            schedule, momentum=momentum, weight_decay=weight_decay, nesterov=momentum > 0
        )
    raise ValueError(f"[make_optimizer] name: found {name!r}, expected adamw or sgd")
