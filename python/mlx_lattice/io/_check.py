"""Functions that all readers share: errors that name the file, and checks of sizes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

from ..core._checks import path as check_path

if TYPE_CHECKING:
    from types import ModuleType

    from ..core.types import FilePath

HEADER_LIMIT = 1 << 16  # bytes of a text header; real ones have some hundreds
ROW_LIMIT = 1 << 16  # bytes of one point


class FileError(ValueError):
    """A file that is not what it says; the message begins with its path."""


@contextmanager
def naming(path: FilePath, kind: str) -> Iterator[None]:
    """Turns every error about the contents of a file into a FileError that names the file.

    A missing file stays an OSError.
    """
    check_path("io", path)
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        if error.filename is not None:
            raise  # open() failed; the system's own words: no such file, is a directory
        raise FileError(f"{path}: not a valid {kind} file: {error}") from None
    except MemoryError:
        raise FileError(f"{path}: {kind} file does not fit into memory") from None
    except Exception as error:  # readers of other packages raise many kinds of exceptions
        raise FileError(
            f"{path}: not a valid {kind} file: {str(error) or type(error).__name__}"
        ) from None


def require(package: str, extra: str) -> ModuleType:
    """Imports an optional package, or says how to get it."""
    import importlib

    try:
        return importlib.import_module(package)
    except ImportError:
        raise ImportError(
            f"{package} is missing; install it: pip install 'lattice-mlx[{extra}]' "
            f"(or pip install {package})"
        ) from None


def file_size(file: BinaryIO) -> int:
    """The bytes of an open file."""
    return os.fstat(file.fileno()).st_size


def whole(text: str, what: str, low: int = 0, high: int = (1 << 48) - 1) -> int:
    """An integer of a header, between low and high."""
    try:
        value = int(text)
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise ValueError(f"{what}: found {short(text)}, expected an integer in {low}..{high}")
    return value


def fits(count: int, row_bytes: int, left: int, what: str = "points") -> None:
    """Compares a count of the header with the bytes that exist, before anything is allocated."""
    if row_bytes > ROW_LIMIT:
        raise ValueError(f"a row of {row_bytes} bytes, expected at most {ROW_LIMIT}")
    if count * row_bytes > left:
        raise ValueError(
            f"{count} {what} of {row_bytes} bytes need {count * row_bytes} bytes, found {left}: "
            "truncated, or the count is wrong"
        )


def short(text: str) -> str:
    """A text for messages, cut where it is long."""
    text = repr(text)
    return text if len(text) <= 60 else text[:57] + "..."
