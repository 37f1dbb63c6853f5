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
from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.optimizers

from ..core import _checks
from .optimizers import AdamW

if TYPE_CHECKING:
    from mlx.optimizers import Optimizer

__all__ = ["constant", "make_optimizer", "one_cycle", "polynomial", "warm_cosine"]

Schedule = Callable[[mx.array], mx.array]


def _checked(name: str, rate: float, steps: int, warm: float) -> tuple[float, int]:
    """The rate, and the steps in which it rises."""
    rate = _checks.finite(name, "rate", rate)
    warm = _checks.number(name, "warm", warm, 0, 1)
    return rate, max(1, round(_checks.integer(name, "steps", steps, 0, 2**53) * warm))


def one_cycle(rate: float, steps: int, warm: float = 0.3) -> Schedule:
    """Learning rate that rises as a cosine to `rate`, then falls as a cosine to rate / 10^4.

    It begins at rate / 25 (Smith, 2018).

    Args:
        rate: The highest learning rate.
        steps: The number of steps of the whole training.
        warm: The share of the steps in which the rate rises.

    Returns:
        A function of the step, an array, that gives the learning rate.

    Raises:
        TypeError, ValueError: An argument is no number, or outside its range.

    Examples:
        >>> import mlx.core as mx
        >>> from mlx_lattice.training import schedules
        >>> rate = schedules.one_cycle(1.0, steps=10, warm=0.3)
        >>> [round(rate(mx.array(step)).item(), 3) for step in (0, 2, 9)]
        [0.28, 1.0, 0.0]
    """
    rate, rise = _checked("one_cycle", rate, steps, warm)

    def schedule(step: mx.array) -> mx.array:
        up = 0.5 - 0.5 * mx.cos(math.pi * mx.clip((step + 1) / rise, 0, 1))
        turn = mx.clip((step + 1 - rise) / max(1, steps - rise), 0, 1)
        down = 0.5 + 0.5 * mx.cos(math.pi * turn)
        low = mx.where(step + 1 <= rise, 1 / 25, 1e-4)
        return rate * (low + (1 - low) * mx.where(step + 1 <= rise, up, down))

    return schedule


def warm_cosine(rate: float, steps: int, warm: float = 0.1) -> Schedule:
    """Learning rate that rises linearly to `rate`, then falls as a cosine to rate / 100.

    The arguments, the result and the errors are those of `one_cycle`.

    Examples:
        >>> import mlx.core as mx
        >>> from mlx_lattice import training
        >>> rate = training.warm_cosine(1.0, steps=100, warm=0.1)
        >>> [round(rate(mx.array(step)).item(), 3) for step in (0, 10, 55, 100)]
        [0.1, 1.0, 0.505, 0.01]
    """
    rate, rise = _checked("warm_cosine", rate, steps, warm)

    def schedule(step: mx.array) -> mx.array:
        turn = mx.clip((step - rise) / max(1, steps - rise), 0, 1)
        return rate * mx.minimum((step + 1) / rise, 0.505 + 0.495 * mx.cos(math.pi * turn))

    return schedule


def polynomial(rate: float, steps: int, warm: float = 0.0, power: float = 0.9) -> Schedule:
    """Learning rate that rises linearly to `rate`, then falls as rate (1 - t)^power.

    t is the share of the remaining steps that are over.

    `power` is the exponent of the fall; all else is as for `one_cycle`.
    """
    power = _checks.finite("polynomial", "power", power)
    rate, rise = _checked("polynomial", rate, steps, warm)

    def schedule(step: mx.array) -> mx.array:
        turn = mx.clip((step - rise) / max(1, steps - rise), 0, 1)
        return rate * mx.minimum((step + 1) / rise, (1 - turn) ** power)

    return schedule


def constant(rate: float, steps: int, warm: float = 0.0) -> Schedule:
    """Learning rate that rises linearly to `rate` and stays there.

    The arguments, the result and the errors are those of `one_cycle`.
    """
    rate, rise = _checked("constant", rate, steps, warm)
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
    """Optimizer by its name, as recipes give it.

    Args:
        name: "adamw", or "sgd" with Nesterov momentum.
        schedule: A function of the step that gives the learning rate.
        weight_decay: Share by which weights shrink per unit of learning rate.
        momentum: Share of the last step that is taken again; for sgd.

    Returns:
        An optimizer.

    Raises:
        TypeError, ValueError: The name is unknown, or an argument is of another kind.
    """
    _checks.function("make_optimizer", "schedule", schedule)
    weight_decay = _checks.finite("make_optimizer", "weight_decay", weight_decay)
    momentum = _checks.finite("make_optimizer", "momentum", momentum)
    if name == "adamw":
        return AdamW(schedule, weight_decay=weight_decay)
    if name == "sgd":
        return mlx.optimizers.SGD(
            schedule, momentum=momentum, weight_decay=weight_decay, nesterov=momentum > 0
        )
    raise ValueError(f"[make_optimizer] name: found {name!r}, expected adamw or sgd")
