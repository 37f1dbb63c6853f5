"""explain(): which route a call takes, and why. selftest(): every route against the oracle."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import mlx.core as mx

from . import _ext
from ._ext import Decision, DecisionLog, Route, SelftestRow
from .ops.conv import linear_features


class Explanation:
    """The decisions of one call, in order. Prints as text; `routes` lists (operation, route)."""

    def __init__(self, decisions: list[Decision], note: str = "") -> None:
        self.decisions, self.note = decisions, note

    @property
    def routes(self) -> list[tuple[str, str]]:
        """(operation, route) of each decision."""
        return [(d.operation, d.route) for d in self.decisions]

    def __str__(self) -> str:
        if not self.decisions:
            return "no operation of the route table was called"
        return "\n".join(f"{d.text}\n{_sentence(d)}" for d in self.decisions) + self.note

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from .viewer.notebook import explanation

        return explanation(self)


def routes() -> list[Route]:
    """All rows of the route table, in the order in which they are tried.

    A `Route` has operation, device, name and predicate: when it fits, in words; and
    row_independent: whether a row of the result has the same bits whatever other rows the tensor
    has. A tiled run takes only such routes.

    >>> import mlx_lattice as ml
    >>> sorted({r.device for r in ml.routes()})
    ['cpu', 'gpu']
    """
    return _ext.routes()


def explain(fn: Callable[..., object], *args: object, **kwargs: object) -> Explanation:
    """Builds the graph of `fn(*args, **kwargs)` and reports what was decided for each operation.

    The graph is not evaluated. The result prints the chosen route, each rejected one with the
    reason, rows, edges, FLOP and bytes.

    >>> import mlx.core as mx
    >>> import mlx_lattice as ml
    >>> told = ml.explain(ml.ops.subm_conv3d, ml.samples.tensor(), mx.ones((8, 3, 3, 3, 4)))
    >>> told.routes[-1][0]
    'conv'
    """
    with DecisionLog() as log:
        fn(*args, **kwargs)
        return Explanation(log.decisions, _padding_note(fn, kwargs))


def _padding_note(fn: Callable[..., object], kwargs: dict[str, Any]) -> str:
    """A sentence if padding shifts an odd kernel, because PyTorch counts padding differently."""
    spec = getattr(fn, "spec", None)
    size = kwargs.get("kernel_size", spec.size if spec else 3)
    padding = kwargs.get("padding", spec.padding if spec else 0)
    sizes, paddings = ([v] * 3 if isinstance(v, int) else list(v) for v in (size, padding))
    if not any(p and k % 2 for k, p in zip(sizes, paddings)):
        return ""
    return (
        f"\n  Padding {tuple(paddings)} shifts a kernel of size {tuple(sizes)}: an odd size is "
        "centered already. PyTorch's padding p is p - (K - 1) / 2 here."
    )


@cache
def _rate() -> float:
    """FLOP per second of this library's dense float32 product here, measured once."""
    rows, channels = 4096, 128
    a, w = mx.ones((rows, channels)), mx.ones((channels, channels))
    times = []
    for _ in range(4):  # the first one also asks for memory
        begin = time.perf_counter()
        mx.eval(linear_features(a, w))
        times.append(time.perf_counter() - begin)
    return 2 * rows * channels**2 / max(min(times), 1e-9)


def _sentence(d: Decision) -> str:
    """The decisions in words, with the time that a dense product of the same work would take."""
    text = f"  In words: {d.operation} runs on the {d.device} by the route {d.route}"
    if d.forced:
        text += ", which LATTICE_ROUTE asks for"
    text += f". It reads {d.n_in:,} rows"
    if d.n_out is not None:
        text += f" and writes {d.n_out:,}"
    if d.edges:
        text += f" over {d.edges:,} edges"
    if d.flop:
        ms = d.flop / _rate() * 1e3
        about = f"{ms:,.0f}" if ms >= 100 else f"{ms:.2g}"
        text += f". Predicted time: about {about} ms, at the rate of a dense product here"
    return text + "."


class SelftestReport:
    """One row per route and case. `ok` is True when all are right."""

    def __init__(self, rows: list[SelftestRow]) -> None:
        self.rows = rows

    @property
    def ok(self) -> bool:
        """Whether there are rows, and none of them is wrong.

        Rows that the device does not support are not wrong; `str` counts them.
        """
        return bool(self.rows) and all(r.ok or r.unsupported for r in self.rows)

    @property
    def routes(self) -> dict[tuple[str, str, str], list[SelftestRow]]:
        """(operation, device, route) -> its rows."""
        found: dict[tuple[str, str, str], list[SelftestRow]] = {}
        for row in self.rows:
            found.setdefault((row.operation, row.device, row.route), []).append(row)
        return found

    def __str__(self) -> str:
        missing = [key for key, of in self.routes.items() if any(r.unsupported for r in of)]
        wrong = [
            key for key, rows in self.routes.items() if not all(r.ok or r.unsupported for r in rows)
        ]
        verdict = (
            f"passed: {len(self.routes)} routes, {len(self.rows)} cases, all within tolerance"
            if self.ok
            else f"FAILED: {len(wrong)} of {len(self.routes)} routes are wrong: "
            + ", ".join(route for _, _, route in wrong)
        )
        if missing:
            verdict += f"; {len(missing)} routes are unsupported by this device"
        one, two = (max(len(key[i]) for key in self.routes) if self.routes else 10 for i in (0, 2))
        head = f"{'operation':{one}}  {'route':{two}}  cases  worst error / tolerance  result"
        lines = [verdict, "", head]
        for (operation, _, route), rows in self.routes.items():
            bad = [r for r in rows if not r.ok and not r.unsupported]
            refused = any(r.unsupported for r in rows)
            worst = max(r.error for r in rows)
            lines.append(
                f"{operation:{one}}  {route:{two}}  {len(rows):5}  {worst:23.3f}  "
                + ("FAIL" if bad else "unsupported by this device" if refused else "ok")
            )
            lines += [f"    {r.label}: {r.failure or f'error {r.error:.3g}'}" for r in bad]
        return "\n".join(lines)

    __repr__ = __str__


def selftest(
    device: str | None = None,
    quick: bool = False,
    on_progress: Callable[[float], object] | None = None,
) -> SelftestReport:
    """Runs every route of every available device against one float64 oracle.

    device: "cpu" or "gpu" for the routes of one device only.
    quick: only one case of every 20 per route, and at least one.
    on_progress: called with the share that is done, 0..1.
    """
    return SelftestReport(_ext.selftest_rows(device or "", "", 20 if quick else 1, on_progress))
