"""One rank of test_sync_norm.py: python sync_norm_worker.py FOLDER.

Half of the rows lie on each rank.
"""

import sys
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_lattice import nn
from mlx_lattice.training import Ranks, synchronize_batch_norm


def rows(rank):
    return (
        np.random.default_rng(rank).normal(rank, 1 + rank, (30 + 20 * rank, 4)).astype(np.float32)
    )


def loss(norm, x):
    y = norm(x)
    return (mx.sin(y) * mx.arange(4)).sum()


def main():
    ranks = Ranks(timeout=50)
    norm = nn.BatchNorm(4)
    norm.weight = mx.array([1.0, 2.0, 0.5, 1.5])
    assert synchronize_batch_norm(norm, ranks) == 1
    norm.train()
    x = mx.array(rows(ranks.rank))
    value, slope = mx.value_and_grad(lambda a: loss(norm, a))(x)
    ranks.eval(value, slope, norm.parameters())
    np.savez(
        Path(sys.argv[1]) / f"{ranks.rank}.npz",
        value=np.array(value),
        slope=np.array(slope),
        mean=np.array(norm.running_mean),
        var=np.array(norm.running_var),
    )


if __name__ == "__main__":
    main()
