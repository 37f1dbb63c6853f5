"""The state of a run on a large cloud, so that the same command continues after a kill.

The folder of a run holds `manifest.json` and the files of its passes. A file is whole or does not
exist: it is written under another name, flushed to the disk and renamed. Appended files of the
first pass are thrown away if the pass did not end.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .. import __version__
from .._ext import backend_info
from ..io.atomic_files import write_bytes

NAME, LOCK = "manifest.json", "lock"
OWN = ("cell_", "tile_", ".writing-")


def file_hash(path: Path, tell: Callable[[int], object] = lambda n: None) -> str:
    """SHA-256 of a file; `tell` is called with the bytes that were read."""
    made = hashlib.sha256()
    with open(path, "rb") as file:
        while data := file.read(16 << 20):
            made.update(data)
            tell(len(data))
    return made.hexdigest()


def settings(
    files: Sequence[Path], hashes: Sequence[str], weights: str, others: dict[str, Any]
) -> dict[str, Any]:
    """Everything that the results depend on, by the words that an error uses."""
    made = {f"the input {p}": h for p, h in zip(files, hashes, strict=True)}
    made |= {
        "the weights": weights,
        "the version of mlx_lattice": __version__,
        "the instruction set": str(backend_info()["simd"]),
    }
    return made | {f"the setting {name}": value for name, value in others.items()}


class Run:
    """The folder of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begin(self, asked: dict[str, Any]) -> None:
        """Makes the folder, or checks that it was made for the same.

        Raises:
            ValueError: The folder was made for something else; the message says what changed.
        """
        asked = json.loads(json.dumps(asked))
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.locked():
            if self.ended():
                others = [path.name for path in self.folder.iterdir() if not _is_own(path.name)]
                if others:
                    raise ValueError(
                        f"{self.folder} holds {min(others)}, which is no file of a run; name an "
                        "empty folder with --work"
                    )
                self.write({"asked": asked})
                return
            before = self.read()["asked"]
        changed = sorted(k for k in before.keys() | asked.keys() if before.get(k) != asked.get(k))
        if changed:
            raise ValueError(
                f"{self.folder} holds the beginning of another run: {', '.join(changed)} changed; "
                f"give what was given before, or begin again: rm -r {self.folder}"
            )

    def read(self) -> dict[str, Any]:
        """The manifest; ValueError if it is none."""
        path = self.folder / NAME
        try:
            return dict(json.loads(path.read_text(encoding="utf-8")))
        except ValueError as error:
            raise ValueError(
                f"{path}: not a manifest: {error}; begin again: rm -r {self.folder}"
            ) from None

    def write(self, manifest: dict[str, Any]) -> None:
        """Replaces the manifest."""
        write_bytes(self.folder / NAME, json.dumps(manifest).encode())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One process at a time; the system frees the lock of a killed process."""
        handle = os.open(self.folder / LOCK, os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def ended(self) -> bool:
        """Whether there is no run in the folder: none has begun, or a process has ended it."""
        return not (self.folder / NAME).exists()

    def clear(self) -> None:
        """Deletes the files of a pass that did not end."""
        for path in self.folder.iterdir():
            if path.name not in (NAME, LOCK) and _is_own(path.name):
                path.unlink()

    def remove(self) -> None:
        """Deletes the files of the run, and the folder if it then is empty."""
        (self.folder / NAME).unlink()  # first: a run that was killed here begins again
        self.clear()
        (self.folder / LOCK).unlink()
        with suppress(OSError):
            self.folder.rmdir()


def _is_own(name: str) -> bool:
    """Whether a file in the folder of a run has a name that the passes give."""
    return name in (NAME, LOCK, "classes", "scores") or name.startswith(OWN)
