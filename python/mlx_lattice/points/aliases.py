"""Names from the code of the paper for things that have other names here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core._checks import instance
from ..ops.rulebook import grid_downsample, radius_scaler, voxel_tap
from ..ops.triplets import mvmr, vvor
from .layers import FullCoverConv3d, GenerativeConv3d, PartitionConv3d, PointConv3d
from .point_set import PointSet

if TYPE_CHECKING:
    import mlx.core as mx

__all__ = [
    "FullCoverConv",
    "GenerativeConv",
    "GenerativePointConv3d",
    "PartitionConv",
    "build_triplets",
    "conv_with_stride",
    "conv_with_stride_disjoint",
    "conv_with_stride_full_cover",
    "grid_sample_filter",
    "mvmr_with_grad",
    "radius_scaler_for_kernel_size",
    "sparse_matrix_vector_multiplication_reduction",
    "sparse_vector_vector_outer_product_reduction",
    "voxelize_3d",
]

FullCoverConv, PartitionConv = FullCoverConv3d, PartitionConv3d
GenerativeConv = GenerativePointConv3d = GenerativeConv3d
grid_sample_filter = grid_downsample
radius_scaler_for_kernel_size = radius_scaler
voxelize_3d = voxel_tap


def check_conv(who: str, conv: object) -> None:
    """Raises where a layer is no PointConv3d."""
    instance(who, "conv", conv, PointConv3d, "a PointConv3d")


def conv_with_stride(
    conv: PointConv3d, x: mx.array, points: PointSet, stride: int = 1, rfs: float | None = None
) -> tuple[mx.array, PointSet]:
    """(y, points of y): `conv(x, points, stride, rfs)`."""
    check_conv("conv_with_stride", conv)
    return conv(x, points, stride, rfs)


def conv_with_stride_disjoint(
    conv: PointConv3d, x: mx.array, points: PointSet, stride: int = 2
) -> tuple[mx.array, PointSet]:
    """(y, cell centers): a PointConv3d where each point belongs to one cell of stride * grid.

    Each axis of a cell has as many parts as the kernel of the layer; `PartitionConv3d` is the same
    as a layer of its own.
    """
    check_conv("conv_with_stride_disjoint", conv)
    target, book = PointSet.of(points).partition(stride, conv._size)
    return conv._run(x, book), target


def conv_with_stride_full_cover(
    conv: PointConv3d, x: mx.array, points: PointSet, stride: int = 2, margin: float = 0.01
) -> tuple[mx.array, PointSet]:
    """(y, points of y): a PointConv3d on targets that cover every point; see `FullCoverConv3d`."""
    check_conv("conv_with_stride_full_cover", conv)
    target, book = PointSet.of(points).full_cover(stride, conv._size, margin)
    return conv._run(x, book), target


def build_triplets(
    source: PointSet, target: PointSet | None = None, kernel_size: int = 3, **options: Any
) -> tuple[mx.array, mx.array, mx.array, mx.array]:
    """(i, j, k, seg_offs) of the rulebook from source to target, ordered by (k, i, j).

    i: the target row, j the source row and k the kernel cell of each edge.
    seg_offs: where the edges of each target begin.
    Options are those of `PointSet.rulebook`.
    """
    source = PointSet.of(source)
    return source.rulebook(
        None if target is None else PointSet.of(target), kernel_size, **options
    ).triplets()


def sparse_matrix_vector_multiplication_reduction(
    a: mx.array,
    a_idx: mx.array,
    b: mx.array,
    b_idx: mx.array,
    o_idx: mx.array,
    n_o: int,
    *,
    layout: str = "gmc",
    validate: bool = True,
    stream: mx.Stream | mx.Device | None = None,
) -> mx.array:
    """The sum of products of matrices and vectors over triplets: `mvmr` under its long name.

    y[r, g] = sum over the triplets t with o_idx[t] == r of a[a_idx[t], g] b[b_idx[t], g]

    Indices are always checked, whatever `validate` says, because the sort of the triplets reads
    them.
    """
    return mvmr(a, a_idx, b, b_idx, o_idx, n_o, layout=layout, stream=stream)


def sparse_vector_vector_outer_product_reduction(
    a: mx.array,
    a_idx: mx.array,
    b: mx.array,
    b_idx: mx.array,
    o_idx: mx.array,
    n_o: int,
    *,
    validate: bool = True,
    stream: mx.Stream | mx.Device | None = None,
) -> mx.array:
    """The sum of outer products of vectors over triplets: `vvor` under its long name.

    u[r, g, m, c] = sum over t with o_idx[t] == r of a[a_idx[t], g, m] b[b_idx[t], g, c]
    """
    return vvor(a, a_idx, b, b_idx, o_idx, n_o, stream=stream)


mvmr_with_grad = sparse_matrix_vector_multiplication_reduction  # it has all derivatives already
