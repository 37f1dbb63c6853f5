"""XYZ, TXT and CSV: one point per line, values separated by spaces, tabs, commas or semicolons.

A first line of words names the columns, also behind `#` or `//`. Without one, `columns` does;
without both, the first three
values are x, y, z and the rest is the column `features`. A first line of one whole number is the
count of points.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._atomic import atomic_file
from ._check import HEADER_LIMIT, file_size, naming
from .cloud import PointCloud, gather

SEPARATORS = (",", ";", "\t")


def read_text(path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> PointCloud:
    """PointCloud of a text file. columns: names in the order of the file, such as ("x", "y", "z",
    "red", "green", "blue").
    """
    with naming(path, "text"), open(path, "rb") as file:
        names, separator, count, start = _head(file)
        if file_size(file) == start:
            if names is None and columns is None:
                raise ValueError("no points and no line that names the columns")
            table = np.empty((0, len(columns or names)))
        else:
            file.seek(start)
            table = _table(file, separator)
        if count is not None and len(table) != count:
            raise ValueError(f"the first line counts {count} points, found {len(table)} lines")
        names = list(columns) if columns is not None else names
        if names is None:
            if table.shape[1] < 3:
                raise ValueError(f"{table.shape[1]} values per line, expected x, y, z and more")
            rest = {"features": table[:, 3:]} if table.shape[1] > 3 else {}
            return PointCloud(table[:, :3], rest)
        if len(names) != table.shape[1]:
            raise ValueError(f"{table.shape[1]} values per line, expected {len(names)}: {names}")
        if len(set(names)) != len(names):
            raise ValueError(f"a column twice: {names}")
        fields = {n: _narrow(n, table[:, i]) for i, n in enumerate(names)}
        return gather(fields, "columns")


def is_points(path: str | os.PathLike[str]) -> bool:
    """True when a text file begins as points do; False for notes that happen to end in .txt."""
    try:
        with open(path, "rb") as file:
            _head(file)
    except ValueError:
        return False
    return True


def _head(file: Any) -> tuple[Any, ...]:
    """(names or None, separator or None for white space, count or None, byte where the points
    begin)
    """
    names, count, separator, start = None, None, None, 0
    while True:
        start = file.tell()
        raw = file.readline(HEADER_LIMIT + 1)
        if len(raw) > HEADER_LIMIT:
            raise ValueError(f"a line longer than {HEADER_LIMIT} bytes")
        if not raw:
            return names, separator, count, start
        line = raw.decode("utf-8-sig").strip()
        bare = line.lstrip("#/ ")
        separator = next((s for s in SEPARATORS if s in line), None)
        words = [w.strip().strip('"') for w in bare.split(separator)]
        if not bare:
            continue
        numbers = _numbers(words)
        if line.startswith(("#", "//")) or numbers is None:
            if numbers is None and {"x", "y", "z"} <= {w.lower() for w in words}:
                names = words
            elif not line.startswith(("#", "//")):
                raise ValueError(
                    f"first line {line[:60]!r}: expected numbers, "
                    "or names among which are x, y and z"
                )
            continue
        if len(words) == 1 and count is None and words[0].isdigit():
            count = int(words[0])
            continue
        return names, separator, count, start


def _numbers(words: Any) -> Any:
    try:
        return [float(w) for w in words]
    except ValueError:
        return None


def _table(file: Any, separator: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of empty input
        return np.loadtxt(
            file, np.float64, comments="#", delimiter=separator, ndmin=2, encoding="utf-8"
        )


def _narrow(name: str, values: Any) -> Any:
    """Columns of whole numbers become integers, except coordinates; the other columns become
    float32.
    """
    if name.lower() in "xyz":
        return values
    if values.size and np.isfinite(values).all() and (values == np.rint(values)).all():
        low, high = values.min(), values.max()
        for dtype in (np.uint8, np.int32, np.int64):
            if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
                return values.astype(dtype)
    return values.astype(np.float32)


def write_text(path: str | os.PathLike[str], cloud: PointCloud, *, separator: str = " ") -> None:
    """x, y, z and the columns under a line of their names; the shortest decimals that read back
    equal.
    """
    from ._ascii_rows import write_rows
    from .cloud import scatter

    numbers = [np.dtype(k) for k in ("u1", "i4", "i8", "f4", "f8")]
    rows = scatter(cloud, set(numbers), "text")
    with atomic_file(path) as file:
        file.write((separator.join(rows.dtype.names) + "\n").encode())
        write_rows(file, rows, separator)


def write_csv(path: str | os.PathLike[str], cloud: PointCloud) -> None:
    """As write_text, separated by commas."""
    write_text(path, cloud, separator=",")
