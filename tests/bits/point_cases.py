"""Cases of points: searches, rulebooks, sums over triplets and segments, layers."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
from inputs import DTYPES, cloud_of, numbers, weights_of, with_gradient
from mlx_lattice import points


def point_geometry() -> Any:
    cloud = cloud_of()
    xyz = cloud.positions
    yield "points/radius", lambda: points.radius_search(xyz, xyz, 0.15)
    found = points.radius_search(xyz, xyz, 0.15)
    yield "points/clip", lambda: points.clip_neighbors(*found, 4)
    yield "points/nearest", lambda: points.nearest_neighbors(xyz, xyz[::3])
    yield "points/knn_graph", lambda: points.knn_graph(xyz, 8)
    yield "points/downsample", lambda: points.grid_downsample(cloud, 0.2)
    yield "points/downsample/alias", lambda: points.grid_sample_filter(cloud, 0.3)
    yield "points/rulebook", lambda: points.build_rulebook(cloud, cloud)
    yield "points/partition", lambda: points.build_partition_rulebook(cloud, 2.0, 2)
    yield "points/cover", lambda: points.build_full_cover_rulebook(cloud, 2.0, 5)
    yield "points/generative", lambda: points.build_generative_rulebook(cloud)
    yield "points/subdivision", lambda: points.build_subdivision_rulebook(cloud)
    yield "points/triplets", lambda: points.build_triplets(cloud)
    yield "points/tap", lambda: [points.voxel_tap(xyz, 0.1, 3), points.voxelize_3d(xyz, 0.1, 3)]
    yield (
        "points/scaler",
        lambda: [points.radius_scaler(3), points.radius_scaler_for_kernel_size(5)],
    )
    a, b = numbers(300, 19, seed=81), numbers(200, 19, seed=82)
    at = mx.array(np.random.default_rng(83).integers(0, 200, 300).astype(np.int32))
    yield "distance", lambda: points.indexed_distance(a, b)
    yield "distance/blocked", lambda: points.indexed_distance_blocked(a, b)
    yield "distance/pairs", lambda: points.indexed_pair_distance(a, mx.arange(300), b, at)


def segment_sums(word: str, f: Any, at: Any, lengths: Any) -> Any:
    n = f.shape[0]
    for mode in ("sum", "mean", "max", "min"):
        yield from with_gradient(
            f"segments/{mode}/{word}",
            lambda f, m=mode: points.segment_reduce(f, lengths, m),
            f,
        )
        yield from with_gradient(
            f"segments/scatter/{mode}/{word}",
            lambda f, m=mode, i=at % 97: points.scatter_reduce(f, i[:n], 97, m),
            f,
        )
        yield (
            f"segments/indexed/{mode}/{word}",
            lambda f=f, m=mode, i=at: points.indexed_segment_reduce(
                f, i, mx.array([1000, 0, 3000]), m
            ),
        )
    yield (
        f"segments/offsets/{word}",
        lambda f=f: points.segment_reduce_offsets(f, mx.array([0, 10, 10, n])),
    )
    yield f"segments/expand/{word}", lambda f=f: points.segment_expand(f[:2], lengths)
    yield from with_gradient(
        f"segments/softmax/{word}", lambda f: points.segment_softmax(f, lengths), f
    )


def point_sums() -> Any:
    full = points.sparse_matrix_vector_multiplication_reduction
    outer, grad = points.sparse_vector_vector_outer_product_reduction, points.mvmr_with_grad
    cloud = cloud_of()
    n = cloud.positions.shape[0]
    lengths = cloud.lengths
    for word, dtype in DTYPES.items():
        f = numbers(n, 16, seed=91, dtype=dtype)
        w = 0.1 * numbers(27, 1, 16, 24, seed=92, dtype=dtype)
        r = points.build_rulebook(cloud, cloud).relation
        yield from with_gradient(
            f"point_conv/{word}", lambda f, w, r=r: points.point_conv(f, w, r), f, w
        )
        rng = np.random.default_rng(93)
        ids = [mx.array(rng.integers(0, top, 4000).astype(np.int32)) for top in (30, n, 700)]
        mats = 0.1 * numbers(30, 2, 8, 8, seed=94, dtype=dtype)
        rows = numbers(n, 2, 8, seed=95, dtype=dtype)

        def product(a: Any, b: Any, ids: Any = ids) -> Any:
            return points.mvmr(a, ids[0], b, ids[1], ids[2], 700)

        yield from with_gradient(f"mvmr/{word}", product, mats, rows)
        yield f"mvmr/full/{word}", lambda a=mats, b=rows, i=ids: full(a, i[0], b, i[1], i[2], 700)
        yield f"mvmr/grad/{word}", lambda a=mats, b=rows, i=ids: grad(a, i[0], b, i[1], i[2], 700)
        related = points.triplet_relation(*ids, n_a=30, n_b=n, n_o=700)
        yield f"mvmr/on/{word}", lambda a=mats, b=rows, r=related: points.mvmr_on(a, b, r)
        one = numbers(n, 2, 6, seed=96, dtype=dtype)
        at = [ids[1], ids[1][::-1], ids[0]]
        yield f"vvor/{word}", lambda a=one, b=rows, i=at: points.vvor(a, i[0], b, i[1], i[2], 30)
        yield f"vvor/full/{word}", lambda a=one, b=rows, i=at: outer(a, i[0], b, i[1], i[2], 30)
        yield from segment_sums(word, f, at[0], lengths)
    book, given = points.rulebook_from_triplets, ([0, 0, 1], [0, 1, 2], [0, 1, 1])
    yield "points/from_triplets", lambda: book(*map(mx.array, given), n_out=2, n_in=3, n_kernels=2)
    yield "points/pool", lambda: points.max_pool3d(numbers(n, 8, seed=97), cloud)


def point_layers() -> Any:
    cloud = cloud_of(900)
    f, lengths = numbers(900, 8, seed=102), cloud.lengths
    for name in ("RaggedBatchNorm", "RaggedInstanceNorm", "RaggedLayerNorm"):
        yield "points/" + name, lambda n=name: weights_of(getattr(points, n)(8))(f, lengths)
    yield "points/RowNorm", lambda: weights_of(points.RowNorm(8))(f)
    yield (
        "points/RaggedGroupNorm",
        lambda: weights_of(points.RaggedGroupNorm(channels=8, groups=2))(f, lengths),
    )
    yield "points/GlobalPool", lambda: points.GlobalPool("mean")(f, lengths)
    stride = {"stride": 2}
    for name, options in {
        "PointConv3d": {},
        "FullCoverConv3d": stride,
        "PartitionConv3d": stride,
        "GenerativeConv3d": {},
    }.items():
        yield (
            "points/" + name,
            lambda n=name, o=options: weights_of(getattr(points, n)(8, 12))(f, cloud, **o)[0],
        )
    strided = points.conv_with_stride
    yield "points/strided", lambda: strided(weights_of(points.PointConv3d(8, 4)), f, cloud, 2)[0]
    apart = points.conv_with_stride_disjoint
    yield (
        "points/disjoint",
        lambda: apart(weights_of(points.PointConv3d(8, 4, 2)), f, cloud, 2)[0],
    )
    cover = points.conv_with_stride_full_cover
    yield (
        "points/full_cover",
        lambda: cover(weights_of(points.PointConv3d(8, 4, 5)), f, cloud, 2)[0],
    )

    def point_unet() -> Any:
        batch = points.PointCloudBatch(cloud.positions, lengths=lengths)
        net = weights_of(points.PointUNet(num_classes=3, channels=(8, 8), blocks=(1, 1)))
        return net(batch)

    yield "points/PointUNet", point_unet
