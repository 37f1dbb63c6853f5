"""Mutated files of every format: a reader returns a cloud or raises ValueError with the path.

Memory stays small.

LATTICE_FUZZ_SECONDS sets the budget of all formats together (default 8 s).
"""

import os
import time
import tracemalloc

import numpy as np
import pytest
from mlx_lattice import io
from mlx_lattice.io import PointCloud

SECONDS = float(os.environ.get("LATTICE_FUZZ_SECONDS", "8"))
SEEDS = {
    "le.ply": {},
    "be.ply": {"encoding": "binary_big_endian"},
    "text.ply": {"encoding": "ascii"},
    "a.pcd": {},
    "text.pcd": {"encoding": "ascii"},
    "lzf.pcd": {"encoding": "binary_compressed"},
    "a.npy": {},
    "a.npz": {},
    "a.bin": {},
    "a.pcd.bin": {},
    "a.xyz": {},
    "a.csv": {},
    "a.las": {},
    "a.laz": {},
}
WORDS = [
    b"-1",
    b"0",
    b"1",
    b"99999999999999",
    b"4294967295",
    b"1e9",
    b"nan",
    b"list",
    b"uchar",
    b"double",
    b"\n",
    b" ",
    b"vertex",
    b"8",
]


def mutate(data, rng):
    """One to four changes: bits, bytes, words, extreme integers, cuts, repetitions, removals."""
    data = bytearray(data)
    head = min(len(data), 400)
    for _ in range(rng.integers(1, 5)):
        if not data:
            break
        at = int(rng.integers(0, head if rng.random() < 0.7 else len(data))) % len(data)
        match int(rng.integers(0, 7)):
            case 0:
                data[at] ^= 1 << int(rng.integers(0, 8))
            case 1:
                data[at] = int(rng.choice([0, 1, 127, 128, 255, 10, 32]))
            case 2:
                size = int(rng.choice([2, 4, 8]))
                data[at : at + size] = int(rng.choice([0, -1, 1 << 14, (1 << 15) - 1])).to_bytes(
                    size, "little", signed=True
                )
            case 3:
                word = WORDS[rng.integers(0, len(WORDS))]
                data[at : at + int(rng.integers(0, 6))] = word
            case 4:
                del data[at:]
            case 5:
                del data[at : at + int(rng.integers(1, 40))]
            case 6:
                data[at:at] = data[at : at + int(rng.integers(1, 40))] * int(rng.integers(1, 4))
    return bytes(data)


@pytest.mark.parametrize("name", SEEDS)
def test_mutations(tmp_path, name):
    if name[-3:] in ("las", "laz"):
        pytest.importorskip("laspy")
        pytest.importorskip("lazrs")
    rng = np.random.default_rng(7)
    n = 41  # not a multiple of 5: such a .bin could be KITTI's or nuScenes'
    columns = {"intensity": rng.random(n).astype(np.float32)}
    if not name.endswith("bin"):
        columns |= {
            "color": rng.integers(0, 256, (n, 3), dtype=np.uint8),
            "label": rng.integers(0, 3, n).astype(np.uint8),
        }
    path = tmp_path / name
    io.write(path, PointCloud(rng.normal(size=(n, 3)).astype(np.float32), columns), **SEEDS[name])
    original = path.read_bytes()
    io.read(path)  # imports what the format needs before memory is watched
    read = refused = 0
    end = time.monotonic() + SECONDS / len(SEEDS)
    tracemalloc.start()
    try:
        while time.monotonic() < end or read + refused <= 20:
            content = mutate(original, rng)
            path.write_bytes(content)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            try:
                io.read(path)
                read += 1
            except ValueError as error:
                assert str(error).startswith(str(path)), repr(error)
                refused += 1
            peak = tracemalloc.get_traced_memory()[1] - before
            assert peak < (32 << 20) + 200 * len(content), (
                f"{peak} bytes for a file of {len(content)}"
            )
    finally:
        tracemalloc.stop()
    assert refused > 0
