"""Files of torch.save as plain containers of arrays, without PyTorch: zip, and the form before 1.6.

The arrays are views of the mapped file, so that reading costs no memory; bfloat16 alone, which
NumPy does not have, is copied to float32. A member of the zip must be stored as it is, lie inside
the file and apart from the others. restricted_pickle.py reads the pickles.
"""

from __future__ import annotations

import mmap
import zipfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from ._check import file_size, short
from .restricted_pickle import BYTES_LIMIT, StorageRef, TensorRef, read_pickle, refuse, resolved

if TYPE_CHECKING:
    Member = tuple[int, int]  # first byte and length inside the file

MAGIC = 0x1950A86A20F9469CFC6C
MEMBER_LIMIT = 200_000
_LOCAL_HEADER = 30
_READ_AS = {"bfloat16": "uint16", "bool": "uint8"}  # what NumPy lacks, or does not check


def mapped(file: BinaryIO) -> memoryview:
    """The bytes of an open file, mapped for reading."""
    if not file_size(file):
        return memoryview(b"")
    return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def read_torch(file: BinaryIO) -> Any:
    """What torch.save wrote to an open file: containers, numbers, texts and arrays."""
    data = mapped(file)
    head = bytes(data[:262])
    if head[:4] == b"PK\x03\x04":
        return _read_zip(file, data)
    if head[:1] == b"\x80":
        return _read_stream(data)
    if head[257:] == b"ustar" or head[:2] == b"\x1f\x8b":
        refuse("a tar or gzip archive; unpack it, or save it again with a PyTorch of 1.6 or later")
    refuse("it begins neither like a zip file nor like a pickle")


def _members(file: BinaryIO, data: memoryview) -> dict[str, Member]:
    """Where the bytes of each member lie; refused where members are packed or overlap."""
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
    if len(entries) > MEMBER_LIMIT:
        refuse(f"{len(entries)} members, expected at most {MEMBER_LIMIT}")
    found: dict[str, Member] = {}
    for entry in entries:
        name, at = entry.filename, entry.header_offset
        if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
            refuse(f"member {short(name)} is compressed, expected one that is stored as it is")
        if at < 0 or bytes(data[at : at + 4]) != b"PK\x03\x04":
            refuse(f"member {short(name)} does not begin where the directory says")
        lengths = np.frombuffer(data[at + 26 : at + _LOCAL_HEADER], "<u2")
        if len(lengths) != 2:
            refuse(f"member {short(name)} lies outside the file")
        first = at + _LOCAL_HEADER + int(lengths.sum())
        if first + entry.file_size > len(data):
            refuse(f"member {short(name)} of {entry.file_size} bytes ends behind the file")
        if name in found:
            refuse(f"member {short(name)} is there twice")
        found[name] = (first, entry.file_size)
    check_apart(found)
    return found


def check_apart(members: Mapping[str, Member]) -> None:
    """Refuses members that share bytes: their declared sizes would add up to more than the file."""
    end, before = 0, ""
    for name, (first, size) in sorted(members.items(), key=lambda item: item[1]):
        if size and first < end:
            refuse(f"{short(before)} and {short(name)} overlap")
        end, before = (first + size, name) if size else (end, before)


def _read_zip(file: BinaryIO, data: memoryview) -> Any:
    members = _members(file, data)
    roots = [name[: -len("data.pkl")] for name in members if name.endswith("data.pkl")]
    if len(roots) != 1:
        refuse(
            f"found {len(roots)} members data.pkl in the zip file, expected one; a program of "
            "TorchScript is not a checkpoint: save its state_dict()"
        )
    root = roots[0]
    first, size = members[root + "data.pkl"]
    if size > BYTES_LIMIT:
        refuse(f"data.pkl of {size} bytes, expected at most {BYTES_LIMIT}")
    order = "<"
    if f"{root}byteorder" in members:
        at, length = members[f"{root}byteorder"]
        order = {b"little": "<", b"big": ">"}.get(bytes(data[at : at + min(length, 8)]), "")
        if not order:
            refuse("byteorder is neither little nor big")
    value, _ = read_pickle(data[first : first + size])
    stored = {
        name[len(root) + 5 :]: place
        for name, place in members.items()
        if name.startswith(f"{root}data/")
    }
    return resolved(value, _Storages(data, stored, order))


class _Storages:
    """The numbers of the file by key; calling it maps one tensor."""

    def __init__(self, data: memoryview, places: dict[str, Member], order: str) -> None:
        self.data, self.places, self.order = data, places, order
        self.made: dict[tuple[str, str], np.ndarray] = {}

    def numbers(self, storage: StorageRef) -> np.ndarray:
        known = (storage.key, storage.dtype)
        if known not in self.made:
            if storage.key not in self.places:
                refuse(f"storage {short(storage.key)} is not in the file")
            if any(key == storage.key for key, _ in self.made):
                refuse(f"storage {short(storage.key)} is used with two kinds of numbers")
            at, length = self.places[storage.key]
            self.made[known] = typed(self.data[at : at + length], storage.dtype, self.order)
        return self.made[known]

    def __call__(self, tensor: TensorRef) -> np.ndarray:
        storage, numbers = tensor.storage, self.numbers(tensor.storage)
        end = storage.first + storage.count
        if end > len(numbers):
            refuse(
                f"storage {short(storage.key)} is said to hold {end} numbers, found {len(numbers)}"
            )
        part = numbers[storage.first + tensor.offset : end]
        steps = [step * part.itemsize for step in tensor.strides]
        made: np.ndarray = np.ndarray(tensor.shape, part.dtype, part, 0, steps)
        return made


def typed(data: memoryview, dtype: str, order: str) -> np.ndarray:
    """Bytes as read-only numbers of this machine; a length that is not whole loses its rest."""
    kind = np.dtype(order + np.dtype(_READ_AS.get(dtype, dtype)).str[1:])
    numbers = np.frombuffer(data, kind, len(data) // kind.itemsize)
    if dtype == "bfloat16":
        numbers = (numbers.astype("uint32") << 16).view("float32")
    elif dtype == "bool":
        numbers = numbers != 0
    else:
        numbers = numbers.astype(kind.newbyteorder("="), copy=False)
    numbers.setflags(write=False)
    return numbers


def _read_stream(data: memoryview) -> Any:
    """Before 1.6: pickles of magic number, protocol, system and contents, then keys and numbers."""
    magic, at = read_pickle(data)
    if magic != MAGIC:
        refuse("a plain pickle, or a file of another program: the number of torch.save is missing")
    protocol, at = read_pickle(data, at)
    system, at = read_pickle(data, at)
    if protocol != 1001 or not isinstance(system, dict):
        refuse(f"version {short(str(protocol))} of the older form, expected 1001")
    value, at = read_pickle(data, at)
    keys, at = read_pickle(data, at)
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        refuse("the list of storages is not a list of texts")
    sizes = _declared(value)
    places = {}
    for key in keys:
        count = int.from_bytes(data[at : at + 8], "little", signed=True)
        length = count * sizes.get(key, 1)
        if key in places or count < 0 or length > len(data) - at - 8:
            refuse(f"storage {short(key)} of {count} numbers does not fit into the file")
        places[key] = (at + 8, length)
        at += 8 + length
    return resolved(value, _Storages(data, places, "<" if system.get("little_endian", 1) else ">"))


def _declared(value: object) -> dict[str, int]:
    """Bytes per number of each storage that the tensors of a value name."""
    sizes: dict[str, int] = {}

    def note(tensor: TensorRef) -> np.ndarray:
        dtype = tensor.storage.dtype
        sizes[tensor.storage.key] = np.dtype(_READ_AS.get(dtype, dtype)).itemsize
        return np.empty(0)

    resolved(value, note)
    return sizes
