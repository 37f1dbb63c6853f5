"""The report of `info` on a program file."""

from __future__ import annotations

import collections
import json
import re
from collections.abc import Iterator

from ..programs import Program
from .options import size_of


def about_program(path: str, rows: int) -> Iterator[tuple[str, str]]:
    """Inputs, outputs, operations, parameters, memory, dtypes and classes of a program."""
    program = Program.load(path)
    yield "file", f"{path}, {size_of(path)}"
    for name, kind in program.inputs.items():
        yield f"input {name}", kind
    for name, kind in program.outputs.items():
        yield f"output {name}", kind
    found = collections.Counter(re.findall(r" = (\w+@\d+)\(", program.text))
    yield "operations", ", ".join(f"{name} {n}" for name, n in found.most_common())
    dtypes: collections.Counter[str] = collections.Counter()
    for _, dtype, numbers, _ in program.tensors:
        dtypes[dtype] += numbers
    total = ", ".join(f"{n:,} {dtype}" for dtype, n in dtypes.most_common())
    yield "parameters", total or "none"
    weights = sum(entry[3] for entry in program.tensors)
    bound = program.bytes_for(rows)
    yield (
        "memory",
        f"at most {bound / 2**20:,.0f} MiB of values for {rows:,} rows, "
        f"{weights / 2**20:,.1f} MiB of weights",
    )
    classes = program.note("classes")
    if classes:
        yield "classes", ", ".join(f"{value} {name}" for value, name in json.loads(classes))
    yield "example", "stored; `mlx-lattice selftest` runs it" if program.has_example else "none"
