"""Points to voxels and back; docs/ops/points.md.

Points are (P, 3) floats, in the units of voxel_size and origin. Point p lies in voxel `floor(q)`
with `q = (p - origin) / voxel_size`. A point that is not finite, or whose voxel leaves int32, is a
ValueError that names its row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx

from .. import _ext
from .._ext import PointVoxelMap, SparseTensor
from ..compat import active
from ..core._checks import sparse_input, wrong_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._ext import SparseQuantization
    from ..core.types import ArrayLike, Numbers, StreamOrDevice, Triple

    ActiveRows = int | mx.array | None

__all__ = [
    "build_point_voxel_map",
    "crop_points",
    "devoxelize",
    "interpolate_point_features",
    "sparse_quantize",
    "to_points",
    "voxel_features",
    "voxelize",
    "voxelize_with_quantization",
]


def sparse_quantize(
    points: ArrayLike,
    voxel_size: Numbers = 1.0,
    *,
    batch_indices: ArrayLike | None = None,
    origin: Numbers = 0.0,
    active_rows: ArrayLike | None = None,
    stream: StreamOrDevice = None,
) -> SparseQuantization:
    """The voxels of points, first seen first, with the voxel of each point.

    batch_indices: the batch item of each point, integers (P,). active_rows: an array (1,) with the
    number of leading points that count.

    >>> from mlx_lattice import ops
    >>> q = ops.sparse_quantize([[0.1, 0, 0], [0.2, 0, 0], [1.5, 0, 0]], 1.0)
    >>> q.coords.tolist(), q.inverse_rows.tolist()
    ([[0, 0, 0, 0], [0, 1, 0, 0]], [0, 0, 1])
    """
    return _ext.sparse_quantize(points, voxel_size, batch_indices, origin, active_rows, stream)


def voxelize(
    points: ArrayLike,
    feats: ArrayLike,
    voxel_size: Numbers = 1.0,
    *,
    batch_indices: ArrayLike | None = None,
    origin: Numbers = 0.0,
    active_rows: ArrayLike | None = None,
    point_active_rows: ArrayLike | None = None,
    reduction: str = "mean",
    stride: Triple = 1,
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """The sparse tensor of the features (P, C) of points, reduced over each voxel.

    Args:
        points: (P, 3).
        feats: (P, C), differentiable.
        voxel_size: Side of a voxel: one number or one per axis.
        batch_indices: The batch item of each point, integers (P,); by default all are of item 0.
        origin: The corner of voxel (0, 0, 0).
        active_rows: An array (1,): only that many leading points count; also point_active_rows.
        reduction: "mean", "sum" or "max".
        stride: Stride of the result.
        stream: Stream or device of MLX.

    Examples:
        >>> from mlx_lattice import ops
        >>> x = ops.voxelize([[0.1, 0, 0], [0.2, 0, 0], [1.5, 0, 0]], [[1.0], [3.0], [5.0]])
        >>> x.feats.tolist()
        [[2.0], [5.0]]
    """
    rows = active_rows if point_active_rows is None else point_active_rows
    return _ext.voxelize(
        points, feats, voxel_size, batch_indices, origin, rows, reduction, stride, stream
    )


def voxelize_with_quantization(
    quantization: SparseQuantization,
    feats: ArrayLike,
    *,
    reduction: str = "mean",
    stride: Triple = 1,
    template: SparseTensor | None = None,
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """`voxelize` on a quantization made before.

    template: a tensor whose coordinates are those of the quantization; the result has its identity.
    """
    return _ext.voxelize_with_quantization(quantization, feats, reduction, stride, template, stream)


def build_point_voxel_map(
    points: ArrayLike,
    voxel_coords: ArrayLike,
    voxel_active_rows: ArrayLike | None = None,
    voxel_size: Numbers = 1.0,
    *,
    batch_indices: ArrayLike | None = None,
    origin: Numbers = 0.0,
    interpolation: str = "linear",
    point_active_rows: ActiveRows = None,
    stream: StreamOrDevice = None,
) -> PointVoxelMap:
    """Rows and weights of the voxels around each point.

    Values of voxels sit at integer q. interpolation: "linear" between the eight around the point,
    or "nearest". A voxel that is missing is row -1 with weight 0; the others are not rescaled.
    voxel_active_rows and point_active_rows: the prefixes that count. A point after its prefix has
    rows -1 and weights 0.

    >>> from mlx_lattice import ops
    >>> m = ops.build_point_voxel_map([[0.5, 0.0, 0.0]], [[0, 0, 0, 0], [0, 1, 0, 0]])
    >>> m.rows.tolist()[0][:3], m.weights.tolist()[0][:3]
    ([0, 1, -1], [0.5, 0.5, 0.0])
    """
    name = "build_point_voxel_map"
    batch = active(batch_indices, point_active_rows, name, "point_active_rows")
    kept = active(points, point_active_rows, name, "point_active_rows")
    found = _ext.build_point_voxel_map(
        kept, voxel_coords, voxel_active_rows, voxel_size, batch, origin, interpolation, stream
    )
    behind = len(points) - found.point_count
    if not behind:
        return found
    none = mx.full((behind, 8), -1, mx.int32), mx.zeros((behind, 8))
    both = zip((found.rows, found.weights), none, strict=True)
    return PointVoxelMap(*(mx.concatenate([own, rest]) for own, rest in both))


def interpolate_point_features(
    voxel_feats: ArrayLike, point_voxel_map: PointVoxelMap, *, stream: StreamOrDevice = None
) -> mx.array:
    """`y[p] = sum over slots c of weights[p, c] * voxel_feats[rows[p, c]]` of the map: (P, C)."""
    return _ext.interpolate_point_features(voxel_feats, point_voxel_map, stream)


def devoxelize(
    points: ArrayLike,
    voxels: SparseTensor,
    voxel_size: Numbers = 1.0,
    *,
    batch_indices: ArrayLike | None = None,
    origin: Numbers = 0.0,
    interpolation: str = "linear",
    point_active_rows: ActiveRows = None,
    point_voxel_map: PointVoxelMap | None = None,
    stream: StreamOrDevice = None,
) -> mx.array:
    """Features of the voxels at the points, (P, C), by "linear" or "nearest" interpolation.

    point_active_rows: the prefix of points that counts; the others get 0. point_voxel_map: the map
    that `build_point_voxel_map` made of these points and voxels, used instead of a new one; another
    number of points is a ValueError.

    >>> from mlx_lattice import ops
    >>> points = [[0.1, 0, 0], [0.2, 0, 0], [1.25, 0, 0]]
    >>> x = ops.voxelize(points, [[1.0], [3.0], [5.0]])
    >>> ops.devoxelize(points, x, interpolation="nearest").tolist()
    [[2.0], [2.0], [5.0]]
    """
    if point_voxel_map is None and point_active_rows is None:
        return _ext.devoxelize(
            points, voxels, voxel_size, batch_indices, origin, interpolation, stream
        )
    if point_voxel_map is None:
        point_voxel_map = build_point_voxel_map(
            points,
            sparse_input("devoxelize", voxels).coords,
            None,
            voxel_size,
            batch_indices=batch_indices,
            origin=origin,
            interpolation=interpolation,
            point_active_rows=point_active_rows,
        )
    if not isinstance(voxels, SparseTensor) or not isinstance(point_voxel_map, PointVoxelMap):
        raise TypeError(
            "[devoxelize] voxels must be a SparseTensor and point_voxel_map a PointVoxelMap, "
            f"found a {type(voxels).__name__} and a {type(point_voxel_map).__name__}"
        )
    count, mapped = len(points), point_voxel_map.point_count
    if mapped != count:
        raise ValueError(
            f"[devoxelize] point_voxel_map must be that of the {count} points, found one of "
            f"{mapped}"
        )
    return _ext.interpolate_point_features(voxels.feats, point_voxel_map, stream)


def crop_points(points: ArrayLike, low: Numbers, high: Numbers) -> mx.array:
    """The points, with NaN in the rows that are not inside `low <= p <= high`.

    The number of rows stays, so that results per point keep their places; `voxel_features` gives
    such points no voxel. Points are (P, 3), float32 or float64.

    >>> from mlx_lattice import ops
    >>> ops.crop_points([[1.0, 2.0, 3.0], [9.0, 0.0, 0.0]], low=0.0, high=5.0).tolist()
    [[1.0, 2.0, 3.0], [nan, nan, nan]]
    """
    return _ext.crop_points(points, low, high)


def voxel_features(
    points: ArrayLike,
    voxel: float,
    columns: Sequence[ArrayLike] = (),
    *,
    frame: tuple[tuple[float, float, float], float] | None = None,
    stream: StreamOrDevice = None,
) -> tuple[SparseTensor, mx.array]:
    """The voxels of a cloud with the features on which the networks of this package are trained.

    Points are (P, 3), float32 or float64; those that are not finite have no voxel. The low corner
    of the others becomes the origin, so that coordinates of a map keep their millimeters. The
    columns are (P,) or (P, k) each; uint8 is divided by 255 and uint16 by 65535. With lengths in
    voxels the features of a voxel are 1, the mean offset of its points from its center (3), its
    height above the second percentile of z divided by 10, log(1 + points) / 2, and the means of
    the columns. `frame` is for points that are a part of a cloud: the low corner of the cloud, and
    the second percentile of its z above that corner, in voxels. The part then has the voxels of the
    whole.

    Returns the tensor and, for each point, the row of its voxel or -1, int32 (P,).

    >>> from mlx_lattice import ops
    >>> x, rows = ops.voxel_features([[0.1, 0, 0], [0.2, 0, 0], [1.5, 0, 0]], 1.0)
    >>> x.feats.shape, rows.tolist()
    ((2, 6), [0, 0, 1])
    """
    if frame is not None:
        if not isinstance(frame, tuple) or len(frame) != 2:
            wrong_type("voxel_features", "frame", frame, "((x, y, z), ground)")
        low, ground = frame
        return _ext.voxel_features_of_part(points, columns, voxel, low, ground, stream)
    return _ext.voxel_features(points, columns, voxel, stream)


def to_points(
    values: ArrayLike, rows: ArrayLike, fill: float = 0.0, *, stream: StreamOrDevice = None
) -> mx.array:
    """`y[p] = values[rows[p]]`, or `fill` where rows[p] is negative: from voxels to points.

    >>> from mlx_lattice import ops
    >>> ops.to_points([10, 20], [1, -1, 0], fill=-1).tolist()
    [20, -1, 10]
    """
    return _ext.to_points(values, rows, fill, stream)
