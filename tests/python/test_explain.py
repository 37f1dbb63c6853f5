"""explain(): every choice of algorithm or device is a row, every choice of blocking is a note."""

import mlx.core as mx
import mlx_lattice as ml
from mlx_lattice import nn, ops, points, samples, training


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
        "adamw",
        "batch_norm",
        "batch_norm_vjp",
        "conv",
        "join_columns",
        "outer",
        "per_edge_apply",
        "relate",
        "sum_rows",
        "take_columns",
    }
    text = str(told)
    assert "note            the kernel cuts 4 output rows into 1 tile of 256" in text
    assert "rejected        cpu.buckets: shape and dtype: 10 edges in 10 buckets" in text


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
