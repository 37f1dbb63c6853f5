"""Two recordings of one network become the text of a graph, or an error that names the line."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NoReturn

from .recorder import ExportError, Node, Recorder, Reference, Shape, Tensor, Value, table

if TYPE_CHECKING:
    import mlx.core as mx

_CURE = (
    "a number that was read from the data cannot be exported; give the operation the value itself, "
    "or reshape with -1"
)


def merged(first: Recorder, second: Recorder) -> list[Node]:
    """The nodes of both recordings, which must be equal except for free sizes."""
    for a, b in zip(first.nodes, second.nodes):
        if a.operation != b.operation:
            raise ExportError(
                f"[export] the network called {a.operation} ({a.place}) on one input and "
                f"{b.operation} ({b.place}) on another; a branch that depends on the data cannot "
                "be exported"
            )
        _same_operands(a, b, first.constants, second.constants)
        for i, name in enumerate(a.names):
            a.attributes[i] = _same(a, name, a.attributes[i], b.attributes[i])
    if len(first.nodes) != len(second.nodes):
        longer = max(first.nodes, second.nodes, key=len)
        node = longer[min(len(first.nodes), len(second.nodes))]
        raise ExportError(
            f"[export] the network made {len(first.nodes)} calls on one input and "
            f"{len(second.nodes)} on another; the first further call is {node.operation} "
            f"({node.place}). A loop over the data cannot be exported"
        )
    return first.nodes


def _same(node: Node, name: str, a: Any, b: Any) -> Any:
    if isinstance(a, Shape) and isinstance(b, Shape) and len(a.sizes) == len(b.sizes):
        differ = [i for i, (m, n) in enumerate(zip(a.sizes, b.sizes)) if m != n]
        if not differ:
            free = a.rows > 1 and a.sizes[:1] == (a.rows,) and not {0, -1} & {*a.sizes}
            return (-1, *a.sizes[1:]) if free else a.sizes
        if len(differ) == 1 and -1 not in a.sizes:
            return tuple(-1 if i == differ[0] else n for i, n in enumerate(a.sizes))
    elif a == b or (a != a and b != b):
        return a
    values = [v.sizes if isinstance(v, Shape) else v for v in (a, b)]
    raise ExportError(
        f"[export] {node.operation}: {name} was {values[0]} on one input and {values[1]} on "
        f"another ({node.place}); {_CURE}"
    )


def _same_operands(
    a: Node, b: Node, first: dict[str, mx.array], second: dict[str, mx.array]
) -> None:
    if a.operands != b.operands:
        raise ExportError(
            f"[export] {a.operation} ({a.place}) read {a.operands} on one input and {b.operands} "
            f"on another; {_CURE}"
        )
    for tensor in _tensors(a.operands):
        if tensor.name not in first:
            continue
        x, y = first[tensor.name], second[tensor.name]
        if x.shape != y.shape or x.dtype != y.dtype or x.tolist() != y.tolist():
            raise ExportError(
                f"[export] {a.operation} ({a.place}) read an array {tuple(x.shape)} that no "
                f"recorded operation made, and another one {tuple(y.shape)} on another input; "
                f"{_CURE}"
            )


def _tensors(operands: list[Reference]) -> list[Tensor]:
    found: list[Tensor] = []
    for operand in operands:
        if isinstance(operand, Tensor):
            found.append(operand)
        elif isinstance(operand, list):
            found += _tensors(operand)
    return found


def _values(operands: list[Reference]) -> list[int]:
    found: list[int] = []
    for operand in operands:
        if isinstance(operand, Value):
            found.append(operand.number)
        elif isinstance(operand, list):
            found += _values(operand)
    return found


def needed(nodes: list[Node], outputs: list[int]) -> list[Node]:
    """The nodes that outputs read, in their order."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if wanted.intersection(node.results):
            wanted.update(_values(node.operands))
            kept.append(node)
    return kept[::-1]


def tensor_names(nodes: list[Node]) -> list[str]:
    """Names of the tensors that nodes read, each once."""
    return list(dict.fromkeys(t.name for node in nodes for t in _tensors(node.operands)))


def text_of(
    inputs: list[tuple[str, str]], nodes: list[Node], outputs: list[tuple[str, int]]
) -> str:
    """The text of a graph; value i is input i, the others are v1, v2, ..."""
    names = {i: name for i, (name, _) in enumerate(inputs)}
    rows = table()
    taken = {name for name, _ in inputs}
    lines = ["lattice-program 1"]
    lines += [f"input {name}: {kind}" for name, kind in inputs]
    count = 0
    for node in nodes:
        results = []
        for result in node.results:
            count += 1
            while f"v{count}" in taken:
                count += 1
            names[result] = f"v{count}"
            results.append(names[result])
        row = rows[node.operation]
        operands = ", ".join(_reference(o, names) for o in node.operands)
        attributes = "".join(
            f" {name}={_attribute(node, value, kind)}"
            for (name, kind, *_), value in zip(row.attributes, node.attributes)
        )
        call = f"{node.operation}@{row.version}({operands}){attributes}"
        lines.append(f"{', '.join(results)} = {call}")
    lines += [f"output {name} = {names[value]}" for name, value in outputs]
    return "\n".join(lines) + "\n"


def _reference(operand: Reference, names: dict[int, str]) -> str:
    if operand is None:
        return "_"
    if isinstance(operand, Value):
        return names[operand.number]
    if isinstance(operand, Tensor):
        return _quoted(operand.name)
    if isinstance(operand, list):
        return f"[{', '.join(_reference(item, names) for item in operand)}]"
    return _number(operand)


def _number(value: float) -> str:
    if math.isnan(value):
        return "nan"
    return repr(float(value))


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _attribute(node: Node, value: Any, kind: str) -> str:
    if value is None:
        return "none"
    if isinstance(value, Shape):
        value = value.sizes
    if kind == "flag":
        return "1" if value else "0"
    if kind == "integer":
        return str(value)
    if kind == "number":
        return _number(value)
    if kind == "text":
        return _quoted(value)
    if kind in ("integers", "numbers"):
        return f"[{','.join(str(v) if kind == 'integers' else _number(v) for v in value)}]"
    _unknown(node, kind)


def _unknown(node: Node, kind: str) -> NoReturn:
    raise ExportError(f"[export] {node.operation} has an attribute of the unknown kind {kind}")
