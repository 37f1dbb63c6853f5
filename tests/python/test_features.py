"""Feature operations and the modules without convolution.

Values, running statistics, training, saving, repr, errors.
"""

import functools

import mlx.core as mx
import mlx.nn
import mlx.optimizers as optim
import numpy as np
import pytest
import scenes
from mlx_lattice import nn, ops

DTYPES = [mx.float32, mx.float16, mx.bfloat16]
TOLERANCE = {mx.float32: 2e-6, mx.float16: 4e-3, mx.bfloat16: 3e-2}


tensor = functools.partial(scenes.tensor, 50, 4, stride=2)


def exact(a):
    return np.array(a.astype(mx.float32), dtype=np.float64)


PAIRS = [
    ("relu", {}, mlx.nn.relu),
    ("sigmoid", {}, mx.sigmoid),
    ("silu", {}, mlx.nn.silu),
    ("tanh", {}, mx.tanh),
    ("gelu", {}, mlx.nn.gelu),
    ("gelu", {"approximate": True}, mlx.nn.gelu_approx),
    ("leaky_relu", {"negative_slope": 0.2}, lambda f: mlx.nn.leaky_relu(f, 0.2)),
    (
        "softplus",
        {"beta": 2.0, "threshold": 1.0},
        lambda f: mx.where(2 * f > 1, f, mx.log(1 + mx.exp(2 * f)) / 2),
    ),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name, options, formula", PAIRS)
def test_activations(name, options, formula, dtype):
    x = tensor(dtype=dtype)
    y = getattr(ops, name)(x, **options)
    assert y.same_coords(x) and y.dtype == dtype
    np.testing.assert_allclose(
        exact(y.feats),
        exact(formula(x.feats.astype(mx.float32))),
        rtol=TOLERANCE[dtype],
        atol=TOLERANCE[dtype],
    )
    assert mx.array_equal(getattr(ops, name + "_features")(x.feats, **options), y.feats)
    assert mx.array_equal(ops.activation(x.feats, kind=name, **options), y.feats)


def test_normalization_equals_mlx():
    x, w, b = tensor(), mx.array([1.0, 2.0, -1.0, 0.5]), mx.array([0.0, 1.0, 2.0, 3.0])
    f = exact(x.feats)
    expected = (f - f.mean(0)) / np.sqrt(f.var(0) + 1e-5) * exact(w) + exact(b)
    np.testing.assert_allclose(exact(ops.batch_norm(x, w, b).feats), expected, atol=1e-5)
    given = ops.batch_norm(x, w, b, mean=b, var=w * w, eps=0.1)
    np.testing.assert_allclose(
        exact(given.feats),
        (f - exact(b)) / np.sqrt(exact(w) ** 2 + 0.1) * exact(w) + exact(b),
        atol=1e-5,
    )
    rows = (f - f.mean(1, keepdims=True)) / np.sqrt(f.var(1, keepdims=True) + 1e-5) * exact(
        w
    ) + exact(b)
    np.testing.assert_allclose(exact(ops.layer_norm(x, w, b).feats), rows, atol=1e-5)
    root = f / np.sqrt((f * f).mean(1, keepdims=True) + 1e-5) * exact(w)
    np.testing.assert_allclose(exact(ops.rms_norm(x, w).feats), root, atol=1e-5)
    mean, var = ops.feature_statistics(x.feats)
    np.testing.assert_allclose(exact(mean), f.mean(0), atol=1e-6)
    np.testing.assert_allclose(exact(var), f.var(0), rtol=1e-6)


def test_batch_norm_module_is_mlx_batch_norm():
    ours, theirs, x = nn.BatchNorm(4), mlx.nn.BatchNorm(4), tensor()
    for _ in range(3):
        assert mx.allclose(ours(x).feats, theirs(x.feats), atol=1e-5)
    assert mx.allclose(ours.running_mean, theirs.running_mean, atol=1e-6)
    assert mx.allclose(ours.running_var, theirs.running_var, atol=1e-6)
    ours.eval(), theirs.eval()
    assert mx.allclose(ours(x).feats, theirs(x.feats), atol=1e-5)
    ours.unfreeze()
    assert set(ours.trainable_parameters()) == {"weight", "bias"}
    loose = nn.BatchNorm(4, track_running_stats=False, affine=False)
    loose.eval()
    assert mx.allclose(loose(x).feats, ops.batch_norm(x).feats) and not loose.parameters()
    with pytest.raises(ValueError, match="more than one row"):
        nn.BatchNorm(4)(mx.ones((1, 4)))
    assert nn.BatchNorm(4)(mx.ones((0, 4))).shape == (0, 4)


def test_gradient_of_batch_norm():
    x = tensor().feats

    def ours(f, w):
        return (ops.batch_norm_features(f, w) ** 3).sum()

    def plain(f, w):
        return (((f - f.mean(0)) * mx.rsqrt(f.var(0) + 1e-5) * w) ** 3).sum()

    w = mx.array([1.0, 2.0, -1.0, 0.5])
    for a, b in zip(mx.grad(ours, (0, 1))(x, w), mx.grad(plain, (0, 1))(x, w)):
        assert mx.allclose(a, b, rtol=1e-3, atol=1e-3)
    assert mx.allclose(
        mx.jvp(ours, [x, w], [x * 0 + 1, w])[1][0],
        mx.jvp(plain, [x, w], [x * 0 + 1, w])[1][0],
        rtol=1e-3,
    )


def test_dropout():
    x = tensor()
    mx.random.seed(0)
    y = ops.dropout(x, 0.5)
    zero = y.feats == 0
    assert 0.3 < zero.astype(mx.float32).mean().item() < 0.7 and mx.allclose(
        mx.where(zero, 0, x.feats * 2), y.feats
    )
    assert mx.array_equal(ops.dropout(x, 0.5, training=False).feats, x.feats)
    key = mx.random.key(3)
    assert mx.array_equal(
        ops.dropout(x, 0.5, key=key).feats, ops.dropout_features(x.feats, 0.5, key=key)
    )
    seeded = []
    for seed in (5, 5, 6):
        mx.random.seed(seed)
        seeded.append(ops.dropout(x, 0.5).feats)
    assert mx.array_equal(seeded[0], seeded[1]) and not mx.array_equal(seeded[0], seeded[2])
    module = nn.Dropout(0.5)
    module.eval()
    assert mx.array_equal(module(x).feats, x.feats) and "p=0.5" in repr(module)


FEATURES = {
    nn.ReLU: (),
    nn.Sigmoid: (),
    nn.SiLU: (),
    nn.Tanh: (),
    nn.Softplus: (2.0,),
    nn.GELU: (True,),
    nn.LeakyReLU: (0.2,),
    nn.Dropout: (0.1,),
    nn.BatchNorm: (4,),
    nn.LayerNorm: (4,),
    nn.RMSNorm: (4,),
}
POOLS = {
    nn.Pool3d: ("max", 3, 2, 1),
    nn.SumPool3d: (),
    nn.AvgPool3d: (3,),
    nn.MaxPool3d: (),
    nn.PoolTranspose3d: (),
    nn.TrilinearUpsample3d: (),
    nn.GlobalSumPool: (),
    nn.GlobalAvgPool: (2,),
    nn.GlobalMaxPool: (),
}


@pytest.mark.parametrize("kind, arguments", [*FEATURES.items(), *POOLS.items()])
def test_modules_train_save_and_print(kind, arguments, tmp_path):
    class Net(mlx.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.module = nn.Linear(4, 4), kind(*arguments)

        def __call__(self, x):
            y = self.module(self.linear(x))
            return y if isinstance(y, mx.array) else y.feats

    mx.random.seed(1)
    x, net = tensor(), Net()
    assert kind.__name__ in repr(net.module)
    goal = mx.random.normal(net(x).shape)
    step = mlx.nn.value_and_grad(net, lambda m: ((m(x) - goal) ** 2).mean())
    optimizer, losses = optim.Adam(2e-2), []
    for _ in range(30):
        loss, grads = step(net)
        optimizer.update(net, grads)
        mx.eval(net.parameters(), optimizer.state)
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    net.eval()
    path = str(tmp_path / "w.npz")
    net.save_weights(path)
    other = Net()
    other.load_weights(path)
    other.eval()
    assert mx.array_equal(net(x), other(x))
    if kind in FEATURES:
        assert net.module(x).same_coords(x) and net.module(x.feats).shape == x.feats.shape


def test_modules_with_targets():
    x = tensor(stride=1)
    down = nn.MaxPool3d()(x)
    assert nn.PoolTranspose3d()(down, x).same_coords(x) and nn.TrilinearUpsample3d()(
        down, x
    ).same_coords(x)


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda: nn.Dropout(1.0), ValueError),
        (lambda: nn.Dropout("a"), TypeError),
        (lambda: nn.BatchNorm(0), ValueError),
        (lambda: nn.BatchNorm(4.0), TypeError),
        (lambda: nn.BatchNorm(4, eps=-1), ValueError),
        (lambda: nn.BatchNorm(4, momentum=2), ValueError),
        (lambda: nn.LayerNorm(0), ValueError),
        (lambda: nn.RMSNorm(4, eps=float("nan")), ValueError),
        (lambda: nn.Softplus(beta=0), ValueError),
        (lambda: nn.LeakyReLU(float("inf")), ValueError),
        (lambda: nn.GELU(approx="erf"), TypeError),
        (lambda: nn.Pool3d("median"), ValueError),
        (lambda: nn.MaxPool3d(kernel_size=0), ValueError),
        (lambda: nn.AvgPool3d(stride=1.5), TypeError),
        (lambda: nn.TrilinearUpsample3d(0), ValueError),
        (lambda: nn.TrilinearUpsample3d(65), ValueError),
        (lambda: nn.GlobalMaxPool(-1), ValueError),
        (lambda: ops.dropout(tensor(), -0.1), ValueError),
        (lambda: ops.batch_norm(tensor(), mx.ones((3,))), ValueError),
        (lambda: ops.batch_norm(tensor(), mean=mx.ones((4,))), ValueError),
        (lambda: ops.layer_norm_features(mx.ones((4,))), ValueError),
        (lambda: ops.activation(mx.ones((2,)), kind="elu"), ValueError),
        (
            lambda: ops.relu(tensor().replace(feats=mx.ones((tensor().capacity, 2), mx.int32))),
            ValueError,
        ),
        (lambda: ops.softplus(tensor(), beta=-1.0), ValueError),
        (lambda: ops.relu(3), TypeError),
    ],
)
def test_bad_arguments(call, error):
    with pytest.raises(error):
        call()
