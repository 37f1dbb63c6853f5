"""Reads the pickles inside a PyTorch checkpoint with an interpreter that never runs their code.

A pickle is a program for a stack machine. This machine knows the instructions that numbers, texts,
containers and tensors need, and a short list of names, for each of which this file has a function.
Everything else is refused by name. Nothing is imported, and no object of the file is ever called.

Tensors come back as `TensorRef`, which says where the numbers are; torch_file.py maps them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

BYTES_LIMIT = 64 << 20  # bytes of one pickle; that of a large training file has about 1 MB
STEP_LIMIT = 2_000_000  # instructions; an instruction makes at most one small object
RANK_LIMIT = 16  # axes of a tensor
DEPTH_LIMIT = 64  # containers inside each other
SIZE_LIMIT = 2_000_000  # values, counted once for every place where they appear

# Names of storages -> what NumPy calls their numbers; bfloat16 is read as its 16 bits.
STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
}
_SCALARS = (str, int, float, bool, bytes, type(None))
_NUMPY = {"f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"}


class Refused(ValueError):
    """A pickle that asks for more than numbers, texts, containers and tensors."""


@dataclass(frozen=True)
class Name:
    """A name of the list, such as torch._utils._rebuild_tensor_v2, without the object behind it."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(frozen=True)
class StorageRef:
    """Numbers of one kind that lie in the file under a key."""

    dtype: str
    key: str
    count: int
    first: int = 0  # of a view of an older file: where it begins


@dataclass(frozen=True)
class TensorRef:
    """A tensor: which numbers of a storage it reads, in elements."""

    storage: StorageRef
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass
class _Dtype:
    """A dtype of NumPy while its pickle is read."""

    text: str
    order: str = "="

    def numpy(self) -> np.dtype[Any]:
        return np.dtype(f"{self.order}{self.text}")


class _Empty:
    """An array of NumPy before its values are known."""

    value: np.ndarray | None = None


def refuse(what: str) -> NoReturn:
    raise Refused(what)


def _whole(value: object, what: str) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        refuse(f"{what} must be an integer of at least 0, found {_short(value)}")
    return value


def _short(value: object) -> str:
    text = repr(value) if isinstance(value, _SCALARS) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def _axes(value: object, what: str) -> tuple[int, ...]:
    if not isinstance(value, tuple) or len(value) > RANK_LIMIT:
        refuse(f"{what} must be a tuple of at most {RANK_LIMIT} integers, found {_short(value)}")
    return tuple(_whole(extent, f"{what} of a tensor") for extent in value)


def _tensor(storage: object, offset: object, shape: object, strides: object, *_: object) -> object:
    """The arguments of torch._utils._rebuild_tensor_v2; the tensor must lie inside its storage."""
    if not isinstance(storage, StorageRef):
        refuse(f"a tensor needs a storage, found {_short(storage)}")
    first, sizes, steps = _whole(offset, "offset"), _axes(shape, "size"), _axes(strides, "stride")
    if len(sizes) != len(steps):
        refuse(f"a tensor of {len(sizes)} axes has {len(steps)} strides")
    count = 1
    for size in sizes:
        count *= size
    last = first + sum((size - 1) * step for size, step in zip(sizes, steps)) if count else first
    if count > storage.count or last >= storage.count + (count == 0):
        refuse(
            f"a tensor of shape {sizes}, strides {steps} and offset {first} does not fit into a "
            f"storage of {storage.count} numbers"
        )
    return TensorRef(storage, first, sizes, steps)


def _parameter(data: object, *_: object) -> object:
    return data


def _ordered_dict(items: object = ()) -> object:
    made: dict[object, object] = {}
    if not isinstance(items, (list, tuple)):
        refuse(f"OrderedDict of {_short(items)}")
    for item in items:
        if not isinstance(item, (list, tuple)) or len(item) != 2:
            refuse("OrderedDict of something else than pairs")
        made[_key(item[0])] = item[1]
    return made


def _key(value: object) -> object:
    # Not a tuple: the hash of tuples that hold each other takes exponential time.
    if not isinstance(value, _SCALARS):
        refuse(f"a dictionary with {_short(value)} as a key, expected a text or a number")
    return value


def _encode(text: object, encoding: object) -> object:
    if not isinstance(text, str) or encoding != "latin1":
        refuse("_codecs.encode of something else than bytes")
    return text.encode("latin1")


def _dtype(text: object, *_: object) -> object:
    if text not in _NUMPY:
        refuse(f"numpy.dtype of {_short(text)}")
    return _Dtype(str(text))


def _numpy_scalar(dtype: object, data: object) -> object:
    if not isinstance(dtype, _Dtype) or not isinstance(data, bytes):
        refuse("a NumPy number without its bytes")
    if len(data) != dtype.numpy().itemsize:
        refuse(f"a NumPy number of {len(data)} bytes, expected {dtype.numpy().itemsize}")
    return np.frombuffer(data, dtype.numpy())[0].item()


def _size(value: object = ()) -> object:
    return _axes(value, "torch.Size")


def _device(*values: object) -> object:
    return ":".join(str(_key(value)) for value in values)


_CALLS: dict[str, Callable[..., object]] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_parameter": _parameter,
    "torch.Size": _size,
    "torch.device": _device,
    "collections.OrderedDict": _ordered_dict,
    "_codecs.encode": _encode,
    "numpy.dtype": _dtype,
    "numpy.core.multiarray.scalar": _numpy_scalar,
    "numpy._core.multiarray.scalar": _numpy_scalar,
    "numpy.core.multiarray._reconstruct": lambda *_: _Empty(),
    "numpy._core.multiarray._reconstruct": lambda *_: _Empty(),
}
_VALUES = {"numpy.ndarray"} | {
    f"torch.{name}"
    for name in ("float16", "float32", "float64", "bfloat16", "int8", "int16", "int32", "int64")
    + ("uint8", "bool", "contiguous_format", "strided")
}


def _named(module: object, name: object) -> Name:
    made = Name(str(module), str(name))
    storage = made.module in ("torch", "torch.cuda") and made.name in STORAGES
    if not storage and str(made) not in _CALLS and str(made) not in _VALUES:
        refuse(
            f"it names {_short(str(made))}, which is not among the tensors, containers and numbers "
            "that are read; nothing was executed"
        )
    return made


def _build(target: object, state: object) -> object:
    """BUILD gives an object its state: the metadata of a state dict says nothing about weights."""
    if isinstance(target, dict) and isinstance(state, dict):
        return target
    if isinstance(target, _Dtype) and isinstance(state, tuple) and len(state) > 1:
        if state[1] not in ("<", ">", "|", "="):
            refuse(f"numpy.dtype of byte order {_short(state[1])}")
        target.order = state[1]
        return target
    if isinstance(target, _Empty) and isinstance(state, tuple) and len(state) == 5:
        _, shape, dtype, by_column, data = state
        if isinstance(dtype, _Dtype) and isinstance(data, bytes):
            sizes, kind = _axes(shape, "shape"), dtype.numpy()
            count = int(np.prod(sizes, dtype=object)) if sizes else 1
            if count * kind.itemsize != len(data):
                refuse(f"an array of shape {sizes} and {kind} with {len(data)} bytes")
            order: Any = "F" if by_column is True else "C"
            target.value = np.frombuffer(data, kind).reshape(sizes, order=order)
            return target
    refuse(f"state for a {type(target).__name__}")


def _persistent(value: object) -> StorageRef:
    """("storage", kind, key, device, count), in older files also (view key, offset, count)."""
    if not isinstance(value, tuple) or len(value) not in (5, 6) or value[0] != "storage":
        refuse("a reference to something else than a storage")
    _, kind, key, _, count, *view = value
    if not isinstance(kind, Name) or kind.name not in STORAGES or not isinstance(key, str):
        refuse(f"a storage of {_short(kind)} under {_short(key)}")
    first, size = 0, _whole(count, "the size of a storage")
    if view and view[0] is not None:
        if not isinstance(view[0], tuple) or len(view[0]) != 3:
            refuse("a view of a storage must have three parts")
        first, size = (_whole(v, "a view of a storage") for v in view[0][1:])
        if first + size > count:
            refuse(f"a view up to {first + size} of a storage of {count} numbers")
    return StorageRef(STORAGES[kind.name], key, size, first)


class _Machine:
    """The stack machine: `run` returns the value of one pickle and where it ends."""

    def __init__(self, data: memoryview, at: int) -> None:
        self.data, self.at = data, at
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.copied = 0  # what calls copied; more than the pickle itself means a repeated value

    def run(self) -> tuple[Any, int]:
        for _ in range(STEP_LIMIT):
            code = self.take(1)[0]
            if code == 0x2E:  # STOP
                if len(self.stack) != 1 or self.marks:
                    refuse("its stack does not hold one value at the end")
                return self.stack[0], self.at
            step = _STEPS.get(code)
            if step is None:
                refuse(f"instruction 0x{code:02x} at byte {self.at - 1} is not one that is read")
            step(self)
        refuse(f"more than {STEP_LIMIT} instructions")

    def take(self, count: int) -> memoryview:
        if count > len(self.data) - self.at:
            refuse(f"it ends at byte {len(self.data)}, in the middle of an instruction")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def text(self, form: str, encoding: str = "utf-8") -> str:
        return str(self.take(self.number(form)), encoding, "surrogatepass")

    def line(self) -> str:
        start = self.at
        while self.take(1)[0] != 0x0A:
            if self.at - start > 200:
                refuse("a name of more than 200 bytes")
        return str(self.data[start : self.at - 1], "ascii")

    def skip(self, value: object) -> None:
        """Drops a value."""

    def push(self, value: object) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        if not self.stack:
            refuse("it takes a value from an empty stack")
        return self.stack.pop()

    def pop_mark(self) -> list[Any]:
        if not self.marks:
            refuse("it takes values up to a mark that is not there")
        items, self.stack = self.stack, self.marks.pop()
        return items

    def push_mark(self) -> None:
        self.marks.append(self.stack)
        self.stack = []

    def tuple_of(self, count: int) -> None:
        items = [self.pop() for _ in range(count)]
        self.stack.append(tuple(reversed(items)))

    def get(self, key: int) -> None:
        if key not in self.memo:
            refuse(f"it asks for value {key} of its memory, which is not there")
        self.stack.append(self.memo[key])

    def put(self, key: int) -> None:
        if not self.stack:
            refuse("it stores a value from an empty stack")
        self.memo[key] = self.stack[-1]

    def append(self, items: list[Any]) -> None:
        if not self.stack or not isinstance(self.stack[-1], list):
            refuse("it appends to something else than a list")
        self.stack[-1].extend(items)

    def set_items(self, items: list[Any]) -> None:
        if not self.stack or not isinstance(self.stack[-1], dict) or len(items) % 2:
            refuse("it sets items of something else than a dictionary")
        for key, value in zip(items[::2], items[1::2]):
            self.stack[-1][_key(key)] = value

    def reduce(self) -> None:
        arguments, called = self.pop(), self.pop()
        run = _CALLS.get(str(called)) if isinstance(called, Name) else None
        if run is None or not isinstance(arguments, tuple):
            refuse(f"it calls {called if isinstance(called, Name) else _short(called)}")
        self.copied += sum(len(a) for a in arguments if isinstance(a, (str, list, tuple)))
        if self.copied > len(self.data):
            refuse("its calls copy the same values again and again")
        try:
            self.stack.append(run(*arguments))
        except TypeError:
            refuse(f"it calls {called} with {len(arguments)} arguments")

    def build(self) -> None:
        state = self.pop()
        self.stack.append(_build(self.pop(), state))

    def set_pair(self) -> None:
        value, key = self.pop(), self.pop()
        self.set_items([key, value])

    def stack_global(self) -> None:
        name, module = self.pop(), self.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            refuse("a name that is no text")
        self.stack.append(_named(module, name))

    def protocol(self) -> None:
        if self.take(1)[0] > 5:
            refuse("it is of a protocol above 5")


def _push(value: Callable[[_Machine], Any]) -> Callable[[_Machine], None]:
    return lambda m: m.push(value(m))


def _long1(m: _Machine) -> int:
    return int.from_bytes(m.take(m.number("<B")), "little", signed=True)


_STEPS: dict[int, Callable[[_Machine], None]] = {
    0x80: _Machine.protocol,
    0x95: lambda m: m.skip(m.take(8)),  # FRAME: the length says nothing new
    ord("("): _Machine.push_mark,
    ord("0"): lambda m: m.skip(m.pop()),
    ord("1"): lambda m: m.skip(m.pop_mark()),
    ord("N"): _push(lambda m: None),
    0x88: _push(lambda m: True),
    0x89: _push(lambda m: False),
    ord("K"): _push(lambda m: m.number("<B")),
    ord("M"): _push(lambda m: m.number("<H")),
    ord("J"): _push(lambda m: m.number("<i")),
    0x8A: _push(_long1),
    ord("G"): _push(lambda m: m.number(">d")),
    ord("X"): _push(lambda m: m.text("<I")),
    0x8C: _push(lambda m: m.text("<B")),
    0x8D: _push(lambda m: m.text("<Q")),
    ord("U"): _push(lambda m: m.text("<B", "latin1")),
    ord("T"): _push(lambda m: m.text("<I", "latin1")),
    ord("C"): _push(lambda m: bytes(m.take(m.number("<B")))),
    ord("B"): _push(lambda m: bytes(m.take(m.number("<I")))),
    ord("]"): _push(lambda m: []),
    ord("}"): _push(lambda m: {}),
    ord(")"): _push(lambda m: ()),
    ord("t"): lambda m: m.push(tuple(m.pop_mark())),
    0x85: lambda m: m.tuple_of(1),
    0x86: lambda m: m.tuple_of(2),
    0x87: lambda m: m.tuple_of(3),
    ord("l"): lambda m: m.push(m.pop_mark()),
    ord("a"): lambda m: m.append([m.pop()]),
    ord("e"): lambda m: m.append(m.pop_mark()),
    ord("s"): _Machine.set_pair,
    ord("u"): lambda m: m.set_items(m.pop_mark()),
    ord("q"): lambda m: m.put(m.number("<B")),
    ord("r"): lambda m: m.put(m.number("<I")),
    0x94: lambda m: m.put(len(m.memo)),
    ord("h"): lambda m: m.get(m.number("<B")),
    ord("j"): lambda m: m.get(m.number("<I")),
    ord("c"): _push(lambda m: _named(m.line(), m.line())),
    0x93: _Machine.stack_global,
    ord("R"): _Machine.reduce,
    ord("b"): _Machine.build,
    ord("Q"): _push(lambda m: _persistent(m.pop())),
}


def read_pickle(data: memoryview, at: int = 0) -> tuple[Any, int]:
    """(value, end) of the pickle that begins at a byte; raises `Refused` for anything else."""
    return _Machine(data[: at + BYTES_LIMIT], at).run()


def resolved(value: object, tensor: Callable[[TensorRef], np.ndarray]) -> Any:
    """The value with its tensors mapped, as plain containers of their own.

    Containers that hold each other, or that are shared so often that writing them out would take
    more than SIZE_LIMIT values, are refused before anything is made.
    """
    if _weigh(value, 0, {})[0] > SIZE_LIMIT:
        refuse(f"more than {SIZE_LIMIT} values")

    def walk(item: object) -> object:
        if isinstance(item, TensorRef):
            return tensor(item)
        if isinstance(item, dict):
            return {key: walk(v) for key, v in item.items()}
        if isinstance(item, (list, tuple)):
            return type(item)([walk(v) for v in item])
        if isinstance(item, _Empty):
            return item.value
        return str(item) if isinstance(item, (Name, _Dtype, StorageRef)) else item

    return walk(value)


def _weigh(item: object, depth: int, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Values that an item holds when it is written out, and containers inside each other."""
    if not isinstance(item, (dict, list, tuple)):
        return 1, 0
    if id(item) not in known:
        if depth > DEPTH_LIMIT:
            refuse(f"more than {DEPTH_LIMIT} containers inside each other")
        inner = item.values() if isinstance(item, dict) else item
        parts = [_weigh(v, depth + 1, known) for v in inner]
        height = 1 + max((part[1] for part in parts), default=0)
        known[id(item)] = 1 + sum(part[0] for part in parts), height
    count, height = known[id(item)]
    if depth + height > DEPTH_LIMIT + 1:
        refuse(f"more than {DEPTH_LIMIT} containers inside each other")
    return count, height
