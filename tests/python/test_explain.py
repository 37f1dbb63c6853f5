"""explain(): every choice of algorithm is a row, every choice of blocking is a note."""

import mlx.core as mx
import mlx_lattice as ml
from mlx_lattice import core, nn, ops, points, samples, training


def train_a_step():
    """Convolution, norm, columns side by side, their gradients, triplets and the optimizer."""
    x = samples.tensor(16)
    conv, norm = nn.Conv3d(16, 16, 3, stride=2), nn.BatchNorm(16)

    def loss(bias, feats):
        conv.bias = bias
        y = norm(conv(x.with_feats(feats)))
        return ops.cat([y, y]).feats.sum()

    mx.grad(loss, argnums=(0, 1))(mx.zeros((16,)), x.feats)
    rows = mx.array([0, 1, 2])
    points.mvmr(mx.ones((3, 1, 4, 5)), rows, mx.ones((3, 1, 5)), rows, rows, 3)
    training.AdamW(1e-3).apply_gradients({"w": mx.ones((4, 4))}, {"w": mx.ones((4, 4))})


def test_every_choice_of_a_step_appears():
    told = ml.explain(train_a_step)
    assert {operation for operation, _ in told.routes} == {
        "batch_norm",
        "batch_norm_vjp",
        "conv",
        "outer",
        "per_edge_apply",
        "relate",
    }
    text = str(told)
    assert "note            the kernel cuts 4 output rows into 1 tile of 256" in text
    assert "rejected        cpu.buckets: shape and dtype: 10 edges in 10 buckets" in text


def test_geometry_of_points_is_decided():
    """Voxels, neighbors and the map of a manager ask the tables as relations do."""
    place = mx.array([[0.1, 0.2, 0.3], [0.15, 0.2, 0.3], [1.5, 0.2, 0.3]])
    assert ml.explain(ops.sparse_quantize, place).routes == [("unique", "cpu.sorted")]
    assert ("neighbors", "cpu.tree") in ml.explain(points.knn_graph, place, 2).routes
    x = samples.tensor(4)
    key, manager = x.coord_key, x.coord_manager
    assert ml.explain(manager.inverse_map, key, key).routes == [("lookup", "cpu.sorted")]
    assert ml.explain(manager.kernel_relation, key, 3, 2).routes == [("relate", "cpu.sorted")]
    plan = core.GeometryPlan.record(x).encode()
    assert ml.explain(core.GeometryPlan.decode, plan).routes == [("relate", "cpu.sorted")]


def test_a_relation_that_is_not_built_yet_has_no_output_rows():
    x = samples.tensor(4)
    (relate,) = [
        d for d in ml.explain(nn.Conv3d(4, 4, 3, stride=2), x).decisions if d.operation == "relate"
    ]
    assert relate.n_in == 6 and relate.n_out is None
    assert "to be built: forward, size=(3, 3, 3)" in relate.text
    assert "6 rows, " in relate.text and "6 -> " not in relate.text
    (lookup,) = ml.explain(ops.lookup_coords, x.coords, x.coords[:2]).decisions
    assert lookup.n_out == 2 and "6 -> 2 rows" in lookup.text
    assert "It reads 6 rows and writes 2." in str(
        ml.explain(ops.lookup_coords, x.coords, x.coords[:2])
    )


def test_explain_speaks_of_padding_and_time():
    x = samples.tensor()
    weight = mx.ones((8, 3, 3, 3, 4))
    told = str(ml.explain(ops.conv3d, x, weight, stride=2, padding=1))
    assert "In words: conv runs on the cpu" in told and "Predicted time: about" in told
    assert "an odd size is centered already" in told
    assert "Padding" not in str(ml.explain(ops.conv3d, x, weight, stride=2))
    assert "Padding" in str(ml.explain(nn.Conv3d(4, 8, 3, padding=(0, 1, 0)), x))
