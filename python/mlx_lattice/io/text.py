"""XYZ, TXT and CSV: one point per line, values separated by spaces, tabs, commas or semicolons.

If the first line consists of words, also after `#` or `//`, it names the columns. Otherwise
`columns` names them. Without both, the first three values are x, y, z and the rest is the column
`features`. A first line with one whole number is the count of points.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from ..core._checks import told
from ._check import HEADER_LIMIT, file_size, naming
from ._native import write_native
from .cloud import PointCloud, gather

if TYPE_CHECKING:
    from ..core.types import FilePath

SEPARATORS = (",", ";", "\t")


def read_text(path: FilePath, columns: Sequence[str] | None = None) -> PointCloud:
    """PointCloud of a text file: one point per line.

    A first line of words names the columns, and `columns` replaces it. Without both, the first
    three values are x, y, z and the rest is the column `features`.

    Args:
        columns: Names in the order of the file, such as ("x", "y", "z", "red", "green", "blue").

    Raises:
        ValueError: A line cannot be read, or has another number of values than there are names.

    Examples:
        >>> import os, tempfile
        >>> from mlx_lattice import io
        >>> path = os.path.join(tempfile.mkdtemp(), "scan.txt")
        >>> size = open(path, "w").write("0 0 0 7\\n1 0 0 8\\n")
        >>> io.read_text(path, columns=("x", "y", "z", "label")).columns["label"].tolist()
        [7, 8]
    """
    if columns is not None and not (
        isinstance(columns, (list, tuple)) and all(isinstance(name, str) for name in columns)
    ):
        raise TypeError(f"[read_text] columns must be a list of names, found {told(columns)}")
    with naming(path, "text"), open(path, "rb") as file:
        names, separator, count, start = _head(file)
        if file_size(file) == start:
            given = columns if columns is not None else names
            if given is None:
                raise ValueError("no points and no line that names the columns")
            table = np.empty((0, len(given)))
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


def is_points(path: FilePath) -> bool:
    """True when a text file begins as points do; False for notes that happen to end in .txt."""
    try:
        with open(path, "rb") as file:
            _head(file)
    except ValueError:
        return False
    return True


def _head(file: BinaryIO) -> tuple[list[str] | None, str | None, int | None, int]:
    """(names, separator, count, the byte where the points begin).

    Names and count are None where the file does not tell; a separator of None is white space.
    """
    names: list[str] | None = None
    count: int | None = None
    separator: str | None = None
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


def _numbers(words: list[str]) -> list[float] | None:
    try:
        return [float(w) for w in words]
    except ValueError:
        return None


def _table(file: BinaryIO, separator: str | None) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of empty input
        return np.loadtxt(
            file, np.float64, comments="#", delimiter=separator, ndmin=2, encoding="utf-8"
        )


def _narrow(name: str, values: np.ndarray) -> np.ndarray:
    """Whole numbers as integers, except coordinates; other columns as float32."""
    if name.lower() in "xyz":
        return values
    if values.size and np.isfinite(values).all() and (values == np.rint(values)).all():
        low, high = values.min(), values.max()
        for dtype in (np.uint8, np.int32, np.int64):
            if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
                return values.astype(dtype)
    return values.astype(np.float32)


def write_text(path: FilePath, cloud: PointCloud, *, separator: str = " ") -> None:
    """Writes x, y, z and the columns under a line of their names.

    Numbers are the shortest decimals that read back equal. `separator` stands between two values.
    """
    if not isinstance(separator, str):
        raise TypeError(f"[write_text] separator must be a text, found {told(separator)}")
    write_native("write_text", path, cloud, "text", separator)


def write_csv(path: FilePath, cloud: PointCloud) -> None:
    """Writes what `write_text` writes, separated by commas."""
    write_text(path, cloud, separator=",")
