"""The Python oracle: the small cases that the contract prints, and its adjoints."""

import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from strategies import relation_cases


def on_x(*xs):
    return [(0, x, 0, 0) for x in xs]


def test_kernel_offsets():
    expected = [(0, -2, 0), (0, 0, 0), (0, 2, 0), (2, -2, 0), (2, 0, 0), (2, 2, 0)]
    assert oracle.kernel_offsets((2, 3, 1), (2, 2, 1)) == expected
    assert oracle.kernel_offsets((2, 3, 1), (2, 2, 1), centered=False) == [
        (x, y + 2, z) for x, y, z in expected
    ]


def test_small_cases():
    _, edges = oracle.relate("forward", on_x(0, 1, 2), (3, 1, 1))
    assert edges == [(0, 0, 1), (1, 0, 2), (0, 1, 0), (1, 1, 1), (2, 1, 2), (1, 2, 0), (2, 2, 1)]
    out, edges = oracle.relate("forward", on_x(0, 1, 2), (2, 1, 1), (2, 1, 1), (1, 0, 0))
    assert out == on_x(0, 1) and edges == [(0, 0, 1), (1, 1, 0), (2, 1, 1)]
    out, edges = oracle.relate("transposed", on_x(0, 1), (3, 1, 1), (2, 1, 1))
    assert out == on_x(0, 1, 2, 3, 4)
    assert edges == [(0, 0, 0), (0, 1, 1), (1, 2, 0), (0, 2, 2), (1, 3, 1), (1, 4, 2)]
    assert oracle.relate("target_transposed", on_x(0, 1), (3, 1, 1), (2, 1, 1), target=out) == (
        out,
        edges,
    )
    out, _ = oracle.relate("transposed", on_x(0, 1), (3, 1, 1), (2, 1, 1), (1, 0, 0))
    assert out == on_x(-1, 0, 1, 2, 3)


def test_produced_coordinates_overflow():
    top = [(0, 0, 2**31 - 1, 0)]
    with pytest.raises(OverflowError, match="y = 2147483648"):
        oracle.relate("generative", top, (1, 2, 1))
    out, _ = oracle.relate("generative", top, (1, 2, 1), dtype=np.int64)
    assert out == [top[0], (0, 0, 2**31, 0)]


@settings(max_examples=60, deadline=None)
@given(relation_cases(max_rows=15, ends=False))
def test_adjoints(case):
    out, edges = oracle.relate(**case.oracle_arguments())
    rng = np.random.default_rng(len(edges))
    n_k = int(np.prod(case.size))
    x, gy = rng.standard_normal((len(case.coords), 3)), rng.standard_normal((len(out), 2))
    w = rng.standard_normal((n_k, 3, 2))
    y = oracle.conv(x, w, edges, len(out))
    assert oracle.adjoint_error(gy, y, oracle.conv_input_grad(gy, w, edges, len(x)), x) < 1e-13
    assert oracle.adjoint_error(gy, y, oracle.outer(x, gy, edges, n_k), w) < 1e-13
