"""Writes a C++ file that holds the text of .metal files, for Metal and for CUDA.

MLX compiles kernels from text at run time and finds no files of this library. So each
`#include "lattice/..."` is replaced by the file that it names, once per topic. `#pragma once` lines
are dropped. For CUDA the prelude comes first. A file of kernels/cuda takes the place of its
namesake in kernels/metal, and includes of Metal's own headers are dropped.
"""

import argparse
import re
from pathlib import Path

INCLUDE = re.compile(r'\s*#\s*include\s+"(lattice/[^"]+)"')
METAL = re.compile(r"\s*#\s*(include\s+<metal_|pragma\s+METAL\b)")
PRAGMA = re.compile(r"\s*#\s*pragma\s+once\b")
UNROLL = "#pragma clang loop unroll(full)"
PIECE = 8000  # characters of one literal; compilers must take 65,536
PRELUDE = "lattice/kernels/cuda/prelude.cuh"


def namesake(path, root):
    """The file that stands for `path` in the text for CUDA."""
    other = root / "lattice/kernels/cuda" / f"{path.stem}.cuh"
    return other if path.suffix == ".metal" and other.is_file() else path


def expand(path, root, seen, cuda=False):
    """Lines of `path` with our own includes replaced by what they name."""
    if cuda:
        path = namesake(path, root)
    if path in seen:
        return
    seen.add(path)
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        include = INCLUDE.match(line)
        if include:
            target = root / include[1]
            if not target.is_file():
                raise SystemExit(f"{path.relative_to(root)}:{number}: no such file: {include[1]}")
            yield from expand(target, root, seen, cuda)
        elif not PRAGMA.match(line) and not (cuda and METAL.match(line)):
            yield line.replace(UNROLL, "#pragma unroll") if cuda else line


def literal(lines):
    text = "\n".join(lines) + "\n"
    pieces = [text[i : i + PIECE] for i in range(0, len(text), PIECE)]
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
    root = arguments.root.resolve()
    for path in sorted(arguments.files):
        metal = expand(path.resolve(), root, set())
        seen = set()
        cuda = [
            *expand(root / PRELUDE, root, seen, cuda=True),
            *expand(path.resolve(), root, seen, cuda=True),
        ]
        lines.append(f'{{"{path.stem}",\n{literal(metal)},\n{literal(cuda)}}},')
    lines += [
        '{"", "", ""}};',
        "  return std::span(kTexts, std::size(kTexts) - 1);",
        "}",
        "}  // namespace lattice::metal",
        "",
    ]
    arguments.output.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
