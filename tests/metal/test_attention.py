"""Attention on Metal's text: gradients against the CPU's, and planted mistakes."""

import re

import mlx.core as mx
import numpy as np
import pytest
from metal.host import MetalHost
from metal.planted import outcome, plant
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


BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
# Kernel, options, text, mistake, which of the places, what the host or the oracle says.
MISTAKES = {
    "a tile that nobody waits for": ("tile", "plain", BARRIER, "", 1, "race: "),
    "a tile that is written too early": ("tile", "plain", BARRIER, "", 2, "race: "),
    "queries that nobody waits for": ("dq", "plain", BARRIER, "", 5, "race: "),
    "keys that nobody waits for": ("dkv", "plain", BARRIER, "", 11, "race: "),
    "rows past the end": (
        "tile",
        "plain",
        "rows.first + r < rows.last && c0",
        "c0",
        0,
        "out of bounds: read",
    ),
    "queries past the end": (
        "tile",
        "plain",
        "if (i >= z.n_q) continue;",
        "",
        0,
        "out of bounds: write",
    ),
    "a key too many": (
        "tile",
        "causal",
        "j <= i + z.n_k",
        "j <= 1 + i + z.n_k",
        0,
        "wrong numbers",
    ),
    "sums under an old maximum": (
        "tile",
        "plain",
        "sum[r * kParts + part] *= keep[r];",
        ";",
        0,
        "wrong",
    ),
    "a mask that is not read": ("tile", "mask", "if (seen && kMask)", "if (false)", 0, "wrong"),
    "a bias of another head": ("tile", "bias", "size_t(head) * size_t(z.n_q)", "0", 0, "wrong"),
    "a slope without delta": (
        "dq",
        "plain",
        "(dp[r] - float(slopes.delta[row]))",
        "dp[r]",
        0,
        "wrong",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_found_and_named(needs_host, name):
    kernel, options, old, new, nth, message = MISTAKES[name]
    inputs, extra = problem(options)
    change = plant(old, new, nth)
    text = outcome(lambda: gradients(inputs, extra), f"attention_{kernel}", change)
    assert re.search(message, text), text
