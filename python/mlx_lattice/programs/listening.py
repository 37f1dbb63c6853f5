"""Listens to the operations of the extension and to functions of MLX while a network runs.

`listening(recorder)` replaces the functions of `mlx_lattice._ext` and `mlx.core` by ones that also
write down the call; after the `with` block the original functions are back. Outside of an export
nothing is replaced, so that listening costs nothing. Calls of other threads are not written down.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import re
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from .. import _ext, ops
from ..core import SparseTensor
from ..core.layouts import AttentionLayout
from ..core.neighbors import NeighborEdges, NeighborRelation
from . import arrays

if TYPE_CHECKING:
    from .recorder import Recorder

# Functions that may see values without becoming a part of the program.
_READERS = {
    "eval",
    "async_eval",
    "array_equal",
    "allclose",
    "isnan",
    "isfinite",
    "all",
    "any",
    "issubdtype",
    "depends",
    "start_on_gpu",
    "array_id",
    "is_available",
}
_SAFE_METHODS = {
    "__init__",
    "__new__",
    "__class__",
    "__repr__",
    "__str__",
    "__len__",
    "__bool__",
    "__int__",
    "__float__",
    "__index__",
    "__hash__",
    "__format__",
    "__array__",
    "__array_namespace__",
    "__dlpack__",
    "__dlpack_device__",
    "__getattribute__",
    "__getattr__",
    "__setattr__",
    "__delattr__",
    "__dir__",
    "__sizeof__",
    "__reduce__",
    "__reduce_ex__",
    "__getstate__",
    "__setstate__",
    "__copy__",
    "__deepcopy__",
    "__init_subclass__",
    "__subclasshook__",
    "tolist",
    "item",
    "all",
    "any",
}
_PROPERTIES: list[tuple[type, str, str]] = [
    (SparseTensor, "coords", "coords"),
    (SparseTensor, "batch_indices", "batch_indices"),
    (AttentionLayout, "offsets", "layout_offsets"),
    (AttentionLayout, "positions", "layout_positions"),
    (NeighborEdges, "query_rows", "neighbor_query_rows"),
    (NeighborEdges, "source_rows", "neighbor_source_rows"),
    (NeighborEdges, "neighbor_ids", "neighbor_ids"),
    (NeighborRelation, "distances", "neighbor_distances"),
    (NeighborRelation, "row_offsets", "neighbor_row_offsets"),
    (NeighborRelation, "query_counts", "neighbor_counts"),
    (_ext.PointSet, "positions", "point_positions"),
    (_ext.PointSet, "lengths", "point_lengths"),
    (_ext.PointVoxels, "voxels", "voxel_slots"),
    (_ext.PointVoxels, "mean", "voxel_mean"),
    (_ext.PointVoxels, "coords", "voxel_coords"),
    (_ext.PointVoxels, "counts", "voxel_counts"),
    (_ext.PointVoxels, "owner", "voxel_owner"),
    (_ext.PointVoxels, "dropped", "voxel_dropped"),
    (_ext.Rulebook, "relation", "rulebook_relation"),
]
_SPARSE_JOINS = {
    "__add__": ("add", "outer"),
    "__sub__": ("sub", "outer"),
    "__mul__": ("mul", "inner"),
    "__and__": ("mul", "inner"),
}


@contextlib.contextmanager
def listening(recorder: Recorder) -> Iterator[None]:
    """Writes down all calls of this thread inside the block."""
    patches = _Patches(recorder)
    mx.disable_compile()  # a compiled function runs without being called
    try:
        patches.apply()
        yield
    finally:
        patches.undo()
        mx.enable_compile()


class _Patches:
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._before: list[tuple[Any, str, Any]] = []
        self._busy = False

    def apply(self) -> None:
        self._patch_extension()
        self._patch_mlx()
        self._patch_values()

    def undo(self) -> None:
        for owner, name, before in reversed(self._before):
            setattr(owner, name, before)

    def _set(self, owner: Any, name: str, new: Any, before: Any) -> None:
        self._before.append((owner, name, before))
        setattr(owner, name, new)

    def _wrap(self, before: Callable[..., Any], note: Callable[..., Any]) -> Callable[..., Any]:
        """Calls `note` with the arguments, then `before`, then what `note` gave with the result."""

        @functools.wraps(before)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            if self._busy or threading.get_ident() != self._recorder.thread:
                return before(*args, **kwargs)
            self._busy = True
            try:
                write = note(*args, **kwargs)
                result = before(*args, **kwargs)
                if write is not None:
                    write(result)
                return result
            finally:
                self._busy = False

        return recorded

    # the extension
    def _patch_extension(self) -> None:
        for name in dir(_ext):
            function = getattr(_ext, name)
            if type(function).__name__ == "nb_func" and name not in _READERS:
                self._set(_ext, name, self._wrap(function, self._extension_note(name)), function)
        self._set(
            ops, "PositionBias", self._wrap(ops.PositionBias, self._bias_note), ops.PositionBias
        )

    def _extension_note(self, name: str) -> Callable[..., Any]:
        recorder = self._recorder
        known = name in recorder.table
        parameters = _parameters(getattr(_ext, name)) if known else []

        def note(*args: Any, **kwargs: Any) -> Any:
            if not known:
                if recorder.is_data([*args, *kwargs.values()]):
                    recorder.refuse(f"{name}()", "is no operation of programs")
                return None
            if not recorder.is_known([*args, *kwargs.values()]):
                return None
            operands, attributes = recorder.call(name, dict(zip(parameters, args), **kwargs))
            return lambda result: recorder.add(name, operands, attributes, result)

        return note

    def _bias_note(self, table: Any, q: Any, k: Any = None, **named: Any) -> Any:
        given = {"table": table, "q_positions": q, "k_positions": k, "joint": False, **named}
        operands, attributes = self._recorder.call("position_bias", given)
        return lambda made: self._recorder.add("position_bias", operands, attributes, made)

    # MLX
    def _patch_mlx(self) -> None:
        for owner, makers in ((mx, arrays.FUNCTIONS), (mx.fast, arrays.FAST)):
            for name in dir(owner):
                function = getattr(owner, name)
                if type(function).__name__ == "nb_func" and name not in _READERS:
                    note = self._mlx_note(name, makers.get(name))
                    self._set(owner, name, self._wrap(function, note), function)
        for owner in (mx.linalg, mx.fft, mx.random):
            for name in dir(owner):
                function = getattr(owner, name)
                if type(function).__name__ == "nb_func":
                    note = self._mlx_note(f"{owner.__name__[9:]}.{name}", None)  # without mlx.core.
                    self._set(owner, name, self._wrap(function, note), function)
        for name, before in vars(mx.array).items():
            if name in _SAFE_METHODS or isinstance(before, property) or not callable(before):
                continue
            note = self._mlx_note(name, arrays.METHODS.get(name), "array.")
            self._set(mx.array, name, self._wrap(before, note), before)
        for name in ("vmap", "grad", "value_and_grad"):
            before = getattr(mx, name)
            self._set(mx, name, self._wrap(before, self._refusal(f"mx.{name}")), before)
        for name, maker in [("at", None), *arrays.PROPERTIES.items()]:
            before = vars(mx.array)[name]
            read = self._wrap(before.__get__, self._mlx_note(name, maker, "array."))
            self._set(mx.array, name, property(read), before)

    def _mlx_note(
        self, name: str, maker: arrays.Maker | None, prefix: str = "mx."
    ) -> Callable[..., Any]:
        recorder = self._recorder

        def note(*args: Any, **kwargs: Any) -> Any:
            given = [*args, *kwargs.values()]
            if name == "stop_gradient":
                return self._same_note(args[0])
            if maker is None:
                if recorder.is_data(given):
                    recorder.refuse(f"{prefix}{name}", "is no operation of programs")
                return None
            if not recorder.is_known(given):
                return None
            kwargs.pop("stream", None)
            if not _is_plain(args):
                return None  # MLX gives NotImplemented, and the other side has its turn
            return maker(recorder, *args, **kwargs)

        return note

    def _same_note(self, given: Any) -> Any:
        recorder = self._recorder
        if not isinstance(given, mx.array) or not recorder.is_data(given):
            return None
        value = recorder.array(given)
        return lambda result: recorder.define(result, value)  # type: ignore[arg-type]

    # values of the extension
    def _patch_values(self) -> None:
        for owner, name, operation in _PROPERTIES:
            before = vars(owner)[name]
            read = self._wrap(before.__get__, self._part_note(operation))
            self._set(owner, name, property(read), before)
        before = vars(NeighborRelation)["edges"]
        self._set(
            NeighborRelation,
            "edges",
            property(self._wrap(before.__get__, self._edges_note)),
            before,
        )
        for owner, name, operation in (
            (_ext.PointSet, "__init__", "point_set"),
            (_ext.Rulebook, "transposed", "rulebook_transposed"),
            (SparseTensor, "to_dense", "to_dense"),
            (SparseTensor, "with_bounds", "with_bounds"),
        ):
            before = getattr(owner, name)
            self._set(owner, name, self._wrap(before, self._method_note(operation)), before)
        for name in ("replace", "sorted", "reuse_coords_from"):
            self._refuse_method(SparseTensor, name)
        self._patch_tensor_operators()

    def _refuse_method(self, owner: type, name: str) -> None:
        before = getattr(owner, name)
        note = self._refusal(f"{owner.__name__}.{name}")
        self._set(owner, name, self._wrap(before, note), before)

    def _refusal(self, name: str) -> Callable[..., Any]:
        def note(*_: Any, **__: Any) -> Any:
            self._recorder.refuse(name, "is no operation of programs")

        return note

    def _part_note(self, operation: str) -> Callable[..., Any]:
        recorder = self._recorder

        def note(owner: Any) -> Any:
            if isinstance(owner, SparseTensor):
                value = recorder.sparse(owner, operation)
            elif recorder.is_data(owner):
                value = recorder.held(owner, operation)
            else:
                return None
            return lambda result: recorder.add(operation, [value], [], result)

        return note

    def _edges_note(self, relation: Any) -> Any:
        recorder = self._recorder
        if not recorder.is_data(relation):
            return None
        value = recorder.held(relation, "edges")
        return lambda edges: recorder.define(edges, value)

    def _method_note(self, operation: str) -> Callable[..., Any]:
        recorder = self._recorder
        names = {
            "point_set": ("positions", "lengths", "grid"),
            "rulebook_transposed": ("rulebook", "negate"),
            "to_dense": ("x", "shape", "min_coord"),
            "with_bounds": ("x", "bounds"),
        }[operation]
        defaults: dict[str, dict[str, Any]] = {
            "rulebook_transposed": {"negate": False},
            "point_set": {"grid": 1.0},
        }

        def note(owner: Any, *args: Any, **kwargs: Any) -> Any:
            makes = operation == "point_set"
            given = {**defaults.get(operation, {}), **kwargs}
            given.update(zip(names, args if makes else (owner, *args)))
            if not recorder.is_known(list(given.values())):
                return None
            operands, attributes = recorder.call(operation, given)
            return lambda made: recorder.add(
                operation, operands, attributes, owner if makes else made
            )

        return note

    def _patch_tensor_operators(self) -> None:
        for name in vars(SparseTensor):
            maker = arrays.METHODS.get(name)
            if maker is None and name not in _SPARSE_JOINS and name != "astype":
                continue
            if name in ("__eq__", "__ne__", "__getitem__"):
                continue
            before = getattr(SparseTensor, name)
            self._set(SparseTensor, name, self._wrap(before, self._operator_note(name)), before)

    def _operator_note(self, name: str) -> Callable[..., Any]:
        recorder = self._recorder

        def note(x: SparseTensor, *rest: Any) -> Any:
            other = rest[0] if rest else None
            if isinstance(other, SparseTensor) and name in _SPARSE_JOINS:
                op, join = _SPARSE_JOINS[name]
                given = {"lhs": x, "rhs": other, "op": op, "join": join}
                given |= {"lhs_fill": 0.0, "rhs_fill": 0.0}
                operands, attributes = recorder.call("sparse_binary", given)
                return lambda made: recorder.add("sparse_binary", operands, attributes, made)
            if name in _SPARSE_JOINS and name not in arrays.METHODS:
                return None
            values = [r.feats if isinstance(r, SparseTensor) else r for r in rest]
            recorder.sparse(x, name)
            write = arrays.METHODS[name](recorder, x.feats, *values)
            return lambda made: write(made.feats) if isinstance(made, SparseTensor) else None

        return note


def _is_plain(args: tuple[Any, ...]) -> bool:
    return not any(isinstance(a, SparseTensor) for a in args)


def _parameters(function: Any) -> list[str]:
    """The names of the parameters of a function of the extension."""
    text = re.sub(r"\\\d+", "None", function.__nb_signature__[0][0])  # defaults are \\0, \\1, ...
    definition = ast.parse(f"{text}: ...").body[0]
    assert isinstance(definition, ast.FunctionDef)
    return [a.arg for a in definition.args.args + definition.args.kwonlyargs]
