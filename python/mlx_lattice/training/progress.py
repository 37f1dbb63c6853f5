"""A line of progress on a terminal: what runs, how far it is, how fast, and the time left.

Nothing is printed if the stream is not a terminal. A thread renews the line, so that it also moves
while one long call runs. `step` names such a call, which may report its progress.

    with Progress("read", total=3, unit="steps") as p:
        p.advance(1, "loss 0.31")
    for batch in progress(batches, "train"):
        ...
One line does not justify a dependency, so this uses no package.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import TextIO, TypeVar

from ..core import _checks

__all__ = ["Progress", "progress"]

Item = TypeVar("Item")
MOST = 2**63  # items
INTERVAL = 0.1  # seconds between two prints
TICK = 0.5  # seconds after which the line is renewed in any case


class Progress:
    """A line that shows what runs, how far it is and how much time is left.

    Nothing is printed if the stream is not a terminal. Use it in a `with` block.

    Args:
        label: The text at the beginning of the line.
        total: The number of items; None if it is not known.
        unit: What is counted.
        stream: Where the line is written; by default standard error.

    Raises:
        TypeError: `total` is no whole number.

    Examples:
        >>> from mlx_lattice.training.progress import Progress
        >>> with Progress("read", total=4, unit="files") as bar:
        ...     bar.advance(1, "a.ply")
        ...     print(bar.line())
        read  [#####...............]  25%  1/4 files  0:00  a.ply
    """

    def __init__(
        self, label: str, total: int | None = None, unit: str = "", stream: TextIO | None = None
    ) -> None:
        _checks.instance(self, "label", label, str, "a text")
        _checks.instance(self, "unit", unit, str, "a text")
        self.label, self.unit = label, unit
        self.total = None if total is None else _checks.integer(self, "total", total, 0, MOST)
        self.done, self.note = 0, ""
        self._stream = sys.stderr if stream is None else stream
        self._shown = bool(getattr(self._stream, "isatty", lambda: False)())
        self._begin = time.monotonic()
        self._next = self._begin
        self._share: float | None = None  # share of the current item that is done
        self._lock, self._ended = threading.Lock(), threading.Event()

    def __enter__(self) -> Progress:
        self._print()
        if self._shown:
            threading.Thread(target=self._renew, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            with self._lock:
                self._ended.set()
                self._stream.write("\r\x1b[K")
                self._stream.flush()

    @contextmanager
    def step(self, note: str) -> Iterator[Callable[[float], None]]:
        """One item that takes long. Gives a function to tell how far it is, 0..1."""
        self.advance(0, note)

        def tell(share: float) -> None:
            self._share = share

        try:
            yield tell
        finally:
            self._share = None
        self.advance(1)

    def advance(self, n: int = 1, note: str | None = None) -> None:
        """Counts n more items; a note replaces the last one."""
        self.done += _checks.integer(self, "n", n, 0, MOST)
        if note is not None:
            _checks.instance(self, "note", note, str, "a text")
            self.note = note
        if self._shown and (note is not None or time.monotonic() >= self._next):
            self._print()

    def line(self) -> str:
        """The text, without the terminal's control codes."""
        spent = time.monotonic() - self._begin
        parts = [self.label]
        done = self.done + (self._share or 0.0)
        if self.total:
            share = min(done / self.total, 1)
            filled = round(20 * share)
            parts.append(f"[{'#' * filled}{'.' * (20 - filled)}] {100 * share:3.0f}%")
        parts.append(
            f"{self.done:,}"
            + (f"/{self.total:,}" if self.total else "")
            + (f" {self.unit}" if self.unit else "")
        )
        parts.append(_clock(spent))
        if self.unit != "steps" and self.done and spent > 1 and self._share is None:
            parts.append(f"{_rate(self.done / spent)} {self.unit}/s".replace(" /s", "/s"))
        if self.total and 0 < self.done < self.total and spent > 1 and self._share is None:
            parts.append(f"{_clock(spent / done * (self.total - done))} left")
        return "  ".join(parts + ([self.note] if self.note else []))

    def _print(self) -> None:
        if not self._shown:
            return
        with self._lock:
            if self._ended.is_set():
                return
            self._next = time.monotonic() + INTERVAL
            self._stream.write("\r\x1b[K" + self.line()[: shutil.get_terminal_size().columns - 1])
            self._stream.flush()

    def _renew(self) -> None:
        while not self._ended.wait(TICK):
            self._print()


def progress(
    items: Iterable[Item],
    label: str,
    total: int | None = None,
    unit: str = "",
    stream: TextIO | None = None,
) -> Iterator[Item]:
    """Iterates over items and shows a line of progress.

    Args:
        items: The iterable.
        label: The text at the beginning of the line.
        total: The number of items; by default the length of the iterable, if it has one.
        unit: What is counted.
        stream: Where the line is written; by default standard error.

    Returns:
        An iterator of the items.

    Raises:
        TypeError: `items` cannot be iterated.
    """
    if not isinstance(items, Iterable):
        _checks.wrong_type("progress", "items", items, "an iterable")
    if total is None and isinstance(items, Sized):
        total = len(items)
    with Progress(label, total, unit, stream) as bar:
        for item in items:
            yield item
            bar.advance()


def _rate(rate: float) -> str:
    for letter in ("", "k", "M"):
        if rate < 1000 or letter == "M":
            break
        rate /= 1000
    return f"{rate:.3g}{letter}"


def _clock(seconds: float) -> str:
    seconds = int(seconds)
    hours, minutes = seconds // 3600, seconds // 60 % 60
    return f"{hours}:{minutes:02}:{seconds % 60:02}" if hours else f"{minutes}:{seconds % 60:02}"
