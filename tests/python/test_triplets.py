"""MVMR and VVOR, the sums over triplets: values, derivatives and corners, against NumPy."""

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
    "unsorted, taps and rows without triplets": (
        [4, 0, 4, 2, 0],
        [8, 0, 7, 8, 0],
        [3, 9, 0, 3, 3],
        50,
    ),
    "many": (*(RNG.integers(0, n, 60) for n in (5, 9, 7)), 7),
}


@pytest.mark.parametrize(
    "groups, m, c", [(1, 1, 1), (3, 1, 17), (8, 5, 3), (2, 127, 5), (5, 3, 127), (7, 17, 17)]
)
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(case, groups, m, c):
    k, i, o, n_o = CASES[case]
    a, b = arrays(groups=groups, m=m, c=c)
    g = RNG.normal(size=(n_o, groups, m))
    run = lambda x, v: mvmr(x, ints(k, mx.int64), v, ints(i, mx.uint32), ints(o), n_o)
    np.testing.assert_allclose(
        np.array(run(f32(a), f32(b))), oracle(a, k, b, i, o, n_o), rtol=1e-5, atol=5e-5
    )
    da, db = mx.grad(lambda x, v: (run(x, v) * f32(g)).sum(), argnums=(0, 1))(f32(a), f32(b))
    want_a, want_b = np.zeros_like(a), np.zeros_like(b)
    np.add.at(want_a, k, np.einsum("tgm,tgc->tgmc", g[o], b[i]))
    np.add.at(want_b, i, np.einsum("tgmc,tgm->tgc", a[k], g[o]))
    np.testing.assert_allclose(np.array(da), want_a, rtol=1e-5, atol=5e-5)
    np.testing.assert_allclose(np.array(db), want_b, rtol=1e-5, atol=5e-5)
    np.testing.assert_allclose(
        np.array(vvor(f32(g), ints(o), f32(b), ints(i), ints(k), 5)), want_a, rtol=1e-5, atol=5e-5
    )
    only_b = mx.grad(lambda v: (run(f32(a), v) * f32(g)).sum())(f32(b))
    assert mx.array_equal(only_b, db)


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
        np.testing.assert_allclose(
            np.array(y.astype(mx.float32)), oracle(a, k, b, i, o, n_o), rtol=2e-2, atol=5e-2
        )


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
    name = ("a_idx", "b_idx", "o_idx")[which]
    with pytest.raises(ValueError, match=rf"{name}.* is outside"):
        mvmr(f32(a), index[0], f32(b), index[1], index[2], 4)
    with pytest.raises(ValueError, match="outside"):
        vvor(f32(b), index[1], mx.zeros((4, 2, 3)), index[2], index[0], 5)


def outer_oracle(a, i, b, j, o, n_o):
    u = np.zeros((n_o, *a.shape[1:], b.shape[2]))
    np.add.at(u, o, np.einsum("tgm,tgc->tgmc", a[i], b[j]))
    return u


def some(n=60, n_a=5, n_b=9, n_o=7, seed=1):
    rng = np.random.default_rng(seed)
    return rng.integers(0, n_a, n), rng.integers(0, n_b, n), rng.integers(0, n_o, n), n_o


@pytest.mark.parametrize("n_b, n_o", [(9, 7), (0, 7), (9, 0), (0, 0)])
def test_nothing(n_b, n_o):
    a, none = f32(arrays()[0]), ints([])
    b, g = mx.ones((n_b, 2, 5)), mx.ones((n_o, 2, 3))
    y, (da, db) = mx.vjp(lambda x, v: mvmr(x, none, v, none, none, n_o), [a, b], [g])
    assert y[0].shape == (n_o, 2, 3) and da.shape == a.shape and db.shape == b.shape
    u, (dx, dy) = mx.vjp(
        lambda x, v: vvor(x, none, v, none, none, 5), [g, b], [mx.ones((5, 2, 3, 5))]
    )
    assert u[0].shape == (5, 2, 3, 5) and dx.shape == g.shape and dy.shape == b.shape
    assert not any(mx.any(v != 0).item() for v in (y[0], da, db, u[0], dx, dy))


def test_views():
    k, i, o, n_o = some()
    a, b = arrays()
    turned = mx.swapaxes(
        f32(np.swapaxes(a, 0, 3)), 0, 3
    )  # the matrices are the slowest axis of nothing
    strided = mx.swapaxes(f32(np.swapaxes(b, 0, 2)), 0, 2)
    run = lambda x, v: mvmr(x, ints(k), v, ints(i), ints(o), n_o)
    assert mx.array_equal(run(turned, strided), run(f32(a), f32(b)))
    loss = lambda x, v: run(x, v).square().sum()
    for found, want in zip(
        mx.grad(loss, (0, 1))(turned, strided), mx.grad(loss, (0, 1))(f32(a), f32(b))
    ):
        assert mx.array_equal(found, want)
    rows = mx.swapaxes(f32(np.swapaxes(RNG.normal(size=(n_o, 2, 3)), 0, 1)), 0, 1)
    plain = mx.contiguous(rows)
    assert mx.array_equal(
        vvor(rows, ints(o), strided, ints(i), ints(k), 5),
        vvor(plain, ints(o), f32(b), ints(i), ints(k), 5),
    )


@pytest.mark.parametrize("dtype, tolerance", [(mx.float16, 5e-3), (mx.bfloat16, 1.5e-2)])
def test_halves(dtype, tolerance):
    k, i, o, n_o = some(400)
    a, b = (f32(v).astype(dtype) for v in arrays())
    x, v = (np.array(w.astype(mx.float32), dtype=np.float64) for w in (a, b))
    for found, want in [
        (mvmr(a, ints(k), b, ints(i), ints(o), n_o), oracle(x, k, v, i, o, n_o)),
        (
            vvor(b, ints(i), b, ints(i[::-1].copy()), ints(k), 5),
            outer_oracle(v, i, v, i[::-1], k, 5),
        ),
    ]:
        assert found.dtype == dtype
        np.testing.assert_allclose(
            np.array(found.astype(mx.float32)), want, atol=tolerance * np.abs(want).max()
        )
    assert vvor(b, ints(i), b.astype(mx.float32), ints(i), ints(k), 5).dtype == mx.float32


def test_second_derivative_of_vvor():
    k, i, o, n_o = some()
    _, b = (f32(v) for v in arrays())
    y = f32(RNG.normal(size=(n_o, 2, 3)))
    u = lambda x: vvor(x, ints(o), b, ints(i), ints(k), 5)
    v = f32(RNG.normal(size=y.shape))
    product = mx.grad(lambda x: (mx.grad(lambda z: u(z).square().sum())(x) * v).sum())(y)
    expected = mx.vjp(u, [y], [2 * u(v)])[1][0]  # the loss is quadratic
    assert mx.allclose(product, expected, rtol=1e-4, atol=1e-4)


def test_compiled():
    k, i, o, n_o = some()
    a, b = (f32(v) for v in arrays())
    g = f32(RNG.normal(size=(n_o, 2, 3)))
    for f, x, y in [
        (lambda x, v: mvmr(x, ints(k), v, ints(i), ints(o), n_o), a, b),
        (lambda x, v: vvor(x, ints(o), v, ints(i), ints(k), 5), g, b),
    ]:
        loss = lambda p, q: f(p, q).square().sum()
        assert mx.allclose(mx.compile(f)(x, y), f(x, y), atol=1e-5)
        for found, want in zip(
            mx.compile(mx.grad(loss, (0, 1)))(x, y), mx.grad(loss, (0, 1))(x, y)
        ):
            assert mx.allclose(found, want, rtol=1e-4, atol=1e-4)


def test_nan():
    k, i, o, n_o = some()
    a, b = arrays()
    a[2, 1, 0] = np.nan
    y = np.array(mvmr(f32(a), ints(k), f32(b), ints(i), ints(o), n_o))
    bad = {(r, 1, 0) for r in o[k == 2]}
    assert set(zip(*np.nonzero(np.isnan(y)))) == bad
    b[4] = np.nan
    u = np.array(vvor(f32(np.ones((n_o, 2, 3))), ints(o), f32(b), ints(i), ints(k), 5))
    assert set(np.nonzero(np.isnan(u).any(axis=(1, 2, 3)))[0]) == set(k[i == 4])


def test_layouts_and_given_relations():
    k, i, o, n_o = some()
    a, b = (f32(v) for v in arrays())
    y = mvmr(a, ints(k), b, ints(i), ints(o), n_o)
    turned = points.mvmr(mx.swapaxes(a, 2, 3), ints(k), b, ints(i), ints(o), n_o, layout="gcm")
    assert mx.allclose(turned, y, atol=1e-5)
    relation = points.triplet_relation(ints(k), ints(i), ints(o), n_a=5, n_b=9, n_o=n_o)
    assert mx.array_equal(points.mvmr_on(a, b, relation), y)
    with pytest.raises(ValueError, match="layout must be gmc or gcm"):
        points.mvmr(a, ints(k), b, ints(i), ints(o), n_o, layout="mgc")
    with pytest.raises(ValueError, match=r"b must have shape \(N, 2, 5\)"):
        points.mvmr(a, ints(k), b[:, :, :3], ints(i), ints(o), n_o)
