"""The arithmetic of optimizers; docs/ops/optimizer.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _ext
from ..core._checks import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    import mlx.core as mx

    from ..core.types import ArrayLike, StreamOrDevice

__all__ = ["adamw_step", "all_finite"]


def adamw_step(
    parameter: ArrayLike,
    gradient: ArrayLike,
    m: ArrayLike,
    v: ArrayLike,
    rates: ArrayLike,
    *,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    stream: StreamOrDevice = None,
) -> list[mx.array]:
    """[parameter, m, v] after one step of AdamW, in one pass over memory.

    `p * decay - rate * m / (sqrt(v) * correction + eps)` with the new moments m and v.

    Args:
        parameter, gradient: Arrays of one shape.
        m, v: First and second moment, of the same shape.
        rates: (3,) float32: decay, rate and correction of this step. Or (5,) with two more: a
            number that is 0 if the step does not count, so that the old values stay, and a factor
            of the gradient.
        b1, b2: Decay of the moments.
        eps: Small number that is added before the division.
        stream: Stream or device of MLX.
    """
    return _ext.adamw_step(parameter, gradient, m, v, rates, b1, b2, eps, stream)


def all_finite(arrays: Sequence[mx.array], stream: StreamOrDevice = None) -> mx.array:
    """Whether all values of all arrays are finite, as a lazy scalar.

    Args:
        arrays: float32, float16 or bfloat16 arrays of any shapes.
        stream: Stream or device of MLX.

    Examples:
        >>> import mlx.core as mx
        >>> from mlx_lattice import ops
        >>> ops.all_finite([mx.ones(3), mx.array([1.0, float("inf")])]).item()
        False
    """
    given = listed("all_finite", "arrays", arrays, "a sequence of arrays")
    return _ext.all_finite(given, stream)
