"""A convolution that normalizes in its own pass and reads two tensors; the memory of results."""

import io

import mlx.core as mx
import numpy as np
import pytest
from mlx_lattice import SparseTensor, models, nn, ops


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


def nodes(array):
    """The graph of an array that was not evaluated yet, as text with the names of its nodes."""
    graph = io.StringIO()
    mx.export_to_dot(graph, array)
    return graph.getvalue()


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("residual", [False, True])
def test_bits_of_conv_then_norm(layer, residual):
    x, conv = tensor(), layer().eval()
    norm = norm_of(conv.weight.shape[0])
    y = conv(x)
    rest = y.with_feats(mx.random.normal(y.feats.shape)) if residual else None
    expected = np.array(norm(y, rest, True).feats)
    found = conv.with_norm(x, norm, rest, True)
    assert "batch_norm" not in nodes(found.feats), "the norm runs by itself"
    assert np.array_equal(np.array(found.feats), expected)
    assert found.same_coords(y)
    conv.pack()
    assert np.array_equal(np.array(conv.with_norm(x, norm, rest, True).feats), expected)


def test_codes():
    x, norm = tensor(channels=64), norm_of(32)
    conv = nn.SubmConv3d(64, 32).to_quantized(group_size=64, bits=8).eval()
    expected = np.array(norm(conv(x), None, True).feats)
    found = conv.with_norm(x, norm, None, True).feats
    assert "batch_norm" not in nodes(found)
    assert np.array_equal(np.array(found), expected)
    half = x.astype(mx.float16)  # float32 scales stay exact
    exact = norm(conv(half), None, True).feats
    assert mx.array_equal(conv.with_norm(half, norm, None, True).feats, exact)


def test_the_reference_agrees(monkeypatch):
    x, conv, norm = tensor(channels=32), nn.SubmConv3d(32, 24).eval(), norm_of(24)
    parts = [x.with_feats(x.feats[:, :16]), x.with_feats(x.feats[:, 16:])]
    rest = x.with_feats(mx.random.normal((x.active_count, 24)))
    found = conv.with_norm(parts, norm, rest, True).feats
    monkeypatch.setenv("LATTICE_ROUTE", "conv=cpu.reference")
    assert mx.allclose(found, conv.with_norm(parts, norm, rest, True).feats, atol=1e-4)


@pytest.mark.parametrize("of", ["conv", "norm"])
def test_training_mode_is_two_operations(of):
    x, conv, norm = tensor(), nn.SubmConv3d(16, 16).eval(), norm_of(16)
    (conv if of == "conv" else norm).train()
    feats = conv.with_norm(x, norm).feats
    assert "batch_norm" in nodes(feats)
    y = np.array(feats)
    if of == "norm":
        assert np.allclose(y.mean(0), np.array(norm.bias), atol=1e-4)


def test_gradients_in_evaluation_mode():
    x, conv, norm = tensor(), nn.SubmConv3d(16, 16, bias=True).eval(), norm_of(16)

    def together(feats, weight, scale, mean, var):
        x1 = x.with_feats(feats)
        return ops.conv_norm(
            x1, weight, conv.bias, mean=mean, var=var, norm_weight=scale, residual=x1, relu=True
        ).feats

    def apart(feats, weight, scale, mean, var):
        x1 = x.with_feats(feats)
        y = ops.subm_conv3d(x1, weight, conv.bias).feats
        return ops.batch_norm_act(y, scale, mean=mean, var=var, residual=feats, relu=True)[0]

    given = (x.feats, conv.weight, norm.weight, norm.running_mean, norm.running_var)
    every = tuple(range(len(given)))
    for wanted in (
        lambda f: mx.grad(lambda *a: mx.sum(f(*a) ** 2), every)(*given),
        lambda f: mx.jvp(f, given, [mx.ones_like(a) for a in given])[1],
        lambda f: mx.grad(lambda *a: mx.sum(mx.grad(lambda *b: mx.sum(f(*b) ** 2))(*a) ** 2))(
            *given
        ),
        lambda f: mx.compile(f)(*given),
    ):
        found, expected = wanted(together), wanted(apart)
        if isinstance(found, mx.array):
            found, expected = [found], [expected]
        for one, other in zip(found, expected, strict=True):
            assert np.array_equal(np.array(one), np.array(other))
            assert np.abs(np.array(other)).max() > 0


def test_small_types_are_rounded_once():
    x, norm = tensor(dtype=mx.float16), norm_of(16)
    conv = nn.SubmConv3d(16, 16).eval()
    conv.set_dtype(mx.float16)
    exact = nn.SubmConv3d(16, 16)
    exact.update({k: v.astype(mx.float32) for k, v in conv.parameters().items()})
    expected = np.array(norm(exact(x.with_feats(x.feats.astype(mx.float32)))).feats)
    found = np.array(conv.with_norm(x, norm).feats.astype(mx.float32))
    assert np.all(np.abs(found - expected) <= 2**-11 * np.abs(expected) + 1e-5)


def test_wrong_arguments():
    x, w = tensor(), mx.zeros((8, 3, 3, 3, 16))
    right = {"mean": mx.zeros((8,)), "var": mx.ones((8,))}
    down = ops.conv3d(x, mx.zeros((8, 2, 2, 2, 16)), kernel_size=2, stride=2)
    for options, text in [
        ({"mean": mx.zeros((7,))}, "mean must have shape"),
        ({"norm_weight": mx.zeros((7,))}, "weight must have shape"),
        ({"eps": -1.0}, "eps must be"),
        ({"kind": "sideways"}, "kind must be"),
        ({"residual": x}, "residual must have the shape"),
        ({"residual": down}, "residual must have the shape"),
    ]:
        with pytest.raises(ValueError, match=text):
            ops.conv_norm(x, w, **(right | options))
    with pytest.raises(ValueError, match="at least one tensor"):
        ops.conv_norm([], w, **right)
    with pytest.raises(ValueError, match="share coordinates"):
        ops.conv_norm([x, down], mx.zeros((8, 3, 3, 3, 24)), **right)


# Two tensors side by side.


def pair(dtype=mx.float32, a=16, b=32, sort=False):
    x = tensor(dtype=dtype)
    x = x.sorted()[0] if sort else x
    y = [mx.random.normal((x.active_count, c)).astype(dtype) for c in (a, b)]
    mx.eval(y)
    return [x.with_feats(f) for f in y]


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
    parts, conv = pair(dtype, sort=sort), make().eval()
    conv.set_dtype(dtype)
    norm = norm_of(conv.weight.shape[0])
    want = conv.with_norm(ops.cat(parts), norm, None, True).feats
    mx.eval(want)
    found = conv.with_norm(parts, norm, None, True).feats
    assert "join_columns" not in nodes(found)
    assert mx.array_equal(found, want)


@pytest.mark.parametrize("channels", [(10, 38), (0, 48), (16, 16, 16)])
def test_other_parts_are_joined(channels):
    x = tensor()
    parts = [x.with_feats(mx.random.normal((x.active_count, c))) for c in channels]
    conv, norm = nn.SubmConv3d(48, 24).eval(), norm_of(24)
    found = conv.with_norm(parts, norm).feats
    assert "join_columns" in nodes(found)
    plain = x.with_feats(mx.concatenate([p.feats for p in parts], 1))
    assert mx.array_equal(found, conv.with_norm(plain, norm).feats)


def test_gradients_of_both_parts():
    parts, conv, norm = pair(), nn.SubmConv3d(48, 24).eval(), norm_of(24)

    def total(a, b, join):
        two = [parts[0].with_feats(a), parts[1].with_feats(b)]
        return mx.sum(conv.with_norm(ops.cat(two) if join else two, norm, None, True).feats ** 2)

    found, want = (
        mx.grad(total, argnums=(0, 1))(parts[0].feats, parts[1].feats, join)
        for join in (False, True)
    )
    for one, other in zip(found, want, strict=True):
        assert mx.array_equal(one, other)


def test_unet_reads_its_skips_in_place():
    x = tensor(1200, 4)
    net = models.MinkUNet(4, 5, depth=14, width=16).eval()
    made = net(x).feats
    assert "join_columns" not in nodes(made)
    first = np.array(made)
    for _ in range(2):
        assert np.array_equal(np.array(net(x).feats), first)


def test_networks_normalize_inside_their_convolutions():
    x = tensor(1200, 4)
    net = models.MinkUNet(4, 5, depth=14, width=8).eval()
    assert "batch_norm" not in nodes(net(x).feats)


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
