"""Files of fixed rows, mapped into memory and written by pieces: PLY, PCD and NPY in binary form.

Only the plain forms are read here. For others, such as text, and for files that are broken, the
reader of `io` does it, and says what is wrong.
"""

from __future__ import annotations

import io as memory
import os
from pathlib import Path
from typing import Any

import numpy as np

from ..io.cloud import PointCloud, color8

HEADER = 1 << 16  # bytes of a text header at most
NAMES = {
    "i1": "char",
    "u1": "uchar",
    "i2": "short",
    "u2": "ushort",
    "i4": "int",
    "u4": "uint",
    "f4": "float",
    "f8": "double",
}
TYPES = {name: code for code, name in NAMES.items()}
TYPES |= {"int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4"}
TYPES |= {"uint32": "u4", "float32": "f4", "float64": "f8"}
PADDING = "_"


def mapped(path: Path, format: str) -> np.ndarray | None:
    """The rows of a file without reading them; None for a form that cannot be mapped."""
    try:
        if format == "npy":
            rows = np.load(path, mmap_mode="r", allow_pickle=False)
            return rows if rows.dtype.names or (rows.ndim == 2 and rows.shape[1] >= 3) else None
        with open(path, "rb") as file:
            head = file.read(HEADER)
        found = {"ply": _ply, "pcd": _pcd}[format](head) if format in ("ply", "pcd") else None
        if found is None:
            return None
        at, dtype, count = found
        if at + count * dtype.itemsize > os.path.getsize(path):
            return None
        return np.memmap(path, dtype, "r", at, (count,)) if count else np.empty(0, dtype)
    except (ValueError, KeyError, IndexError):
        return None


def _ply(head: bytes) -> tuple[int, np.dtype[Any], int] | None:
    """(first byte, dtype, count) of the vertices, if they are the first element and binary."""
    end = head.find(b"end_header")
    at = head.find(b"\n", end) + 1
    if end < 0 or not at:
        return None
    fields: list[Any] = []
    order, count = "", -1
    for line in head[:end].decode("ascii").splitlines():
        match line.split():
            case ["format", form, _]:
                order = {"binary_little_endian": "<", "binary_big_endian": ">"}[form]
            case ["element", "vertex", n] if count < 0 and not fields:
                count = int(n)
            case ["element", *_] if count < 0:
                return None
            case ["element", *_]:
                break
            case ["property", "list", *_]:
                return None
            case ["property", kind, name]:
                fields.append((name, order + TYPES[kind]))
    return (at, np.dtype(fields), count) if order and count >= 0 else None


def _pcd(head: bytes) -> tuple[int, np.dtype[Any], int] | None:
    end = head.find(b"DATA binary\n")
    if end < 0:
        return None
    entries = {w[0]: w[1:] for w in map(str.split, head[:end].decode("ascii").splitlines()) if w}
    counts = entries.get("COUNT", ["1"] * len(entries["FIELDS"]))
    kinds = [f"<{t.lower()}{s}" for t, s in zip(entries["TYPE"], entries["SIZE"], strict=True)]
    fields: list[Any] = []
    for i, (name, kind, n) in enumerate(zip(entries["FIELDS"], kinds, counts, strict=True)):
        own = f"{PADDING} {i}" if name == PADDING else name
        fields.append((own, kind, (int(n),)) if n != "1" else (own, kind))
    return end + len(b"DATA binary\n"), np.dtype(fields), int(entries["POINTS"][0])


def fields_of(rows: np.ndarray, format: str) -> dict[str, np.ndarray]:
    """The fields of mapped rows by name, in memory; packed colors of PCD are taken apart."""
    names = rows.dtype.names or ()
    kept = {n: np.array(rows[n]) for n in names if not n.startswith(PADDING + " ")}
    for packed, width in (("rgb", 3), ("rgba", 4)) if format == "pcd" else ():
        if packed in kept and kept[packed].dtype.itemsize == 4 and kept[packed].ndim == 1:
            bgra = np.ascontiguousarray(kept.pop(packed)).view(np.uint8).reshape(-1, 4)
            kept.setdefault("color", bgra[:, [2, 1, 0, 3][:width]])
    return kept


def to_rows(cloud: PointCloud, format: str) -> np.ndarray:
    """The rows of a piece for a file; PLY takes single numbers of at most 32 bits, or floats.

    Raises:
        ValueError: A column does not fit the format; the message names it.
    """
    parts = [(axis, cloud.points[:, i]) for i, axis in enumerate("xyz")]
    for name, values in cloud.columns.items():
        if format == "npy":
            parts.append((name, values))
            continue
        width = values.shape[1] if values.ndim == 2 else 1
        if name == "color" and values.ndim == 2 and width in (3, 4):
            parts += zip(("red", "green", "blue", "alpha"), color8(values).T)
        elif name == "normal" and width == 3:
            parts += zip(("nx", "ny", "nz"), values.T)
        elif values.ndim == 2:
            parts += [(f"{name}_{i}", values[:, i]) for i in range(width)]
        else:
            parts.append((name, values.astype(np.uint8) if values.dtype == bool else values))
    for name, values in parts:
        if format == "ply" and (values.dtype.str[1:] not in NAMES or name != "".join(name.split())):
            raise ValueError(
                f"column {name!r}: found {values.dtype}, which PLY does not hold; write .npy"
            )
    rows = np.empty(len(cloud), [(n, v.dtype, v.shape[1:]) for n, v in parts])
    for name, values in parts:
        rows[name] = values
    return rows


def head_of(format: str, dtype: np.dtype[Any], total: int) -> bytes:
    """The header of a file of so many rows."""
    if format == "npy":
        made = memory.BytesIO()
        about = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
        np.lib.format.write_array_header_1_0(made, {**about, "shape": (total,)})
        return made.getvalue()
    lines = ["ply", "format binary_little_endian 1.0", "comment written by mlx_lattice"]
    lines += [f"element vertex {total}"]
    lines += [f"property {NAMES[dtype[n].str[1:]]} {n}" for n in dtype.names or ()]
    return ("\n".join([*lines, "end_header"]) + "\n").encode("ascii")
