"""Sums over triplets, distances and geometry under their full names; docs/ops/{triplets,distance,rulebook}.md."""

from .._ext import (
    PointSet,
    Rulebook,
    build_full_cover_rulebook,
    build_generative_rulebook,
    build_partition_rulebook,
    build_rulebook,
    build_subdivision_rulebook,
    grid_downsample,
    indexed_distance,
    indexed_distance_blocked,
    indexed_pair_distance,
    mvmr,
    mvmr_on,
    point_conv,
    radius_scaler,
    radius_search,
    triplet_relation,
    voxel_tap,
    vvor,
)

__all__ = [
    "PointSet",
    "Rulebook",
    "build_full_cover_rulebook",
    "build_generative_rulebook",
    "build_partition_rulebook",
    "build_rulebook",
    "build_subdivision_rulebook",
    "grid_downsample",
    "indexed_distance",
    "indexed_distance_blocked",
    "indexed_pair_distance",
    "mvmr",
    "mvmr_on",
    "mvmr_with_grad",
    "point_conv",
    "radius_scaler",
    "radius_search",
    "sparse_matrix_vector_multiplication_reduction",
    "sparse_vector_vector_outer_product_reduction",
    "triplet_relation",
    "voxel_tap",
    "vvor",
]


def sparse_matrix_vector_multiplication_reduction(
    a, a_idx, b, b_idx, o_idx, n_o, *, layout="gmc", validate=True, stream=None
):
    """y[r, g] = sum over the triplets t with o_idx[t] == r of a[a_idx[t], g] b[b_idx[t], g].

    Indices are always checked, whatever `validate` says: they are read when the triplets are sorted.
    """
    return mvmr(a, a_idx, b, b_idx, o_idx, n_o, layout=layout, stream=stream)


def sparse_vector_vector_outer_product_reduction(a, a_idx, b, b_idx, o_idx, n_o, *, validate=True, stream=None):
    """u[r, g, m, c] = sum over the triplets t with o_idx[t] == r of a[a_idx[t], g, m] b[b_idx[t], g, c]."""
    return vvor(a, a_idx, b, b_idx, o_idx, n_o, stream=stream)


mvmr_with_grad = sparse_matrix_vector_multiplication_reduction  # it has all derivatives already
