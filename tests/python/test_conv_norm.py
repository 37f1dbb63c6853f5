"""A convolution that normalizes in its own pass, and the memory of results."""

import mlx.core as mx
import numpy as np
import pytest
from mlx_lattice import SparseTensor, _ext, models, nn, ops


def tensor(n=500, channels=16, dtype=mx.float32, seed=0):
    rng = np.random.default_rng(seed)
    cells = np.unique(rng.integers(0, 12, (n, 3)), axis=0).astype(np.int32)
    rng.shuffle(cells)
    coords = np.concatenate([np.zeros((len(cells), 1), np.int32), cells], 1)
    feats = rng.normal(size=(len(cells), channels)).astype(np.float32)
    return SparseTensor(mx.array(coords), mx.array(feats).astype(dtype))


def norm_of(channels, seed=1):
    rng = np.random.default_rng(seed)
    norm = nn.BatchNorm(channels)
    norm.weight, norm.bias, norm.running_mean = (
        mx.array(rng.normal(size=channels).astype(np.float32)) for _ in range(3)
    )
    norm.running_var = mx.array(rng.uniform(0.5, 2, channels).astype(np.float32))
    return norm.eval()


LAYERS = [
    lambda: nn.SubmConv3d(16, 24),
    lambda: nn.SubmConv3d(16, 24, bias=False),
    lambda: nn.SubmConv3d(16, 32, 1),
    lambda: nn.SubmConv3d(16, 32, groups=4),
    lambda: nn.Conv3d(16, 8, 2, 2),
]


def norm_runs():
    return _ext.run_count("batch_norm", "cpu.fused")


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("residual", [False, True])
def test_bits_of_conv_then_norm(layer, residual):
    x, conv = tensor(), layer()
    norm = norm_of(conv.weight.shape[0])
    y = conv(x)
    mx.eval(y.feats)
    rest = y.with_feats(mx.random.normal(y.feats.shape)) if residual else None
    expected = np.array(norm(y, rest, True).feats)
    before = norm_runs()
    found = np.array(norm(conv(x), rest, True, only_reader=True).feats)
    assert norm_runs() == before, "the norm ran by itself"
    assert np.array_equal(found, expected)


def test_packed_weights():
    x, norm = tensor(channels=64), norm_of(32)
    conv = nn.SubmConv3d(64, 32).to_quantized(group_size=64, bits=8)
    expected = norm(conv(x), None, True)
    before = norm_runs()
    found = norm(conv(x), None, True, only_reader=True)
    mx.eval(found.feats)
    assert norm_runs() == before
    assert np.array_equal(np.array(found.feats), np.array(expected.feats))


def test_evaluated_features_are_normalized_as_they_are():
    x, conv, norm = tensor(), nn.SubmConv3d(16, 16), norm_of(16)
    y = conv(x)
    mx.eval(y.feats)
    before = norm_runs()
    mx.eval(norm(y, None, True, only_reader=True).feats)
    assert norm_runs() == before + 1


def test_training_uses_the_statistics_of_the_rows():
    x, conv, norm = tensor(), nn.SubmConv3d(16, 16), norm_of(16)
    norm.train()
    mean = np.array(norm(conv(x), only_reader=True).feats).mean(0)
    assert np.allclose(mean, np.array(norm.bias), atol=1e-4)


def test_gradients_in_evaluation_mode():
    x, conv, norm = tensor(), nn.SubmConv3d(16, 16), norm_of(16)

    def loss(weight, feats, only_reader):
        y = ops.subm_conv3d(x.with_feats(feats), weight)
        return mx.sum(norm(y, x.with_feats(feats), True, only_reader=only_reader).feats ** 2)

    grads = mx.grad(loss, (0, 1))
    for found, expected in zip(
        grads(conv.weight, x.feats, True), grads(conv.weight, x.feats, False), strict=True
    ):
        assert np.array_equal(np.array(found), np.array(expected))
        assert np.abs(np.array(expected)).max() > 0


def test_small_types_are_rounded_once():
    x, norm = tensor(dtype=mx.float16), norm_of(16)
    conv = nn.SubmConv3d(16, 16)
    conv.set_dtype(mx.float16)
    exact = nn.SubmConv3d(16, 16)
    exact.update({k: v.astype(mx.float32) for k, v in conv.parameters().items()})
    expected = np.array(norm(exact(x.with_feats(x.feats.astype(mx.float32)))).feats)
    found = np.array(norm(conv(x), only_reader=True).feats.astype(mx.float32))
    assert np.all(np.abs(found - expected) <= 2**-11 * np.abs(expected) + 1e-5)


def test_networks_normalize_inside_their_convolutions():
    x = tensor(1200, 4)
    net = models.MinkUNet(4, 5, depth=14, width=8).eval()
    before = norm_runs()
    mx.eval(net(x).feats)
    assert norm_runs() == before


def test_results_begin_on_cache_lines_and_outlive_their_makers():
    if mx.is_available(mx.gpu):
        pytest.skip("MLX manages the memory of a GPU")
    feats = mx.random.normal((4096, 64))
    weight = mx.random.normal((64, 64))
    y = ops.linear_features(feats, weight)
    mx.eval(y)
    assert np.array(y, copy=False).ctypes.data % 64 == 0
    kept = np.array(y)
    view = y[5:7]
    for _ in range(4):  # memory given back would be handed out again here
        mx.eval(ops.linear_features(mx.zeros((4096, 64)), weight))
    assert np.array_equal(np.array(y), kept)
    del y
    mx.eval(ops.linear_features(mx.zeros((4096, 64)), weight))
    assert np.array_equal(np.array(view), kept[5:7])
    # MLX may reuse the memory of a result for its own results.
    total = ops.linear_features(feats, weight) * 2 + 1
    mx.eval(total)
    assert np.allclose(np.array(total), kept * 2 + 1, atol=1e-4)
