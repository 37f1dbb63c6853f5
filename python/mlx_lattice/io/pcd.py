"""PCD of the Point Cloud Library: ASCII, binary and binary_compressed (LZF by column).

Numbers are little-endian.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from ..core._checks import one_of
from ..core._checks import path as check_path
from . import lzf
from ._ascii_rows import read_rows, write_rows
from ._check import ROW_LIMIT, file_size, fits, header_lines, naming, whole, write_array
from .atomic_files import atomic_file
from .cloud import PointCloud, check_cloud, color8, color_range, gather, scatter

if TYPE_CHECKING:
    from ..core.types import FilePath

TYPES = {
    ("I", 1): "<i1",
    ("I", 2): "<i2",
    ("I", 4): "<i4",
    ("I", 8): "<i8",
    ("U", 1): "<u1",
    ("U", 2): "<u2",
    ("U", 4): "<u4",
    ("U", 8): "<u8",
    ("F", 4): "<f4",
    ("F", 8): "<f8",
}
PADDING = "_ "  # fields named _; a name in a file has no space
FORMS = ("ascii", "binary", "binary_compressed")


def read_pcd(path: FilePath) -> PointCloud:
    """PointCloud of a PCD file. Padding fields named _ are dropped; rgb and rgba become `color`.

    Raises:
        ValueError: The file is not what it says; the message begins with its path.
    """
    with naming(path, "PCD"), open(path, "rb") as file:
        count, dtype, form = _header(header_lines(file, "DATA", "PCD"))
        left = file_size(file) - file.tell()
        if form == "ascii":
            rows = read_rows(file, dtype, count, left)
            fields = {name: rows[name] for name in dtype.names or ()}
        elif form == "binary":
            fits(count, dtype.itemsize, left)
            rows = np.fromfile(file, dtype, count)
            fields = {name: rows[name] for name in dtype.names or ()}
        else:
            fields = _compressed(file, dtype, count, left)
        kept = {name: values for name, values in fields.items() if not name.startswith(PADDING)}
        for packed, width in (("rgb", 3), ("rgba", 4)):
            if packed in kept and kept[packed].dtype.itemsize == 4 and kept[packed].ndim == 1:
                bgra = np.ascontiguousarray(kept.pop(packed)).view(np.uint8).reshape(-1, 4)
                kept.setdefault("color", bgra[:, [2, 1, 0, 3][:width]])
        return gather(kept, "fields")


def _header(lines: list[str]) -> tuple[int, np.dtype[Any], str]:
    """(points, dtype of one point, form)"""
    entries: dict[str, list[str]] = {}
    for line in lines:
        words = line.split()
        if words and not words[0].startswith("#"):
            if words[0] in entries:
                raise ValueError(f"header line {words[0][:20]!r} twice")
            entries[words[0]] = words[1:]
    missing = [k for k in ("FIELDS", "SIZE", "TYPE") if not entries.get(k)]
    if missing or not ("POINTS" in entries or "WIDTH" in entries):
        raise ValueError(f"header without {', '.join(missing) or 'POINTS'}")
    dtype = _row_dtype(entries)

    def one(key: str) -> int:
        return whole((entries[key] or ["nothing"])[0], key)

    area = one("WIDTH") * one("HEIGHT") if "WIDTH" in entries and "HEIGHT" in entries else None
    points = one("POINTS") if "POINTS" in entries else area
    if points is None or (area is not None and area != points):
        raise ValueError(f"POINTS: found {points}, WIDTH times HEIGHT is {area}")
    form = (entries["DATA"] or ["nothing"])[0]
    if form not in FORMS:
        raise ValueError(f"DATA: found {form[:40]!r}, expected one of {', '.join(FORMS)}")
    return points, dtype, form


def _row_dtype(entries: dict[str, list[str]]) -> np.dtype[Any]:
    """The dtype of one point, from the lines FIELDS, SIZE, TYPE and COUNT."""
    names, sizes, kinds = entries["FIELDS"], entries["SIZE"], entries["TYPE"]
    counts = entries.get("COUNT", ["1"] * len(names))
    if not len(names) == len(sizes) == len(kinds) == len(counts):
        raise ValueError(
            f"{len(names)} FIELDS, {len(sizes)} SIZE, {len(kinds)} TYPE, {len(counts)} COUNT; "
            "expected as many of each"
        )
    fields = []
    for i, (name, size, kind, count) in enumerate(zip(names, sizes, kinds, counts)):
        code = TYPES.get((kind, whole(size, f"SIZE of {name!r}")))
        if code is None:
            raise ValueError(
                f"field {name[:40]!r} of TYPE {kind[:20]} and SIZE {size}, "
                "expected I, U or F of 1, 2, 4 or 8 bytes"
            )
        n = whole(count, f"COUNT of {name!r}", 1, ROW_LIMIT)
        fields.append((f"{PADDING}{i}" if name == "_" else name, code, *([(n,)] if n > 1 else [])))
    if len({f[0] for f in fields}) != len(fields):
        raise ValueError("a field twice")
    dtype = np.dtype(fields)
    fits(0, dtype.itemsize, 0)
    return dtype


def _compressed(
    file: BinaryIO, dtype: np.dtype[Any], count: int, left: int
) -> dict[str, np.ndarray]:
    """The columns one behind the other, compressed together."""
    if left < 8:
        raise ValueError("truncated before the compressed sizes")
    packed, size = struct.unpack("<II", file.read(8))
    if size != count * dtype.itemsize:
        raise ValueError(
            f"{size} uncompressed bytes, expected {count} points of {dtype.itemsize} bytes"
        )
    if packed > left - 8:
        raise ValueError(f"{packed} compressed bytes, found {left - 8}: truncated")
    data, at = lzf.decompress(file.read(packed), size), 0
    fields: dict[str, np.ndarray] = {}
    for name in dtype.names or ():
        base, shape = dtype[name].base, dtype[name].shape
        n = count * int(np.prod(shape, dtype=np.int64))
        fields[name] = np.frombuffer(data, base, n, at).reshape(count, *shape)
        at += n * base.itemsize
    return fields


def write_pcd(path: FilePath, cloud: PointCloud, *, format: str = "binary") -> None:
    """Writes a PCD file. `color` becomes the packed field rgb, or rgba with four channels.

    Args:
        format: "ascii", "binary" or "binary_compressed".

    Raises:
        ValueError: A column cannot be stored, for example because its name means something else in
            this format.
    """
    check_cloud("write_pcd", cloud)
    check_path("write_pcd", path)
    one_of("write_pcd", "format", format, FORMS)
    dtypes = {np.dtype(code) for code in TYPES.values()}
    rows = scatter(_with_packed_color(path, cloud), dtypes, "PCD", flat=False)
    fields = rows.dtype.names or ()
    names = ["normal_" + n[1] if n in ("nx", "ny", "nz") else n for n in fields]
    rows = rows.astype([(new, rows.dtype[old]) for new, old in zip(names, fields)])
    with atomic_file(path) as file:
        file.write(("\n".join(_header_of(rows, format)) + "\n").encode("ascii"))
        if format == "ascii":
            write_rows(file, rows)
        elif format == "binary":
            write_array(file, rows.astype(rows.dtype.newbyteorder("<")))
        else:
            data = b"".join(
                rows[n].astype(rows[n].dtype.newbyteorder("<")).tobytes() for n in names
            )
            packed = lzf.compress(data)
            if max(len(packed), len(data)) >= 1 << 32:
                raise ValueError(
                    f"{path}: binary_compressed holds less than 4 GiB, found {len(data)} bytes; "
                    "use binary"
                )
            file.write(struct.pack("<II", len(packed), len(data)) + packed)


def _with_packed_color(path: FilePath, cloud: PointCloud) -> PointCloud:
    """The cloud with its colors as one number per point, 0x00RRGGBB or 0xAARRGGBB."""
    columns = dict(cloud.columns)
    for name in ("_", "rgb", "rgba"):
        if name in columns:
            raise ValueError(
                f"{path}: a column of a PCD file cannot be named {name!r}, which means "
                f"{'padding' if name == '_' else 'packed colors'} there; rename it"
            )
    color = columns.get("color")
    if color is not None and color.ndim == 2 and color.shape[1] in (3, 4):
        wrong = color_range(color)
        if wrong:
            raise ValueError(f"{path}: column 'color': {wrong}")
        rgba = color8(columns.pop("color"))
        packed = np.zeros((len(cloud), 4), np.uint8)
        packed[:, [2, 1, 0, 3][: rgba.shape[1]]] = rgba
        columns["rgb" if rgba.shape[1] == 3 else "rgba"] = packed.view("<u4").reshape(-1)
    return PointCloud(cloud.points, columns)


def _header_of(rows: np.ndarray, form: str) -> list[str]:
    names = rows.dtype.names or ()
    bases = [rows.dtype[n].base for n in names]
    counts = [int(np.prod(rows.dtype[n].shape, dtype=np.int64)) for n in names]
    return [
        "# .PCD v0.7 - Point Cloud Data file format",
        "VERSION 0.7",
        "FIELDS " + " ".join(names),
        "SIZE " + " ".join(str(b.itemsize) for b in bases),
        "TYPE " + " ".join(b.kind.upper() for b in bases),
        "COUNT " + " ".join(map(str, counts)),
        f"WIDTH {len(rows)}",
        "HEIGHT 1",
        "VIEWPOINT 0 0 0 1 0 0 0",
        f"POINTS {len(rows)}",
        f"DATA {form}",
    ]
