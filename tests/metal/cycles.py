"""A static count of what a step of a tile costs besides its products. No number here is a time.

`PYTHONPATH=tests python -m metal.cycles` prints the table of docs/metal.md.

The kernel's own text becomes LLVM IR. Adjacent accesses are merged to at most 16 bytes, as
compilers for GPUs do. Each instruction then costs the cycles that its kind takes on a GPU
(P. Turner, metal-benchmarks: throughput per simdgroup of 32 threads). The cycles of an access are
an assumption: no figure for them is known to us.
"""

import re
import subprocess
import tempfile
from pathlib import Path

import mlx.core as mx
import mlx_lattice as ml
import numpy as np
from mlx_lattice import ops

from .host import host as running
from .host.entry import entry
from .host.far import record

ACCESS = 4  # one load or store of up to 16 bytes: assumed
KINDS = {"add": 1, "sub": 1, "and": 1, "or": 1, "xor": 1, "icmp": 1, "select": 1, "sext": 1}
KINDS |= {"zext": 1, "mul": 4, "shl": 4, "lshr": 4, "ashr": 4, "load": ACCESS, "store": ACCESS}
KINDS |= {"getelementptr": 4, "br": 1, "sdiv": 6, "srem": 6}  # divisors are powers of two
WIDE = {"add": 4, "sub": 4, "mul": 8, "and": 2, "or": 2, "xor": 2}  # of 64 bits
PRODUCT = 20  # of two 8 x 8 matrices


def launch(dtype=mx.float16, channels=64):
    """The sorted tiles of a convolution."""
    coords = np.zeros((70, 4), np.int32)
    coords[:, 1] = np.arange(70)
    x = ml.SparseTensor(mx.array(coords), mx.zeros((70, channels), dtype))
    weight = mx.zeros((27, channels, channels), dtype)
    return record(lambda: ops.subm_conv3d(x, weight).feats, "conv_tiles_sorted")


def ir(name, text):
    """Lines of LLVM IR with debug locations."""
    tools = running.toolchain("fast")
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "kernel.clcpp", Path(folder) / "kernel.ll"
        tools._write(name, text, entry(name, text)[0], source)
        more = ["-O2", "-funroll-loops", "-g1", "-S", "-emit-llvm", "-w", "-o", made]
        subprocess.run([str(c) for c in [*tools._command(source), *more]], check=True)
        passes = "-passes=load-store-vectorizer,instcombine"
        found = subprocess.run(
            ["opt-19", "-S", passes, str(made)], capture_output=True, text=True, check=True
        )
    return found.stdout.splitlines()


def cost(line):
    """Cycles of one instruction."""
    copy = re.search(r"@llvm\.memcpy.*, i64 (\d+), i1", line)
    if copy:
        return ACCESS * -(-int(copy[1]) // 16)  # one side of it is in registers
    assert not re.search(r"call .*@_Z", line), f"a function that was not inlined: {line}"
    match = re.match(r"\s+(?:%\S+ = )?(?:tail call )?(\w+)(.*)", line)
    if not match or match[1] not in KINDS:
        return 0
    kind, rest = match.groups()
    if kind == "getelementptr":
        return 0 if re.search(r", i64 -?\d+, !dbg", rest) else KINDS[kind]
    if kind in ("load", "store"):
        vector = re.search(r"<(\d+) x (half|bfloat|i16|float|i32|i64)>", rest)
        if vector:
            size = {"half": 2, "bfloat": 2, "i16": 2, "float": 4, "i32": 4, "i64": 8}[vector[2]]
            # An array may begin at any element: then one access moves four values of 16 bits.
            most = 8 if re.search(r"align 2\b", rest) else 16
            return KINDS[kind] * -(-int(vector[1]) * size // most)
    if kind in WIDE and re.match(r"(?: nuw| nsw| disjoint)* i64 ", rest):
        return WIDE[kind]
    return KINDS[kind]


def chains(lines):
    """Debug location -> the lines of the text it was inlined through."""
    places = {}
    for line in lines:
        match = re.match(r"(!\d+) = (?:distinct )?!DILocation\(line: (\d+),.*?scope: (!\d+)", line)
        if match:
            at = re.search(r"inlinedAt: (!\d+)", line)
            places[match[1]] = (int(match[2]), at[1] if at else None)

    def chain(place):
        while place:
            line, place = places[place]
            yield line

    return {place: list(chain(place)) for place in places}


def inlined(name, text, calls):
    """For each of `calls`, a piece of a line of the text: the instructions that it became."""
    lines = ir(name, text)
    where = chains(lines)
    numbered = list(enumerate(text.splitlines(), 1))
    found = {}
    for call in calls:
        own = {n for n, line in numbered if call in line}
        assert own, f"the kernel has no line with {call}"
        found[call] = [
            line
            for line in lines
            if (at := re.search(r"!dbg (!\d+)", line)) and own & set(where.get(at[1], ()))
        ]
    return found


def count(name, text, calls):
    """For each of `calls` the cycles of what it became."""
    return {call: sum(map(cost, lines)) for call, lines in inlined(name, text, calls).items()}


FETCH, PUT = "if (left != 0) stage.fetch(c0);", "stage.put(xs, Product::kXs, ws, Product::kWs);"
LOOK_UP = "if (left != 0) stage.visit(stage.rows.k(word, int(ctz(left))));"


def per_16_channels(dtype=mx.float16):
    """Cycles of staging and of products for 16 channels of a tile of 64 columns."""
    made = launch(dtype)
    depth = int(re.search(r"sorted64x(\d+)", made.name)[1])
    found = count(made.name, made.text, [FETCH, PUT, LOOK_UP])
    steps = depth / 16
    return {
        "staging": (found[FETCH] + found[PUT]) / steps,
        "per offset": found[LOOK_UP],
        "products": 2 * 2 * 8 * PRODUCT,
        "barriers": 2 / steps,
    }


if __name__ == "__main__":
    for dtype in (mx.float16, mx.bfloat16, mx.float32):
        print(dtype, per_16_channels(dtype))
