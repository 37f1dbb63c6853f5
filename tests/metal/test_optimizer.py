"""AdamW, running statistics and the test of gradients, which stand beside the route table.

Against float64 in every variant of the emulation, with partial last groups, far ends of large
arrays, and planted mistakes.
"""

import re

import mlx.core as mx
import numpy as np
import pytest
from metal.host import CompileError, CudaHost, MetalError, MetalHost
from metal.host.far import Far, record, run_far
from metal.planted import plant
from mlx_lattice import _ext, ops

pytestmark = pytest.mark.usefixtures("needs_host")

BETAS, EPS = (0.9, 0.999), 1e-8
HOWS = [("fast", "forward"), ("fast", "reverse"), ("contract", "random"), ("check", "random")]
HOWS += [("asan", "forward")]


def numbers(n, seed):
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


def state(n):
    """Parameter, gradient and moments."""
    return [numbers(n, 0), numbers(n, 1), 0.1 * numbers(n, 2), np.abs(numbers(n, 3))]


def adamw_in_float64(arrays, rates):
    decay, rate, correction, counts, factor = map(float, rates)
    p, g, m, v = (np.asarray(a, np.float64) for a in arrays)
    if not counts:
        return [p, m, v]
    g = g * factor
    m2, v2 = BETAS[0] * m + (1 - BETAS[0]) * g, BETAS[1] * v + (1 - BETAS[1]) * g * g
    return [decay * p - rate * m2 / (correction * np.sqrt(v2) + EPS), m2, v2]


def close(found, exact):
    for a, b in zip(found, exact, strict=True):
        np.testing.assert_allclose(np.array(a), b, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("host", [MetalHost, CudaHost])
@pytest.mark.parametrize(("variant", "order"), HOWS)
@pytest.mark.parametrize("counts", [0.0, 1.0])
def test_adamw_matches_float64(host, variant, order, counts):
    """Sizes around a group of 256 threads, and one below 8, which lies in other memory."""
    rates = np.array([0.99, 1e-3, 1.1, counts, 0.5], np.float32)
    for n in (5, 256, 300):
        arrays = state(n)
        if not counts:
            arrays[1][0] = np.inf  # the gradient of a step that does not count
        with host(variant, order, seed=5):
            found = ops.adamw_step(*map(mx.array, arrays), mx.array(rates))
            mx.eval(found)
        close(found, adamw_in_float64(arrays, rates))


@pytest.mark.parametrize("host", [MetalHost, CudaHost])
@pytest.mark.parametrize(("variant", "order"), HOWS)
def test_running_statistics_match_float64(host, variant, order):
    for n in (3, 300):
        arrays = [numbers(n, 4), np.abs(numbers(n, 5)), numbers(n, 6), np.abs(numbers(n, 7))]
        with host(variant, order, seed=5):
            found = _ext.running_statistics(list(map(mx.array, arrays)), 0.1, 1.25)
            mx.eval(found)
        mean, var, new_mean, new_var = (a.astype(np.float64) for a in arrays)
        close(found, [0.9 * mean + 0.1 * new_mean, 0.9 * var + 0.1 * new_var * 1.25])


def outcome(change):
    """What is said of both kernels with a mistake in their text."""
    rates = np.array([0.99, 1e-3, 1.1, 1.0, 0.5], np.float32)
    arrays = state(300)
    changed = lambda text: change(text) if "AdamwArrays" in text else text
    statistics = [np.abs(numbers(300, k)) for k in range(4)]
    try:
        with MetalHost("check", change=changed):
            found = ops.adamw_step(*map(mx.array, arrays), mx.array(rates))
            kept = _ext.running_statistics(list(map(mx.array, statistics)), 0.1, 1.25)
            mx.eval(found, kept)
    except (CompileError, MetalError) as error:
        return str(error)
    mean, var, new_mean, new_var = statistics
    try:
        close(found, adamw_in_float64(arrays, rates))
        close(kept, [0.9 * mean + 0.1 * new_mean, 0.9 * var + 0.1 * new_var * 1.25])
    except AssertionError:
        return "wrong numbers"
    return "right"


MISTAKES = {
    "none": ("namespace lattice", "namespace lattice", "right"),
    "the factor forgotten": ("in.g[i] * in.rates[4]", "in.g[i]", "wrong numbers"),
    "eps below the root": ("sqrt(v2) + sizes.eps", "sqrt(v2 + 1.0f)", "wrong numbers"),
    "moments exchanged": ("m[i] = counts ? m2", "m[i] = counts ? v2", "wrong numbers"),
    "the next value": ("const float g = in.g[i]", "const float g = in.g[i + 1]", "out of bounds"),
    "the bias of the variance": (" * sizes.wider", "", "wrong numbers"),
    "a value that nobody writes": ("v[i] = counts", "if (i > 0) v[i] = counts", "unwritten"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_seen(name):
    old, new, message = MISTAKES[name]
    found = outcome(plant(old, new))
    assert re.search(message, found), found


N = (1 << 30) + 64  # float32: bytes beyond 2^32


def far_adamw(backend):
    launch = record(
        lambda: ops.adamw_step(*map(mx.array, state(300)), mx.ones(5)), "adamw", backend=backend
    )
    arrays, rates = state(64), np.array([0.99, 1e-3, 1.1, 1, 0.5], np.float32)
    sizes = np.array([BETAS[0], 1 - BETAS[0], BETAS[1], 1 - BETAS[1], EPS, 0, 0, 0], np.float32)
    buffers = {name: Far(N, tail) for name, tail in zip("pgmv", arrays, strict=True)}
    buffers |= {"rates": rates, "words": sizes.view(np.int32)}
    for name in ("p2", "v2", "m2"):  # the last one is looked at
        buffers[name] = Far(N, np.zeros(64, np.float32))
    return launch, buffers, (N, 1, 1), adamw_in_float64(arrays, rates)[1]


def far_flags(backend):
    """The last strip of an array whose last value is an infinity."""
    n = 1 << 30
    launch = record(lambda: ops.all_finite([mx.ones(300)]), "finite", backend=backend)
    tail = np.zeros(32, np.float32)
    tail[-1] = np.inf
    words = np.zeros(26, np.int32)
    words[:3] = 1, 256, n
    buffers = {"a0": Far(n, tail), "words": words, "flags": Far(256, np.zeros(1, np.float32))}
    return launch, buffers, (256 * 32, 1, 1), np.ones(1)


@pytest.mark.parametrize("backend", ["metal", "cuda"])
@pytest.mark.parametrize("case", [far_adamw, far_flags])
def test_the_far_end_of_large_arrays(case, backend):
    launch, arrays, grid, expected = case(backend)
    found = run_far(launch, arrays, grid, 1)
    np.testing.assert_allclose(found.reshape(-1), expected, rtol=2e-6)
