"""One line of progress on a terminal: what, how far, how fast, how long still.

Nothing is printed if the stream is not a terminal.

    with Progress("read", total=3, unit="steps") as p:
        p.advance(1, "loss 0.31")
    for batch in progress(batches, "train"):
        ...
No package: one line does not need a dependency.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import TextIO, TypeVar

__all__ = ["Progress", "progress"]

Item = TypeVar("Item")
INTERVAL = 0.1  # seconds between two prints


class Progress:
    """A line that shows what runs, how far it is and how long it still takes.

    Nothing is printed if the stream is not a terminal.
    """

    def __init__(
        self, label: str, total: int | None = None, unit: str = "", stream: TextIO | None = None
    ) -> None:
        self.label, self.total, self.unit = label, total, unit
        self.done, self.note = 0, ""
        self._stream = sys.stderr if stream is None else stream
        self._shown = bool(getattr(self._stream, "isatty", lambda: False)())
        self._begin = time.monotonic()
        self._next = self._begin

    def __enter__(self) -> Progress:
        self._print()
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def advance(self, n: int = 1, note: str | None = None) -> None:
        self.done += n
        if note is not None:
            self.note = note
        if self._shown and (note is not None or time.monotonic() >= self._next):
            self._print()

    def line(self) -> str:
        """The text, without the terminal's control codes."""
        spent = time.monotonic() - self._begin
        parts = [self.label]
        if self.total:
            share = min(self.done / self.total, 1)
            filled = round(20 * share)
            parts.append(f"[{'#' * filled}{'.' * (20 - filled)}] {100 * share:3.0f}%")
        parts.append(
            f"{self.done:,}"
            + (f"/{self.total:,}" if self.total else "")
            + (f" {self.unit}" if self.unit else "")
        )
        parts.append(_clock(spent))
        if self.total and 0 < self.done < self.total and spent > 1:
            parts.append(f"{_clock(spent / self.done * (self.total - self.done))} left")
        return "  ".join(parts + ([self.note] if self.note else []))

    def _print(self) -> None:
        if self._shown:
            self._next = time.monotonic() + INTERVAL
            self._stream.write("\r\x1b[K" + self.line()[: shutil.get_terminal_size().columns - 1])
            self._stream.flush()


def progress(
    items: Iterable[Item],
    label: str,
    total: int | None = None,
    unit: str = "",
    stream: TextIO | None = None,
) -> Iterator[Item]:
    """The items of an iterable, with a line of progress."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    with Progress(label, total, unit, stream) as bar:
        for item in items:
            yield item
            bar.advance()


def _clock(seconds: float) -> str:
    seconds = int(seconds)
    hours, minutes = seconds // 3600, seconds // 60 % 60
    return f"{hours}:{minutes:02}:{seconds % 60:02}" if hours else f"{minutes}:{seconds % 60:02}"
