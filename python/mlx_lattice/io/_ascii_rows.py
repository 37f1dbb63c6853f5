"""Rows of numbers as text, for the ASCII forms of PLY and PCD."""

from __future__ import annotations

import warnings
from typing import Any, BinaryIO

import numpy as np


def read_rows(file: BinaryIO, dtype: np.dtype[Any], count: int, left: int) -> np.ndarray:
    """The next `count` lines as a structured array.

    A value takes at least two bytes: itself and what separates it from the next value.
    """
    values = sum(int(np.prod(dtype[name].shape, dtype=np.int64)) for name in dtype.names or ())
    if count * 2 * values - 1 > left:
        raise ValueError(
            f"{count} points of {values} values cannot stand in {left} bytes: "
            "truncated, or the count is wrong"
        )
    if count == 0:
        return np.empty(0, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of empty input; the count is compared below
        rows = np.loadtxt(file, dtype, comments=None, max_rows=count, ndmin=1, encoding="latin-1")
    if len(rows) != count:
        raise ValueError(f"found {len(rows)} lines of points, expected {count}")
    return rows


def write_rows(file: BinaryIO, rows: np.ndarray, separator: str = " ") -> None:
    """The shortest decimals that read back as the same numbers."""
    cells = []
    for name in rows.dtype.names or ():
        values = rows[name]
        for column in values.T if values.ndim == 2 else [values]:
            cells.append(map(str, column if column.dtype.kind == "f" else column.tolist()))
    file.write("".join(separator.join(line) + "\n" for line in zip(*cells)).encode())
