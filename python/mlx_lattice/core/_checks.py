"""Checks of arguments, shared by layers, networks, point functions, transforms and files.

The first argument of a check says what the user called: the name of a function, or an object, whose
    class is then named. A message says what was called, which argument is wrong, what was found,
    and what is
expected:

    [Conv3d] groups must be an integer, found 'two'
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, NoReturn, TypeVar, cast

import mlx.core as mx

from .._ext import SparseTensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from mlx.nn import Module

    from .types import ArrayLike, Rows

MOST = 2**31 - 1  # the largest size of an axis in MLX
MOST_LAYERS = 1024
MOST_VALUES = 2**30  # values of one parameter: 4 GiB of float32

T = TypeVar("T")


def caller(who: object) -> str:
    """The name in brackets at the beginning of a message."""
    return who if isinstance(who, str) else type(who).__name__


def told(value: object) -> str:
    """A value as messages describe it, in a few words."""
    if isinstance(value, mx.array):
        return f"an mx.array of shape {tuple(value.shape)}, {value.dtype}"
    if type(value).__module__ == "numpy" and hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"a NumPy array of shape {value.shape}, {value.dtype}"
    if isinstance(value, (bool, int, float, str, bytes, tuple, list, dict, set, type(None))):
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:57]}..."
    return f"a {type(value).__name__}"


def wrong_type(who: object, name: str, value: object, expected: str) -> NoReturn:
    raise TypeError(f"[{caller(who)}] {name}: found {told(value)}, expected {expected}")


def wrong_value(who: object, name: str, value: object, expected: str) -> NoReturn:
    raise ValueError(f"[{caller(who)}] {name}: found {told(value)}, expected {expected}")


def _scalar(value: object) -> object:
    """The Python number of a scalar of NumPy or MLX; other values as they are."""
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return value.item()
    return value


def integer(who: object, name: str, value: object, least: int = 1, most: int = MOST) -> int:
    """An int between least and most, also from an integer scalar of NumPy or MLX."""
    plain = _scalar(value)
    if isinstance(plain, bool) or not isinstance(plain, int):
        raise TypeError(f"[{caller(who)}] {name} must be an integer, found {told(value)}")
    if plain < least:
        raise ValueError(f"[{caller(who)}] {name} must be >= {least}, found {plain}")
    if plain > most:
        bound = "below 2^31" if most == MOST else f"at most {most:,}"
        raise ValueError(f"[{caller(who)}] {name} must be {bound}, found {plain}")
    return plain


def layer_count(who: object, name: str, value: object, least: int = 1) -> int:
    """A number of layers or blocks; a larger one is a mistake that would build for hours."""
    return integer(who, name, value, least, MOST_LAYERS)


def integers(values: ArrayLike) -> list[int]:
    """The plain integers of an array of one axis."""
    return cast("list[int]", mx.array(values).tolist())


def sizes(who: object, name: str, values: object, count: int | None = None) -> list[int]:
    """A list of integers >= 1: `count` of them, or at least one."""
    if not isinstance(values, (list, tuple)) or not values:
        raise TypeError(f"[{caller(who)}] {name} must be a list of integers, found {told(values)}")
    if count is not None and len(values) != count:
        raise ValueError(f"[{caller(who)}] {name} must be {count} integers, found {told(values)}")
    return [integer(who, name, value) for value in values]


def triple(who: object, name: str, value: object) -> tuple[int, int, int]:
    """Three integers >= 0; one integer stands for all three."""
    values = value if isinstance(value, (list, tuple)) else (value,) * 3
    if len(values) != 3:
        raise ValueError(
            f"[{caller(who)}] {name} must be one integer or three, found {told(value)}"
        )
    x, y, z = (integer(who, name, v, least=0) for v in values)
    return x, y, z


def number(
    who: object,
    name: str,
    value: object,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    low_included: bool = True,
    high_included: bool = True,
) -> float:
    """A float between low and high, also from a scalar of NumPy or MLX; never NaN."""
    plain = _scalar(value)
    if isinstance(plain, bool) or not isinstance(plain, (int, float)):
        raise TypeError(f"[{caller(who)}] {name} must be a number, found {told(value)}")
    above = low <= plain if low_included else low < plain
    below = plain <= high if high_included else plain < high
    if not (above and below):
        interval = f"{'[' if low_included else '('}{low}, {high}{']' if high_included else ')'}"
        raise ValueError(f"[{caller(who)}] {name} must be in {interval}, found {plain}")
    try:
        return float(plain)
    except OverflowError:
        raise ValueError(f"[{caller(who)}] {name} must fit a float, found {told(plain)}") from None


def positive(who: object, name: str, value: object) -> float:
    """A finite float above 0."""
    return number(who, name, value, 0, low_included=False, high_included=False)


def finite(who: object, name: str, value: object, low: float = -math.inf) -> float:
    """A finite float of at least low."""
    return number(who, name, value, low, low_included=low > -math.inf, high_included=False)


def share(who: object, name: str, value: object) -> float:
    """A probability below 1, such as that of a dropout."""
    return number(who, name, value, 0, 1, high_included=False)


def flag(who: object, name: str, value: object) -> bool:
    """True or False; an array of several values is neither."""
    try:
        return bool(value)
    except (TypeError, ValueError):
        raise TypeError(
            f"[{caller(who)}] {name} must be True or False, found {told(value)}"
        ) from None


def one_of(who: object, name: str, value: T, choices: Sequence[object]) -> T:
    """The value, if it is one of the choices: words, numbers or None."""
    if isinstance(value, (str, int, type(None))) and value in choices:
        return value
    known = ", ".join(str(choice) for choice in choices)
    raise ValueError(f"[{caller(who)}] {name} must be one of {known}, found {told(value)}")


def function(who: object, name: str, value: object) -> None:
    """Raises where the value cannot be called."""
    if not callable(value):
        raise TypeError(f"[{caller(who)}] {name} must be a function, found {told(value)}")


def instance(
    who: object, name: str, value: object, kinds: type | tuple[type, ...], expected: str
) -> None:
    """Raises where the value is of no such kind."""
    if not isinstance(value, kinds):
        wrong_type(who, name, value, expected)


def model(who: object, value: object) -> Module:
    """The argument `model`, if it is a module of MLX."""
    from mlx.nn import Module

    instance(who, "model", value, Module, "an mlx.nn.Module")
    return cast("Module", value)


def listed(who: object, name: str, values: Iterable[T], expected: str) -> list[T]:
    """The values as a list."""
    try:
        return list(values)
    except TypeError:
        wrong_type(who, name, values, expected)


def numpy_array(
    who: object,
    name: str,
    values: object,
    expected: str = "an array of numbers",
    kinds: str | None = "biuf",
) -> np.ndarray:
    """A NumPy array of one of these kinds of dtype, or of any; an empty one may be of any."""
    import numpy as np

    try:
        made = np.asarray(values)
    except (TypeError, ValueError, RuntimeError):  # NumPy cannot read MLX's bfloat16
        wrong_type(who, name, values, expected)
    if kinds is None:
        return made
    if made.dtype.kind not in kinds and (made.size or made.dtype.kind == "O"):
        wrong_type(who, name, values, expected)
    return made


def names(who: object, name: str, values: object) -> list[str]:
    """A list of texts; a single text would be read letter by letter."""
    if isinstance(values, str):
        wrong_type(who, name, values, "a list of names")
    found = listed(who, name, cast("Iterable[object]", values), "a list of names")
    if not all(isinstance(value, str) for value in found):
        wrong_type(who, name, values, "a list of names")
    return cast("list[str]", found)


def path(who: object, value: object, name: str = "path") -> None:
    """Raises where a path is no text and no pathlib.Path, or cannot name a file."""
    if not isinstance(value, (str, os.PathLike)):
        wrong_type(who, name, value, "a text or a pathlib.Path")
    encoded = os.fsencode(value)
    if not encoded:
        wrong_value(who, name, value, "the name of a file")
    if b"\0" in encoded:
        wrong_value(who, name, value, "a name without a null character")


def array(who: object, name: str, values: object, *shape: int | str) -> mx.array:
    """An mx.array of values, also from NumPy or lists.

    shape: the size of each axis, if it matters; a letter such as "N" stands for any size.
    """
    try:
        # An array becomes another object: `values += 1` of a caller does not reach it.
        own = isinstance(values, mx.array)
        made = values.astype(values.dtype) if own else mx.array(values)  # type: ignore
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"[{caller(who)}] {name} must be an array, found {told(values)}: {error}"
        ) from None
    if shape:
        fits = len(shape) == made.ndim and all(
            isinstance(want, str) or want == size for want, size in zip(shape, made.shape)
        )
        if not fits:
            wanted = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
            raise ValueError(
                f"[{caller(who)}] {name} must have shape ({wanted}), found {tuple(made.shape)}"
            )
    return made


def parameter_shape(who: object, *shape: int) -> tuple[int, ...]:
    """The shape of a parameter: above MOST_VALUES values MLX would run out of memory and crash."""
    if math.prod(shape) > MOST_VALUES:
        raise ValueError(
            f"[{caller(who)}] a parameter of shape {shape} would hold "
            f"{math.prod(shape):,} values, expected at most {MOST_VALUES:,}; take fewer channels"
        )
    return shape


def sparse_input(who: object, x: object, channels: int | None = None) -> SparseTensor:
    """The argument x of a layer on sparse tensors, if it has that many channels."""
    if not isinstance(x, SparseTensor):
        cure = "; make one with SparseTensor(coords, feats)" if hasattr(x, "shape") else ""
        raise TypeError(f"[{caller(who)}] x: found {told(x)}, expected a SparseTensor{cure}")
    _check_channels(who, x.channels, channels)
    return x


def rows_input(who: object, x: Rows, channels: int | None = None) -> Rows:
    """The argument x of a layer on sparse tensors and on arrays (N, C)."""
    if isinstance(x, mx.array):
        if not x.ndim:
            raise ValueError(f"[{caller(who)}] x must have shape (N, C), found a single value")
        _check_channels(who, x.shape[-1], channels)
    elif isinstance(x, SparseTensor):
        _check_channels(who, x.channels, channels)
    else:
        cure = "; convert it with mx.array(x)" if hasattr(x, "shape") else ""
        raise TypeError(
            f"[{caller(who)}] x must be a SparseTensor or an mx.array (N, C), found {told(x)}{cure}"
        )
    return x


def _check_channels(who: object, found: int, expected: int | None) -> None:
    if expected is not None and found != expected:
        raise ValueError(
            f"[{caller(who)}] x has {found} channels, and this module takes {expected}; "
            f"make the module with in_channels={found}, or change the layer before."
        )
