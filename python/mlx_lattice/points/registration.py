"""Outlier removal and registration of clouds; the work is done in C++ (lattice/ops/registration.h).

statistical_inliers(points, k, ratio)   mean distance to k nearest <= mean + ratio * std
radius_inliers(points, radius, least)   at least `least` other points within the radius
icp(source, target, ...)                point to plane, with the covariance of the pose
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from .. import _ext
from ..core._checks import finite, integer, numpy_array, positive

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
    rows = _points("statistical_inliers", "points", points)
    k = integer("statistical_inliers", "k", k, 1, max(len(rows) - 1, 1))
    ratio = positive("statistical_inliers", "ratio", ratio)
    return cast("np.ndarray", _ext.statistical_inliers(rows, k, ratio))


def radius_inliers(points: ArrayLike, radius: float, least: int = 2) -> np.ndarray:
    """(N,) bool: points with at least `least` other points within the radius.

    Raises:
        ValueError: points are not finite (N, 3), or least is less than 1.
    """
    rows = _points("radius_inliers", "points", points)
    radius = finite("radius_inliers", "radius", radius, 0.0)
    least = integer("radius_inliers", "least", least)
    return cast("np.ndarray", _ext.radius_inliers(rows, radius, least))


@dataclass(frozen=True)
class Registration:
    """The result of `icp`.

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
        normals: The normals of the target, (M, 3); by default estimated from k neighbors.
        pose: The initial pose, (4, 4); by default the identity.
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
    p, q = _points("icp", "source", source), _points("icp", "target", target)
    reach, tolerance = positive("icp", "reach", reach), positive("icp", "tolerance", tolerance)
    if normals is not None:
        normals = _matrix("normals", normals, (len(q), 3))
    start = None if pose is None else _matrix("pose", pose, (4, 4)).ravel().tolist()
    steps, k = integer("icp", "steps", steps), integer("icp", "k", k)
    return Registration(*_ext.icp(p, q, normals, start, reach, steps, tolerance, k))


def _matrix(what: str, given: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    matrix = numpy_array("icp", what, given).astype("float64")  # a copy
    if matrix.shape != shape:
        raise ValueError(f"[icp] {what}: found shape {matrix.shape}, expected {shape}")
    return matrix


def _points(operation: str, what: str, points: ArrayLike) -> np.ndarray:
    """Points (N, 3) as float64."""
    import numpy as np

    rows = numpy_array(operation, what, points).astype(np.float64)
    if rows.ndim != 2 or rows.shape[1] != 3:
        raise ValueError(f"[{operation}] {what}: found shape {rows.shape}, expected (N, 3)")
    return rows
