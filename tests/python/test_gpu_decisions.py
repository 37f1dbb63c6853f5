"""Operations on a GPU: whatever is decided for them is decided for the GPU."""

import mlx.core as mx
import mlx_lattice as ml
import numpy as np
from metal.host import standing_in
from mlx_lattice import ops, points


def scene(n=40, channels=4):
    random = np.random.default_rng(0)
    coords = np.unique(random.integers(0, 5, (n, 4)) * [0, 1, 1, 1], axis=0).astype(np.int32)
    return ml.SparseTensor(
        mx.array(coords),
        mx.array(random.standard_normal((len(coords), channels)).astype(np.float32)),
        2,
    )


def same(names, *arguments):
    return dict.fromkeys(names.split(), arguments)


def calls():
    x, y = scene(), scene(30)
    c, d, f = x.coords, y.coords, x.feats
    n = len(c)
    place = mx.array(np.random.default_rng(1).uniform(0, 3, (20, 3)).astype(np.float32))
    w27, w8, w1 = mx.ones((27, 4, 4)), mx.ones((8, 4, 4)), mx.ones((4, 4))
    ids, lengths, batch = mx.zeros((n,), mx.int32), mx.array([n - 3, 3]), mx.ones((1, 4))
    neighbors = ops.build_knn_relation(c, k=2)
    quantization = ops.sparse_quantize(place)
    corners = ops.build_point_voxel_map(place, quantization.coords, None, 1.0)
    matrices = mx.ones((2, 1, 4, 4))
    books = points.triplet_relation(ids, ids, ids, n_a=2, n_b=n, n_o=n)
    clouds = points.PointSet(place, grid=1.0)
    on_ops = {
        **same("conv3d subm_conv3d normalized_subm_conv3d", x, w27),
        **same("conv_transpose3d generative_conv_transpose3d", x, w8),
        **same("normalized_conv_transpose3d normalized_generative_conv_transpose3d", x, w8),
        **same("sum_pool3d avg_pool3d max_pool3d pool_transpose3d trilinear_upsample3d", x),
        **same("global_sum_pool global_avg_pool global_max_pool", x),
        **same("sparse_add sparse_sub sparse_mul sparse_maximum sparse_minimum", x, y),
        **same("broadcast_add broadcast_mul broadcast_cat", x, batch),
        **same("lookup_coords contains_coords inverse_map union_coords", c, d),
        **same("intersection_coords difference_coords", c, d),
        **same("build_kernel_relation build_submanifold_kernel_relation", c),
        **same("build_transposed_kernel_relation build_generative_relation", c),
        **same("build_target_kernel_relation build_target_transposed_relation", c, d),
        "attention": (*[mx.ones((n, 2, 4))] * 3, [0, 3, n]),
        "linear": (x, w1),
        "linear_features": (f, w1),
        "downsample_coords": (c,),
        "gather_aligned_features": (x, mx.arange(n - 1, -1, -1)),
        "reindex_sparse": (x, y),
        "prune_mask": (x, mx.arange(n) < 5),
        "voxelize": (place, mx.ones((20, 2)), 1.0),
        "voxelize_with_quantization": (quantization, mx.ones((20, 2))),
        "interpolate_point_features": (mx.ones((len(quantization.coords), 2)), corners),
        "gather_neighbor_features": (x, neighbors),
    }
    on_points = {
        "mvmr": (matrices, ids, f.reshape(n, 1, 4), ids, ids, n),
        "mvmr_on": (matrices, f.reshape(n, 1, 4), books),
        "vvor": (f.reshape(n, 1, 4), ids, f.reshape(n, 1, 4), ids, ids, n),
        "point_conv": (f, mx.ones((27, 1, 4, 4)), ops.build_kernel_relation(c)),
        "indexed_segment_reduce": (f, ids, lengths, "max"),
        "max_pool3d": (mx.ones((20, 2)), clouds),
        "segment_reduce": (f, lengths, "sum"),
        "scatter_reduce": (f, ids, 2, "mean"),
        "segment_expand": (mx.ones((2, 3)), lengths),
        "segment_softmax": (f, lengths),
        "indexed_distance": (f, f),
        "indexed_distance_blocked": (f, f, 8),
        "knn_graph": (place, 3),
    }
    yield from (("ops", ops, name, arguments) for name, arguments in on_ops.items())
    yield from (("points", points, name, arguments) for name, arguments in on_points.items())


def test_decisions_are_for_the_gpu():
    """On a GPU that computes nothing."""
    wrong = []
    for module, place, name, arguments in list(calls()):
        zeros = lambda launch, _inputs: [mx.zeros(*output) for output in launch.outputs]
        with standing_in(zeros):
            decisions = ml.explain(getattr(place, name), *arguments).decisions
        if {d.device for d in decisions} != {"gpu"}:
            wrong.append((module, name, [(d.operation, d.device) for d in decisions]))
    assert wrong == []


def test_every_operation_of_the_table_runs_on_a_gpu():
    routes = ml.routes()
    assert {r.operation for r in routes if r.device == "gpu"} == {r.operation for r in routes}
