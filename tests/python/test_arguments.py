"""What a call takes for an array: arrays of MLX and NumPy, and nested lists."""

import mlx.core as mx
import mlx_lattice as ml
import numpy as np
import pytest
from mlx_lattice import core, ops, points, samples


def test_numpy_arrays_and_lists_are_arrays():
    coords = np.array([[0, 0, 0, 0], [0, 1, 0, 0]], np.int32)
    feats = np.ones((2, 4), np.float32)
    for c, f in ((coords, feats), (coords.tolist(), feats.tolist())):
        x = ml.SparseTensor(c, f)
        assert x.coords.dtype == mx.int32 and x.feats.dtype == mx.float32
        y = ops.subm_conv3d(x, np.ones((8, 3, 3, 3, 4), np.float32))
        assert y.shape == (2, 8)
        assert ops.lookup_coords(c, [[0, 1, 0, 0]]).tolist() == [1]
    both = ops.sparse_collate([coords[:, 1:], coords[:, 1:]], [feats, feats])
    assert both.shape == (4, 4)


def test_methods_and_constructors_take_numpy_arrays_and_lists():
    x, q = samples.tensor(), ml.quantize_weight(mx.ones((8, 32)))
    coords, feats = np.array(x.coords), np.ones((6, 4), np.float32)
    positions = np.random.default_rng(0).random((5, 3)).astype(np.float32)
    arrays = (np.array(a) for a in (q.weight, q.scales, q.biases))
    sizes = (q.group_size, q.bits, q.in_channels, q.out_channels, q.kernel_size, q.layout)
    assert ml.QuantizedWeight(*arrays, *sizes).form == q.form
    for rows in (coords, coords.tolist()):
        assert len(core.CoordinateSet(rows)) == 6
        assert core.CoordinateManager().insert_coords(rows).stride == (1, 1, 1)
    for values in (feats, feats.tolist()):
        for y in (x.replace(feats=values), x.with_feats(values)):
            assert mx.array_equal(y.feats, mx.ones((6, 4)))
    assert core.SparseTensor.from_dense(np.ones((1, 2, 2, 2, 1), np.float32)).shape == (8, 1)
    assert core.KernelRelation([0, 1], [1, 0], [0, 0], n_in=2, n_out=2, n_kernels=1).edge_count == 2
    assert core.NeighborRelation([0, 1], [1, 0], n_query=2, n_source=2).n_query == 2
    for given in (positions, positions.tolist()):
        assert core.NeighborIndex(given).knn(given, k=1).edge_count == 5
        assert len(points.PointSet(given, [2, 3], grid=0.1)) == 5
    row, one = [[0, 0, 0, 0]], np.zeros(1, np.int32)
    for value in (
        core.PointVoxelMap([[0] * 8], np.ones((1, 8), np.float32)).rows,
        core.CoordinateOrdering(row, [0], one).coords,
        core.SparseAlignment(row, [1], [0], one).coords,
        core.SparseOccupancy(row, [1], one, [0], one).coords,
        core.OccupancyExpansion(row, [1], [0], one).coords,
        core.SparseQuantization(row, [1], one, [1]).coords,
    ):
        assert isinstance(value, mx.array)
    with pytest.raises(TypeError, match=r"\[SparseTensor.replace\] feats: found str, expected"):
        x.replace(feats="ones")


def test_gradients_pass_through():
    x = samples.tensor()
    weight = mx.ones((8, 3, 3, 3, 4))
    gradient = mx.grad(lambda w: (ops.subm_conv3d(x, w) * 2).feats.sum())(weight)
    assert gradient.shape == weight.shape
