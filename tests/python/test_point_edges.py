"""Corners of the sums over triplets: orders, repeats, empty taps and rows, mixed dtypes, second derivatives, hostile values."""

import mlx.core as mx
import numpy as np
import pytest
from mlx_lattice import points

mvmr, vvor = points.mvmr_with_grad, points.sparse_vector_vector_outer_product_reduction
RNG = np.random.default_rng(0)


def arrays(n_a=5, n_b=9, groups=2, m=3, c=5):
    return RNG.normal(size=(n_a, groups, m, c)), RNG.normal(size=(n_b, groups, c))


def oracle(a, k, b, i, o, n_o):
    y = np.zeros((n_o, *a.shape[1:3]))
    np.add.at(y, o, np.einsum("tgmc,tgc->tgm", a[k], b[i]))
    return y


def f32(a):
    return mx.array(a.astype(np.float32))


def ints(a, dtype=mx.int32):
    return mx.array(np.asarray(a, dtype=np.int64)).astype(dtype)


CASES = {
    "one triplet": ([2], [3], [1], 4),
    "all on one tap": ([1] * 6, [0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], 6),
    "repeated": ([1, 1, 1], [2, 2, 2], [0, 0, 0], 1),
    "unsorted, taps and rows without triplets": ([4, 0, 4, 2, 0], [8, 0, 7, 8, 0], [3, 9, 0, 3, 3], 50),
}


@pytest.mark.parametrize("groups, m, c", [(1, 1, 1), (3, 1, 17), (8, 5, 3), (1, 127, 2)])
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(case, groups, m, c):
    k, i, o, n_o = CASES[case]
    a, b = arrays(groups=groups, m=m, c=c)
    g = RNG.normal(size=(n_o, groups, m))
    run = lambda x, v: mvmr(x, ints(k, mx.int64), v, ints(i, mx.uint32), ints(o), n_o)  # noqa: E731
    np.testing.assert_allclose(np.array(run(f32(a), f32(b))), oracle(a, k, b, i, o, n_o), rtol=1e-5, atol=1e-5)
    da, db = mx.grad(lambda x, v: (run(x, v) * f32(g)).sum(), argnums=(0, 1))(f32(a), f32(b))
    want_a, want_b = np.zeros_like(a), np.zeros_like(b)
    np.add.at(want_a, k, np.einsum("tgm,tgc->tgmc", g[o], b[i]))
    np.add.at(want_b, i, np.einsum("tgmc,tgm->tgc", a[k], g[o]))
    np.testing.assert_allclose(np.array(da), want_a, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(np.array(db), want_b, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(np.array(vvor(f32(g), ints(o), f32(b), ints(i), ints(k), 5)), want_a, rtol=1e-5, atol=1e-5)
    only_b = mx.grad(lambda v: (run(f32(a), v) * f32(g)).sum())(f32(b))
    assert mx.array_equal(only_b, db)


def test_gradient_of_a_gradient():
    k, i, o, n_o = CASES["unsorted, taps and rows without triplets"]
    a, b = (f32(v) for v in arrays())
    y = lambda x, v: mvmr(x, ints(k), v, ints(i), ints(o), n_o)  # noqa: E731
    db = lambda x: mx.grad(lambda v: y(x, v).square().sum())(b)  # noqa: E731
    u, v = mx.random.normal(b.shape), mx.random.normal(a.shape)
    found = (mx.grad(lambda x: (db(x) * u).sum())(a) * v).sum().item()
    eps = 1e-2  # db is quadratic in x: central differences are exact up to rounding
    expected = (((db(a + eps * v) - db(a - eps * v)) * u).sum() / (2 * eps)).item()
    assert found == pytest.approx(expected, rel=1e-2, abs=1e-2)


def test_mixed_dtypes_are_widened():
    k, i, o, n_o = CASES["repeated"]
    a, b = arrays()
    for x, v, want in [
        (mx.float16, mx.float32, mx.float32),
        (mx.float32, mx.bfloat16, mx.float32),
        (mx.float16, mx.float16, mx.float16),
    ]:
        y = mvmr(f32(a).astype(x), ints(k), f32(b).astype(v), ints(i), ints(o), n_o)
        assert y.dtype == want
        np.testing.assert_allclose(np.array(y.astype(mx.float32)), oracle(a, k, b, i, o, n_o), rtol=2e-2, atol=5e-2)


def test_infinite_features_stay_where_they_are_read():
    k, i, o, n_o = CASES["unsorted, taps and rows without triplets"]
    a, b = arrays()
    b[7] = np.inf
    y = np.array(mvmr(f32(a), ints(k), f32(b), ints(i), ints(o), n_o))
    assert not np.isfinite(y[0]).all() and np.isfinite(np.delete(y, 0, axis=0)).all()


@pytest.mark.parametrize("which, bad", [(0, 5), (0, -1), (1, 9), (1, -1), (2, 4), (2, -1)])
def test_indices_outside(which, bad):
    a, b = arrays()
    index = [ints([0, 1]), ints([0, 1]), ints([0, 1])]
    index[which] = ints([0, bad])
    with pytest.raises(ValueError, match="outside"):
        mvmr(f32(a), index[0], f32(b), index[1], index[2], 4)
