"""Arguments that modules check in their constructors."""

import math

import mlx.core as mx

MOST = 2**31 - 1  # the largest size of an axis in MLX
MOST_LAYERS = 1024


def integer(module, name, value, least=1):
    """An int, also from a NumPy or MLX integer scalar."""
    number = value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"[{type(module).__name__}] {name} must be an integer, got {value!r}")
    if number < least:
        raise ValueError(f"[{type(module).__name__}] {name} must be >= {least}, got {number}")
    if number > MOST:
        raise ValueError(f"[{type(module).__name__}] {name} must be below 2^31, got {number}")
    return number


def layer_count(module, name, value, least=1):
    """An int of layers or blocks: above MOST_LAYERS it is a mistake that would build for hours."""
    count = integer(module, name, value, least)
    if count > MOST_LAYERS:
        raise ValueError(
            f"[{type(module).__name__}] {name} must be at most {MOST_LAYERS}, got {count}"
        )
    return count


def told(value):
    """What was found, for messages."""
    if isinstance(value, mx.array):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    return f"a {type(value).__name__}"


def number(
    module, name, value, low=-math.inf, high=math.inf, *, low_included=True, high_included=True
):
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
