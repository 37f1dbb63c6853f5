"""What every public function does on a GPU: operations of the route table, or why there is none.

Operations of the table are in backticks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_MLX = "operations of MLX, on the GPU"
_SHARED = "geometry, which the CPU makes at once in shared memory, because it needs the sizes"
_NUMBERS = "a few numbers, no array to compute on"
_SEQUENCE = "a stream of bits, which the CPU codes symbol by symbol"
_CHOSEN = "`gather`; the CPU chooses the rows at once"
_POINTS = "`conv`, `outer`, `linear`, `pool` and `segments` through its layers; geometry on the CPU"
_TRIPLETS = "`per_edge_apply`; gradients `per_edge_apply` and `per_edge_outer`"
_NORM = "`batch_norm`; gradients `batch_norm_vjp`, second gradients `sum_rows`"

OPS = {
    "`relate`, then `conv`, of 1x1x1 `linear`; gradients `conv`, `outer` and `sum_rows`": """
        conv3d subm_conv3d conv_transpose3d generative_conv_transpose3d
        normalized_subm_conv3d normalized_conv_transpose3d
        normalized_generative_conv_transpose3d
    """,
    "`linear`; gradients `linear`, `outer` and `sum_rows`": "linear linear_features",
    "`relate`, then `pool`; tangents of max `argmax`": """
        pool3d sum_pool3d avg_pool3d max_pool3d pool_transpose3d trilinear_upsample3d
    """,
    "`segments`; gradients `gather`, tangents of max `argmax`": """
        global_pool global_sum_pool global_avg_pool global_max_pool
    """,
    "`gather`; gradients `segments`": """
        broadcast_add broadcast_mul gather_aligned_features sparse_binary sparse_binary_op
        sparse_add sparse_sub sparse_mul sparse_maximum sparse_minimum
    """,
    "`gather` and `join_columns`; gradients `segments` and `take_columns`": """
        broadcast_cat cat sparse_cat_aligned
    """,
    "`gather` and `segments`; the CPU finds duplicates at once": """
        sparse_from_coordinates sparse_collate
    """,
    "`lookup` and `gather`; gradients `segments`": "reindex_sparse",
    _CHOSEN: "crop prune prune_mask",
    "`map_rows`; the CPU finds voxels at once": "voxelize voxelize_with_quantization devoxelize",
    "`map_rows` and `take_columns`; gradients `map_rows`": "to_slots",
    "`segments`; gradients `gather`": "grid_pool",
    "`gather`; gradients of rows `segments`": "grid_unpool",
    "`map_rows`": "to_rows interpolate_point_features gather_neighbor_features",
    "`lookup`": "lookup_coords contains_coords inverse_map intersection_coords difference_coords",
    "`unique`": "union_coords downsample_coords",
    "`relate`": """
        build_kernel_relation build_submanifold_kernel_relation build_target_kernel_relation
        build_transposed_kernel_relation build_generative_relation
        build_target_transposed_relation
    """,
    "`neighbors`": "build_knn_relation build_radius_relation knn_relation radius_relation",
    _MLX: """
        relu sigmoid silu tanh leaky_relu softplus dropout relu_features
        sigmoid_features silu_features tanh_features leaky_relu_features
        softplus_features dropout_features quantize_weight dequantize_weight
    """,
    "`gelu`; the tanh form and other activations by MLX": "gelu gelu_features activation",
    "`row_norm`; gradients `row_norm_vjp`": """
        layer_norm layer_norm_features rms_norm rms_norm_features
    """,
    _NORM: "batch_norm batch_norm_act batch_norm_features",
    "`sum_rows`": "feature_statistics",
    "`adamw`": "adamw_step",
    "`attention`; gradients `attention_vjp`": "attention",
    "`neighbor_attention`; gradients `neighbor_attention_vjp`": "neighbor_attention",
    "`rotary`": "rotary",
    "`relate`; the manager of the tensor keeps the relation": """
        kernel_relation submanifold_kernel_relation target_kernel_relation
        transposed_kernel_relation generative_kernel_relation
        target_transposed_kernel_relation
    """,
    _SHARED: """
        align_sparse build_sparse_alignment build_point_voxel_map sparse_quantize
        morton_codes morton_order morton_sort_coords hilbert_order occupancy_downsample
        occupancy_expand child_coords_from_indices topk_rows knn_rows estimate_normals
        farthest_point_sample attention_patches attention_windows curve_codes
        curve_sort_coords grid_pooling
    """,
    _NUMBERS: "kernel_offsets replace_feature",
    _SEQUENCE: """
        normalized_cdf range_encode range_decode range_encode_from_prob
        range_decode_from_prob rans_encode_from_prob rans_decode_from_prob encode_points
        decode_points
    """,
}

POINTS = {
    _TRIPLETS: """
        mvmr mvmr_on mvmr_with_grad sparse_matrix_vector_multiplication_reduction
    """,
    "`conv`; gradients `conv` and `outer`": "point_conv",
    "`per_edge_outer`; gradients `per_edge_apply`": """
        vvor sparse_vector_vector_outer_product_reduction
    """,
    "`conv`; the CPU makes the rulebook at once": """
        conv_with_stride conv_with_stride_disjoint conv_with_stride_full_cover
    """,
    "`pool`; tangents of max `argmax`": "indexed_segment_reduce max_pool3d",
    "`segments`; gradients `gather`, tangents of max `argmax`": """
        segment_reduce segment_reduce_offsets scatter_reduce
    """,
    "`gather`; gradients `segments`": "segment_expand",
    "`segments` and `gather`": "segment_softmax",
    "`distance`; gradients `distance_vjp`, of more than 16 channels `linear`": """
        indexed_distance indexed_distance_blocked
    """,
    "`neighbors`; relative positions by MLX": "knn_graph",
    _MLX: "indexed_pair_distance",
    _SHARED: """
        build_rulebook build_partition_rulebook build_full_cover_rulebook
        build_generative_rulebook build_subdivision_rulebook build_triplets
        rulebook_from_triplets triplet_relation radius_search nearest_neighbors
        clip_neighbors grid_downsample grid_sample_filter voxel_tap voxelize_3d
        statistical_inliers radius_inliers icp
    """,
    _NUMBERS: "radius_scaler radius_scaler_for_kernel_size",
    _POINTS: """
        resnet18 resnet34 resnet50 resnet101 resnet152 resnext50_32x4d resnext101_32x8d
        wide_resnet50_2 wide_resnet101_2 train_pointcnn evaluate
    """,
    "what the given functions do": "custom_sparse_op_with_grad",
}


def rows() -> Iterator[Any]:
    """(function, what happens) for each public function, by module and name."""
    for module, table in (("ops", OPS), ("points", POINTS)):
        found = {
            f"{module}.{name}": what for what, names in table.items() for name in names.split()
        }
        yield from sorted(found.items())
