"""Small synthetic data for the quick start, the examples of the help, and your own tests.

samples.tensor()             a sparse tensor of six rows
samples.scan(seed)           a labeled scan of a small yard: ground, wall, box, ball
samples.write_scans("yard")  five such scans as PLY files
samples.street_boxes(seed)   a LiDAR scan of a street with boxes around cars and people
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import mlx.core as mx

from ..core import SparseTensor
from ..core._checks import integer
from ..core._checks import path as check_path

if TYPE_CHECKING:
    import numpy as np

if TYPE_CHECKING:
    from ..io import PointCloud
    from ..training.detection import BoxFrame

__all__ = ["CLASSES", "scan", "street_boxes", "tensor", "write_scans"]

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
    """
    channels = integer("tensor", "channels", channels, most=1 << 20)
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
    """
    import numpy as np

    from ..io import PointCloud

    seed, points = integer("scan", "seed", seed, least=0), integer("scan", "points", points, 4)
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
        ValueError: count is not in 1..10,000.
    """
    from ..io import write

    check_path("write_scans", folder, "folder")
    count = integer("write_scans", "count", count, 1, 10_000)
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    paths = [target / f"yard_{seed}.ply" for seed in range(count)]
    for seed, path in enumerate(paths):
        write(path, scan(seed))
    return paths


def _on_boxes(rng: np.random.Generator, n: int) -> np.ndarray:
    """Points on the tops and sides of three boxes."""
    import numpy as np

    center = rng.uniform([-3, -3], [3, 3], (3, 2))[rng.integers(0, 3, n)]
    local = rng.uniform(-0.5, 0.5, (n, 3))
    axis = rng.integers(0, 3, n)
    local[np.arange(n), axis] = np.where(axis == 2, 0.5, np.sign(local[np.arange(n), axis]) * 0.5)
    return np.concatenate([center + local[:, :2], local[:, 2:] + 0.5], 1)


def _on_balls(rng: np.random.Generator, n: int) -> np.ndarray:
    """Points on three balls of radius 0.5 that lie on the ground."""
    import numpy as np

    center = rng.uniform([-3, -3, 0.5], [3, 3, 0.5], (3, 3))[rng.integers(0, 3, n)]
    direction = rng.normal(size=(n, 3))
    return center + 0.5 * direction / np.linalg.norm(direction, axis=1, keepdims=True)


def street_boxes(seed: int = 0, least_points: int = 5) -> BoxFrame:
    """One turn of a LiDAR on a made-up street, with boxes around its cars (1) and people (2).

    Args:
        seed: Another seed gives another street.
        least_points: Boxes with fewer points are left out.

    Returns:
        A `training.detection.BoxFrame` with points (N, 4): x, y, z and 0 as intensity.
    """
    import numpy as np

    from .. import ops
    from ..training.detection import BoxFrame
    from .streets import CAR, street_objects

    who = "street_boxes"
    points, _, boxes, kinds = street_objects(integer(who, "seed", seed, least=0))
    least_points = integer(who, "least_points", least_points, least=0)
    owner = np.array(ops.points_in_boxes(points, boxes))
    seen = np.bincount(owner[owner >= 0], minlength=len(boxes)) >= least_points
    labels = np.where(kinds == CAR, 1, 2).astype(np.int32)
    rows = np.concatenate([points, np.zeros((len(points), 1), np.float32)], axis=1)
    return BoxFrame(rows, boxes[seen], labels[seen])
