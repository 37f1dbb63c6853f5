"""Attention modules and the windowed U-Net: against NumPy, gradients, packing, saving, errors."""

import mlx.core as mx
import mlx.nn
import mlx.optimizers as optim
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lattice import SparseTensor, models, nn, ops


def tensor(n=80, channels=8, seed=0, high=9):
    random = np.random.default_rng(seed)
    coords = np.unique(random.integers(0, [2, high, high, high], (n, 4)), axis=0).astype(np.int32)
    return SparseTensor(coords, random.standard_normal((len(coords), channels)).astype(np.float32))


def by_hand(module, x, layout, bias):
    """Attention of each segment in float64; bias(positions of queries, of keys) -> (H, L, L)."""
    heads, c = module._heads, x.channels
    f = np.array(x.feats, np.float64)
    qkv = f @ np.array(module.qkv.weight, np.float64).T + np.array(module.qkv.bias, np.float64)
    out = np.zeros_like(f)
    rows, offsets = np.array(layout.rows), np.array(layout.offsets)
    slots, coords = np.array(layout.slots), np.array(x.coords)[:, 1:]
    for s in range(len(offsets) - 1):
        mine = rows[offsets[s] : offsets[s + 1]]
        q, k, v = (
            qkv[mine, i * c : (i + 1) * c].reshape(len(mine), heads, -1).transpose(1, 0, 2)
            for i in range(3)
        )
        logits = q @ k.transpose(0, 2, 1) * module._scale
        if bias is not None:
            logits = logits + bias(coords[mine][:, None] - coords[mine][None])
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        y = (weights @ v).transpose(1, 0, 2).reshape(len(mine), c)
        own = slots[mine] == np.arange(offsets[s], offsets[s + 1])
        out[mine[own]] = y[own]
    return out @ np.array(module.proj.weight, np.float64).T + np.array(module.proj.bias, np.float64)


def full_bias(table, window):
    sizes = [2 * w - 1 for w in window]

    def bias(p):
        e = 0
        for a in range(3):
            e = e * sizes[a] + np.clip(p[..., a], 1 - window[a], window[a] - 1) + window[a] - 1
        return table[e].transpose(2, 0, 1)

    return bias


def axial_bias(table, bounds):
    def bias(p):
        total, first = 0, 0
        for a, b in enumerate(bounds):
            total = total + table[first + np.clip(p[..., a], -b, b) + b]
            first += 2 * b + 1
        return total.transpose(2, 0, 1)

    return bias


@pytest.mark.parametrize("table", ["full", "axial", None])
@pytest.mark.parametrize("window, shift", [(4, 0), ((3, 4, 2), (1, 2, 0))])
def test_window_attention(table, window, shift):
    mx.random.seed(0)
    x = tensor()
    module = nn.WindowAttention(8, 2, window, shift, table=table)
    sizes = (window,) * 3 if isinstance(window, int) else window
    bias = None
    if table:
        module.position_table = mx.random.normal(module.position_table.shape)
        values = np.array(module.position_table, np.float64)
        bias = full_bias(values, sizes)
        if table == "axial":
            bias = axial_bias(values, [w - 1 for w in sizes])
    expected = by_hand(module, x, module.layout(x), bias)
    assert np.abs(np.array(module(x).feats) - expected).max() < 1e-5


@pytest.mark.parametrize("rpe", [False, True])
@pytest.mark.parametrize("shrink", [False, True])
def test_serialized_attention(rpe, shrink):
    mx.random.seed(0)
    x = tensor()
    module = nn.SerializedAttention(8, 4, 16, "hilbert", rpe=rpe, shrink=shrink)
    bias = None
    if rpe:
        module.rpe_table = mx.random.normal(module.rpe_table.shape)
        assert module.rpe_table.shape == (3 * 15, 4)  # int((4 * 16) ** (1 / 3) * 2) = 7
        bias = axial_bias(np.array(module.rpe_table, np.float64), [7, 7, 7])
    for order in ("hilbert", "z-trans"):
        expected = by_hand(module, x, module.layout(x, order), bias)
        assert np.abs(np.array(module(x, order).feats) - expected).max() < 1e-5


def test_whole_clouds_and_slabs():
    x = tensor()
    for window in (0, (4, 0, 0)):
        module = nn.WindowAttention(8, 2, window, table=None)
        expected = by_hand(module, x, module.layout(x), None)
        assert np.abs(np.array(module(x).feats) - expected).max() < 1e-5


@pytest.mark.parametrize("rows", [0, 1])
def test_few_rows(rows):
    coords = mx.zeros((rows, 4), mx.int32)
    x = SparseTensor(coords, mx.ones((rows, 8)))
    block = nn.TransformerBlock(8, nn.SerializedAttention(8, 2, 4))
    assert block(x).shape == (rows, 8)
    assert nn.TransformerBlock(8, nn.WindowAttention(8, 2, 4))(x).shape == (rows, 8)
    assert models.WindowUNet(8, 3, (16, 32), (1, 1))(x).shape == (rows, 3)


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_sixteen_bits(dtype):
    x = tensor()
    block = nn.TransformerBlock(8, nn.SerializedAttention(8, 2, 16))
    expected = block(x).feats
    block.set_dtype(dtype)
    found = block(x.astype(dtype))
    assert found.dtype == dtype
    assert mx.abs(found.feats - expected).max().item() < (0.02 if dtype == mx.float16 else 0.15)


def test_drop_path():
    x = mx.ones((4000, 3))
    drop = nn.DropPath(0.25)
    mx.random.seed(0)
    y = np.array(drop(x))
    assert set(np.unique(y)) == {0, np.float32(1 / 0.75)}
    assert (y == y[:, :1]).all() and abs(y.mean() - 1) < 0.05
    drop.eval()
    assert drop(x) is x
    with pytest.raises(ValueError, match="p must be in"):
        nn.DropPath(1.0)


def test_mlp_and_norms_are_exact():
    x = mx.random.normal((33, 12))
    mlp = nn.MLP(12, 20, 5)
    f = np.array(x, np.float64)
    from math import erf

    hidden = f @ np.array(mlp.first.weight).T + np.array(mlp.first.bias)
    hidden = hidden * 0.5 * (1 + np.vectorize(erf)(hidden / np.sqrt(2)))
    expected = hidden @ np.array(mlp.second.weight).T + np.array(mlp.second.bias)
    assert np.abs(np.array(mlp(x)) - expected).max() < 2e-6


@pytest.mark.parametrize("name", ["gelu", "layer_norm", "rms_norm"])
def test_derivatives_of_rows(name):
    """First and second derivatives against the formulas of MLX."""
    mx.random.seed(1)
    x, w, b, t = (mx.random.normal(s) for s in ((7, 5), (5,), (5,), (7, 5)))
    ours, plain = {
        "gelu": (lambda x, w, b: ops.gelu_features(x), lambda x, w, b: mlx.nn.gelu(x)),
        "layer_norm": (
            lambda x, w, b: ops.layer_norm_features(x, w, b, eps=1e-3),
            lambda x, w, b: mx.fast.layer_norm(x, w, b, 1e-3),
        ),
        "rms_norm": (
            lambda x, w, b: ops.rms_norm_features(x, w, eps=1e-3),
            lambda x, w, b: mx.fast.rms_norm(x, w, 1e-3),
        ),
    }[name]
    assert mx.allclose(ours(x, w, b), plain(x, w, b), atol=2e-6)

    def first(run):
        return mx.grad(lambda x, w, b: (run(x, w, b) * t).sum(), argnums=(0, 1, 2))

    for mine, theirs in zip(first(ours)(x, w, b), first(plain)(x, w, b)):
        assert mx.allclose(mine, theirs, atol=1e-5)
    mine, theirs = (
        mx.grad(lambda x, run=run: (first(run)(x, w, b)[0] * t * t).sum())(x)
        for run in (ours, plain)
    )
    assert mx.allclose(mine, theirs, atol=2e-5)
    mine, theirs = (
        mx.jvp(lambda x, run=run: run(x, w, b), [x], [t])[1][0] for run in (ours, plain)
    )
    assert mx.allclose(mine, theirs, atol=1e-5)


def test_unet_learns_and_is_saved(tmp_path):
    mx.random.seed(0)
    x = tensor(200, 4)
    net = models.WindowUNet(4, 3, channels=(16, 32), depths=(2, 1), window=4, drop_path=0.1)
    target = mx.random.normal((x.shape[0], 3))
    optimizer, losses = optim.Adam(3e-3), []
    for _ in range(15):
        value, grads = mlx.nn.value_and_grad(net, lambda m: mx.mean((m(x).feats - target) ** 2))(
            net
        )
        optimizer.update(net, grads)
        mx.eval(net.parameters(), optimizer.state)
        losses.append(value.item())
    assert losses[-1] < 0.9 * losses[0]
    assert all(mx.isfinite(g).all().item() for _, g in tree_flatten(grads))
    net.eval()
    net.save(tmp_path / "net.safetensors")
    assert np.array_equal(models.load(tmp_path / "net.safetensors")(x).feats, net(x).feats)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: nn.SerializedAttention(8, 3), "heads must divide 8 channels"),
        (lambda: nn.SerializedAttention(8, 2, 16, "peano"), "order must be z"),
        (lambda: nn.WindowAttention(8, 2, 0), "a table needs sizes >= 1"),
        (lambda: nn.WindowAttention(8, 2, 4, 4), "shift must be at least 0 and below"),
        (lambda: nn.WindowAttention(8, 2, table="both"), "table must be one of full, axial, None"),
        (lambda: nn.GridPool(4, 8, 3), "power of two"),
        (lambda: models.WindowUNet(4, 3, (16,), (1, 1)), "equal lengths"),
        (lambda: models.WindowUNet(4, 3, (24,), (1,)), "must divide the channels"),
        (lambda: nn.SerializedAttention(8, 2)(tensor(channels=4)), "x has 4 channels"),
    ],
)
def test_wrong_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
