"""Completes docstrings.

Args from words.py, Returns from the annotation, Raises, Example from examples.txt.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from .data_words import OWN
from .words import ARGUMENTS, RAISES, RETURNS

# Lines that an example needs before it, by a name that the example uses.
IMPORTS = {
    "mx": "import mlx.core as mx",
    "np": "import numpy as np",
    "os": "import os",
    "tempfile": "import tempfile",
    "ml": "import mlx_lattice as ml",
}
PACKAGES = (
    "cli",
    "core",
    "datasets",
    "io",
    "models",
    "nn",
    "ops",
    "points",
    "samples",
    "training",
    "transforms",
    "viewer",
)
SETUP = {
    "x": "x = samples.tensor()",
    "yard": "yard = samples.scan(0)",
    "colored": (
        'colored = io.PointCloud(yard.points, {"color": np.full((len(yard), 3), 99, np.uint8)})'
    ),
    "rng": "rng = transforms.rng_of(seed=0, epoch=0, index=0)",
    "cloud": (
        "cloud = points.PointSet(mx.arange(24).reshape(8, 3) / 10, mx.array([4, 4]), grid=0.2)"
    ),
}
SKIPPED = ("args", "kwargs", "self", "options")


@cache
def examples() -> dict[str, str]:
    """Name -> the lines of its example."""
    text = Path(__file__).with_name("examples.txt").read_text(encoding="utf-8")
    found = {}
    for block in text.split("\n\n"):
        name, _, lines = block.strip().partition("\n")
        if lines:
            found[name] = lines
    return found


def example(name: str) -> str | None:
    """The example of a name with the imports that it needs, or None."""
    lines = examples().get(name)
    return None if lines is None else "\n".join([*_before(lines), lines])


def _before(lines: str) -> list[str]:
    head: list[str] = []
    for word, setup in reversed(SETUP.items()):  # a later setup may use an earlier one
        needed = re.search(rf"\b{word}\b", "\n".join([*head, lines]))
        if needed and not re.search(rf"^>>> {word} =", lines, re.MULTILINE):
            head.insert(0, f">>> {setup}")
    whole = "\n".join([*head, lines])
    imports = [
        f">>> {line}"
        for word, line in IMPORTS.items()
        if re.search(rf"\b{word}\.", whole) and line not in whole
    ]
    used = [name for name in PACKAGES if re.search(rf"(?<![\w.]){name}\.", whole)]
    if used:
        imports.append(f">>> from mlx_lattice import {', '.join(used)}")
    return imports + head


def complete(name: str, value: Any) -> str:
    """The docstring of a public name with all sections."""
    text = inspect.cleandoc(value.__doc__ or "").strip()
    if text.startswith("Base class for building neural networks"):  # inherited from mlx.nn
        text = ""
    if not text:
        text = f"{name.rpartition('.')[2]}."
    parts = [text]
    try:
        known: inspect.Signature | None = inspect.signature(value)
    except (TypeError, ValueError):
        known = None
    if known and "Args:" not in text:
        lines = [f"    {p}: {word}" for p, word in _arguments(name, known)]
        if lines:
            parts.append("Args:\n" + "\n".join(lines))
    returned = known.return_annotation if known and not inspect.isclass(value) else None
    if isinstance(returned, type):  # of a module whose annotations are values
        returned = "mx.array" if returned.__name__ == "array" else returned.__name__
    if "Returns:" not in text and isinstance(returned, str) and returned not in ("None", "Any"):
        parts.append(f"Returns:\n    {RETURNS.get(returned, f'{returned}.')}")
    if "Raises:" not in text and not inspect.isclass(value) and known and known.parameters:
        parts.append(f"Raises:\n    {RAISES}")
    shown = example(name)
    if ">>>" not in text and shown:
        parts.append("Example:\n" + "\n".join(f"    {line}" for line in shown.splitlines()))
    return "\n\n".join(parts)


def _arguments(name: str, known: inspect.Signature) -> Iterator[tuple[str, str]]:
    """(argument, what it is): as the name says it, else as its package does, else as all do."""
    package = name.rpartition(".")[0]
    for p in known.parameters:
        if p not in SKIPPED and not p.startswith("_"):
            words = (OWN.get(f"{name}.{p}"), OWN.get(f"{package}.{p}"), ARGUMENTS.get(p, ""))
            yield p, next(word for word in words if word is not None)


def public(package: ModuleType, prefix: str) -> Iterator[tuple[str, Any]]:
    """(name, value) of the public functions and classes of a package."""
    for name in package.__all__:
        value = getattr(package, name)
        if inspect.isclass(value) or callable(value):
            yield f"{prefix}.{name}", value


def install(package: ModuleType, prefix: str) -> None:
    """Completes the docstrings of a package.

    A name that several packages show is completed once. Modules that the package shows are
    completed too.
    """
    for name, value in public(package, prefix):
        if "<locals>" in getattr(value, "__qualname__", ""):  # made by a function: give it its name
            value.__qualname__ = value.__name__ = name.rpartition(".")[2]
        if name in examples() or "Args:" not in (value.__doc__ or ""):
            try:
                if not getattr(value, "__lattice_help__", None):
                    value.__doc__ = complete(name, value)
                    if not inspect.isclass(value):
                        value.__lattice_help__ = name
            except (AttributeError, TypeError):  # a class that does not take a docstring
                continue
    for name in package.__all__ if prefix != "ml" else ():
        if inspect.ismodule(inner := getattr(package, name)):
            install(inner, f"{prefix}.{name}")


def lacking(package: ModuleType, prefix: str) -> dict[str, list[str]]:
    """Public names whose help lacks something, and what."""
    found: dict[str, list[str]] = {}
    for name, value in public(package, prefix):
        text = value.__doc__ or ""
        missing = []
        if ">>>" not in text:
            missing.append("example")
        if len(text.split("\n")[0]) < 6:
            missing.append("sentence")
        try:
            known: inspect.Signature | None = inspect.signature(value)
        except (TypeError, ValueError):
            known = None
            if not inspect.isclass(value):
                missing.append("signature")
        if known:
            silent = [
                p for p in known.parameters if p not in SKIPPED and not re.search(rf"\b{p}\b", text)
            ]
            missing += [f"argument {p}" for p in silent if not p.startswith("_")]
            missing += [
                f"argument {p}"
                for p, _ in _arguments(name, known)
                if re.search(rf"^ *{p}: ?$", text, re.M)
            ]
            if not inspect.isclass(value):
                if known.return_annotation not in ("None", None) and "Returns:" not in text:
                    missing.append("returns")
                if known.parameters and "Raises:" not in text:
                    missing.append("raises")
        if missing:
            found[name] = missing
    return found
