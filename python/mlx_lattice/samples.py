"""Small synthetic data for the quick start, the examples of the help, and your own tests.

samples.tensor()             a sparse tensor of six rows
samples.scan(seed)           a labeled scan of a small yard: ground, wall, box, ball
samples.write_scans("yard")  five such scans as PLY files
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from .core import SparseTensor

if TYPE_CHECKING:
    import numpy as np

if TYPE_CHECKING:
    from .io import PointCloud

__all__ = ["CLASSES", "scan", "tensor", "write_scans"]

CLASSES = ("ground", "wall", "box", "ball")  # names of the labels 0, 1, 2, 3 of `scan`


def tensor(channels: int = 4, stride: int = 1) -> SparseTensor:
    """A sparse tensor of six rows: five of batch item 0 and one of batch item 1.

    Args:
        channels: The number of channels C. Row r, channel c holds r + c / 10.
        stride: The stride of the coordinates.

    Returns:
        A `SparseTensor` with feats of shape (6, C), float32.

    Raises:
        ValueError: channels or stride is less than 1.

    Example:
        >>> from mlx_lattice import samples
        >>> samples.tensor(channels=2).shape
        (6, 2)
    """
    if channels < 1:
        raise ValueError(f"[tensor] channels: found {channels}, expected at least 1")
    rows = [[0, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0], [0, 2, 1, 1], [0, 3, 2, 1], [1, 0, 0, 0]]
    feats = mx.arange(6)[:, None] + mx.arange(channels)[None] / 10
    return SparseTensor(mx.array(rows), feats.astype(mx.float32), stride)


def scan(seed: int = 0, points: int = 6000) -> PointCloud:
    """A made-up scan of a yard of 8 m with labels: ground 0, wall 1, boxes 2 and balls 3.

    Args:
        seed: Another seed gives another yard.
        points: The number of points, about a quarter of which lies on walls.

    Returns:
        A `PointCloud` with the columns `label` (uint8) and `intensity` (float32).

    Raises:
        ValueError: seed is negative, or points is less than 4.

    Example:
        >>> from mlx_lattice import samples
        >>> cloud = samples.scan(seed=3)
        >>> len(cloud), sorted(cloud.columns)
        (6000, ['intensity', 'label'])
    """
    import numpy as np

    from .io import PointCloud

    if seed < 0 or points < 4:
        found = f"seed {seed} and points {points}"
        raise ValueError(f"[scan] found {found}, expected a seed of 0 or more and 4 points or more")
    rng = np.random.default_rng(seed)
    counts = [points - 3 * (points // 4), points // 4, points // 4, points // 4]
    ground = np.concatenate([rng.uniform(-4, 4, (counts[0], 2)), np.zeros((counts[0], 1))], 1)
    wall = rng.uniform([-4, -4, 0], [4, -4, 2.5], (counts[1], 3))
    flip = rng.random(counts[1]) < 0.5
    wall[flip] = wall[flip][:, [1, 0, 2]]
    box = _on_boxes(rng, counts[2])
    ball = _on_balls(rng, counts[3])
    xyz = np.concatenate([ground, wall, box, ball]) + rng.normal(0, 0.01, (points, 3))
    label = np.repeat(np.arange(4, dtype=np.uint8), counts)
    order = rng.permutation(points)
    intensity = (0.2 + 0.2 * label + rng.normal(0, 0.1, points)).astype(np.float32)
    columns: dict[str, np.ndarray] = {
        "label": label[order],
        "intensity": np.clip(intensity, 0, 1)[order],
    }
    return PointCloud(xyz[order].astype(np.float32), columns)


def write_scans(folder: str | os.PathLike[str], count: int = 5) -> list[Path]:
    """Writes scans of different yards as PLY files.

    Args:
        folder: Where the files go; the folder is made.
        count: The number of scans.

    Returns:
        The paths, in the order of the seeds 0, 1, 2, ...

    Raises:
        ValueError: count is less than 1.

    Example:
        >>> import tempfile
        >>> from mlx_lattice import samples
        >>> [path.name for path in samples.write_scans(tempfile.mkdtemp(), 2)]
        ['yard_0.ply', 'yard_1.ply']
    """
    from .io import write

    if count < 1:
        raise ValueError(f"[write_scans] count: found {count}, expected at least 1")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    paths = [target / f"yard_{seed}.ply" for seed in range(count)]
    for seed, path in enumerate(paths):
        write(path, scan(seed))
    return paths


def _on_boxes(rng: np.random.Generator, n: int) -> Any:
    """Points on the tops and sides of three boxes."""
    import numpy as np

    center = rng.uniform([-3, -3], [3, 3], (3, 2))[rng.integers(0, 3, n)]
    local = rng.uniform(-0.5, 0.5, (n, 3))
    axis = rng.integers(0, 3, n)
    local[np.arange(n), axis] = np.where(axis == 2, 0.5, np.sign(local[np.arange(n), axis]) * 0.5)
    return np.concatenate([center + local[:, :2], local[:, 2:] + 0.5], 1)


def _on_balls(rng: np.random.Generator, n: int) -> Any:
    """Points on three balls of radius 0.5 that lie on the ground."""
    import numpy as np

    center = rng.uniform([-3, -3, 0.5], [3, 3, 0.5], (3, 3))[rng.integers(0, 3, n)]
    direction = rng.normal(size=(n, 3))
    return center + 0.5 * direction / np.linalg.norm(direction, axis=1, keepdims=True)
