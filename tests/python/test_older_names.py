"""Users of the older package: the same call gives the same result. Every name is called."""

import mlx.core as mx
import mlx.nn
import mlx_lattice as ml
import numpy as np
import pytest
from mlx_lattice import SparseTensor, core, nn, ops, points

C = mx.array([[0, 0, 0, 0], [0, 1, 0, 0], [0, 5, 0, 0], [1, 1, 0, 0]])
D = mx.array([[0, 5, 0, 0], [0, 7, 0, 0]])
RELATION_NAMES = (
    "NeighborEdges NeighborRelation RelationCSRView RelationEdges "
    "RelationImplicitGemmView RelationKind RelationSortedImplicitGemmView "
    "RelationView SparseRelationContract KernelRelation KernelSpec "
    "build_kernel_relation build_submanifold_kernel_relation "
    "build_target_kernel_relation build_transposed_kernel_relation "
    "build_generative_relation kernel_offsets"
)
COORDS_NAMES = (
    "CoordinateSet CoordinateOrdering SparseAlignment SparseOccupancy "
    "OccupancyExpansion downsample_coords union_coords intersection_coords "
    "difference_coords lookup_coords contains_coords inverse_map "
    "build_sparse_alignment morton_codes morton_order morton_sort_coords "
    "occupancy_downsample occupancy_expand child_coords_from_indices"
)
CORE_NAMES = (
    "QuantizedWeightLayout Triple triple build_point_voxel_map "
    "build_sparse_alignment child_coords_from_indices dequantize_weight "
    "quantize_weight interpolate_point_features occupancy_downsample "
    "occupancy_expand"
)
OPS_NAMES = (
    "CoordinateOrdering CoordinateSet OccupancyExpansion SparseAlignment "
    "SparseOccupancy SparseQuantization"
)


def tensor(coords=C, channels=2, **options):
    return SparseTensor(coords, mx.random.normal((coords.shape[0], channels)), **options)


@pytest.mark.parametrize(
    "module, names",
    [
        (core, CORE_NAMES),
        (core, RELATION_NAMES),
        (core.relations, RELATION_NAMES),
        (core.coords, COORDS_NAMES),
        (ops, OPS_NAMES),
    ],
)
def test_names(module, names):
    assert [n for n in names.split() if not hasattr(module, n)] == []
    assert core.triple(2) == (2, 2, 2) and core.triple((1, 2, 3)) == (1, 2, 3)
    assert core.Triple == tuple[int, int, int]


def test_inverse_map_is_by_target_row():
    assert ops.inverse_map(C, D).tolist() == [2, -1]
    manager = core.CoordinateManager()
    coarse = manager.insert_coords(mx.array([[0, 0, 0, 0], [0, 2, 0, 0]]), 2)
    fine = manager.insert_coords(C, 1)
    assert manager.inverse_map(coarse, fine).tolist() == [0, 0, 1, -1]


def test_algebra_defaults():
    x, y = tensor(), tensor(D)
    assert ops.align_sparse(x, y).coords.tolist() == [[0, 5, 0, 0]]
    both = x & y
    np.testing.assert_allclose(
        np.array(both.feats), np.array(x.feats[2:3] * y.feats[:1]), rtol=1e-6
    )


def test_counts_are_arrays():
    r = ops.build_kernel_relation(C)
    assert isinstance(r.counts, mx.array) and r.counts.tolist() == [r.edge_count, 4]
    n = ops.build_knn_relation(C, k=2)
    assert n.counts.tolist() == [n.edge_count, 4] and n.query_counts.tolist() == [2, 2, 2, 1]


def test_reuse_and_reindex():
    x, y = tensor(), tensor(mx.array(np.array(C)))
    assert x.reuse_coords_from(y).same_coords(y)
    with pytest.raises(ValueError, match="same coordinates row by row; reindex_sparse"):
        x.reuse_coords_from(tensor(C[::-1]))
    target = tensor(D, batch_counts=(2,))
    moved = ops.reindex_sparse(x, target)
    assert moved.same_coords(target) and moved.batch_counts == (2,)
    assert moved.feats[0].tolist() == x.feats[2].tolist() and moved.feats[1].tolist() == [0, 0]


def test_relation_attributes():
    r = ops.build_kernel_relation(C)
    assert r.row_offsets.tolist() == r.output_csr.row_offsets.tolist()
    assert r.in_row_offsets.tolist() == r.input_csr.row_offsets.tolist()
    assert r.in_edge_ids.tolist() == r.input_csr.edge_ids.tolist()
    assert r.kernel_row_offsets.tolist() == r.kernel_csr.row_offsets.tolist()
    assert r.kernel_edge_ids.tolist() == r.kernel_csr.edge_ids.tolist()
    assert (r.n_in_capacity, r.n_out_capacity, r.edge_capacity) == (4, 4, r.edge_count)
    contract = core.SparseRelationContract("forward", 4, 4, 27, r.edge_count)
    assert r.contract == contract and r.contract.kind is core.RelationKind.FORWARD
    for view in ("out_view", "in_view", "kernel_view"):
        assert isinstance(getattr(r, view), core.RelationCSRView)
    assert isinstance(r.edges, core.RelationEdges)
    assert isinstance(r.require_implicit_gemm(), core.RelationImplicitGemmView)
    found = r.require_sorted_implicit_gemm()
    assert isinstance(found, core.RelationSortedImplicitGemmView)
    assert found.tile_masks.shape == (4,)
    n = ops.build_radius_relation(C, radius=1.5)
    assert (n.query_count, n.n_query_capacity) == (4, 4)


def test_constructors():
    rows = mx.array([0, 1])
    r = core.KernelRelation(
        rows, rows, mx.array([0, 0]), kernel_offsets=((0, 0, 0),), out_coords=C[:3], n_in_capacity=2
    )
    assert (r.n_in, r.n_out, r.n_kernels) == (2, 3, 1) and r.counts.tolist() == [2, 3]
    assert r.out_coords.shape == (3, 4) and r.kernel_offsets == ((0, 0, 0),)
    r = core.KernelRelation(
        rows, rows, mx.array([0, 0]), n_in_capacity=2, n_out_capacity=3, n_kernels=1
    )
    assert (r.n_in_capacity, r.n_out_capacity) == (2, 3)
    with pytest.raises(ValueError, match="n_in must equal n_in_capacity"):
        core.KernelRelation(
            rows, rows, mx.array([0, 0]), n_in=2, n_in_capacity=5, n_out=3, n_kernels=1
        )
    with pytest.raises((TypeError, ValueError), match="n_in_capacity must"):
        core.KernelRelation(rows, rows, rows, n_in=2, n_in_capacity=np.zeros((3, 4)), n_out=3)
    with pytest.raises(TypeError, match=r"\[KernelRelation\] n_kernels must be"):
        core.KernelRelation(rows, rows, rows)
    n = core.NeighborRelation(mx.array([0, 0, 2]), mx.array([1, 0, 1]), n_query=3, n_source=2)
    assert n.query_counts.tolist() == [2, 0, 1] and n.distances.tolist() == [0, 0, 0]
    for q, s in (([1, 0], [0, 0]), ([0, 3], [0, 0]), ([0, 1], [0, 2])):
        with pytest.raises(ValueError, match=r"\[NeighborRelation\]"):
            core.NeighborRelation(mx.array(q), mx.array(s), n_query=3, n_source=2)
    n = core.NeighborRelation(mx.array([0]), mx.array([1]), n_query_capacity=3, n_source_capacity=2)
    assert (n.n_query, n.n_source) == (3, 2)
    q, s, d = mx.array([0, 0, 2]), mx.array([1, 0, 1]), mx.array([0.0, 1.0, 0.5])
    n = core.NeighborRelation(q, s, mx.array([0, 1, 0]), d, n_query_capacity=3, n_source_capacity=2)
    assert n.distances.tolist() == [0, 1, 0.5] and n.edges.neighbor_ids.tolist() == [0, 1, 0]
    with pytest.raises(ValueError, match=r"neighbor_ids\[1\] must be the rank of the neighbor, 1"):
        core.NeighborRelation(q, s, mx.array([0, 0, 0]), d, n_query=3, n_source=2)
    with pytest.raises(ValueError, match=r"\[NeighborRelation\] neighbor_ids"):
        core.NeighborRelation(q, s, d, n_query=3, n_source=2)
    with pytest.raises(TypeError, match=r"\[NeighborRelation\] n_source must be"):
        core.NeighborRelation(mx.array([0]), mx.array([1]), n_query=3)
    o = core.SparseOccupancy(C, mx.array([4]), mx.array([1, 2, 3, 4]))
    assert o.capacity == o.active_count == 4
    o = core.SparseOccupancy(C, mx.array([3]), mx.array([1, 2, 3, 4]))
    assert (o.capacity, o.active_count) == (4, 3)
    with pytest.raises(ValueError, match=r"\[SparseOccupancy\] active_rows must be in 0..4"):
        _ = core.SparseOccupancy(C, mx.array([9]), mx.array([1, 2, 3, 4])).active_count


def test_coordinate_sets_come_back():
    for found in (
        ops.downsample_coords(C),
        ops.union_coords(C, D),
        ops.intersection_coords(C, D),
        ops.difference_coords(C, D),
    ):
        assert isinstance(found, core.CoordinateSet)
        n = len(found)
        assert found.capacity == found.active_count == n and found.active_rows.tolist() == [n]
        assert (
            found.shape == (n, 4)
            and found.dtype == mx.int32
            and found.tolist() == found.coords.tolist()
        )
        assert np.array(found).shape == (n, 4) and mx.array(found).shape == (n, 4)
        assert found[0].tolist() == found.tolist()[0] and (found == found.coords).all().item()
        assert SparseTensor(found, mx.ones((n, 1))).active_count == n
        assert ops.build_kernel_relation(found).n_in == n
        assert ops.lookup_coords(found, found).tolist() == list(range(n))


def test_result_types():
    alignment = ops.build_sparse_alignment(C, None, D, None, join="outer")
    ordering, expansion = (
        ops.morton_sort_coords(C),
        ops.occupancy_expand(C, mx.array([1, 1, 1, 1], dtype=mx.uint8)),
    )
    quantization = ops.sparse_quantize(mx.zeros((3, 3)))
    for found, rows in ((alignment, 5), (ordering, 4), (expansion, 4), (quantization, 1)):
        assert found.capacity == found.active_count == rows
    assert ops.build_point_voxel_map(mx.zeros((3, 3)), C).point_count == 3
    manager = core.CoordinateManager()
    a, b = manager.insert_coords(C, 2), manager.insert_coords(D, 1)
    assert manager.target_transposed_view(a, b).n_out == 2


def test_occupancy_takes_active_rows_and_integers():
    two, four = mx.array([2]), ops.occupancy_downsample(C)
    assert four.coords.tolist() == [[0, 0, 0, 0], [0, 2, 0, 0], [1, 0, 0, 0]]
    for found in (core.occupancy_downsample(C, two), ops.occupancy_downsample(C, active_rows=two)):
        assert found.coords.tolist() == [[0, 0, 0, 0]] and found.occupancy.tolist() == [3]
    masks = four.occupancy.astype(mx.int32)  # the older package has int32
    found = ops.occupancy_expand(four.coords, masks)
    assert found.coords.tolist() == C.tolist() and found.child_indices.tolist() == [0, 1, 1, 1]
    for found in (
        core.occupancy_expand(four.coords, masks, two),
        ops.occupancy_expand(four.coords, masks, active_rows=two),
    ):
        assert found.coords.tolist() == C[:3].tolist()
    for wrong in (-1, 256):
        with pytest.raises(ValueError, match=r"\[occupancy_expand\] occupancy must hold 0..255"):
            ops.occupancy_expand(four.coords, mx.array([1, 1, wrong]))


def test_alignment_joins_inner_by_default():
    found = core.build_sparse_alignment(C, None, D, None)
    assert found.coords.tolist() == [[0, 5, 0, 0]]
    assert (found.lhs_rows.tolist(), found.rhs_rows.tolist()) == ([2], [0])
    found = ops.build_sparse_alignment(C, mx.array([2]), D, mx.array([2]), join="left")
    assert found.rhs_rows.tolist() == [-1, -1]


def test_the_other_names_work():
    """Names that no other test here calls."""
    assert core.coords.lookup_coords(C, D).tolist() == [2, -1]
    assert core.coords.contains_coords(C, D).tolist() == [True, False]
    assert core.coords.inverse_map(C, D).tolist() == [2, -1]
    positive = C[:3]
    codes = core.coords.morton_codes(positive).tolist()
    assert codes == [0, 1, 65] and core.coords.morton_order(positive).tolist() == [0, 1, 2]
    ordering = core.coords.morton_sort_coords(C)
    assert isinstance(ordering, ops.CoordinateOrdering)
    made = core.CoordinateOrdering(ordering.coords, ordering.order, ordering.inverse_rows)
    assert made.inverse_rows.tolist() == ordering.inverse_rows.tolist()
    for f in ("union_coords", "intersection_coords", "difference_coords", "downsample_coords"):
        assert getattr(core.coords, f) is getattr(ops, f)
    points_ = mx.array([[0.0, 0.0, 0.0], [0.5, 0.0, 0.0]])
    found = core.build_point_voxel_map(points_, C)
    got = core.interpolate_point_features(mx.array([[1.0], [3.0], [5.0], [7.0]]), found)
    assert got.tolist() == [[1.0], [2.0]]
    weight = mx.random.normal((8, 64))
    packed = core.quantize_weight(weight, bits=8)
    assert mx.abs(core.dequantize_weight(packed) - weight).max().item() < 0.05
    quantization = ops.sparse_quantize(points_)
    assert isinstance(quantization, ops.SparseQuantization)
    assert isinstance(ops.occupancy_downsample(C), ops.SparseOccupancy)
    assert isinstance(ops.build_sparse_alignment(C, None, D, None), ops.SparseAlignment)
    masks = mx.ones((4,), dtype=mx.uint8)
    assert isinstance(ops.occupancy_expand(C, masks), ops.OccupancyExpansion)
    assert isinstance(ops.union_coords(C, D), ops.CoordinateSet)
    relations = core.relations
    offsets = relations.kernel_offsets(relations.KernelSpec(3).size)
    assert len(offsets) == 27
    r = relations.build_target_kernel_relation(C, D, 1)
    assert isinstance(r, relations.KernelRelation) and r.edge_count == 1
    assert isinstance(r.output_csr, relations.RelationView)
    n = ops.build_knn_relation(C, k=1)
    assert isinstance(n, relations.NeighborRelation)
    assert isinstance(n.edges, relations.NeighborEdges)
    assert relations.build_transposed_kernel_relation(C, 2).edge_count == 32
    assert relations.build_generative_relation(C, 2).n_out == 32
    assert relations.build_submanifold_kernel_relation(C, 1).edge_count == 4


def test_from_components():
    x, manager = tensor(), core.CoordinateManager()
    y = SparseTensor.from_components(x.export_components(), coord_manager=manager)
    assert y.coord_manager is manager and y.coords.tolist() == C.tolist()


def test_voxel_arguments():
    p = mx.array([[0.2, 0.2, 0.2], [1.5, 0.2, 0.2], [9.0, 9.0, 9.0]])
    x = ops.voxelize(p, mx.ones((3, 1)))
    assert x.active_count == 3
    assert ops.voxelize(p, mx.ones((3, 1)), point_active_rows=mx.array([2])).active_count == 2
    assert ops.devoxelize(p, x).shape == (3, 1)
    found = ops.devoxelize(p, x, point_active_rows=mx.array([2]))
    assert mx.array_equal(found[:2], ops.devoxelize(p, x)[:2]) and found[2].tolist() == [0]
    found = core.build_point_voxel_map(p, x.coords, x.active_rows, point_active_rows=mx.array([2]))
    assert found.point_count == 3
    assert found.rows[2].tolist() == [-1] * 8 and found.weights[2].tolist() == [0] * 8
    made = ops.build_point_voxel_map(p, x.coords)
    assert mx.array_equal(ops.devoxelize(p, x, point_voxel_map=made), ops.devoxelize(p, x))


@pytest.mark.parametrize(
    "build",
    [
        ops.build_kernel_relation,
        ops.build_submanifold_kernel_relation,
        ops.build_transposed_kernel_relation,
        ops.build_generative_relation,
    ],
)
def test_active_rows_of_builders(build):
    two = mx.array([2], dtype=mx.int32)
    assert build(C, two).n_in == build(C, active_rows=two).n_in == build(C, active_rows=2).n_in == 2
    assert build(C, two, kernel_size=1).n_in == 2 and build(C, None).n_in == build(C).n_in == 4
    with pytest.raises(ValueError, match=r"active_rows must be in 0..4, found 9"):
        build(C, active_rows=9)


def test_active_rows_of_neighbors():
    n = ops.build_knn_relation(
        C, D, k=1, source_active_rows=mx.array([3]), query_active_rows=mx.array([1])
    )
    assert (n.n_source, n.n_query) == (3, 1)
    n = ops.build_radius_relation(
        C, D, radius=1.0, source_active_rows=mx.array([3]), query_active_rows=1
    )
    assert (n.n_source, n.n_query) == (3, 1)
    assert ops.build_target_kernel_relation(C, mx.array([2]), D).n_in == 2


def test_defaults_and_keywords():
    x = tensor()
    assert mx.array_equal(ops.pool3d(x).feats, ops.sum_pool3d(x).feats)
    assert mx.array_equal(ops.global_pool(x), ops.global_sum_pool(x))
    assert mx.array_equal(nn.Pool3d()(x).feats, ops.sum_pool3d(x).feats)
    for form, formula in (
        ("none", mlx.nn.gelu),
        ("precise", mlx.nn.gelu),
        (False, mlx.nn.gelu),
        ("tanh", mlx.nn.gelu_approx),
        (True, mlx.nn.gelu_approx),
        ("fast", mlx.nn.gelu_fast_approx),
    ):
        want = ops.gelu_features(x.feats, approximate=form)
        assert mx.allclose(want, formula(x.feats), rtol=1e-5, atol=1e-6)
        assert mx.array_equal(ops.gelu(x, approximate=form).feats, want)
        assert mx.array_equal(ops.activation(x.feats, kind="gelu", approximate=form), want)
        assert mx.array_equal(nn.GELU(form)(x).feats, want)
    with pytest.raises(ValueError, match='approximate must be a bool, "none", "precise"'):
        ops.gelu(x, approximate="erf")
    leaky = ops.leaky_relu_features(x.feats, negative_slope=0.3)
    assert mx.array_equal(ops.activation(x.feats, kind="leaky_relu", alpha=0.3), leaky)
    w, b, m, v = mx.array([2.0, 3]), mx.array([1.0, 1]), mx.array([0.5, 0.1]), mx.array([2.0, 4])
    named = ops.batch_norm_features(x.feats, scale=w, bias=b, mean=m, var=v)
    assert mx.array_equal(ops.batch_norm_features(x.feats, w, b, m, v), named)
    children = core.child_coords_from_indices(C, mx.array([0, 1, 2, 7]))
    want = ops.child_coords_from_indices(C, mx.arange(4, dtype=mx.int32), mx.array([0, 1, 2, 7]))
    assert children.tolist() == want.tolist()


def test_streams_of_decoders():
    prob, symbols = mx.array([[0.25, 0.75]] * 4), mx.array([0, 1, 1, 0])
    cdf = ops.normalized_cdf(prob)
    for encode, decode, table in (
        (ops.range_encode, ops.range_decode, cdf),
        (ops.range_encode_from_prob, ops.range_decode_from_prob, prob),
        (ops.rans_encode_from_prob, ops.rans_decode_from_prob, prob),
    ):
        data = encode(table, symbols)
        assert decode(table, stream=data).tolist() == decode(table, data).tolist() == [0, 1, 1, 0]
        with pytest.raises(TypeError, match="data must be bytes"):
            decode(table)


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_packed_weights_of_float32_run_on_16_bits(dtype):
    linear = nn.QuantizedLinear(input_dims=64, output_dims=8)
    x = mx.random.normal((5, 64)).astype(dtype)
    y = linear(x)
    assert y.dtype == dtype
    exact = linear(x.astype(mx.float32))
    np.testing.assert_allclose(
        np.array(y.astype(mx.float32)), np.array(exact), rtol=1e-2, atol=1e-2
    )
    conv = nn.QuantizedSubmConv3d(64, 8)
    s = SparseTensor(C, mx.random.normal((4, 64)).astype(dtype))
    assert conv(s).feats.dtype == dtype
    q = core.quantize_weight(mx.random.normal((8, 64)))
    assert core.QuantizedWeightLayout(q.layout) is core.QuantizedWeightLayout.LINEAR


def test_the_objects_that_were_given_come_back():
    feats = mx.ones((4, 2))
    x, manager = SparseTensor(C, feats), core.CoordinateManager()
    assert x.coords is C and x.feats is feats and x.replace(feats=feats).coords is C
    assert manager.coords(manager.insert_coords(C)) is C
    assert ops.build_submanifold_kernel_relation(C).out_coords is C
    r = ops.build_kernel_relation(C)
    assert r.row_offsets is r.output_csr.row_offsets and r.edges.capacity == r.edge_count
    assert r.in_row_offsets is r.input_csr.row_offsets
    # What somebody writes stays with the writer.
    feats += 1
    assert x.feats is not feats and x.feats.tolist() == [[1.0, 1.0]] * 4
    coords = mx.array(np.array(C))
    y = SparseTensor(coords, feats)
    coords[0] = 7
    assert y.coords is not coords and y.coords.tolist() == C.tolist()
    mine = r.output_csr.row_offsets
    np.array(mine, copy=False)[:] = 99
    assert r.row_offsets is not mine and r.row_offsets.tolist()[0] == 0


def test_active_rows_cut_coordinates_and_features():
    x = SparseTensor(C, mx.arange(12.0).reshape(6, 2), active_rows=mx.array([3]))
    assert x.coords.tolist() == C.tolist()[:3] and x.feats.tolist() == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(ValueError, match=r"active_rows must be in 0\.\.4"):
        SparseTensor(C, mx.ones((6, 2)), active_rows=mx.array([5]))


def test_sparse_tensors_are_coordinates_too():
    x, y = tensor(), tensor(D)
    for f in (ops.union_coords, ops.intersection_coords, ops.difference_coords):
        assert f(x, y).tolist() == f(C, D).tolist()
    assert ops.lookup_coords(x, y).tolist() == [2, -1]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: ops.cat([tensor(), tensor(stride=2)]), "same coordinate stride"),
        (lambda: ops.knn_relation(tensor(), tensor(stride=2), k=1), "same coordinate stride"),
        (lambda: ops.gather_aligned_features(tensor(), mx.array([9])), "inactive"),
        (lambda: ops.relu_features(mx.ones((2, 2), mx.int32)), "float32 and float16"),
        (lambda: ops.subm_conv3d(tensor(), mx.ones((3, 3)), kernel_size=2), "odd kernel_size"),
        (lambda: ops.conv_transpose3d(tensor(), mx.ones((3, 3))), "must divide"),
        (lambda: core.KernelRelation(C[:, 0], D[:, 0], C[:, 0]), "same row count"),
        (lambda: core.KernelRelation(C[:, 0], C[:, 0], C[:, 0]), "n_kernels must"),
        (lambda: ops.layer_norm(tensor(), eps=0.0), "eps must be finite and > 0"),
        (lambda: nn.LayerNorm(3, eps=0.0), "eps must be in"),
    ],
)
def test_messages(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def test_names_of_arguments():
    x, w = tensor(), mx.ones((2,))
    assert ops.relu_features(x=x.feats).shape == ops.activation(x=x.feats, kind="relu").shape
    assert ops.linear_features(x=x.feats, weight=mx.ones((3, 2))).shape == (4, 3)
    for norm in (ops.batch_norm, ops.layer_norm, ops.rms_norm):
        assert norm(x, scale=w).shape == x.shape
    assert ops.reindex_sparse(input=x, target=D).shape == (2, 2)
    aligned = ops.build_sparse_alignment(
        lhs_coords=C, lhs_active_rows=None, rhs_coords=D, rhs_active_rows=mx.array([1])
    )
    assert aligned.coords.tolist() == [[0, 5, 0, 0]]
    r = ops.build_target_kernel_relation(C, target_coords=D, target_active_rows=mx.array([1]))
    assert r.n_out == 1
    occupied = ops.occupancy_downsample(C)
    children = ops.occupancy_expand(parent_coords=occupied.coords, occupancy=occupied.occupancy)
    assert children.coords.tolist() == C.tolist()
    found = ops.child_coords_from_indices(
        parent_coords=C, parent_rows=mx.array([0]), child_indices=mx.array([1])
    )
    assert found.tolist() == [[0, 1, 0, 0]]
    made = ops.build_point_voxel_map(mx.zeros((1, 3)), C)
    assert ops.interpolate_point_features(x.feats, point_voxel_map=made).shape == (1, 2)
    packed = ops.quantize_weight(weight=mx.ones((8, 32)), bits=8)
    assert ops.dequantize_weight(weight=packed).shape == (8, 32)


def test_attributes_of_layers():
    assert nn.Pool3d(mode="max").mode == "max" and nn.SumPool3d().mode == "sum"
    assert nn.NormalizedSubmConv3d(2, 3, eps=1e-6).eps == 1e-6
    assert nn.TrilinearUpsample3d(2).stride == (2, 2, 2)
    packed = nn.QuantizedConv3d(32, 8)
    assert (packed.in_channels, packed.out_channels) == (32, 8)
    linear = nn.Linear(input_dims=64, output_dims=8)
    assert isinstance(linear, mlx.nn.Linear) and (linear.input_dims, linear.output_dims) == (64, 8)
    assert nn.QuantizedLinear.from_linear(linear).input_dims == 64
    assert set(linear.parameters()) == {"weight", "bias"} and nn.GELU(approx="fast").approx


def test_rest():
    assert set(ml.backend_info()["capabilities"]) == {"cpu", "metal", "cuda"}
    with pytest.raises(TypeError, match="channels and groups must be given by name"):
        points.RaggedGroupNorm(2, 6)
    assert points.RaggedGroupNorm(channels=6, groups=2)(mx.ones((4, 6)), mx.array([4])).shape == (
        4,
        6,
    )
