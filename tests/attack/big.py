"""Sizes at the limits of docs/limits.md: right, or an error that says the limit.

It needs 24 GiB and some minutes:

python tests/attack/big.py --rows 50000000
"""

import argparse
import resource
import sys
import time

import mlx.core as mx
import numpy as np
from mlx_lattice import SparseTensor, ops


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def sheet(rows: int):
    """A plane of voxels, `side` wide: inner rows have 9 neighbors in a 3x3x3 kernel."""
    side = int(rows**0.5)
    c = np.zeros((side * side, 4), np.int32)
    c[:, 1] = np.repeat(np.arange(side, dtype=np.int32), side)
    c[:, 2] = np.tile(np.arange(side, dtype=np.int32), side)
    return mx.array(c), side


def relation(rows: int) -> bool:
    """N * K above 2^31 for 80 million rows and up; the edges of a plane are known."""
    begin = time.monotonic()
    coords, side = sheet(rows)
    r = ops.build_submanifold_kernel_relation(coords)
    right = r.edge_count == (3 * side - 2) ** 2
    n = coords.shape[0]
    print(
        f"{n:,} rows, N * K = {27 * n:,}: {r.edge_count:,} edges, "
        f"{time.monotonic() - begin:.0f} s, {peak():.1f} GB"
    )
    return right


def features(channels: int = 64) -> bool:
    """More than 2^31 values of features."""
    rows = 2**31 // channels + 1000
    coords = np.zeros((rows, 4), np.int32)
    coords[:, 1] = np.arange(rows)
    x = SparseTensor(mx.array(coords), mx.ones((rows, channels), dtype=mx.float16))
    y = ops.relu(x).feats
    mx.eval(y)
    right = y[-1].tolist() == [1.0] * channels
    print(f"{rows * channels:,} values: {'right' if right else 'WRONG'}, {peak():.1f} GB")
    return right


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--features", action="store_true", help="also features above 2^31 values")
    a = parser.parse_args()
    right = relation(a.rows)
    if a.features:
        right = features() and right
    return int(not right)


if __name__ == "__main__":
    sys.exit(main())
