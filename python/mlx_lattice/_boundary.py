"""The boundary between Python and the extension.

Typed signatures, NumPy arrays and lists, and errors in words.

Every function of the extension passes through `wrap` once, when the package is loaded. A call whose
arguments fit costs one Python frame. If they do not fit, NumPy arrays and lists are
converted, and the call is repeated. What still does not fit raises an error that names the argument
and the cure.
"""

from __future__ import annotations

import ast
import difflib
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import mlx.core as mx

REFUSED = "incompatible function arguments"
STREAM = "mlx.core.Stream | mlx.core.ThreadLocalStream | mlx.core.Device | mlx.core.DeviceType"


def signature(function: Any) -> inspect.Signature:
    """The signature of a function of the extension, read from the text that nanobind keeps."""
    text, _doc, *rest = function.__nb_signature__[0]
    defaults = (rest[0] if rest else None) or ()
    for i in reversed(range(len(defaults))):
        text = text.replace(f"\\{i}", "...")
    text = text.replace(STREAM, "mlx.core.Stream | mlx.core.Device")
    text = text.replace("mlx_lattice._ext.", "").replace("mlx.core.", "mx.")
    node = ast.parse(text + ": ...").body[0]
    assert isinstance(node, ast.FunctionDef)
    a, values = node.args, list(defaults)
    kinds = [
        *((p, inspect.Parameter.POSITIONAL_ONLY) for p in a.posonlyargs),
        *((p, inspect.Parameter.POSITIONAL_OR_KEYWORD) for p in a.args),
    ]
    missing = len(kinds) - len(a.defaults)
    found = []
    for i, (p, kind) in enumerate(kinds):
        default = inspect.Parameter.empty if i < missing else values.pop(0)
        found.append(_parameter(p, kind, default))
    for p, node_default in zip(a.kwonlyargs, a.kw_defaults):
        default = inspect.Parameter.empty if node_default is None else values.pop(0)
        found.append(_parameter(p, inspect.Parameter.KEYWORD_ONLY, default))
    returns: Any = inspect.Signature.empty
    if node.returns:
        returns = result_type(node.name, ast.unparse(node.returns))
    return inspect.Signature(found, return_annotation=returns)


def _parameter(p: ast.arg, kind: Any, default: Any) -> inspect.Parameter:
    given = ast.unparse(p.annotation) if p.annotation else "object"
    return inspect.Parameter(p.arg, kind, default=default, annotation=argument_type(p.arg, given))


def argument_type(name: str, given: str) -> str:
    """The type of an argument that the extension takes as any object, to check it itself."""
    kind, *rest = given.split(" | ")
    return " | ".join([OBJECTS.get(name, kind) if kind in PLAIN else kind, *rest])


PLAIN = ("tuple", "list", "dict", "object", "Iterator")
TRIPLES = ("kernel_size", "stride", "padding", "dilation", "min_coord", "max_coord", "shift")
SETS = {"coords", "queries", "lhs", "rhs", "source", "target", "coordinates", "target_coords", "x"}
COUNTS = {"groups", "bits", "group_size", "in_channels", "out_channels", "k", "count", "start"}
COUNTS |= {"n_query", "n_source", "n", "n_in", "n_out", "n_kernels", "batch_size", "max_neighbors"}
OBJECTS = {
    **dict.fromkeys(SETS, "mx.array | CoordinateSet | SparseTensor"),
    **dict.fromkeys((*COUNTS, "depth"), "int"),
    **dict.fromkeys(TRIPLES, "int | tuple[int, int, int]"),
    "kernel_size": "int | tuple[int, int, int] | KernelSpec",
    "target": "mx.array | CoordinateSet | SparseTensor | CoordinateMapKey",
    "coordinates": "mx.array | CoordinateSet | SparseTensor | CoordinateMapKey",
    "radius": "float",
    "counts": "int | mx.array",
    "batch_counts": "Sequence[int] | mx.array",
    "feats": "mx.array",
    "relation": "KernelRelation | NeighborRelation",
    "size": "int | tuple[int, int, int] | KernelSpec",
    "shape": "tuple[int, int, int, int]",
    "attributes": "dict[str, mx.array]",
    "path": "str | os.PathLike[str]",
    "bounds": "int | Sequence[int]",
    **dict.fromkeys(("q_positions", "k_positions", "out_coords", "kernel_offsets"), "mx.array"),
    **dict.fromkeys(("voxel_size", "origin", "viewpoint"), "float | tuple[float, float, float]"),
}
# Results that C++ gives as a plain tuple, list, dict or object.
RESULTS = {
    **dict.fromkeys(("size", "stride", "padding", "dilation"), "tuple[int, int, int]"),
    "kernel_size": "tuple[int, int, int]",
    "shape": "tuple[int, int]",
    "bounds": "tuple[int, ...]",
    "kernel_offsets": "tuple[tuple[int, int, int], ...]",
    "batch_counts": "tuple[int, ...] | None",
    "out_coords": "mx.array | None",
    "backend_info": "dict[str, Any]",
    "stats": "dict[str, int]",
    "attributes": "dict[str, mx.array]",
    "routes": "list[Route]",
    "rejected": "list[tuple[str, str, str]]",
    "relations": "list[KernelRelation]",
    "outputs": "list[tuple[list[int], mx.Dtype]]",
    "batch_norm_act": "tuple[mx.array, mx.array, mx.array]",
    "decomposed_coordinates_and_features": "tuple[list[mx.array], list[mx.array]]",
    "__copy__": "SparseTensor",
    "__deepcopy__": "SparseTensor",
    "__enter__": "DecisionLog",
    "__iter__": "Iterator[mx.array]",
    "__getitem__": "mx.array",
    "__getattr__": "Any",
    "__eq__": "Any",
    "__reduce__": "tuple[Any, ...]",
    "__getstate__": "tuple[Any, ...]",
}


def result_type(name: str, given: str) -> str:
    """The type of a result, where the extension only says that there is one."""
    return RESULTS.get(name, given) if given in PLAIN else given


def wrap(function: Any) -> Callable[..., Any]:
    """A Python function that calls `function` of the extension."""
    known = signature(function)

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            given, failure = (args, kwargs), error
        fitted = _fitting(function.__name__, known, *given, failure)
        return function(*fitted.args, **fitted.kwargs)

    call.__name__ = call.__qualname__ = function.__name__
    call.__module__ = "mlx_lattice._ext"
    call.__doc__ = function.__doc__.partition("\n\n")[2].strip() if function.__doc__ else ""
    call.__signature__ = known  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in known.parameters.values()}
    call.__annotations__["return"] = known.return_annotation
    return call


def _fitting(
    name: str,
    known: inspect.Signature,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    error: TypeError,
) -> inspect.BoundArguments:
    """The arguments with NumPy arrays and lists as MLX arrays; raises what does not fit."""
    refused = REFUSED in str(error)
    try:
        bound = known.bind(*args, **kwargs)
    except TypeError as mistake:
        raise (
            TypeError(_misnamed(name, known, args, kwargs, mistake)) if refused else error
        ) from None
    changed = False
    for key, value in bound.arguments.items():
        if _takes_list(key, known.parameters[key], value):
            made = [_array(name, key, v) if _convertible(v) else v for v in value]
            changed = changed or any(a is not b for a, b in zip(made, value))
            bound.arguments[key] = made
        elif _takes_array(known.parameters[key]) and _convertible(value):
            bound.arguments[key] = _array(name, key, value)
            changed = True
    if changed:
        return bound
    raise (TypeError(_misfit(name, known, bound)) if refused else error) from None


def _takes_list(key: str, p: inspect.Parameter, value: Any) -> bool:
    """Whether the value is a list of arrays, each of which is converted by itself."""
    if not isinstance(value, (list, tuple)):
        return False
    several = "Sequence[mx.array]" in str(p.annotation)
    return key.endswith("_list") or (several and any(hasattr(v, "shape") for v in value))


def _takes_array(p: inspect.Parameter) -> bool:
    return "array" in str(p.annotation)


def _convertible(value: Any) -> bool:
    """Whether a value is a NumPy array, or nested lists of numbers and NumPy values."""
    if isinstance(value, (list, tuple)):
        return all(_convertible(v) or isinstance(v, (int, float)) for v in value)
    return type(value).__module__ == "numpy"


def _array(name: str, key: str, value: Any) -> mx.array:
    try:
        if hasattr(value, "flags") and hasattr(value, "astype"):
            # MLX takes neither another order of bytes nor a reversed view.
            value = value.astype(value.dtype.newbyteorder("="), order="C", copy=False)
        return mx.array(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"[{name}] {key}: cannot become an array: {error}") from None


def _misnamed(
    name: str,
    known: inspect.Signature,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    mistake: TypeError,
) -> str:
    """An argument that is missing, unknown or one too many."""
    for key in kwargs:
        if key not in known.parameters:
            close = difflib.get_close_matches(key, known.parameters, 1, 0.5)
            hint = f"did you mean `{close[0]}`? " if close else ""
            return (
                f"[{name}] has no argument `{key}`; {hint}Its arguments:"
                f" {', '.join(known.parameters)}."
            )
    most = [p.name for p in known.parameters.values() if p.kind is not p.KEYWORD_ONLY]
    if len(args) > len(most):
        rest = [p for p in known.parameters if p not in most and p != "stream"]
        return (
            f"[{name}] takes {len(most)} positional arguments ({', '.join(most)}), found"
            f" {len(args)}" + (f"; give {', '.join(rest)} by name." if rest else ".")
        )
    return f"[{name}] {mistake}; arguments: {', '.join(known.parameters)}."


def _misfit(name: str, known: inspect.Signature, bound: inspect.BoundArguments) -> str:
    """The first argument whose type is not what the signature says."""
    for key, value in bound.arguments.items():
        text = str(known.parameters[key].annotation)
        if _fits(text, value):
            continue
        found = _kind(value)
        cure = ""
        if "SparseTensor" in text and (isinstance(value, mx.array) or _convertible(value)):
            cure = "; make one with SparseTensor(coords, feats)"
        elif "array" in text and found == "SparseTensor":
            cure = f"; give its features, `{key}.feats`"
        return f"[{name}] {key}: found {found}, expected {text}{cure}."
    return f"[{name}] these arguments do not fit together: {', '.join(bound.arguments)}."


def _kind(value: Any) -> str:
    module = type(value).__module__
    return (
        f"{module}.{type(value).__name__}"
        if module in ("numpy", "mlx.core")
        else type(value).__name__
    )


def _fits(text: str, value: Any) -> bool:
    if value is None:
        return "None" in text
    names = [part.strip() for part in text.split("|")]
    for part in names:
        if part in ("object", "dict", "bytes") or part.startswith(("tuple", "collections")):
            return True
        if part in ("int", "float", "str", "bool"):
            kinds: Any = {"int": int, "float": (int, float), "str": str, "bool": bool}[part]
            if isinstance(value, kinds):
                return True
        elif type(value).__name__ == part.rpartition(".")[2]:
            return True
        elif part in ("mx.Stream", "mx.Device") and type(value).__module__ == "mlx.core":
            return not isinstance(value, mx.array)
    return False


def install(extension: ModuleType) -> None:
    """Replaces the functions of the extension by their wrapped forms, and so methods of classes."""
    for name, value in list(vars(extension).items()):
        if type(value).__name__ == "nb_func":
            setattr(extension, name, wrap(value))
        elif isinstance(value, type):
            _install_class(value)


def _install_class(kind: type) -> None:
    """Methods with array arguments are wrapped; the class gets the signature of its constructor."""
    for name, value in list(vars(kind).items()):
        if not hasattr(value, "__nb_signature__"):
            continue
        known = signature(value)
        parameters = list(known.parameters.values())
        if name == "__init__":
            setattr(kind, "__signature__", known.replace(parameters=parameters[1:]))  # noqa: B010
        elif not name.startswith("_") and any(map(_takes_array, parameters)):
            method = wrap(value)
            setattr(kind, name, method if parameters[0].name == "self" else staticmethod(method))
