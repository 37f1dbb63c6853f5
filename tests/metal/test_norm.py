"""Batch norm, the test of gradients and layers with a norm where the tile is stored.

test_routes.py runs norm.metal and finite.metal against the float64 oracle. Here are numbers of
10^4 standard deviations from zero, planted mistakes, and layers that tests of rows do not reach.
"""

import re

import mlx.core as mx
import mlx_lattice as ml
import numpy as np
import pytest
from metal.host import CompileError, CudaHost, MetalError, MetalHost
from metal.planted import plant
from mlx_lattice import _ext, nn, ops

pytestmark = pytest.mark.usefixtures("needs_host")

ROWS, CHANNELS = 1100, 40  # three parts, the last one short; two groups of channels
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"


def rows(mean=0.0, scale=1.0, dtype=mx.float32):
    random = np.random.default_rng(3)
    return mx.array(
        (mean + scale * random.standard_normal((ROWS, CHANNELS))).astype(np.float32)
    ).astype(dtype)


def norm(x, relu=True):
    weight, bias = mx.linspace(0.5, 2, CHANNELS), mx.linspace(-1, 1, CHANNELS)
    return ops.batch_norm_act(x, weight, bias, eps=1e-6, relu=relu)


def gradients(x, relu=True):
    weight, bias = mx.linspace(0.5, 2, CHANNELS), mx.linspace(-1, 1, CHANNELS)
    g = mx.array(np.random.default_rng(4).standard_normal(x.shape).astype(np.float32))

    def loss(x, weight, bias, residual):
        y, _, _ = ops.batch_norm_act(x, weight, bias, eps=1e-6, relu=relu, residual=residual)
        return (y.astype(mx.float32) * g).sum()

    return mx.grad(loss, argnums=(0, 1, 2, 3))(x, weight, bias, (0.5 * g).astype(x.dtype))


@pytest.mark.parametrize("host", [MetalHost, CudaHost])
def test_a_mean_of_ten_thousand_deviations_costs_no_digit(host):
    x = rows(mean=1e4, scale=1.0)
    exact = np.array(x).astype(np.float64)
    with host():
        y, mean, var = norm(x, relu=False)
        mx.eval(y, mean, var)
    np.testing.assert_allclose(np.array(mean), exact.mean(0), rtol=2e-7)
    np.testing.assert_allclose(np.array(var), exact.var(0), rtol=2e-5)


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
def test_gradients_are_those_of_the_cpu(dtype):
    x = rows(mean=0.3, dtype=dtype)
    expected = gradients(x)
    with MetalHost() as host:
        found = gradients(x)
        mx.eval(found)
    assert sum("norm_" in ran.name for ran in host.launches) == 6
    for a, b in zip(found, expected):
        a, b = np.array(a.astype(mx.float32)), np.array(b.astype(mx.float32))
        limit = {mx.float32: 1e-5, mx.float16: 4e-3, mx.bfloat16: 3e-2}[dtype]
        np.testing.assert_allclose(a, b, rtol=limit, atol=limit * np.abs(b).max())


SLOPE = "!kRelu || float(in.y[from]) > 0.0f ? float(in.g[from]) : 0.0f"
MISTAKES = {
    "sums that nobody waits for": (
        f"memory[place.id] = own;\n  {BARRIER}",
        "memory[place.id] = own;",
        "race: ",
    ),
    "sums that are overwritten": (f"{BARRIER}  // the last sums are read", "", "race: "),
    "rows behind the end": (
        "min(sizes.rows, first + sizes.part)",
        "first + sizes.part",
        "out of|wrong",
    ),
    "a part counts as whole": (
        "const float count = float(own.last - own.first);",
        "const float count = float(sizes.part);",
        "wrong",
    ),
    "squares around zero": (
        "float(x[norm_at(r, own.c, sizes)]) - mean;",
        "float(x[norm_at(r, own.c, sizes)]) - 0.0f;",
        "wrong",
    ),
    "parts that are left out": (
        "p < n; p += 32) {\n    const size_t at = size_t(3 * p) * channels + c;\n    sum +=",
        "p < 2; p += 32) {\n    const size_t at = size_t(3 * p) * channels + c;\n    sum +=",
        "wrong",
    ),
    "the shift forgotten": ("+ float(of.bias[c])", "", "wrong"),
    "the slope of dead rows": (SLOPE, "float(in.g[from])", "wrong"),
    "the share of s1 forgotten": ("share * a * r * r * s1", "share * a * r * s1", "wrong"),
}


def outcome(change):
    """What is said of norm and its gradient with a mistake in the text."""
    x = rows(mean=100.0)
    expected = [norm(x)[0], *gradients(x)]
    mx.eval(expected)

    def planted(text):
        return change(text) if "norm_at" in text else text

    try:
        with MetalHost("check", change=planted):
            found = [norm(x)[0], *gradients(x)]
            mx.eval(found)
    except (CompileError, MetalError) as error:
        return str(error)
    for a, b in zip(found, expected):
        if not np.allclose(
            np.array(a), np.array(b), rtol=1e-3, atol=1e-3 * np.abs(np.array(b)).max()
        ):
            return "wrong numbers"
    return "right"


@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_seen(name):
    old, new, message = MISTAKES[name]
    found = outcome(plant(old, new))
    assert re.search(message, found), found


def test_without_a_mistake_all_is_right():
    assert outcome(lambda text: text) == "right"


def layer_with_norm(c_out):
    """A layer of 16 -> c_out channels, the norm behind it, its input, and rows to add."""
    random = np.random.default_rng(5)
    coords = np.unique(random.integers(0, 9, (300, 3)), axis=0)
    coords = np.concatenate([np.zeros((len(coords), 1)), coords], 1).astype(np.int32)
    feats = random.standard_normal((len(coords), 16)).astype(np.float16)
    x = ml.SparseTensor(mx.array(coords), mx.array(feats))
    layer, after = nn.SubmConv3d(16, c_out, bias=False), nn.BatchNorm(c_out)
    after.running_mean = mx.linspace(-1, 1, c_out)
    after.running_var = mx.linspace(0.5, 2, c_out)
    after.bias = mx.linspace(1, -1, c_out)
    layer.set_dtype(mx.float16)
    for module in (layer, after):
        module.eval()
    added = mx.array(random.standard_normal((len(coords), c_out)).astype(np.float16))
    return layer, after, x, x.replace(feats=added)


@pytest.mark.parametrize("c_out", [24, 96])
@pytest.mark.parametrize(("residual", "relu"), [(False, False), (True, True)])
def test_the_norm_where_the_tile_is_stored(c_out, residual, relu):
    layer, after, x, added = layer_with_norm(c_out)
    call = lambda: layer.with_norm(x, after, added if residual else None, relu).feats
    expected = np.array(call())
    with MetalHost("check") as host:
        found = np.array(call())
    assert len(host.launches) == 1 and "_norm" in host.launches[0].name
    np.testing.assert_allclose(found, expected, rtol=4e-3, atol=4e-3)


# Of a tile that is 96 wide: norm, residual and ReLU; rows of weights; the gradient of the input.
TILE_MISTAKES = {
    "none": ("struct NoBias", "struct NoBias", "^right$"),
    "the shift": ("* scale + float(shift[m]);", "* scale;", "wrong"),
    "the residual": ("if (kAdd) value += float(residual[at]);", "", "wrong"),
    "another channel": ("float(var[m]) + eps", "float(var[0]) + eps", "wrong"),
    "the ReLU": ("return kRelu ? max(value, 0.0f)", "return kRelu ? value", "wrong"),
    "rows of weights that two threads have": ("line() < kLines && ", "", "race: "),
    "strides exchanged": (
        "int(strides[1]), int(strides[2]),",
        "int(strides[2]), int(strides[1]),",
        "wrong|out of",
    ),
    "offsets not mirrored": ("kMirrored ? last - k : k", "k", "wrong"),
}


@pytest.mark.parametrize("name", TILE_MISTAKES)
def test_a_planted_mistake_of_a_tile_is_seen(name):
    old, new, message = TILE_MISTAKES[name]
    layer, after, x, added = layer_with_norm(96)

    def gradient(feats):
        return (layer(x.replace(feats=feats)).feats.astype(mx.float32) * mx.arange(96.0)).sum()

    def results():
        stored = layer.with_norm(x, after, added, True).feats
        return [np.array(stored), np.array(mx.grad(gradient)(x.feats))]

    expected = results()
    change = lambda text: text.replace(old, new) if "struct NoBias" in text else text
    try:
        with MetalHost("check", change=change) as host:
            found = results()
        assert any("_strided" in ran.name for ran in host.launches)
        said = "right"
        for a, b in zip(found, expected, strict=True):
            limit = 4e-3 * np.abs(b).max()
            if not np.allclose(a.astype(np.float32), b.astype(np.float32), 4e-3, limit):
                said = "wrong numbers"
    except (CompileError, MetalError) as error:
        said = str(error)
    assert re.search(message, said), said


def test_flags_of_many_arrays_take_few_launches():
    arrays = [mx.ones((7, i + 1)) for i in range(50)]
    bad = [*arrays[:-1], mx.array([1.0, float("nan")])]
    with MetalHost("check") as host:
        assert _ext.all_finite(arrays, None).item() is True
        assert _ext.all_finite(bad, None).item() is False
    assert len(host.launches) == 2 * 3


def test_a_missed_bit_of_an_infinity_is_seen():
    arrays = [mx.array([1.0, float("-inf")] * 40)]
    with MetalHost("check", change=plant("0x7f800000u) ==", "0xff800000u) ==")):
        assert _ext.all_finite(arrays, None).item() is True
