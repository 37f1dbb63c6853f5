"""Random sparse tensors for tests."""

import mlx.core as mx
import numpy as np
from mlx_lattice import SparseTensor


def tensor(n=80, channels=5, dtype=mx.float32, seed=0, extent=4, batches=2, exact=False, **options):
    """n distinct rows (fewer if the box is small) of a box around 0, in random order.

    `exact` gives features whose sums have no rounding error: halves between -2 and 2.
    """
    rng = np.random.default_rng(seed)
    low, high = [0, -extent, -extent, -extent], [batches, extent, extent, extent]
    rows = np.unique(rng.integers(low, high, (3 * n, 4)), axis=0)
    rng.shuffle(rows)
    coords = mx.array(rows[:n].astype(np.int32))
    shape = (coords.shape[0], channels)
    values = rng.integers(-4, 5, shape) / 2 if exact else rng.standard_normal(shape)
    return SparseTensor(coords, mx.array(values.astype(np.float32)).astype(dtype), **options)
