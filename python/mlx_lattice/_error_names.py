"""The last net under the Python surface: an error without a name gets one.

`guard(globals())` at the end of a public module wraps its functions and the methods of its classes.
A call that works costs one frame. A call may fail with words of Python, NumPy or MLX. Then the
message gets the name of the call and its arguments:

    [SetAbstraction] an argument does not fit (radius: 0.5, mlp: 3): 'int' object is not iterable

Messages of this library and errors in a user's own functions pass as they are.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
from enum import Enum
from types import FunctionType, TracebackType
from typing import Any

import mlx.core as mx

# A number that MLX cannot hold is a RuntimeError "std::bad_cast": a TypeError here.
SAME = (TypeError, ValueError, IndexError, OverflowError)
AS_TYPE = (AttributeError,)
AS_VALUE = (KeyError, ZeroDivisionError, StopIteration, AssertionError)
OURS = {"mlx_lattice", "mlx", "numpy", *sys.stdlib_module_names} - {"__main__"}
MARK, EXTENSION = "_lattice_named", "mlx_lattice._ext"


def guard(names: dict[str, Any]) -> None:
    """Wraps the public functions and classes of a module, given by its globals()."""
    public = names.get("__all__") or [n for n in names if not n.startswith("_")]
    for name in public:
        value = names.get(name)
        if not getattr(value, "__module__", "").startswith("mlx_lattice."):
            continue
        if isinstance(value, FunctionType) and value.__module__ != EXTENSION:
            names[name] = _named(value, value.__name__)
        elif isinstance(value, type) and not issubclass(value, (BaseException, Enum)):
            _guard_class(value)


def _guard_class(kind: type) -> None:
    for base in kind.__mro__:
        if not base.__module__.startswith("mlx_lattice.") or base.__module__ == EXTENSION:
            continue
        for name, value in list(vars(base).items()):
            if name not in ("__init__", "__call__") and name.startswith("_"):
                continue
            if isinstance(value, FunctionType) and not inspect.isgeneratorfunction(value):
                setattr(base, name, _named(value, name))
            elif isinstance(value, (classmethod, staticmethod)):
                setattr(base, name, type(value)(_named(value.__func__, name)))


def _named(function: Any, name: str) -> Any:
    """The function with the net; a function that has it already comes back as it is."""
    made = vars(function).get(MARK)
    if made is not None:
        return made

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (*SAME, *AS_TYPE, *AS_VALUE, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "bad_cast" not in str(error):
                raise
            if _told(error, function, args, kwargs) or _from_outside(error.__traceback__):
                raise
            text = _message(error, function, name, args, kwargs)
            kind: type[Exception] = ValueError if isinstance(error, AS_VALUE) else TypeError
            raise (type(error) if type(error) in SAME else kind)(text) from error

    for one in (function, call):  # the same function under two names stays the same
        setattr(one, MARK, call)
    return call


def _bound(function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    try:
        found = inspect.signature(function).bind_partial(*args, **kwargs).arguments
    except TypeError:
        return dict(kwargs)
    return {k: v for k, v in found.items() if k != "self"}


def _told(
    error: Exception, function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Whether the message names the call, an argument or a file already."""
    text = str(error.args[0]) if error.args else ""
    named = text.startswith("[") and not text.startswith("[convert]")  # which is MLX's own
    if named or type(error).__module__.startswith("mlx_lattice"):
        return True
    if isinstance(error, (*AS_TYPE, *AS_VALUE)):
        return False
    words = set(re.findall(r"\w+", text))
    if words & {*inspect.signature(function).parameters, function.__name__}:
        return True
    files = [str(v) for v in args if isinstance(v, (str, os.PathLike))]
    return any(len(f) > 2 and f in text for f in files)


def _from_outside(trace: TracebackType | None) -> bool:
    """Whether a function of the user was running: then the error is its own."""
    trace = trace.tb_next if trace else None
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0] not in OURS:
            return True
        trace = trace.tb_next
    return False


def _message(
    error: Exception,
    function: FunctionType,
    name: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> str:
    if name in ("__init__", "__call__") and args:
        name = type(args[0]).__name__
    given = ", ".join(f"{k}: {_kind(v)}" for k, v in _bound(function, args, kwargs).items())
    what = f"'{error.args[0]}'" if isinstance(error, KeyError) and error.args else str(error)
    return f"[{name}] an argument does not fit ({given or 'none given'}): {what}"


def _kind(value: Any) -> str:
    if isinstance(value, mx.array):
        return f"{value.dtype} array of shape {tuple(value.shape)}"
    if type(value).__module__ == "numpy" and hasattr(value, "shape"):
        return f"numpy {value.dtype} array of shape {tuple(value.shape)}"
    if isinstance(value, (bool, int, float, str, bytes, type(None), tuple, list)):
        text = repr(value)
        return text if len(text) <= 40 else f"{text[:37]}..."
    return type(value).__name__
