"""Cases of coordinates, neighbors, voxels and coding: (name, function)."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx_lattice as ml
import numpy as np
from inputs import cloud_of, numbers, surface, tensor, with_gradient
from mlx_lattice import ops


def coordinates() -> Any:
    x, y = tensor(3000, 4), tensor(2500, 4, seed=31)
    a, b = x.coords, y.coords
    near = a + mx.array([0, 100, 100, 100])  # orders take no negative coordinates
    yield "coords/downsample", lambda: ops.downsample_coords(a, 3)
    yield "coords/union", lambda: ops.union_coords(a, b)
    yield "coords/intersection", lambda: ops.intersection_coords(a, b)
    yield "coords/difference", lambda: ops.difference_coords(a, b)
    yield "coords/lookup", lambda: [ops.lookup_coords(a, b), ops.contains_coords(a, b)]
    yield "coords/inverse", lambda: ops.inverse_map(a, b)
    yield (
        "coords/orders",
        lambda: [
            ops.morton_codes(near),
            ops.morton_order(near),
            ops.morton_sort_coords(near),
            ops.hilbert_order(near),
        ],
    )
    half = ops.occupancy_downsample(a)
    yield "coords/occupancy", lambda: ops.occupancy_downsample(a)
    yield "coords/expand", lambda: ops.occupancy_expand(half.coords, half.occupancy)
    parents = mx.arange(0, 50, dtype=mx.int32)
    yield "coords/children", lambda: ops.child_coords_from_indices(a, parents, parents % 8)
    for join in ("inner", "left", "outer"):
        yield f"align/{join}", lambda j=join: ops.align_sparse(x, y, join=j)
        yield (
            f"align/coords/{join}",
            lambda j=join: ops.build_sparse_alignment(a, None, b, None, join=j),
        )
        yield f"cat_aligned/{join}", lambda j=join: ops.sparse_cat_aligned(x, y, join=j)
        for word in ("add", "sub", "mul", "maximum", "minimum"):
            run = getattr(ops, "sparse_" + word)

            def of(f: Any, g: Any, j: str = join, run: Any = run) -> mx.array:
                return run(x.with_feats(f), y.with_feats(g), join=j).feats

            yield from with_gradient(f"algebra/{word}/{join}", of, x.feats, y.feats)
    yield "algebra/binary", lambda: ops.sparse_binary(x, y, "add", rhs_fill=0.5)
    yield "algebra/binary_op", lambda: ops.sparse_binary_op(x, y, "mul", lhs_fill=0.5)
    yield "cat", lambda: ops.cat([x, x])
    yield "crop", lambda: ops.crop(x, min_coord=-5, max_coord=9)
    rows = mx.arange(0, 1000, 3, dtype=mx.int32)
    yield "prune", lambda: ops.prune(x, rows)
    yield "prune_mask", lambda: ops.prune_mask(x, x.feats[:, 0] > 0)
    yield "gather_aligned", lambda: ops.gather_aligned_features(x, rows - 1, fill=2.0)
    yield "reindex", lambda: ops.reindex_sparse(x, b, fill=0.25)
    yield "replace_feature", lambda: ops.replace_feature(x, x.feats + 1)
    yield "topk", lambda: ops.topk_rows(ml.SparseTensor(a, x.feats[:, :1]), [100, 200])
    double = mx.concatenate([a, a[:500]])
    more = mx.concatenate([x.feats, x.feats[:500]])
    for mode in ("sum", "mean", "max"):
        yield (
            f"from_coordinates/{mode}",
            lambda m=mode: ops.sparse_from_coordinates(double, more, duplicate_reduction=m),
        )
    yield "collate", lambda: ops.sparse_collate([a[:100, 1:], b[:80, 1:]], [more[:100], more[:80]])


def neighbors() -> Any:
    x, y = tensor(2000, 8), tensor(1500, 8, seed=61)
    yield "knn", lambda: ops.knn_relation(x, y, k=5)
    yield "radius", lambda: ops.radius_relation(x, y, radius=3.0)
    yield "radius/most", lambda: ops.radius_relation(x, radius=4.0, max_neighbors=6)
    yield "knn/coords", lambda: ops.build_knn_relation(x.coords, k=3)
    yield "radius/coords", lambda: ops.build_radius_relation(x.coords, radius=2.0)
    r = ops.knn_relation(x, y, k=5)
    gather = ops.gather_neighbor_features
    yield from with_gradient("neighbors/gather", lambda f: gather(f, r), x.feats)
    cloud = cloud_of(3000).positions
    values = numbers(3000, 12, seed=62)
    yield "quantize_points", lambda: ops.sparse_quantize(cloud, 0.05)
    for mode in ("mean", "sum", "max"):
        yield from with_gradient(
            f"voxelize/{mode}",
            lambda f, m=mode: ops.voxelize(cloud, f, 0.05, reduction=m).feats,
            values,
        )
    quantized = ops.sparse_quantize(cloud, 0.05)
    yield "voxelize/given", lambda: ops.voxelize_with_quantization(quantized, values)
    voxels = ops.voxelize(cloud, values, 0.05)
    yield from with_gradient(
        "devoxelize", lambda f: ops.devoxelize(cloud, voxels.with_feats(f), 0.05), voxels.feats
    )
    maps = ops.build_point_voxel_map(cloud, voxels.coords, None, 0.05)
    yield "point_voxel_map", lambda: maps
    yield "interpolate", lambda: ops.interpolate_point_features(voxels.feats, maps)


def coding() -> Any:
    coords = surface(3000, 71)
    n = coords.shape[0]
    colors = mx.array(np.random.default_rng(72).integers(0, 255, (n, 3)).astype(np.uint8))
    encoded = ops.encode_points(coords, {"color": colors})
    yield "codec/encode", lambda: encoded
    yield "codec/decode", lambda: ops.decode_points(encoded).coords
    prob = mx.softmax(numbers(400, 16, seed=73), axis=-1)
    symbols = mx.array(np.random.default_rng(74).integers(0, 16, 400).astype(np.int16))
    cdf = ops.normalized_cdf(prob)
    yield "entropy/cdf", lambda: cdf
    yield "entropy/range", lambda: ops.range_encode(cdf, symbols)
    yield "entropy/range/back", lambda: ops.range_decode(cdf, ops.range_encode(cdf, symbols))
    for kind in ("range", "rans"):
        encode = getattr(ops, kind + "_encode_from_prob")
        decode = getattr(ops, kind + "_decode_from_prob")
        yield f"entropy/{kind}/prob", lambda e=encode: e(prob, symbols)
        yield f"entropy/{kind}/prob/back", lambda e=encode, d=decode: d(prob, e(prob, symbols))
