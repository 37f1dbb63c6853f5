"""Functions and methods of MLX that a program holds, as nodes of the graph.

Each maker takes the recorder and the arguments of the call, and returns a function of the result
that writes the node. Arguments are looked up before the call, because `x += y` changes x.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any, TypeAlias

import mlx.core as mx

from .recorder import Shape

if TYPE_CHECKING:
    from .recorder import Recorder, Reference

Write: TypeAlias = "Callable[[Any], None]"
Maker: TypeAlias = "Callable[..., Write]"
END = 2**31 - 1
DTYPES = {
    mx.float32: "f32",
    mx.float16: "f16",
    mx.bfloat16: "bf16",
    mx.int8: "i8",
    mx.int16: "i16",
    mx.int32: "i32",
    mx.int64: "i64",
    mx.uint8: "u8",
    mx.uint16: "u16",
    mx.uint32: "u32",
    mx.uint64: "u64",
    mx.bool_: "bool",
}


def _writer(
    recorder: Recorder, operation: str, operands: list[Reference], attributes: Sequence[Any] = ()
) -> Write:
    return lambda result: recorder.add(operation, operands, list(attributes), result)


def _beside(recorder: Recorder, value: Any, other: Any) -> Reference:
    """An array or a number; a number that MLX would not cast to the other's dtype is an array."""
    if isinstance(value, mx.array):
        return recorder.array(value)
    if isinstance(value, (int, float)) and isinstance(other, mx.array):
        whole = isinstance(value, int) and not isinstance(value, bool)
        if mx.issubdtype(other.dtype, mx.floating) or (whole and other.dtype != mx.bool_):
            return float(value)
    return recorder.array(mx.array(value))


def unary(operation: str) -> Maker:
    return lambda recorder, a, **_: _writer(recorder, operation, [recorder.array(a)])


def binary(operation: str, swapped: bool = False) -> Maker:
    def make(recorder: Recorder, a: Any, b: Any, **_: Any) -> Write:
        a, b = (b, a) if swapped else (a, b)
        return _writer(recorder, operation, [_beside(recorder, a, b), _beside(recorder, b, a)])

    return make


def _axes(a: mx.array, axis: Any) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(a.ndim))
    given = (axis,) if isinstance(axis, int) else tuple(axis)
    return tuple(i % max(a.ndim, 1) for i in given)


def reduction(operation: str) -> Maker:
    def make(
        recorder: Recorder, a: mx.array, axis: Any = None, keepdims: bool = False, **_: Any
    ) -> Write:
        return _writer(recorder, operation, [recorder.array(a)], [_axes(a, axis), bool(keepdims)])

    return make


def variance(
    recorder: Recorder,
    a: mx.array,
    axis: Any = None,
    keepdims: bool = False,
    ddof: int = 0,
    **_: Any,
) -> Write:
    attributes = [_axes(a, axis), bool(keepdims), int(ddof)]
    return _writer(recorder, "var", [recorder.array(a)], attributes)


def clip(recorder: Recorder, a: mx.array, a_min: Any, a_max: Any, **_: Any) -> Write:
    value = recorder.array(a)
    bounds = [(n, v) for n, v in (("maximum", a_min), ("minimum", a_max)) if v is not None]
    for operation, bound in bounds[:-1]:
        between = recorder.new_value()
        recorder._add(operation, [value, _beside(recorder, bound, a)], [], [between])
        value = between
    operation, bound = bounds[-1]
    return _writer(recorder, operation, [value, _beside(recorder, bound, a)])


def softmax(
    recorder: Recorder, a: mx.array, axis: Any = None, precise: bool = False, **_: Any
) -> Write:
    return _writer(recorder, "softmax", [recorder.array(a)], [_axes(a, axis), bool(precise)])


def argmax(
    recorder: Recorder, a: mx.array, axis: int | None = None, keepdims: bool = False, **_: Any
) -> Write:
    if axis is None:
        recorder.refuse("argmax", "needs an axis")
    return _writer(recorder, "argmax", [recorder.array(a)], [axis % a.ndim, bool(keepdims)])


def argsort(recorder: Recorder, a: mx.array, axis: int | None = -1, **_: Any) -> Write:
    if axis is None:
        recorder.refuse("argsort", "needs an axis")
    return _writer(recorder, "argsort", [recorder.array(a)], [axis % a.ndim])


def cumsum(
    recorder: Recorder,
    a: mx.array,
    axis: int | None = None,
    *,
    reverse: bool = False,
    inclusive: bool = True,
    **_: Any,
) -> Write:
    if axis is None and a.ndim != 1:
        recorder.refuse("cumsum", "needs an axis")
    at = 0 if axis is None else axis % a.ndim
    return _writer(recorder, "cumsum", [recorder.array(a)], [at, bool(reverse), bool(inclusive)])


def reshape(recorder: Recorder, a: mx.array, *shape: Any, **_: Any) -> Write:
    sizes = tuple(shape[0]) if shape and not isinstance(shape[0], int) else shape
    made = Shape(tuple(int(n) for n in sizes), a.shape[0] if a.ndim else 1)
    return _writer(recorder, "reshape", [recorder.array(a)], [made])


def flatten(
    recorder: Recorder, a: mx.array, start_axis: int = 0, end_axis: int = -1, **_: Any
) -> Write:
    operand = recorder.array(a)
    return lambda y: recorder.add("reshape", [operand], [Shape(tuple(y.shape), y.shape[0])], y)


def broadcast_to(recorder: Recorder, a: mx.array, shape: Sequence[int], **_: Any) -> Write:
    own = [-2] * (len(shape) - a.ndim) + list(a.shape)
    sizes = tuple(-1 if n == m else int(n) for n, m in zip(shape, own))
    return _writer(recorder, "broadcast_to", [recorder.array(a)], [sizes])


def transpose(recorder: Recorder, a: mx.array, *axes: Any, **named: Any) -> Write:
    given = named.get("axes", axes[0] if axes and not isinstance(axes[0], int) else axes)
    order = _axes(a, given) if given else tuple(reversed(range(a.ndim)))
    return _writer(recorder, "transpose", [recorder.array(a)], [order])


def swapaxes(recorder: Recorder, a: mx.array, axis1: int, axis2: int, **_: Any) -> Write:
    order = list(range(a.ndim))
    i, j = axis1 % a.ndim, axis2 % a.ndim
    order[i], order[j] = order[j], order[i]
    return _writer(recorder, "transpose", [recorder.array(a)], [tuple(order)])


def moveaxis(recorder: Recorder, a: mx.array, source: int, destination: int, **_: Any) -> Write:
    order = [i for i in range(a.ndim) if i != source % a.ndim]
    order.insert(destination % a.ndim, source % a.ndim)
    return _writer(recorder, "transpose", [recorder.array(a)], [tuple(order)])


def expand_dims(recorder: Recorder, a: mx.array, axis: Any, **_: Any) -> Write:
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    full = a.ndim + len(axes)
    return _writer(recorder, "expand_dims", [recorder.array(a)], [tuple(i % full for i in axes)])


def squeeze(recorder: Recorder, a: mx.array, axis: Any = None, **_: Any) -> Write:
    axes = tuple(i for i, n in enumerate(a.shape) if n == 1) if axis is None else _axes(a, axis)
    return _writer(recorder, "squeeze", [recorder.array(a)], [axes])


def astype(recorder: Recorder, a: mx.array, dtype: mx.Dtype, **_: Any) -> Write:
    if dtype not in DTYPES:
        recorder.refuse("astype", f"makes {dtype}, which a program cannot hold")
    return _writer(recorder, "astype", [recorder.array(a)], [DTYPES[dtype]])


def repeat(
    recorder: Recorder, array: mx.array, repeats: int, axis: int | None = None, **_: Any
) -> Write:
    if axis is None:
        recorder.refuse("repeat", "needs an axis")
    at = axis % array.ndim
    return _writer(recorder, "repeat", [recorder.array(array)], [int(repeats), at])


def concatenate(recorder: Recorder, arrays: Sequence[mx.array], axis: int = 0, **_: Any) -> Write:
    at = axis % max(arrays[0].ndim, 1)
    return _writer(recorder, "concatenate", [[recorder.array(a) for a in arrays]], [at])


def stack(recorder: Recorder, arrays: Sequence[mx.array], axis: int = 0, **_: Any) -> Write:
    at = axis % (arrays[0].ndim + 1)
    return _writer(recorder, "stack", [[recorder.array(a) for a in arrays]], [at])


def take(recorder: Recorder, a: mx.array, indices: Any, axis: int | None = None, **_: Any) -> Write:
    if axis is None or not isinstance(indices, mx.array):
        recorder.refuse("take", "needs an array of indices and an axis")
    operands: list[Reference] = [recorder.array(a), recorder.array(indices)]
    return _writer(recorder, "take", operands, [axis % a.ndim])


def where(recorder: Recorder, condition: Any, x: Any, y: Any, **_: Any) -> Write:
    chosen = _beside(recorder, condition, None)
    return _writer(recorder, "where", [chosen, _beside(recorder, x, y), _beside(recorder, y, x)])


def addmm(
    recorder: Recorder,
    c: mx.array,
    a: mx.array,
    b: mx.array,
    alpha: float = 1.0,
    beta: float = 1.0,
    **_: Any,
) -> Write:
    operands: list[Reference] = [recorder.array(m) for m in (c, a, b)]
    return _writer(recorder, "addmm", operands, [float(alpha), float(beta)])


def layer_norm(
    recorder: Recorder, x: mx.array, weight: Any, bias: Any, eps: float, **_: Any
) -> Write:
    operands = [recorder.array(x)] + [
        None if a is None else recorder.array(a) for a in (weight, bias)
    ]
    return _writer(recorder, "fast_layer_norm", operands, [float(eps)])


def rms_norm(recorder: Recorder, x: mx.array, weight: Any, eps: float, **_: Any) -> Write:
    operands = [recorder.array(x), None if weight is None else recorder.array(weight)]
    return _writer(recorder, "fast_rms_norm", operands, [float(eps)])


def getitem(recorder: Recorder, a: mx.array, key: Any) -> Write:
    """a[key] for slices, integers, None, `...`, and one array of rows."""
    keys = list(key) if isinstance(key, tuple) else [key]
    arrays = [i for i, k in enumerate(keys) if isinstance(k, mx.array)]
    if arrays:
        plain = all(k == slice(None) for i, k in enumerate(keys) if i not in arrays)
        if len(arrays) > 1 or not plain:
            recorder.refuse("indexing", "takes one array of rows and whole axes beside it")
        return take(recorder, a, keys[arrays[0]], arrays[0])
    used = sum(k is not None and not isinstance(k, EllipsisType) for k in keys)
    spread: list[Any] = []
    for k in keys if any(isinstance(k, EllipsisType) for k in keys) else [*keys, ...]:
        spread += [slice(None)] * (a.ndim - used) if isinstance(k, EllipsisType) else [k]
    starts: list[int] = []
    stops: list[int] = []
    steps: list[int] = []
    squeezed: list[int] = []
    for k in (k for k in spread if k is not None):
        axis = len(starts)
        if isinstance(k, slice):
            starts.append(0 if k.start is None else int(k.start))
            stops.append(END if k.stop is None else int(k.stop))
            steps.append(1 if k.step is None else int(k.step))
            if steps[-1] < 1:
                recorder.refuse("indexing", "needs a positive step")
        elif isinstance(k, int):
            starts.append(k)
            stops.append(END)
            steps.append(1)
            squeezed.append(axis)
        else:
            recorder.refuse("indexing", f"cannot be exported with {type(k).__name__}")
    source = recorder.array(a)
    fresh = [i for i, k in enumerate(k for k in spread if not isinstance(k, int)) if k is None]
    attributes = [tuple(starts), tuple(stops), tuple(steps), tuple(squeezed)]
    whole = not squeezed and all(k is None or k == slice(None) for k in spread)
    if not fresh:
        return _writer(recorder, "slice", [source], attributes)
    if not whole:
        between = recorder.new_value()
        recorder._add("slice", [source], attributes, [between])
        source = between
    return _writer(recorder, "expand_dims", [source], [tuple(fresh)])


_UNARY = [
    "abs",
    "cos",
    "erf",
    "exp",
    "floor",
    "ceil",
    "log",
    "log1p",
    "negative",
    "reciprocal",
    "rsqrt",
    "sign",
    "sin",
    "sqrt",
    "square",
    "ones_like",
    "zeros_like",
    "logical_not",
]
_BINARY = [
    "add",
    "arctan2",
    "divide",
    "equal",
    "greater",
    "greater_equal",
    "less",
    "less_equal",
    "logical_and",
    "logical_or",
    "matmul",
    "maximum",
    "minimum",
    "multiply",
    "not_equal",
    "power",
    "subtract",
]
_SHAPES: dict[str, Maker] = {
    "reshape": reshape,
    "flatten": flatten,
    "broadcast_to": broadcast_to,
    "transpose": transpose,
    "permute_dims": transpose,
    "swapaxes": swapaxes,
    "moveaxis": moveaxis,
    "expand_dims": expand_dims,
    "squeeze": squeeze,
    "repeat": repeat,
    "concatenate": concatenate,
    "concat": concatenate,
    "stack": stack,
    "take": take,
    "where": where,
    "addmm": addmm,
    "softmax": softmax,
    "argmax": argmax,
    "argsort": argsort,
    "cumsum": cumsum,
}

#: Functions of mlx.core.
FUNCTIONS: dict[str, Maker] = {
    **{name: unary(name) for name in _UNARY},
    "sigmoid": unary("sigmoid_array"),
    "tanh": unary("tanh_array"),
    **{name: binary(name) for name in _BINARY},
    **{name: reduction(name) for name in ("max", "mean", "min", "sum")},
    "var": variance,
    "clip": clip,
    **_SHAPES,
}
#: Functions of mlx.core.fast.
FAST: dict[str, Maker] = {"layer_norm": layer_norm, "rms_norm": rms_norm}
_OPERATORS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "pow": "power",
    "matmul": "matmul",
}
#: Methods of mx.array.
METHODS: dict[str, Maker] = {
    **{name: FUNCTIONS[name] for name in ("abs", "cos", "exp", "log", "log1p", "reciprocal")},
    **{name: FUNCTIONS[name] for name in ("rsqrt", "sin", "sqrt", "square")},
    **{name: FUNCTIONS[name] for name in ("max", "mean", "min", "sum", "var")},
    **{name: FUNCTIONS[name] for name in ("argmax", "cumsum")},
    **{name: _SHAPES[name] for name in ("reshape", "flatten", "transpose", "swapaxes")},
    **{name: _SHAPES[name] for name in ("moveaxis", "squeeze")},
    "astype": astype,
    "__getitem__": getitem,
    "__neg__": unary("negative"),
    "__abs__": unary("abs"),
    **{f"__{name}__": binary(operation) for name, operation in _OPERATORS.items()},
    **{f"__i{name}__": binary(operation) for name, operation in _OPERATORS.items()},
    **{
        f"__r{name}__": binary(operation, swapped=True)
        for name, operation in _OPERATORS.items()
        if name != "matmul"
    },
    "__lt__": binary("less"),
    "__le__": binary("less_equal"),
    "__gt__": binary("greater"),
    "__ge__": binary("greater_equal"),
    "__eq__": binary("equal"),
    "__ne__": binary("not_equal"),
}
#: Properties of mx.array.
PROPERTIES: dict[str, Maker] = {"T": transpose}
