"""Packed weights stay between calls while the array is the same, and are never stale."""

import gc

import mlx.core as mx
import mlx.nn
import mlx.optimizers
import numpy as np
import pytest
from mlx_lattice import SparseTensor, _ext, backend_info, models, nn, ops
from test_conv_norm import norm_of, tensor


def kept():
    gc.collect()
    return backend_info()["kept_weights"]


def expected(layer, x):
    """The layer with a fresh copy of its weight, which no call has seen."""
    w = mx.array(np.array(layer.weight.astype(mx.float32))).astype(layer.weight.dtype)
    return np.array(ops.subm_conv3d(x, w, layer.get("bias")).feats.astype(mx.float32))


def value(layer, x):
    return np.array(layer(x).feats.astype(mx.float32))


def warm(layer, x):
    """Calls until the packed weight is kept."""
    for _ in range(3):
        assert np.array_equal(value(layer, x), expected(layer, x))


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
def test_second_call_keeps_and_freed_array_is_forgotten(dtype):
    before = kept()
    x, layer = tensor(dtype=dtype), nn.SubmConv3d(16, 24)
    layer.set_dtype(dtype)
    mx.eval(layer.parameters())
    value(layer, x)
    assert kept() == before
    warm(layer, x)
    assert kept() >= before + 27 * 16 * 24 * 4
    layer.weight = mx.zeros_like(layer.weight)
    assert not np.any(value(layer, x))
    assert kept() == before


def test_assigned_updated_and_loaded_weights(tmp_path):
    x, layer = tensor(), nn.SubmConv3d(16, 16)
    warm(layer, x)
    layer.weight = layer.weight * 2
    warm(layer, x)
    layer.weight[3] = 5.0
    warm(layer, x)
    other = nn.SubmConv3d(16, 16)
    other.save_weights(str(tmp_path / "w.safetensors"))
    layer.load_weights(str(tmp_path / "w.safetensors"))
    assert np.array_equal(value(layer, x), value(other, x))


def test_optimizer_steps():
    x, layer = tensor(), nn.SubmConv3d(16, 16)
    warm(layer, x)
    step = mlx.nn.value_and_grad(layer, lambda m: mx.mean(m(x).feats ** 2))
    for optimizer in (mlx.optimizers.SGD(0.1), mlx.optimizers.AdamW(0.1)):
        for _ in range(4):
            optimizer.update(layer, step(layer)[1])
            mx.eval(layer.parameters(), optimizer.state)
            assert np.array_equal(value(layer, x), expected(layer, x))
        warm(layer, x)


def test_training_keeps_nothing():
    """Forward and backward read one array in two layouts; an update may write in place."""
    rows = np.unique(np.random.default_rng(0).integers(0, 40, (2000, 4)) * [0, 1, 1, 1], axis=0)
    x = SparseTensor(mx.array(rows.astype(np.int32)), mx.random.normal((len(rows), 4)))
    net = models.MinkUNet(4, 3, depth=14, width=8, stem_kernel_size=3)
    before, optimizer = kept(), mlx.optimizers.SGD(0.01)
    step = mlx.nn.value_and_grad(net, lambda m: mx.mean(m(x).feats ** 2))
    for _ in range(12):
        optimizer.update(net, step(net)[1])
        mx.eval(net.parameters(), optimizer.state)
    assert kept() <= before


def test_donated_buffer_and_new_array_at_the_same_place():
    """MLX writes w * 3 into the buffer of w, or gives the buffer to the next array."""
    x = tensor()
    for _ in range(6):
        layer = nn.SubmConv3d(16, 16, bias=False)
        mx.eval(layer.weight)
        warm(layer, x)
        for _ in range(3):
            w = layer.weight
            layer.weight = None
            w = w * 3
            mx.eval(w)
            layer.weight = w
            del w
            assert np.array_equal(value(layer, x), expected(layer, x))


def test_written_through_a_numpy_view():
    x, layer = tensor(), nn.SubmConv3d(16, 16)
    mx.eval(layer.weight)
    warm(layer, x)
    view = np.array(layer.weight, copy=False)
    view *= 2
    assert np.array_equal(value(layer, x), expected(layer, x))


def test_quantized_and_compiled():
    x = tensor(channels=64)
    layer = nn.SubmConv3d(64, 64)
    warm(layer, x)
    packed = layer.to_quantized(group_size=64, bits=8)
    exact = np.abs(value(packed, x) - value(layer, x)).max()
    assert 0 < exact < 0.1
    compiled = mx.compile(lambda w, f: ops.subm_conv3d(x.with_feats(f), w).feats)
    for scale in (1, 2, 2, 2, 3):
        layer.weight = layer.weight * scale
        layer.bias = mx.zeros((64,))
        for _ in range(3):
            found = np.array(compiled(layer.weight, x.feats))
            assert np.array_equal(found, expected(layer, x))


def test_gradients_read_the_transposed_weight():
    x, layer = tensor(), nn.SubmConv3d(16, 32, bias=False)
    mx.eval(layer.weight)

    def gradient(w):
        return np.array(mx.grad(lambda f: ops.subm_conv3d(x.with_feats(f), w).feats.sum())(x.feats))

    fresh = gradient(mx.array(np.array(layer.weight)))
    for _ in range(4):
        assert np.array_equal(gradient(layer.weight), fresh)


# Concatenation in front of a convolution.


def pair(dtype=mx.float32, a=16, b=32, sort=False):
    x = tensor(dtype=dtype)
    x = x.sorted()[0] if sort else x
    y = [mx.random.normal((x.active_count, c)).astype(dtype) for c in (a, b)]
    mx.eval(y)
    return [x.with_feats(f) for f in y]


def joins():
    return _ext.run_count("join_columns", "cpu.copies")


def layers(conv, dtype):
    """The convolution with the norm and the ReLU that the models put behind it."""
    norm = norm_of(conv.weight.shape[0])
    conv.set_dtype(dtype)
    return lambda x: norm(conv(x), None, True, only_reader=True).feats.astype(mx.float32)


@pytest.mark.parametrize("sort", [False, True])
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.SubmConv3d(48, 24),
        lambda: nn.SubmConv3d(48, 24, 1),
        lambda: nn.Conv3d(48, 16, 2, 2),
    ],
)
def test_joined_columns_are_never_made(make, dtype, sort):
    parts = pair(dtype, sort=sort)
    layer = layers(make(), dtype)
    x = ops.cat(parts)
    mx.eval(x.feats)
    want = np.array(layer(x))
    before = joins()
    found = np.array(layer(ops.cat(parts)))
    assert joins() == before
    assert np.array_equal(found, want)


@pytest.mark.parametrize("channels", [(16, 32), (10, 38)])
def test_joined_columns_are_made_for_others(channels):
    parts, before = pair(a=channels[0], b=channels[1]), joins()
    layer = layers(nn.SubmConv3d(48, 24), mx.float32)
    x = ops.cat(parts)
    y = layer(x)
    mx.eval(y, x.feats)
    assert joins() == before + 1
    plain = mx.concatenate([p.feats for p in parts], 1)
    assert np.array_equal(np.array(x.feats), np.array(plain))
    assert np.array_equal(np.array(y), np.array(layer(parts[0].with_feats(plain))))


def test_gradients_through_joined_columns():
    parts, layer = pair(), nn.SubmConv3d(48, 24)

    def joined(a, b, w):
        x = ops.cat([parts[0].with_feats(a), parts[1].with_feats(b)])
        return mx.sum(ops.subm_conv3d(x, w).feats ** 2)

    def plain(a, b, w):
        x = parts[0].with_feats(mx.concatenate([a, b], 1))
        return mx.sum(ops.subm_conv3d(x, w).feats ** 2)

    arguments = (parts[0].feats, parts[1].feats, layer.weight)
    gradients = [mx.grad(f, argnums=(0, 1, 2))(*arguments) for f in (joined, plain)]
    for found, want in zip(*gradients):
        assert np.array_equal(np.array(found), np.array(want))


def test_unet_reads_its_skips_in_place():
    rng = np.random.default_rng(0)
    cells = np.unique(rng.integers(0, 24, (900, 3)), axis=0).astype(np.int32)
    coords = mx.array(np.insert(cells, 0, 0, axis=1))
    x = SparseTensor(coords, mx.random.normal((len(cells), 4)))
    net = models.MinkUNet(4, 5, depth=14, width=16).eval()
    before = joins()
    first = np.array(net(x).feats)
    assert joins() == before
    for _ in range(2):
        assert np.array_equal(np.array(net(x).feats), first)
