"""Gradients of attention on Metal's text: those of keys, values and bias against the CPU's."""

import mlx.core as mx
import numpy as np
import pytest
from metal.host import MetalHost
from mlx_lattice import ops

LENGTHS = [33, 0, 5]


def problem(options):
    n = sum(LENGTHS)
    shapes = [(n, 4, 40), (n, 2, 40), (n, 2, 40)]
    inputs = [mx.random.normal(s, key=mx.random.key(i)) for i, s in enumerate(shapes)]
    pairs = sum(length * length for length in LENGTHS)
    extra = {}
    if options == "mask":
        extra["mask"] = mx.random.uniform(shape=(pairs,), key=mx.random.key(8)) < 0.7
    if options == "causal":
        extra["mask"] = "causal"
    if options == "bias":
        inputs.append(mx.random.normal((4 * pairs,), key=mx.random.key(9)))
    return inputs, extra


def gradients(inputs, extra):
    offsets = mx.array(np.cumsum([0, *LENGTHS]))

    def loss(q, k, v, bias=None):
        return ops.attention(q, k, v, offsets, bias=bias, **extra).square().sum()

    found = mx.grad(loss, argnums=list(range(len(inputs))))(*inputs)
    mx.eval(found)
    return found


@pytest.mark.parametrize("options", ["plain", "mask", "causal", "bias"])
def test_gradients(needs_host, options):
    inputs, extra = problem(options)
    expected = gradients(inputs, extra)
    with MetalHost("check", "random", seed=3) as host:
        got = gradients(inputs, extra)
    names = " ".join(launch.name for launch in host.launches)
    assert all(kernel in names for kernel in ("attention_tile", "attention_dq", "attention_dkv"))
    for a, b in zip(got, expected):
        assert np.abs(np.array(a - b)).max() < 2e-5 * np.abs(np.array(b)).max()
