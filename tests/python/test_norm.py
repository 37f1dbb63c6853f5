"""batch_norm_act: relu(batch_norm(x) + residual) in one pass.

Results are compared with plain operations and with float64.
"""

import mlx.core as mx
import numpy as np
import pytest
from mlx_lattice import ops

EPS = 1e-5
UNIT = {mx.float32: 2e-6, mx.float16: 2e-3, mx.bfloat16: 1.6e-2}
VARIANTS = [
    (given, residual, relu)
    for given in (False, True)
    for residual in (False, True)
    for relu in (False, True)
]


def arrays(n=50, c=5, dtype=mx.float32, seed=0):
    rng = np.random.default_rng(seed)
    draw = lambda *shape: mx.array(rng.standard_normal(shape).astype(np.float32))
    return [
        (draw(n, c) * 2 + 1).astype(dtype),
        draw(c),
        draw(c),
        draw(c),
        mx.abs(draw(c)) + 0.5,
        draw(n, c).astype(dtype),
    ]


def fused(a, given, residual, relu):
    x, w, b, mean, var, r = a
    return ops.batch_norm_act(
        x,
        w,
        b,
        mean=mean if given else None,
        var=var if given else None,
        eps=EPS,
        residual=r if residual else None,
        relu=relu,
    )[0]


def plain(a, given, residual, relu):
    x, w, b, mean, var, r = a
    if not given:
        mean = mx.mean(x, axis=0)
        var = mx.mean((x - mean) ** 2, axis=0)
    y = (x - mean) * mx.rsqrt(var + EPS) * w + b
    y = y + r if residual else y
    return mx.maximum(y, 0) if relu else y


@pytest.mark.parametrize("dtype", UNIT)
@pytest.mark.parametrize("variant", VARIANTS)
def test_values(variant, dtype):
    given, residual, relu = variant
    a = arrays(dtype=dtype)
    x, w, b, mean, var, r = (np.array(v.astype(mx.float32), np.float64) for v in a)
    if not given:
        mean, var = x.mean(0), x.var(0)
    y = (x - mean) / np.sqrt(var + EPS) * w + b + (r if residual else 0)
    y = np.maximum(y, 0) if relu else y
    got = fused(a, *variant)
    assert got.dtype == dtype
    np.testing.assert_allclose(
        np.array(got.astype(mx.float32)), y, rtol=UNIT[dtype], atol=2 * UNIT[dtype]
    )


def used(variant):
    given, residual, _ = variant
    return [0, 1, 2] + ([3, 4] if given else []) + ([5] if residual else [])


@pytest.mark.parametrize("variant", VARIANTS)
def test_first_and_second_gradients(variant):
    a = arrays(n=23)
    way = mx.random.normal(a[0].shape, key=mx.random.key(1))
    at = used(variant)

    def loss(f):
        return lambda *v: mx.sum(mx.sin(f(v, *variant)) * way)

    first = [mx.grad(loss(f), argnums=at)(*a) for f in (fused, plain)]
    for i, (x, y) in enumerate(zip(*first)):
        np.testing.assert_allclose(
            np.array(x), np.array(y), rtol=1e-4, atol=2e-5, err_msg=str(at[i])
        )

    def norm_of_gradient(f):
        return lambda *v: sum(mx.sum(g * g) for g in mx.grad(loss(f), argnums=at)(*v))

    second = [mx.grad(norm_of_gradient(f), argnums=at)(*a) for f in (fused, plain)]
    for x, y in zip(*second):
        np.testing.assert_allclose(np.array(x), np.array(y), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("variant", VARIANTS)
def test_tangents(variant):
    a = arrays(n=23)
    at = used(variant)
    tangents = [mx.random.normal(a[i].shape, key=mx.random.key(i)) for i in at]

    def of(f):
        def run(*chosen):
            v = list(a)
            for i, c in zip(at, chosen):
                v[i] = c
            return [f(v, *variant)]

        return mx.jvp(run, [a[i] for i in at], tangents)[1][0]

    np.testing.assert_allclose(np.array(of(fused)), np.array(of(plain)), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_half_gradients_have_the_dtype_of_their_inputs(dtype):
    a = arrays(dtype=dtype)
    grads = mx.grad(
        lambda *v: mx.sum(fused(v, False, True, True).astype(mx.float32)), argnums=[0, 1, 2, 5]
    )(*a)
    assert [g.dtype for g in grads] == [dtype, mx.float32, mx.float32, dtype]


def test_statistics_carry_no_gradient():
    x = arrays()[0]
    g = mx.grad(lambda x: mx.sum(ops.batch_norm_act(x)[1]) + mx.sum(ops.batch_norm_act(x)[2]))(x)
    assert not mx.any(g != 0).item()
    _, mean, var = ops.batch_norm_act(x)
    np.testing.assert_allclose(np.array(mean), np.array(x).mean(0), atol=1e-6)
    np.testing.assert_allclose(np.array(var), np.array(x).var(0), rtol=1e-5)


def test_compiled_and_empty():
    a = arrays()
    compiled = mx.compile(lambda *v: fused(v, False, True, True))
    assert mx.array_equal(compiled(*a), fused(a, False, True, True))
    y, mean, var = ops.batch_norm_act(mx.zeros((0, 4)), relu=True)
    assert y.shape == (0, 4) and mean.tolist() == [0] * 4 == var.tolist()
    assert ops.batch_norm_act(mx.zeros((3, 0)))[0].shape == (3, 0)


def test_errors():
    x = mx.zeros((4, 3))
    with pytest.raises(ValueError, match=r"\[batch_norm\] residual must have the shape and dtype"):
        ops.batch_norm_act(x, residual=mx.zeros((3, 3)))
    with pytest.raises(ValueError, match=r"\[batch_norm\] residual must have the shape and dtype"):
        ops.batch_norm_act(x, residual=mx.zeros((4, 3), mx.float16))
    with pytest.raises(ValueError, match="given together"):
        ops.batch_norm_act(x, mean=mx.zeros((3,)))
