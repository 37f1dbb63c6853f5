"""A kernel that this machine cannot compile, or computes wrongly, is not used: the probe finds it.

The host stands for such a machine: a change of the text is what its compiler makes of the kernel.
"""

import mlx.core as mx
import mlx_lattice as ml
import numpy as np
import pytest
from metal.host import MetalHost
from mlx_lattice import ops

pytestmark = pytest.mark.usefixtures("needs_host")


@pytest.fixture(scope="module")
def case():
    """A convolution that takes metal.sorted, and its result on the CPU."""
    random = np.random.default_rng(0)
    places = random.permutation(np.stack(np.meshgrid(*[np.arange(5)] * 3), -1).reshape(-1, 3))[:70]
    coords = mx.array(np.concatenate([np.zeros((70, 1)), places], 1).astype(np.int32))
    feats, weight = (
        mx.array(random.standard_normal(shape).astype(np.float32))
        for shape in ((70, 16), (27, 16, 8))
    )
    call = lambda: ops.subm_conv3d(ml.SparseTensor(coords, feats), weight).feats
    want = call()
    mx.eval(want)
    return want, call


def ran(case, change):
    """On a machine with such a compiler: the route, explain(), launched kernels, probes."""
    want, call = case
    with MetalHost(change=change, probe=True) as host:
        decided = ml.explain(call)
        route, told = decided.routes[-1][1], str(decided)
        np.testing.assert_allclose(np.array(call()), np.array(want), rtol=1e-4, atol=1e-4)
        probes = ml.backend_info()["probes"]
    return route, told, [launch.name for launch in host.launches], probes


def test_a_kernel_that_works_is_used(case):
    route, told, names, probes = ran(case, None)
    assert route == "metal.sorted"
    assert probes["conv metal.sorted float32"] == "passed"
    assert "agreed with the CPU" in told
    assert len(names) == 3  # the probe once, the call twice


def test_a_text_that_does_not_compile_lowers_the_route(case):
    route, told, names, probes = ran(
        case, lambda t: t.replace("conv_tiles(Rows", "conv_tiles(Row", 1)
    )
    assert route == "gpu.mlx" and names == []
    assert probes["conv metal.rows float32"].startswith("failed: ")
    assert "its probe failed on this machine" in told


def test_a_kernel_that_is_wrong_lowers_the_route(case):
    """Rows of tiles are wrong; the kernel with one thread per value still serves."""
    route, _, names, probes = ran(
        case,
        lambda t: t.replace(
            "sums[r * kColumns + j], left[r], right", "sums[r * kColumns + j], right, right"
        ),
    )
    assert route == "metal.rows" and names
    assert "of the result is" in probes["conv metal.sorted float32"]
    assert probes["conv metal.rows float32"] == "passed"


def half():
    """A convolution in float16 whose channels fill the tensor unit."""
    random = np.random.default_rng(1)
    coords = np.zeros((70, 4), np.int32)
    coords[:, 1] = np.arange(70)
    feats, weight = (
        mx.array(random.standard_normal(shape).astype(np.float16))
        for shape in ((70, 16), (27, 16, 24))
    )
    x = ml.SparseTensor(mx.array(coords), feats)
    return lambda: ops.subm_conv3d(x, weight).feats


@pytest.mark.parametrize(
    ("tier", "old", "new", "route"),
    [
        ("neural_accelerator", "", "", "metal.tensor_sorted"),
        ("gpu", "", "", "metal.sorted"),
        ("neural_accelerator", "#define LATTICE_TENSOR", "", "metal.sorted"),
        (
            "neural_accelerator",
            "const auto at = sums.get_multidimensional_index(i);",
            "const uint at[2] = {uint(i) % 8u, uint(i) / 8u};",
            "metal.sorted",
        ),
    ],
    ids=["works", "another tier", "no tensor API", "another lane layout"],
)
def test_the_tensor_unit_serves_where_its_probe_passes(tier, old, new, route):
    call = half()
    want = np.array(call())
    change = (lambda text: text.replace(old, new)) if old else None
    with MetalHost(change=change, tier=tier, probe=True):
        assert ml.explain(call).routes[-1][1] == route
        found = np.array(call())
        probes = ml.backend_info()["probes"]
    np.testing.assert_allclose(found, want, rtol=4e-3, atol=4e-3 * np.abs(want).max())
    if tier == "neural_accelerator":
        passed = probes["conv metal.tensor_sorted float16"] == "passed"
        assert passed == (route == "metal.tensor_sorted")
