"""Sums over triplets, distances and geometry under their full names.

See docs/ops/{triplets,distance,rulebook}.md.
"""

from __future__ import annotations

import mlx.core as mx

from .. import ops
from .._ext import (
    PointSet,
    Rulebook,
    build_full_cover_rulebook,
    build_generative_rulebook,
    build_partition_rulebook,
    build_rulebook,
    build_subdivision_rulebook,
    clip_neighbors,
    grid_downsample,
    indexed_distance,
    indexed_distance_blocked,
    indexed_pair_distance,
    mvmr,
    mvmr_on,
    point_conv,
    radius_scaler,
    radius_search,
    rulebook_from_triplets,
    triplet_relation,
    voxel_tap,
    vvor,
)
from .batches import as_batch

__all__ = [
    "PointSet",
    "Rulebook",
    "build_full_cover_rulebook",
    "build_generative_rulebook",
    "build_partition_rulebook",
    "build_rulebook",
    "build_subdivision_rulebook",
    "clip_neighbors",
    "grid_downsample",
    "indexed_distance",
    "indexed_distance_blocked",
    "indexed_pair_distance",
    "mvmr",
    "mvmr_on",
    "mvmr_with_grad",
    "nearest_neighbors",
    "point_conv",
    "radius_scaler",
    "radius_search",
    "rulebook_from_triplets",
    "sparse_matrix_vector_multiplication_reduction",
    "sparse_vector_vector_outer_product_reduction",
    "triplet_relation",
    "voxel_tap",
    "vvor",
]


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
    """y[r, g] = sum over the triplets t with o_idx[t] == r of a[a_idx[t], g] b[b_idx[t], g].

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
    """u[r, g, m, c] = sum over t with o_idx[t] == r of a[a_idx[t], g, m] b[b_idx[t], g, c]."""
    return vvor(a, a_idx, b, b_idx, o_idx, n_o, stream=stream)


mvmr_with_grad = sparse_matrix_vector_multiplication_reduction  # it has all derivatives already


def nearest_neighbors(
    points: mx.array,
    queries: mx.array,
    lengths: mx.array | None = None,
    query_lengths: mx.array | None = None,
) -> tuple[mx.array, mx.array]:
    """(rows, distances) of the nearest point of each query in its own cloud.

    Ties go to the lowest row; in an empty cloud row and distance are -1 and inf.
    """
    clouds = [
        as_batch(p, lengths=n).indices for p, n in ((points, lengths), (queries, query_lengths))
    ]
    found = ops.build_knn_relation(
        points, queries, k=1, batch_indices=clouds[0], query_batch_indices=clouds[1]
    )
    if not found.edges.source_rows.size:
        return mx.full((queries.shape[0],), -1, dtype=mx.int32), mx.full(
            (queries.shape[0],), float("inf")
        )
    some = found.query_counts > 0
    place = mx.where(some, found.row_offsets[:-1], 0)
    return mx.where(some, found.edges.source_rows[place], -1), mx.where(
        some, mx.sqrt(found.distances[place]), float("inf")
    )
