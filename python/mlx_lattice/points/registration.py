"""Outlier removal and registration of clouds.

NumPy in float64 around this library's neighbor search, which gets float32 positions about the
middle of the cloud.

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

from .. import ops
from ..core import NeighborIndex
from ..core._checks import integer, numpy_array, positive

if TYPE_CHECKING:
    import numpy as np

    from ..core.types import ArrayLike


def statistical_inliers(points: ArrayLike, k: int = 16, ratio: float = 2.0) -> np.ndarray:
    """(N,) bool: points whose mean distance to their k nearest others is not unusually large.

    Unusual is more than the mean of these distances plus `ratio` standard deviations.

    Raises:
        ValueError: points are not finite (N, 3), k is not in 1..N - 1, or ratio is not above 0.

    Examples:
        >>> import numpy as np
        >>> from mlx_lattice import points
        >>> line = np.stack([np.arange(50.0), np.zeros(50), np.zeros(50)], axis=1)
        >>> keep = points.statistical_inliers(np.concatenate([line, [[0, 90, 0]]]), k=4)
        >>> np.flatnonzero(~keep).tolist()
        [50]
    """
    import numpy as np

    rows = _points("statistical_inliers", "points", points)
    k = integer("statistical_inliers", "k", k, 1, max(len(rows) - 1, 1))
    ratio = positive("statistical_inliers", "ratio", ratio)
    if len(rows) < 2:
        return np.ones(len(rows), bool)
    _, d2 = ops.knn_rows(_near(rows, rows.mean(axis=0)), k + 1)  # the point itself comes first
    mean = np.sqrt(np.array(d2, np.float64)[:, 1:]).mean(axis=1)
    return mean <= mean.mean() + ratio * mean.std(ddof=1)


def radius_inliers(points: ArrayLike, radius: float, least: int = 2) -> np.ndarray:
    """(N,) bool: points with at least `least` other points within the radius.

    Raises:
        ValueError: points are not finite (N, 3), or least is less than 1.
    """
    import numpy as np

    rows = _points("radius_inliers", "points", points)
    least = integer("radius_inliers", "least", least)
    if not len(rows):
        return np.ones(0, bool)
    local = _near(rows, rows.mean(axis=0))
    found = ops.build_radius_relation(local, radius=radius, max_neighbors=least + 1)
    return np.array(found.query_counts) > least


@dataclass(frozen=True)
class Registration:
    """What `icp` found.

    Attributes:
        pose: The rigid motion (4, 4) that moves the source onto the target.
        covariance: (6, 6) of the pose: rotation vector, then translation.
        rms: The root of the mean squared distance of the pairs to their planes.
        pairs: The number of pairs at the last step.
        steps: The number of steps.
        converged: Whether the last step was below the tolerance.
    """

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
    """The Registration of source (N, 3) onto target (M, 3), point to plane.

    Args:
        normals: Those of the target, (M, 3); by default estimated from k neighbors.
        pose: Where to begin, (4, 4); by default the identity.
        reach: Pairs that are farther apart do not count.
        steps: The largest number of steps.
        tolerance: The search ends when a step rotates by less than this many radians and moves by
            less than this many units.

    Raises:
        ValueError: There are fewer than six pairs within reach, or the target leaves a motion open,
            such as a plane along which everything can slide.

    Examples:
        >>> import mlx.core as mx
        >>> from mlx_lattice import points
        >>> target = mx.random.uniform(shape=(500, 3), key=mx.random.key(0))
        >>> found = points.icp(target + mx.array([0.01, 0.0, 0.0]), target)
        >>> found.converged, round(float(found.pose[0, 3]), 3)
        (True, -0.01)
    """
    import numpy as np

    p, q = _points("icp", "source", source), _points("icp", "target", target)
    # About the middle of the target: there rotations and translations have one scale, and float32
    # is exact enough for the search.
    middle = q.mean(axis=0) if len(q) else np.zeros(3)
    near = _near(q, middle)
    p, q = (np.ascontiguousarray((rows - middle).T) for rows in (p, q))
    reach, tolerance = positive("icp", "reach", reach), positive("icp", "tolerance", tolerance)
    if normals is None:
        normals = ops.estimate_normals(near, k=k)[0]
    n = np.ascontiguousarray(_matrix("normals", normals, (q.shape[1], 3)).T)
    motion = np.eye(4) if pose is None else _matrix("pose", pose, (4, 4))
    motion[:3, 3] += motion[:3, :3] @ middle - middle
    steps = integer("icp", "steps", steps)
    index = NeighborIndex(near)
    step, converged = 0, False
    while step < steps and not converged:
        step += 1
        moved = motion[:3, :3] @ p + motion[:3, 3:]
        found = index.knn(mx.array(np.ascontiguousarray(moved.T, np.float32)), k=1)
        close = np.flatnonzero(np.array(found.distances) <= reach * reach)
        row = np.array(found.edges.source_rows)[close]
        a, b, m = moved.take(close, axis=1), q.take(row, axis=1), n.take(row, axis=1)
        residual, normal_matrix, x = _step(a, b, m, reach)
        motion = _motion(x) @ motion
        converged = bool(np.linalg.norm(x[:3]) < tolerance and np.linalg.norm(x[3:]) < tolerance)
    scale = residual @ residual / max(len(residual) - 6, 1)
    about_middle = np.eye(6)  # from a motion about the middle to one about the origin
    about_middle[3:, :3] = _cross(middle)
    covariance = scale * about_middle @ np.linalg.inv(normal_matrix) @ about_middle.T
    motion[:3, 3] += middle - motion[:3, :3] @ middle
    rms = float(np.sqrt((residual**2).mean()))
    return Registration(motion, covariance, rms, len(residual), step, converged)


def _step(
    a: np.ndarray, b: np.ndarray, m: np.ndarray, reach: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(residual, J^T J, x) of the pairs a, b with normals m, all (3, pairs)."""
    import numpy as np

    count = a.shape[1]
    if count < 6:
        raise ValueError(
            f"[icp] {count} pairs within reach = {reach}, expected 6 or more; "
            "give a larger reach or a better pose"
        )
    residual = (a[0] - b[0]) * m[0] + (a[1] - b[1]) * m[1] + (a[2] - b[2]) * m[2]
    jacobian = np.empty((6, count))  # columns are pairs: long rows are fast
    jacobian[0] = a[1] * m[2] - a[2] * m[1]
    jacobian[1] = a[2] * m[0] - a[0] * m[2]
    jacobian[2] = a[0] * m[1] - a[1] * m[0]
    jacobian[3:] = m
    normal_matrix = jacobian @ jacobian.T
    size = max(float(np.sqrt((a**2).sum(axis=0).mean())), 1e-30)  # so that rotations count alike
    equal = np.repeat([1 / size, 1.0], 3)
    values, vectors = np.linalg.eigh(equal[:, None] * normal_matrix * equal)
    if values[0] <= 1e-12 * values[-1]:
        slack = vectors[:, 0].round(3).tolist()
        raise ValueError(
            f"[icp] the target leaves a motion open (rotation, translation) = {slack}; "
            "its normals must point in three directions"
        )
    return residual, normal_matrix, -np.linalg.solve(normal_matrix, jacobian @ residual)


def _motion(x: np.ndarray) -> np.ndarray:
    """(4, 4) of a rotation vector and a translation (Rodrigues)."""
    import numpy as np

    angle = np.linalg.norm(x[:3])
    cross = _cross(x)
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


def _cross(x: np.ndarray) -> np.ndarray:
    """(3, 3) that multiplies a vector by x from the left: x cross v."""
    import numpy as np

    return np.array([[0, -x[2], x[1]], [x[2], 0, -x[0]], [-x[1], x[0], 0]])


def _matrix(what: str, given: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    matrix = numpy_array("icp", what, given).astype("float64")  # a copy
    if matrix.shape != shape:
        raise ValueError(f"[icp] {what}: found shape {matrix.shape}, expected {shape}")
    return matrix


def _points(operation: str, what: str, points: ArrayLike) -> np.ndarray:
    """Finite points (N, 3) as float64."""
    import numpy as np

    rows = numpy_array(operation, what, points).astype(np.float64)
    if rows.ndim != 2 or rows.shape[1] != 3:
        raise ValueError(f"[{operation}] {what}: found shape {rows.shape}, expected (N, 3)")
    if not np.isfinite(rows).all():
        bad = int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])
        raise ValueError(f"[{operation}] {what}: row {bad} is not finite")
    return rows


def _near(points: np.ndarray, middle: np.ndarray) -> mx.array:
    """Points less `middle` as float32: subtracted first, so that maps keep their millimeters."""
    return mx.array((points - middle).astype("float32"))
