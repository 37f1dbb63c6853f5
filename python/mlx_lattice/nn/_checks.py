"""Arguments that modules check in their constructors."""

import math


def integer(module, name, value, least=1):
    """An int, also from a NumPy or MLX integer scalar."""
    number = value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"[{type(module).__name__}] {name} must be an integer, got {value!r}")
    if number < least:
        raise ValueError(f"[{type(module).__name__}] {name} must be >= {least}, got {number}")
    return number


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
