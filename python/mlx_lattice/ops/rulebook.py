"""Downsampling, radius search and rulebooks of points, which `mlx_lattice.points` shows.

A rulebook holds the edges (source point, target point, kernel cell) of a point convolution: source
p_j is near target q_i, and the cell is `round((p_j - q_i) / grid)`, half to even, clamped to the
kernel. Geometry is concrete and carries no gradient. docs/ops/rulebook.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _ext

if TYPE_CHECKING:
    import mlx.core as mx

    from .._ext import PointSet, Rulebook
    from ..core.types import ArrayLike


def radius_scaler(kernel_size: int, rfs: float = 1.0, shape: str = "ball") -> float:
    """The radius of a kernel in units of the grid.

    "ball": that of the ball with the volume of the cube of edge kernel_size * rfs; "cube": half
    this edge.
    """
    return _ext.radius_scaler(kernel_size, rfs, shape)


def voxel_tap(offsets: ArrayLike, grid: float, kernel_size: int) -> mx.array:
    """The kernel cell of each offset (N, 3): divided by grid, rounded half to even, clamped; (N,).

    >>> from mlx_lattice import points
    >>> points.voxel_tap([[0.0, 0.0, 0.0], [-9.0, 0.0, 0.1]], 0.1, 3).tolist()
    [13, 5]
    """
    return _ext.voxel_tap(offsets, grid, kernel_size)


def radius_search(
    points: ArrayLike,
    queries: ArrayLike,
    radius: float,
    lengths: ArrayLike | None = None,
    query_lengths: ArrayLike | None = None,
    *,
    shape: str = "ball",
) -> tuple[mx.array, mx.array, mx.array]:
    """(rows, counts, distances): the points within the radius of each query, the border included.

    Args:
        points, queries: (N, 3) and (Q, 3).
        radius: Not negative (ValueError).
        lengths, query_lengths: Points and queries of each cloud, (B,); neighbors are of one cloud.
        shape: "ball", or "cube" for the largest difference of an axis.

    Returns:
        Rows of points by query, ascending; the number of each query, (Q,); the distances.

    Examples:
        >>> from mlx_lattice import points
        >>> line = [[0.0, 0, 0], [1, 0, 0], [5, 0, 0]]
        >>> rows, counts, distances = points.radius_search(line, line, 1.0)
        >>> rows.tolist(), counts.tolist()
        ([0, 1, 0, 1, 2], [2, 2, 1])
    """
    return _ext.radius_search(points, queries, radius, lengths, query_lengths, shape)


def clip_neighbors(
    rows: ArrayLike, counts: ArrayLike, distances: ArrayLike, most: int
) -> tuple[mx.array, mx.array, mx.array]:
    """What `radius_search` gave with at most `most` neighbors of each query: the nearest.

    Equal distances: the lower row. Rows ascend again.
    """
    return _ext.clip_neighbors(rows, counts, distances, most)


def grid_downsample(
    points: PointSet, cell: float, pick: str = "center_nearest"
) -> tuple[PointSet, mx.array, mx.array]:
    """(PointSet, indices, cell_of): one point for each cell of side `cell` that has some.

    pick: "center_nearest" (the point nearest to the center), "center", "mean" or "first". Points
    are by cloud, then z, y, x. indices (M,): the row that was picked; cell_of (N,): the new row of
    each point.

    >>> from mlx_lattice import points
    >>> cloud = points.PointSet([[0.1, 0, 0], [0.4, 0, 0], [1.5, 0, 0]])
    >>> coarse, indices, cell_of = points.grid_downsample(cloud, 1.0)
    >>> indices.tolist(), cell_of.tolist()
    ([1, 2], [0, 0, 1])
    """
    return _ext.grid_downsample(points, cell, pick)


def rulebook_from_triplets(
    i: ArrayLike, j: ArrayLike, k: ArrayLike, *, n_out: int, n_in: int, n_kernels: int
) -> Rulebook:
    """The rulebook of given edges in any order: target i, source j, kernel cell k."""
    return _ext.rulebook_from_triplets(i, j, k, n_out, n_in, n_kernels)


def build_rulebook(
    source: PointSet,
    target: PointSet,
    kernel_size: int = 3,
    *,
    rfs: float = 1.0,
    shape: str = "ball",
    radius: float | None = None,
    allow_empty: bool = False,
) -> Rulebook:
    """The edges from the source points near each target point.

    Args:
        source, target: The same number of clouds.
        kernel_size: Cells per axis, each of side `source.grid`.
        rfs: Receptive field scaler: the reach relative to that of kernel_size cells.
        shape: "ball" or "cube".
        radius: The reach; by default `source.grid * radius_scaler(kernel_size, rfs, shape)`.
        allow_empty: Whether a target without neighbors is allowed; otherwise it is a ValueError.
    """
    return _ext.build_rulebook(source, target, kernel_size, rfs, shape, radius, allow_empty)


def build_partition_rulebook(
    source: PointSet, stride: float, kernel_size: int
) -> tuple[Rulebook, PointSet]:
    """(Rulebook, targets): every point belongs to one target, the center of its cell.

    Cells have side `stride * source.grid`, and the kernel divides each into kernel_size ** 3 parts.
    """
    return _ext.build_partition_rulebook(source, stride, kernel_size)


def build_full_cover_rulebook(
    source: PointSet, stride: float, kernel_size: int, margin: float = 1e-2
) -> tuple[Rulebook, PointSet, mx.array, int]:
    """(Rulebook, targets, indices, n_added): targets that leave no point out.

    Every point lies within `grid * sqrt(3) / 2 * stride` of a target, up to `margin`. indices: the
    source row of each target; n_added: targets beyond those of `grid_downsample`.
    """
    return _ext.build_full_cover_rulebook(source, stride, kernel_size, margin)


def build_generative_rulebook(
    source: PointSet,
    kernel_size: int = 3,
    expansion: float = 1.0,
    *,
    stencil: ArrayLike | None = None,
) -> tuple[Rulebook, PointSet]:
    """(Rulebook, targets): the voxels around the voxel of each point, one edge for each.

    Voxels have side `grid / expansion`. stencil: offsets (K, 3) at which targets are made; by
    default all of the kernel.
    """
    return _ext.build_generative_rulebook(source, kernel_size, expansion, stencil)


def build_subdivision_rulebook(source: PointSet, expansion: int = 2) -> tuple[Rulebook, PointSet]:
    """(Rulebook, targets): the expansion ** 3 parts of the voxel of each point."""
    return _ext.build_subdivision_rulebook(source, expansion)
