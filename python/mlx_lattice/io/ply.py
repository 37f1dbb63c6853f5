"""PLY: ASCII and both binary orders; the element `vertex` becomes points, others are skipped.

This module reads with structured dtypes. The package `plyfile` allocates what a header promises,
and is slower on text (docs/io.md has figures).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeAlias

import numpy as np

from ..core._checks import one_of
from ..core._checks import path as check_path
from ._ascii_rows import read_rows, write_rows
from ._check import file_size, fits, header_lines, naming, whole, write_array
from .atomic_files import atomic_file
from .cloud import PointCloud, check_cloud, gather, scatter

if TYPE_CHECKING:
    from ..core.types import FilePath

# (element, count, [(property, dtype code, or None for a list)])
Element: TypeAlias = "tuple[str, int, list[tuple[str, str | None]]]"

TYPES = {
    "char": "i1",
    "uchar": "u1",
    "short": "i2",
    "ushort": "u2",
    "int": "i4",
    "uint": "u4",
    "float": "f4",
    "double": "f8",
    "int8": "i1",
    "uint8": "u1",
    "int16": "i2",
    "uint16": "u2",
    "int32": "i4",
    "uint32": "u4",
    "float32": "f4",
    "float64": "f8",
}
NAMES = {code: name for name, code in reversed(TYPES.items()) if name[-1].isalpha()}
ORDERS: dict[str, Literal["=", "<", ">"]] = {
    "ascii": "=",
    "binary_little_endian": "<",
    "binary_big_endian": ">",
}


def read_ply(path: FilePath) -> PointCloud:
    """PointCloud of the vertices of a PLY file, ASCII or binary; other elements are passed over.

    Raises:
        ValueError: The file is not what it says; the message begins with its path.
    """
    with naming(path, "PLY"), open(path, "rb") as file:
        form, elements = _header(header_lines(file, "end_header", "PLY"))
        order = ORDERS[form]
        for name, count, properties in elements:
            left = file_size(file) - file.tell()
            lists = [p for p, code in properties if code is None]
            if lists and (name == "vertex" or count):
                raise ValueError(
                    f"list property {lists[0]!r} in element {name!r}, "
                    "expected single values up to the vertices"
                )
            dtype = np.dtype([(p, order + code) for p, code in properties if code is not None])
            if name != "vertex":
                _skip(file, dtype, count, left, form)
                continue
            if not dtype.names:
                raise ValueError("element vertex without properties")
            if form == "ascii":
                rows = read_rows(file, dtype, count, left)
            else:
                fits(count, dtype.itemsize, left, "vertices")
                rows = np.fromfile(file, dtype, count)
            native = rows.dtype.newbyteorder("=")
            return gather(
                {p: rows[p].astype(native[p], copy=False) for p in dtype.names}, "vertices"
            )
        raise ValueError(
            "the header has no `element vertex`, which holds the points; found the elements "
            + (", ".join(e[0] for e in elements) or "none")
        )


def _header(lines: list[str]) -> tuple[str, list[Element]]:
    """The format and the elements that a header names."""
    if lines[0] != "ply":
        raise ValueError(f"first line: found {lines[0][:40]!r}, expected 'ply'")
    form: str | None = None
    elements: list[Element] = []
    for line in lines[1:-1]:
        words = line.split()
        match words:
            case [] | ["comment" | "obj_info", *_]:
                pass
            case ["format", name, "1.0"] if name in ORDERS and form is None:
                form = name
            case ["element", name, count]:
                if any(name == e[0] for e in elements):
                    raise ValueError(f"element {name!r} twice")
                elements.append((name, whole(count, f"count of element {name!r}"), []))
            case ["property", kind, name] if elements and kind in TYPES:
                if any(name == p for p, _ in elements[-1][2]):
                    raise ValueError(f"property {name!r} twice in element {elements[-1][0]!r}")
                elements[-1][2].append((name, TYPES[kind]))
            case ["property", "list", size, kind, name] if (
                elements and size in TYPES and kind in TYPES
            ):
                elements[-1][2].append((name, None))
            case _:
                raise ValueError(f"header line {line[:60]!r}")
    if form is None:
        raise ValueError(f"no format line, expected one of {', '.join(ORDERS)}")
    return form, elements


def _skip(file: BinaryIO, dtype: np.dtype[Any], count: int, left: int, form: str) -> None:
    """Passes over an element without lists that stands before the vertices."""
    if form == "ascii":
        if count > left:
            raise ValueError(f"{count} lines cannot stand in {left} bytes")
        for _ in range(count):
            file.readline()
    else:
        fits(count, dtype.itemsize, left, "rows")
        file.seek(count * dtype.itemsize, 1)


def write_ply(path: FilePath, cloud: PointCloud, *, format: str = "binary_little_endian") -> None:
    """Writes the points and columns as the element `vertex` of a PLY file.

    Colors become 8 bits, and a column (N, k) becomes k properties.

    Args:
        format: "binary_little_endian", "binary_big_endian" or "ascii".

    Raises:
        ValueError: A column cannot be stored, for example because its name has a space.

    Examples:
        >>> import os, tempfile
        >>> from mlx_lattice import io, samples
        >>> path = os.path.join(tempfile.mkdtemp(), "yard.ply")
        >>> io.write_ply(path, samples.scan(), format="ascii")
        >>> io.read_ply(path)
        PointCloud(6,000 points float32; label uint8, intensity float32)
    """
    check_cloud("write_ply", cloud)
    check_path("write_ply", path)
    one_of("write_ply", "format", format, tuple(ORDERS))
    rows = scatter(cloud, {np.dtype(code) for code in NAMES}, "PLY")
    lines = [
        "ply",
        f"format {format} 1.0",
        "comment written by mlx_lattice",
        f"element vertex {len(rows)}",
    ]
    names = rows.dtype.names or ()
    lines += [f"property {NAMES[rows.dtype[p].str[1:]]} {p}" for p in names]
    with atomic_file(path) as file:
        file.write(("\n".join([*lines, "end_header"]) + "\n").encode("ascii"))
        if format == "ascii":
            write_rows(file, rows)
        else:
            write_array(file, rows.astype(rows.dtype.newbyteorder(ORDERS[format])))
