"""Arguments that modules check in their constructors."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any, cast

import mlx.core as mx

from ..core import SparseTensor

if TYPE_CHECKING:
    from mlx.nn import Module

    from .._types import ArrayLike

MOST = 2**31 - 1  # the largest size of an axis in MLX
MOST_LAYERS = 1024
MOST_VALUES = 2**30  # of one parameter: 4 GiB of float32


def integer(module: object, name: str, value: Any, least: int = 1) -> int:
    """An int, also from a NumPy or MLX integer scalar."""
    number = value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"[{type(module).__name__}] {name} must be an integer, got {value!r}")
    if number < least:
        raise ValueError(f"[{type(module).__name__}] {name} must be >= {least}, got {number}")
    if number > MOST:
        raise ValueError(f"[{type(module).__name__}] {name} must be below 2^31, got {number}")
    return number


def integers(values: ArrayLike) -> list[int]:
    """The plain integers of an array of one axis."""
    return cast("list[int]", mx.array(values).tolist())


def parameter_shape(module: Module, *shape: int) -> tuple[int, ...]:
    """The shape of a parameter: above MOST_VALUES values MLX would run out of memory and crash."""
    if math.prod(shape) > MOST_VALUES:
        raise ValueError(
            f"[{type(module).__name__}] a parameter of shape {shape} would hold "
            f"{math.prod(shape):,} values, expected at most {MOST_VALUES:,}; take fewer channels"
        )
    return shape


def layer_count(module: object, name: str, value: Any, least: int = 1) -> int:
    """An int of layers or blocks: above MOST_LAYERS it is a mistake that would build for hours."""
    count = integer(module, name, value, least)
    if count > MOST_LAYERS:
        raise ValueError(
            f"[{type(module).__name__}] {name} must be at most {MOST_LAYERS}, got {count}"
        )
    return count


def sizes(module: object, name: str, values: Any) -> list[int]:
    """A list of at least one integer >= 1."""
    if not isinstance(values, (list, tuple)) or not values:
        raise TypeError(
            f"[{type(module).__name__}] {name} must be a list of integers, found {values!r}"
        )
    return [integer(module, name, value) for value in values]


def told(value: Any) -> str:
    """What was found, for messages."""
    if isinstance(value, mx.array):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    return f"a {type(value).__name__}"


def number(
    module: Module,
    name: str,
    value: Any,
    low: Any = -math.inf,
    high: Any = math.inf,
    *,
    low_included: bool = True,
    high_included: bool = True,
) -> float:
    """A float between low and high, also from a scalar of NumPy or MLX; never NaN."""
    plain = value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value
    if isinstance(plain, bool) or not isinstance(plain, (int, float)):
        raise TypeError(f"[{type(module).__name__}] {name} must be a number, got {value!r}")
    above = low <= plain if low_included else low < plain
    below = plain <= high if high_included else plain < high
    if not (above and below):
        interval = f"{'[' if low_included else '('}{low}, {high}{']' if high_included else ')'}"
        raise ValueError(f"[{type(module).__name__}] {name} must be in {interval}, got {plain}")
    return float(plain)


def checked_input(module: Module, x: Any, channels: int | None = None, arrays: bool = False) -> Any:
    """x, if it is a sparse tensor (with `arrays` also an array) with these channels, or any."""
    name = type(module).__name__
    if isinstance(x, mx.array):
        if not arrays:
            raise TypeError(
                f"[{name}] x: found an mx.array of shape {tuple(x.shape)}, expected a SparseTensor;"
                " make one with SparseTensor(coords, feats)."
            )
        found = x.shape[-1] if x.ndim else 0
    elif not isinstance(x, SparseTensor):
        raise TypeError(f"[{name}] x: found {type(x).__name__}, expected a SparseTensor.")
    else:
        found = x.channels
    if channels is not None and found != channels:
        raise ValueError(
            f"[{name}] x has {found} channels, and this module takes {channels}; "
            f"make the module with in_channels={found}, or change the layer before."
        )
    return x


_warned = False


def warn_of_padding(module: Module, spec: Any) -> None:
    """Says once that an odd kernel needs no padding: here it is centered already."""
    global _warned
    sizes, strides, paddings = tuple(spec.size), tuple(spec.stride), tuple(spec.padding)
    usual = any(
        k % 2 == 1 and k > 1 and p == k // 2 and s > 1 for k, s, p in zip(sizes, strides, paddings)
    )
    if usual and not _warned:
        _warned = True
        warnings.warn(
            f"[{type(module).__name__}] kernel_size={sizes}, stride={strides}, padding={paddings}:"
            " an odd kernel is centered already, so that this padding shifts it away from its"
            " output row. Write padding=0 for what PyTorch does with padding = kernel_size // 2;"
            " docs/ops/conv.md explains it.",
            UserWarning,
            stacklevel=3,
        )
