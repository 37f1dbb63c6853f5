"""Writes files that appear whole or not at all: written elsewhere, flushed, then renamed.

A write that fails, or a process that is killed, leaves the previous file in place. Every writer of
the package uses one of these functions. A path that is no regular file, such as a pipe or
/dev/stdout, is written to directly.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path beside `path` with the same ending.

    It becomes `path` when the block ends without an error.

    A symbolic link stays a link: the file that it names is replaced. The permissions of a replaced
    file are kept.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        yield Path(path)
        return
    # Two writers of one file must not share the temporary name.
    temporary = target.with_name(f".writing-{os.getpid()}-{secrets.token_hex(4)}{target.suffix}")
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        if target.exists():
            os.chmod(temporary, target.stat().st_mode & 0o7777)
        os.replace(temporary, target)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.errno and error.filename in (str(temporary), None):
            # The name that the user knows; a second name, even None, would be printed too.
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise
    _flush_folder(target.parent)


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """An open binary file that becomes `path` when the block ends without an error."""
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        yield file
        file.flush()


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes a whole file at once."""
    with atomic_file(path) as file:
        file.write(data)


def _flush_folder(folder: Path) -> None:
    """The new name reaches the disk too.

    Some file systems cannot do that; the file itself is safe.
    """
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
