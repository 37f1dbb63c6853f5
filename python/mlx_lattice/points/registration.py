"""Outlier removal and registration of clouds.

NumPy in float64 around this library's neighbor search.

    statistical_inliers(points, k, ratio)   mean distance to k nearest <= mean + ratio * std
    radius_inliers(points, radius, least)   at least `least` other points within the radius
    icp(source, target, ...)                point to plane, with the covariance of the pose

ICP (Chen and Medioni, 1992) minimizes the sum of ((R p + t - q) . n)^2 over pairs. A pair is a
source point p and its nearest target point q with normal n. A step solves J^T J x = -J^T r with one
row [p x n, n] per pair, x = (rotation vector, translation). The covariance is s^2 (J^T J)^-1, with
s^2 = r^T r / (pairs - 6), at the last step; its order is rotation, then translation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np

from .. import ops
from ..core import NeighborIndex

if TYPE_CHECKING:
    from .._types import ArrayLike


def statistical_inliers(points: ArrayLike, k: int = 16, ratio: float = 2.0) -> np.ndarray:
    """(N,) bool: points whose mean distance to their k nearest others is not unusually large."""
    rows = _points("statistical_inliers", "points", points)
    if not 1 <= k < max(len(rows), 2):
        raise ValueError(f"[statistical_inliers] k: found {k}, expected 1 to {len(rows) - 1}")
    if not ratio > 0:
        raise ValueError(f"[statistical_inliers] ratio: found {ratio}, expected above 0")
    if len(rows) < 2:
        return np.ones(len(rows), bool)
    _, d2 = ops.knn_rows(mx.array(rows), k + 1)  # the point itself comes first
    mean = np.sqrt(np.array(d2, np.float64)[:, 1:]).mean(axis=1)
    return mean <= mean.mean() + ratio * mean.std(ddof=1)


def radius_inliers(points: ArrayLike, radius: float, least: int = 2) -> np.ndarray:
    """(N,) bool: points with at least `least` other points within the radius."""
    rows = _points("radius_inliers", "points", points)
    if least < 1:
        raise ValueError(f"[radius_inliers] least: found {least}, expected 1 or more")
    if not len(rows):
        return np.ones(0, bool)
    found = ops.build_radius_relation(mx.array(rows), radius=radius, max_neighbors=least + 1)
    return np.array(found.query_counts) > least


@dataclass(frozen=True)
class Registration:
    """pose (4, 4) moves the source onto the target; see icp."""

    pose: np.ndarray
    covariance: np.ndarray
    rms: float
    pairs: int
    steps: int
    converged: bool


def icp(
    source: ArrayLike,
    target: ArrayLike,
    *,
    normals: ArrayLike | None = None,
    pose: ArrayLike | None = None,
    reach: float = 1.0,
    steps: int = 50,
    tolerance: float = 1e-6,
    k: int = 16,
) -> Registration:
    """Registration of source (N, 3) onto target (M, 3).

    normals: of the target; by default estimated from k neighbors.
    pose: where to begin, by default the identity.
    reach: pairs farther apart do not count.
    tolerance: the search ends when a step rotates by less than this many radians and moves by less
        than this many units.
    """
    p = np.ascontiguousarray(_points("icp", "source", source).T, np.float64)
    q = _points("icp", "target", target)
    if not reach > 0:
        raise ValueError(f"[icp] reach: found {reach}, expected above 0")
    if normals is None:
        normals = ops.estimate_normals(mx.array(q), k=k)[0]
    n: np.ndarray = np.array(normals, np.float64)
    if n.shape != q.shape:
        raise ValueError(f"[icp] normals: found shape {n.shape}, expected {q.shape}")
    motion = np.eye(4) if pose is None else np.array(pose, np.float64)
    if steps < 1:
        raise ValueError(f"[icp] steps: found {steps}, expected 1 or more")
    if motion.shape != (4, 4):
        raise ValueError(f"[icp] pose: found shape {motion.shape}, expected (4, 4)")
    index, exact = NeighborIndex(mx.array(q)), np.ascontiguousarray(q.T, np.float64)
    n = np.ascontiguousarray(n.T)
    step = 0
    while step < steps:
        step += 1
        moved = motion[:3, :3] @ p + motion[:3, 3:]
        found = index.knn(mx.array(np.ascontiguousarray(moved.T, np.float32)), k=1)
        near = np.flatnonzero(np.array(found.distances) <= reach * reach)
        row = np.array(found.edges.source_rows)[near]
        a, b, m = (rows.take(at, axis=1) for rows, at in ((moved, near), (exact, row), (n, row)))
        if len(near) < 6:
            raise ValueError(
                f"[icp] {len(near)} pairs within reach = {reach}, expected 6 or more; "
                "give a larger reach or a better pose"
            )
        residual = (a[0] - b[0]) * m[0] + (a[1] - b[1]) * m[1] + (a[2] - b[2]) * m[2]
        jacobian = np.empty((6, len(near)))  # columns are pairs: long rows are fast
        jacobian[0] = a[1] * m[2] - a[2] * m[1]
        jacobian[1] = a[2] * m[0] - a[0] * m[2]
        jacobian[2] = a[0] * m[1] - a[1] * m[0]
        jacobian[3:] = m
        normal_matrix = jacobian @ jacobian.T
        values, vectors = np.linalg.eigh(normal_matrix)
        if values[0] <= 1e-12 * values[-1]:
            slack = vectors[:, 0].round(3).tolist()
            raise ValueError(
                f"[icp] the target leaves a motion open (rotation, translation) = {slack}; "
                "its normals must point in three directions"
            )
        x = -np.linalg.solve(normal_matrix, jacobian @ residual)
        motion = _motion(x) @ motion
        if np.linalg.norm(x[:3]) < tolerance and np.linalg.norm(x[3:]) < tolerance:
            break
    scale = residual @ residual / max(len(near) - 6, 1)
    return Registration(
        motion,
        scale * np.linalg.inv(normal_matrix),
        float(np.sqrt((residual**2).mean())),
        len(near),
        step,
        bool(np.linalg.norm(x[:3]) < tolerance and np.linalg.norm(x[3:]) < tolerance),
    )


def _motion(x: np.ndarray) -> np.ndarray:
    """(4, 4) of a rotation vector and a translation (Rodrigues)."""
    angle = np.linalg.norm(x[:3])
    cross = np.array([[0, -x[2], x[1]], [x[2], 0, -x[0]], [-x[1], x[0], 0]])
    if angle > 1e-12:
        rotation = (
            np.eye(3)
            + np.sin(angle) / angle * cross
            + (1 - np.cos(angle)) / angle**2 * (cross @ cross)
        )
    else:
        rotation = np.eye(3) + cross
    motion = np.eye(4)
    motion[:3, :3], motion[:3, 3] = rotation, x[3:]
    return motion


def _points(operation: str, what: str, points: ArrayLike) -> np.ndarray:
    rows = np.array(points, np.float32)
    if rows.ndim != 2 or rows.shape[1] != 3:
        raise ValueError(f"[{operation}] {what}: found shape {rows.shape}, expected (N, 3)")
    if not np.isfinite(rows).all():
        bad = int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])
        raise ValueError(f"[{operation}] {what}: row {bad} is not finite")
    return rows
