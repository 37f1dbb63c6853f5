"""The recording of an export: every call of an operation, with its operands and line of Python.

A value is known by `mx.array`'s own identity, which Python objects of one array share. A recording
is a list of nodes; `graph.py` compares two of them and writes the text.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import mlx.core as mx

from .._ext import IntegerKernel, array_id, program_operations
from ..core import KernelSpec, PackedKernel, QuantizedWeight, SparseTensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Value:
    """A value of the graph, by number."""

    number: int


@dataclass(frozen=True)
class Tensor:
    """A tensor of the file, by name."""

    name: str


@dataclass(frozen=True)
class Shape:
    """Sizes of which one may be free: one that differs in a second recording becomes -1.

    Where all are equal it is the first, if it is the number of rows of the operand: two inputs may
    have equally many rows at one place, such as the padded rows of a patch, and a third one others.
    """

    sizes: tuple[int, ...]
    rows: int  # of the operand


#: Operands of the table that the functions of the extension call otherwise.
ALIASES = {"feats": "x", "array": "x", "weight": "scale", "x": "input"}
#: Arguments that a program does not hold; another value than this one is refused.
DEFAULTS: dict[str, Any] = {"ties": "split", "order": "sorted"}

Reference: TypeAlias = "Value | Tensor | float | list[Reference] | None"


@dataclass
class Node:
    """One line of a graph."""

    operation: str
    operands: list[Reference]
    attributes: list[Any]
    results: list[int]
    place: str  # the line of Python
    names: list[str] = field(default_factory=list)  # names of the attributes


@dataclass(frozen=True)
class Row:
    """A row of the table of operations."""

    version: int
    operands: list[tuple[str, str, int]]  # name, kinds, form: 0 one, 1 optional, 2 list
    attributes: list[tuple[str, str, bool, int]]  # name, type, optional, length
    results: list[str]


def table() -> dict[str, Row]:
    """The newest version of every operation by its name."""
    return {name: Row(version, *rest) for name, version, *rest in program_operations()}


class ExportError(ValueError):
    """A network that cannot be exported; the message names the operation and the line of Python."""


def place() -> str:
    """The line of Python that called: the first outside of the layers of this package."""
    frame = sys._getframe(1)
    inner = None
    while frame is not None and frame.f_code.co_name != "_recorded":
        path = Path(frame.f_code.co_filename)
        where = f"{path.name}:{frame.f_lineno}"
        if _PACKAGE not in path.parents and "mlx" not in path.parts:
            return where
        if inner is None and path.parent.name not in ("programs", "ops", "core", "nn", "mlx"):
            inner = where
        frame = frame.f_back  # type: ignore[assignment]
    return inner or "unknown line"


class Recorder:
    """A recording while it is made."""

    def __init__(self, tensors: dict[str, mx.array]) -> None:
        self.nodes: list[Node] = []
        self.constants: dict[str, mx.array] = {}
        self.tensors = tensors
        self.thread = threading.get_ident()
        self.table = table()
        self._count = 0
        self._values: dict[int, Value] = {}  # values of arrays, by identity
        self._lazy_feats: dict[int, Value] = {}  # features of sparse values, not yet a node
        self._tensors = {array_id(a): name for name, a in tensors.items()}
        self._sparse: dict[tuple[object, int], Value] = {}
        self._coords: dict[object, Value] = {}  # the first sparse value on some coordinates
        self._objects: dict[int, Value] = {}
        self._kept: list[object] = []  # kept alive, so that no identity is used again

    # values
    def new_value(self) -> Value:
        self._count += 1
        return Value(self._count - 1)

    def define(self, thing: object, value: Value | None = None) -> Value:
        """Makes a thing known as a value, by default a new one."""
        value = self.new_value() if value is None else value
        self._kept.append(thing)
        if isinstance(thing, mx.array):
            self._values.setdefault(array_id(thing), value)
        elif isinstance(thing, SparseTensor):
            self._kept.append(thing.coord_manager)
            self._sparse.setdefault(self._sparse_key(thing), value)
            self._coords.setdefault(thing.coord_key, value)
            self._lazy_feats.setdefault(array_id(thing.feats), value)
        else:
            self._objects[id(thing)] = value
        return value

    @staticmethod
    def _sparse_key(x: SparseTensor) -> tuple[object, int]:
        return x.coord_key, array_id(x.feats)

    def is_data(self, thing: object) -> bool:
        """Whether a thing, or one in a list, came out of the inputs."""
        if isinstance(thing, mx.array):
            key = array_id(thing)
            return key in self._values or key in self._lazy_feats
        if isinstance(thing, SparseTensor):
            return True
        if isinstance(thing, (list, tuple)):
            return any(self.is_data(item) for item in thing)
        if isinstance(thing, dict):
            return any(self.is_data(item) for item in thing.values())
        return id(thing) in self._objects

    def is_known(self, thing: object) -> bool:
        """The same, also for tensors of the module."""
        if isinstance(thing, (list, tuple)):
            return any(self.is_known(item) for item in thing)
        if isinstance(thing, mx.array) and array_id(thing) in self._tensors:
            return True
        return self.is_data(thing)

    def held(self, thing: object, what: str) -> Value:
        """The value of an object such as a layout."""
        if id(thing) not in self._objects:
            self.refuse(what, f"takes a {type(thing).__name__} that no recorded operation made")
        return self._objects[id(thing)]

    def array(self, a: mx.array) -> Reference:
        """The reference of an array; one that no recorded call made becomes a constant."""
        key = array_id(a)
        if key in self._values:
            return self._values[key]
        if key in self._tensors:
            return Tensor(self._tensors[key])
        if key in self._lazy_feats:
            value = self.new_value()
            self._add("feats", [self._lazy_feats[key]], [], [value])
            self._values[key] = value
            return value
        name = f"constant.{len(self.constants)}"
        self.constants[name] = a
        self._tensors[key] = name
        self._kept.append(a)
        return Tensor(name)

    def sparse(self, x: SparseTensor, what: str) -> Value:
        """The value of a tensor, or a new one: of other features, or of an array of coordinates."""
        key = self._sparse_key(x)
        if key in self._sparse:
            return self._sparse[key]
        if x.coord_key in self._coords:
            operation, where, attributes = "with_feats", self._coords[x.coord_key], []
        else:  # SparseTensor(coords, feats, stride)
            operation, attributes = "sparse_tensor", [tuple(x.stride)]
            found = self._values.get(array_id(x.coords))
            if found is None or x.batch_counts is not None:
                self.refuse(what, "takes a SparseTensor that no recorded operation made")
            where = found
        operands: list[Reference] = [where, self.array(x.feats)]
        value = self.new_value()
        self._add(operation, operands, attributes, [value])
        self._kept.append(x)
        self._sparse[key] = value
        self._coords.setdefault(x.coord_key, value)
        return value

    # calls
    def call(self, operation: str, given: dict[str, Any]) -> tuple[list[Reference], list[Any]]:
        """Operands and attributes of a call, before it is made."""
        row = self.table[operation]
        given = _spelled_out(given)
        for name, *_ in row.operands:
            other = ALIASES.get(name)
            if name not in given and other in given:
                given[name] = given.pop(other)
        operands = [
            self._operand(operation, name, kinds, form, given.pop(name, None))
            for name, kinds, form in row.operands
        ]
        attributes = [
            _attribute(operation, name, kind, length, given.pop(name, None))
            for name, kind, _, length in row.attributes
        ]
        given.pop("stream", None)
        for name, value in given.items():
            if DEFAULTS.get(name) == value and name in DEFAULTS:
                continue
            if value is not None and name not in ("stride", "padding", "dilation"):
                self.refuse(operation, f"has the argument {name}, which a program cannot hold")
        return operands, attributes

    def _operand(self, operation: str, name: str, kinds: str, form: int, given: Any) -> Reference:
        if form == 2:
            items = given if isinstance(given, (list, tuple)) else [given]
            return [self._operand(operation, name, kinds, 0, item) for item in items]
        if given is None:
            return None
        if isinstance(given, SparseTensor):
            return self.sparse(given, operation)
        if isinstance(given, (PackedKernel, QuantizedWeight)):
            given = given.weight
        if isinstance(given, IntegerKernel) and id(given) not in self._objects:
            self._integer_kernel(given)
        if "array" in kinds.split("|") or kinds == "weight":
            if isinstance(given, (bool, int, float)):
                return float(given)
            if not isinstance(given, mx.array) and id(given) not in self._objects:
                given = mx.array(given)
            if isinstance(given, mx.array):
                found = self.array(given)
                if kinds == "weight" and not isinstance(found, Tensor):
                    self.refuse(operation, f"has a {name} that is computed; make it a parameter")
                return found
        return self.held(given, operation)

    def _integer_kernel(self, kernel: IntegerKernel) -> None:
        """A node that proves and packs the arrays of a layer in integers, when the file loads."""
        arrays = ("weight", "bias", "scale", "factor", "table")
        form = ("input", "output", "residual", "relu")
        given = {**dict(zip(arrays, kernel.arrays)), **dict(zip(form, kernel.form))}
        self.add("integer_kernel", *self.call("integer_kernel", given), kernel)

    def add(
        self, operation: str, operands: list[Reference], attributes: list[Any], result: object
    ) -> None:
        """Records a call and its results."""
        results: list[object] = list(result) if isinstance(result, (list, tuple)) else [result]
        known = self.table[operation].results
        if known != ["array*"]:
            results = results[: len(known)]
        self._add(operation, operands, attributes, [self.define(r) for r in results])

    def _add(
        self,
        operation: str,
        operands: Sequence[Reference],
        attributes: list[Any],
        results: Iterable[Value],
    ) -> None:
        names = [name for name, *_ in self.table[operation].attributes]
        numbers = [value.number for value in results]
        self.nodes.append(Node(operation, list(operands), attributes, numbers, place(), names))

    def refuse(self, operation: str, what: str) -> NoReturn:
        raise ExportError(f"[export] {operation} {what} ({place()})")


def _spelled_out(given: dict[str, Any]) -> dict[str, Any]:
    """Arguments with a KernelSpec as its four numbers, and masks as a program has them."""
    given = dict(given)
    size = given.get("kernel_size")
    if isinstance(size, KernelSpec):
        given.update(
            kernel_size=size.size, stride=size.stride, padding=size.padding, dilation=size.dilation
        )
    bounds = given.get("bounds")
    if isinstance(bounds, tuple) and len(bounds) == 2 and not isinstance(bounds[0], int):
        given["bounds"] = (*bounds[0], *bounds[1])
    if "mask" in given and "offsets" in given:
        given["causal"] = given["mask"] == "causal" if isinstance(given["mask"], str) else False
        if given["causal"]:
            given["mask"] = None
    return given


def _attribute(operation: str, name: str, kind: str, length: int, given: Any) -> Any:
    if isinstance(given, mx.array):
        given = given.tolist()
    if given is None:
        return None
    if kind in ("integers", "numbers"):
        number = int if kind == "integers" else float
        if isinstance(given, (int, float)):
            given = [given] * max(length, 1)
        return tuple(number(v) for v in given)
    return {"flag": bool, "integer": int, "number": float, "text": str}[kind](given)
