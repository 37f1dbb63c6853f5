#!/usr/bin/env python3
"""Predicted use of the multiply-add pipes by the inner loops of the NEON kernels.

    make test-arm && bench/mca.py          a Markdown table for docs/notebook.md

The script takes the objects of `make test-arm` (build/arm), finds the loop with the most vector
arithmetic in each kernel, and gives that loop to llvm-mca. It asks for the model of a Neoverse V2,
which has four vector pipes like Apple's cores, because the newest Apple core that LLVM has a model
of is an old one.

    use = multiply-adds per iteration / (4 pipes * predicted cycles per iteration)

Spills are vector loads and stores at the stack pointer inside the loop.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OBJECTS = ROOT / "build/arm/lattice/CMakeFiles/lattice_kernels.dir/kernels/cpu"
PIPES = 4
# Title, object, pattern of the demangled function.
KERNELS = [
    ("conv, linear: 6 edges x 16 columns", "features/conv.cpp.o", r"add_list<6, 4, false>"),
    ("conv, linear: 8 edges x 12 columns", "features/conv.cpp.o", r"add_list<8, 3, false>"),
    ("conv, linear: 8 edges x 8 columns", "features/conv.cpp.o", r"add_list<8, 2, false>"),
    ("conv, linear: 8 edges x 4 columns", "features/conv.cpp.o", r"add_list<8, 1, false>"),
    ("outer: 6 channels x 16 columns, panels", "features/outer.cpp.o", r"sum_panel<6, 4, true>"),
    ("outer: 6 channels x 16 columns, in place", "features/outer.cpp.o", r"sum_panel<6, 4, false>"),
    ("pooling: sum", "features/pool.cpp.o", r"."),
    ("kNN: one leaf", "geometry/neighbors.cpp.o", r"compare<float>|Search<float>::visit"),
    ("attention", "features/attention.cpp.o", r"."),
]
ARITHMETIC = re.compile(r"^(fmla|fmls|fmul|fadd|fsub)\b")


def functions(path: Path) -> dict[str, list[tuple[int, str]]]:
    """Instructions (address, text) of every function of an object."""
    text = subprocess.run(
        ["aarch64-linux-gnu-objdump", "-dC", "--no-show-raw-insn", str(path)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found: dict[str, list[tuple[int, str]]] = {}
    name = ""
    for line in text.splitlines():
        if head := re.match(r"^[0-9a-f]+ <(.*)>:$", line):
            name = head[1]
            found[name] = []
        elif body := re.match(r"^\s+([0-9a-f]+):\s+(.*)$", line):
            found[name].append((int(body[1], 16), re.sub(r"\s+", " ", body[2]).strip()))
    return found


def arithmetic(loop: list[str]) -> int:
    return sum(bool(ARITHMETIC.match(t)) for t in loop)


def inner_loop(code: list[tuple[int, str]]) -> list[str]:
    """The innermost loop with the most vector arithmetic."""
    at = {address: i for i, (address, _) in enumerate(code)}
    loops = []
    for i, (_, text) in enumerate(code):
        jump = re.match(r"^(?:b\.\w+|b|cbn?z \w+,|tbn?z \w+, #\w+,) ([0-9a-f]+) <", text)
        if jump and int(jump[1], 16) in at and at[int(jump[1], 16)] <= i:
            loops.append((at[int(jump[1], 16)], i))
    inner = [a for a in loops if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in loops)]

    bodies = [[t for _, t in code[a : b + 1]] for a, b in inner]
    return max(bodies, key=arithmetic, default=[])


def cycles(loop: list[str], mca: str) -> float:
    """Predicted cycles per iteration."""
    lines = [re.sub(r" <.*$| //.*$", "", t) for t in loop if not re.match(r"^(b\.|cb|tb|b )", t)]
    iterations = 200
    done = subprocess.run(
        [mca, "-mtriple=aarch64", "-mcpu=neoverse-v2", f"-iterations={iterations}"],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=False,
    )
    total = re.search(r"Total Cycles:\s+(\d+)", done.stdout)
    if not total:
        raise RuntimeError(done.stderr)
    return int(total[1]) / iterations


def main() -> int:
    mca = shutil.which("llvm-mca-19") or shutil.which("llvm-mca")
    if not mca or not OBJECTS.exists():
        print("mca.py: llvm-mca and the objects of `make test-arm` are needed", file=sys.stderr)
        return 3
    print("| loop | multiply-adds | cycles | use of the pipes | spills |\n|---|---|---|---|---|")
    for title, file, pattern in KERNELS:
        if not (OBJECTS / file).exists():
            continue
        chosen: list[str] = []
        for name, code in functions(OBJECTS / file).items():
            if not re.search(pattern, name):
                continue
            loop = inner_loop(code)
            if arithmetic(loop) > arithmetic(chosen):
                chosen = loop
        count = arithmetic(chosen)
        if not count:
            print(f"| {title} | 0 | | | |")
            continue
        spills = sum(bool(re.match(r"^(ldr|str|ldp|stp) [qvd]\d+.*\[sp", t)) for t in chosen)
        spent = cycles(chosen, mca)
        print(f"| {title} | {count} | {spent:.1f} | {count / (PIPES * spent):.2f} | {spills} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
