"""Writes a C++ file that holds the text of .metal files.

MLX compiles Metal kernels from text at run time and finds no files of this library. So each
`#include "lattice/..."` is replaced by the file that it names, once per topic. `#pragma once` lines
are dropped.
"""

import argparse
import re
from pathlib import Path

INCLUDE = re.compile(r'\s*#\s*include\s+"(lattice/[^"]+)"')
PRAGMA = re.compile(r"\s*#\s*pragma\s+once\b")
PIECE = 8000  # characters of one literal; compilers must take 65,536


def expand(path, root, seen):
    """Lines of `path` with our own includes replaced by what they name."""
    if path in seen:
        return
    seen.add(path)
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        include = INCLUDE.match(line)
        if include:
            target = root / include[1]
            if not target.is_file():
                raise SystemExit(f"{path.relative_to(root)}:{number}: no such file: {include[1]}")
            yield from expand(target, root, seen)
        elif not PRAGMA.match(line):
            yield line


def literal(text):
    pieces = [text[i : i + PIECE] for i in range(0, len(text), PIECE)] or [""]
    return "\n".join(f'R"metal({piece})metal"' for piece in pieces)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("files", type=Path, nargs="*")
    arguments = parser.parse_args()
    lines = [
        "// Written by cmake/embed_metal.py; do not edit.",
        '#include "lattice/kernels/metal/text.h"',
        "namespace lattice::metal {",
        "std::span<const Text> texts() {",
        "  static const Text kTexts[] = {",
    ]
    for path in sorted(arguments.files):
        text = "\n".join(expand(path.resolve(), arguments.root.resolve(), set())) + "\n"
        lines.append(f'{{"{path.stem}",\n{literal(text)}}},')
    lines += [
        '{"", ""}};',
        "  return std::span(kTexts, std::size(kTexts) - 1);",
        "}",
        "}  // namespace lattice::metal",
        "",
    ]
    arguments.output.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
