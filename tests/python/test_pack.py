"""Weights packed once for many calls have the same results and are never those of a weight that
was there before."""

import copy

import mlx.core as mx
import mlx.nn
import mlx.optimizers
import numpy as np
import pytest
from mlx_lattice import SparseTensor, models, nn, ops
from mlx_lattice.core import PackedKernel
from test_conv_norm import tensor


def expected(layer, x):
    """The layer with a fresh copy of its weight."""
    w = mx.array(np.array(layer.weight.astype(mx.float32))).astype(layer.weight.dtype)
    return np.array(ops.subm_conv3d(x, w, layer.get("bias")).feats.astype(mx.float32))


def value(layer, x):
    return np.array(layer(x).feats.astype(mx.float32))


def is_packed(layer):
    return isinstance(layer._weight(), PackedKernel)


def packed(x, **options):
    layer = nn.SubmConv3d(x.channels, 16, **options).pack()
    assert is_packed(layer)
    assert np.array_equal(value(layer, x), expected(layer, x))
    return layer


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
@pytest.mark.parametrize("layout", ["dense", "kernel-major", "strided"])
def test_same_bits_as_the_array(dtype, groups, layout):
    x = tensor(dtype=dtype)
    w = mx.random.normal((24, 3, 3, 3, 16 // groups)).astype(dtype)
    if layout != "dense":
        w = w.reshape(24, 27, -1).transpose(1, 2, 0)
    if layout == "kernel-major":
        w = mx.contiguous(w)
    kernel = ops.pack_kernel(w, groups)
    assert kernel.nbytes >= 27 * 16 // groups * 24 * 4
    want = ops.subm_conv3d(x, w, groups=groups).feats
    assert mx.array_equal(ops.subm_conv3d(x, kernel, groups=groups).feats, want)


def test_linear_layers_and_arrays():
    x, layer = tensor(), nn.Linear(16, 40)
    want = layer(x).feats
    assert mx.array_equal(layer.pack()(x).feats, want)
    assert mx.array_equal(layer(x.feats), want)


def test_wrong_weights_are_refused():
    for w, groups, text in [
        (mx.zeros((4, 4, 4, 4)), 1, "shape"),
        (mx.zeros((4, 4), mx.int32), 1, "float32"),
        (mx.zeros((4, 27, 4)), 3, "divide"),
    ]:
        with pytest.raises(ValueError, match=text):
            ops.pack_kernel(w, groups)
    kernel = ops.pack_kernel(mx.zeros((27, 8, 4)))
    with pytest.raises(ValueError, match="weight must have shape"):
        ops.subm_conv3d(tensor(channels=16), kernel)
    with pytest.raises(ValueError, match="dtype"):
        ops.subm_conv3d(tensor(channels=8, dtype=mx.float16), kernel)


def test_assigned_updated_and_loaded_weights(tmp_path):
    x = tensor()
    other = nn.SubmConv3d(16, 16)
    other.save_weights(str(tmp_path / "w.safetensors"))

    def assign(layer):
        layer.weight = layer.weight * 2

    def write(layer):
        layer.weight[3] = 5.0

    changes = [
        assign,
        write,
        lambda layer: layer.update({"weight": mx.ones_like(layer.weight)}),
        lambda layer: layer.load_weights(str(tmp_path / "w.safetensors")),
        lambda layer: layer.set_dtype(mx.float32, lambda _: True),
        lambda layer: layer.apply(lambda a: a + 1),
    ]
    for change in changes:
        layer = packed(x)
        change(layer)
        assert np.array_equal(value(layer, x), expected(layer, x))
    assert not is_packed(layer)
    assert is_packed(nn.pack(layer))
    half = packed(x)
    half.set_dtype(mx.float16)
    found = value(half, x.astype(mx.float16))
    assert np.array_equal(found, expected(half, x.astype(mx.float16)))


def test_optimizer_steps():
    x = tensor()
    layer = packed(x)
    step = mlx.nn.value_and_grad(layer, lambda m: mx.mean(m(x).feats ** 2))
    for optimizer in (mlx.optimizers.SGD(0.1), mlx.optimizers.AdamW(0.1)):
        layer.pack()
        for _ in range(3):
            gradient = step(layer)[1]
            assert np.abs(np.array(gradient["weight"])).max() > 0
            optimizer.update(layer, gradient)
            mx.eval(layer.parameters(), optimizer.state)
            assert np.array_equal(value(layer, x), expected(layer, x))


def test_gradients_with_a_packed_kernel():
    x, w = tensor(), mx.random.normal((32, 3, 3, 3, 16))
    kernel = ops.pack_kernel(w)

    def gradient(weight):
        return mx.grad(lambda f: (ops.subm_conv3d(x.with_feats(f), weight).feats ** 2).sum())(
            x.feats
        )

    assert mx.array_equal(gradient(kernel), gradient(w))


def test_written_through_a_numpy_view():
    """An array is always read as it is now; a packed layer when it is packed again."""
    x, layer = tensor(), nn.SubmConv3d(16, 16)
    mx.eval(layer.weight)
    for _ in range(3):
        value(layer, x)
    view = np.array(layer.weight, copy=False)
    view.reshape(-1)[400:500] = 1000.0
    assert np.array_equal(value(layer, x), expected(layer, x))
    layer.pack()
    view *= 2
    assert np.array_equal(value(layer.pack(), x), expected(layer, x))


def test_quantized_compiled_and_copied():
    x = tensor(channels=64)
    layer = nn.SubmConv3d(64, 64).pack()
    assert np.array_equal(value(layer, x), expected(layer, x))
    codes = layer.to_quantized(group_size=64, bits=8)
    assert 0 < np.abs(value(codes.pack(), x) - value(layer, x)).max() < 0.1
    compiled = mx.compile(lambda f: layer(x.with_feats(f)).feats)
    assert np.array_equal(np.array(compiled(x.feats)), expected(layer, x))
    again = copy.deepcopy(layer)
    assert np.array_equal(value(again, x), expected(layer, x))


def test_networks_pack_in_evaluation():
    rows = np.unique(np.random.default_rng(0).integers(0, 40, (2000, 4)) * [0, 1, 1, 1], axis=0)
    x = SparseTensor(mx.array(rows.astype(np.int32)), mx.random.normal((len(rows), 4)))
    net = models.MinkUNet(4, 3, depth=14, width=8, stem_kernel_size=3)
    plain = mlx.nn.Module.train(net, False)(x).feats
    assert not is_packed(net.head)
    net.plan(x)
    assert not is_packed(net.head)
    assert mx.array_equal(net.eval()(x).feats, plain)
    layers = [m for m in net.modules() if hasattr(m, "pack") and hasattr(m, "_weight")]
    assert len(layers) > 20
    assert all(is_packed(layer) for layer in layers)
    optimizer = mlx.optimizers.SGD(0.01)
    step = mlx.nn.value_and_grad(net.train(), lambda m: mx.mean(m(x).feats ** 2))
    optimizer.update(net, step(net)[1])
    assert not any(is_packed(layer) for layer in layers)
