"""Reads checkpoints of other programs: weights by name, and whatever else the file holds.

`.pth` and `.pt` of PyTorch (read without it, and without running anything), `.safetensors` and
`.npz`. Arrays are mapped where the file allows it, so that reading takes no memory beyond them.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from ._check import naming, short
from .npy import npz_arrays
from .restricted_pickle import RANK_LIMIT, refuse
from .torch_file import check_apart, mapped, read_torch, typed

if TYPE_CHECKING:
    from ..core.types import FilePath

SUFFIXES = (".pth", ".pt", ".ckpt", ".bin", ".safetensors", ".npz")
# Where training programs keep the weights, in the order in which they are looked for.
WEIGHT_KEYS = ("state_dict", "model_state", "model_state_dict", "model", "net", "network")
HEADER_LIMIT = 64 << 20
_KINDS = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The result of `read_checkpoint`.

    Attributes:
        path: The file.
        arrays: The weights by their names in the file; do not write to them.
        meta: The other contents of the file, such as `config` and `epoch`.
    """

    path: Path
    arrays: dict[str, np.ndarray]
    meta: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        size = sum(array.size for array in self.arrays.values())
        return (
            f"Checkpoint({self.path.name}: {len(self.arrays)} arrays, {size:,} numbers; "
            f"{', '.join(map(str, self.meta)) or 'nothing else'})"
        )


def read_checkpoint(path: FilePath, key: str | None = None) -> Checkpoint:
    """The weights and the rest of a .pth, .pt, .safetensors or .npz file.

    A file of PyTorch is read by a small interpreter that knows tensors, containers and numbers.
    It refuses everything else by name and never runs what a file brings.

    Args:
        key: The key of a .pth file under which the weights are. By default the first of
            `state_dict`, `model_state`, `model_state_dict`, `model`, `net` and `network` that holds
            arrays, or else all arrays of the file. Dictionaries inside it are joined by dots.

    Raises:
        OSError: The file cannot be opened.
        ValueError: It is not what it says, or holds something that is not read; the message begins
            with its path.
    """
    with naming(path, "checkpoint"), open(path, "rb") as file:
        suffix = Path(path).suffix.lower()
        if suffix not in SUFFIXES:
            raise ValueError(f"ending {suffix!r}, expected one of {', '.join(SUFFIXES)}")
        if suffix == ".safetensors":
            arrays, meta = _safetensors(file)
        elif suffix == ".npz":
            with zipfile.ZipFile(file) as archive:
                arrays, meta = npz_arrays(file, archive), {}
        else:
            arrays, meta = _weights(read_torch(file), key)
        return Checkpoint(Path(path), arrays, meta)


def _weights(value: object, key: str | None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    if not isinstance(value, dict):
        raise ValueError(f"holds a {type(value).__name__}, expected a dictionary of weights")
    if key is not None and key not in value:
        raise ValueError(f"has no key {key!r}; found {', '.join(map(str, list(value)[:20]))}")
    for name in WEIGHT_KEYS if key is None else (key,):
        arrays = dict(_flat(value.get(name), ""))
        if arrays:
            return arrays, {str(k): v for k, v in value.items() if k != name}
    arrays = dict(_flat(value, ""))
    if not arrays or key is not None:
        raise ValueError(f"holds no array under {key or 'any key'}")
    return arrays, {str(k): v for k, v in value.items() if not dict(_flat({k: v}, ""))}


def _flat(value: object, prefix: str) -> list[tuple[str, np.ndarray]]:
    """(name, array) of all arrays in dictionaries of dictionaries."""
    if isinstance(value, np.ndarray):
        return [(prefix, value)]
    if not isinstance(value, Mapping):
        return []
    return [
        found
        for key, inner in value.items()
        for found in _flat(inner, f"{prefix}.{key}" if prefix else str(key))
    ]


def _safetensors(file: BinaryIO) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """8 bytes with the length of a JSON header, the header, then the numbers."""
    data = mapped(file)
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(len(data) - 8, HEADER_LIMIT):
        refuse(f"header of {length} bytes in a file of {len(data)} bytes")
    header = json.loads(bytes(data[8 : 8 + length]))
    if not isinstance(header, dict):
        refuse("the header must be an object")
    meta = header.pop("__metadata__", {})
    body = data[8 + length :]
    places = {name: _place(name, entry, len(body)) for name, entry in header.items()}
    check_apart(places)
    arrays = {}
    for name, (first, size) in places.items():
        made = typed(body[first : first + size], _KINDS[header[name]["dtype"]], "<")
        shape = header[name]["shape"]
        if int(np.prod(shape, dtype=object)) != len(made):
            refuse(f"{short(name)} of shape {shape} has {len(made)} numbers")
        arrays[name] = made.reshape(shape)
    return arrays, meta if isinstance(meta, dict) else {}


def _place(name: str, entry: dict[str, Any], size: int) -> tuple[int, int]:
    """First byte and length of an array of a safetensors file of `size` bytes of numbers."""
    kind, shape, (first, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    if kind not in _KINDS:
        refuse(f"{short(name)} is of kind {short(str(kind))}, expected one of {list(_KINDS)}")
    if any(type(n) is not int or not 0 <= n < 1 << 62 for n in (*shape, first, end)):
        refuse(f"{short(name)} has sizes that are not integers of at least 0")
    if len(shape) > RANK_LIMIT or not first <= end <= size:
        refuse(f"{short(name)} lies outside the file")
    return first, end - first
