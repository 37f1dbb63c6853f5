"""Attention along edges and rotary positions: float64 oracles, derivatives, hostile input."""

import mlx.core as mx
import mlx.nn
import mlx_lattice as ml
import numpy as np
import pytest
from mlx_lattice import nn, ops

HEADS, SIZE = 3, 5


def relations():
    random = np.random.default_rng(0)
    points = mx.array(random.uniform(0, 4, (40, 3)).astype(np.float32))
    index = ml.core.NeighborIndex(points)
    coords = np.unique(random.integers(0, 4, (50, 4)) * [0, 1, 1, 1], axis=0).astype(np.int32)
    n = 30
    edges = [mx.array(random.integers(0, n, 90).astype(np.int32)) for _ in range(2)]
    queries = mx.array(np.array([[0.5, 1, 1], [99, 99, 99], [2, 2, 2]], np.float32))
    return {
        "knn": index.knn(k=4),
        "radius": index.radius(queries, radius=1.0),  # the second query has no neighbor
        "kernel": ops.build_submanifold_kernel_relation(mx.array(coords)),
        "given": ml.core.KernelRelation(
            *edges, mx.zeros((90,), mx.int32), n_in=n, n_out=n + 2, n_kernels=1
        ),
    }


def parts(relation):
    """(queries, sources) of the edges, n_query, n_source."""
    e = relation.edges
    if hasattr(e, "query_rows"):
        return np.array(e.query_rows), np.array(e.source_rows), relation.n_query, relation.n_source
    return np.array(e.out_rows), np.array(e.in_rows), relation.n_out, relation.n_in


def problem(relation, seed=0, dtype=mx.float32):
    at, _, n, m = parts(relation)
    keys = mx.random.split(mx.random.key(seed), 4)
    q = mx.random.normal((n, HEADS, SIZE), key=keys[0]).astype(dtype)
    k = mx.random.normal((m, HEADS, SIZE), key=keys[1]).astype(dtype)
    v = mx.random.normal((m, HEADS, SIZE), key=keys[2]).astype(dtype)
    return q, k, v, mx.random.normal((len(at), HEADS), key=keys[3])


def oracle(relation, q, k, v, bias, scale):
    at, of, n, _ = parts(relation)
    v = np.array(v, np.float64)
    logits = np.zeros((len(at), HEADS)) if bias is None else np.array(bias, np.float64)
    if q is not None:
        q, k = np.array(q, np.float64), np.array(k, np.float64)
        logits = logits + scale * (q[at] * k[of]).sum(2)
    out = np.zeros((n, *v.shape[1:]))
    for i in range(n):
        rows = np.flatnonzero(at == i)
        if len(rows):
            e = np.exp(logits[rows] - logits[rows].max(0))
            out[i] = ((e / e.sum(0))[:, :, None] * v[of[rows]]).sum(0)
    return out


@pytest.mark.parametrize("name", ["knn", "radius", "kernel", "given"])
def test_oracle_and_derivatives(name):
    relation = relations()[name]
    q, k, v, bias = problem(relation)
    for given in ((q, k, None), (q, k, bias), (None, None, bias)):
        got = ops.neighbor_attention(given[0], given[1], v, relation, bias=given[2])
        expected = oracle(relation, given[0], given[1], v, given[2], SIZE**-0.5)
        assert np.abs(np.array(got) - expected).max() < 2e-6
    inputs = [q, k, v, bias]
    direction = [mx.random.normal(x.shape, key=mx.random.key(9 + i)) for i, x in enumerate(inputs)]
    g = mx.random.normal(q.shape, key=mx.random.key(20))

    def run(q, k, v, bias):
        return ops.neighbor_attention(q, k, v, relation, bias=bias, scale=0.6)

    (_,), (tangent,) = mx.jvp(run, inputs, direction)
    (_,), pulled = mx.vjp(run, inputs, [g])
    forward = (tangent * g).sum().item()
    adjoint = sum((a * b).sum().item() for a, b in zip(pulled, direction))
    assert abs(forward - adjoint) < 1e-4 * (1 + abs(forward))

    def slope(*x):
        found = mx.grad(lambda *y: (run(*y) * g).sum(), argnums=[0, 1, 2, 3])(*x)
        return sum((a * b).sum() for a, b in zip(found, direction))

    def moved(t):
        return [x + t * d for x, d in zip(inputs, direction)]

    h = 1e-2
    steps = ((run(*moved(h)) - run(*moved(-h))) * g).sum().item() / (2 * h)
    assert abs(steps - forward) < 2e-2 * (1 + abs(forward))
    bend = sum(
        (a * b).sum().item()
        for a, b in zip(mx.grad(slope, argnums=[0, 1, 2, 3])(*inputs), direction)
    )
    steps = (slope(*moved(h)).item() - slope(*moved(-h)).item()) / (2 * h)
    assert abs(bend - steps) < 3e-2 * (1 + abs(steps))


def test_no_edge_is_zero_threads_and_dtypes():
    relation = relations()["radius"]
    q, k, v, _ = problem(relation)
    assert mx.array_equal(ops.neighbor_attention(q, k, v, relation)[1], mx.zeros((HEADS, SIZE)))
    relation = relations()["knn"]
    results = []
    threads = ml.core.thread_count()
    for n in (1, 3):
        ml.core.set_thread_count(n)
        q, k, v, bias = problem(relation)
        grads = mx.grad(
            lambda *x: ops.neighbor_attention(*x[:3], relation, bias=x[3]).square().sum(),
            argnums=[0, 1, 2, 3],
        )(q, k, v, bias)
        mx.eval(grads)
        results.append(grads)
    ml.core.set_thread_count(threads)
    assert all(mx.array_equal(a, b) for a, b in zip(*results))
    exact = ops.neighbor_attention(q, k, v, relation)
    for dtype, tolerance in ((mx.float16, 3e-3), (mx.bfloat16, 3e-2)):
        got = ops.neighbor_attention(*(x.astype(dtype) for x in (q, k, v)), relation)
        assert got.dtype == dtype
        assert mx.abs(got.astype(mx.float32) - exact).max().item() < tolerance


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"v": mx.zeros((39, 3, 5))}, ValueError, r"v must have shape \(40, heads, D\)"),
        ({"q": mx.zeros((40, 2, 5))}, ValueError, r"q must have shape \(40, 3, 5\)"),
        ({"k": None}, ValueError, "q and k must be given together"),
        ({"q": None, "k": None}, ValueError, "bias must hold the logits"),
        ({"bias": mx.zeros((5, 3))}, ValueError, r"bias must have shape \(160, 3\)"),
        ({"k": mx.zeros((40, 3, 5), mx.float16)}, ValueError, "one dtype"),
        ({"scale": float("inf")}, ValueError, "scale must be finite"),
        ({"relation": 3}, TypeError, "relation: found int, expected a NeighborRelation"),
    ],
)
def test_bad_edges(change, error, message):
    relation = relations()["knn"]
    q, k, v, _ = problem(relation)
    given = {"q": q, "k": k, "v": v, "relation": relation, **change}
    with pytest.raises(error, match=message):
        ops.neighbor_attention(**given)


@pytest.mark.parametrize("axes, size", [(1, 8), (2, 8), (3, 12), (3, 20), (3, 5), (1, 1)])
def test_rotary(axes, size):
    random = np.random.default_rng(axes)
    x = random.standard_normal((30, 2, size)).astype(np.float32)
    place = random.integers(-50, 50, (30, axes))
    pairs = size // (2 * axes)
    expected = x.astype(np.float64)
    for a in range(axes):
        for m in range(pairs):
            angle = place[:, a, None] * 100.0 ** (-m / pairs)
            i = 2 * (a * pairs + m)
            expected[:, :, i] = x[:, :, i] * np.cos(angle) - x[:, :, i + 1] * np.sin(angle)
            expected[:, :, i + 1] = x[:, :, i] * np.sin(angle) + x[:, :, i + 1] * np.cos(angle)
    got = ops.rotary(x, place, base=100.0)
    assert np.abs(np.array(got) - expected).max() < 2e-5
    given, direction = mx.array(x), mx.array(random.standard_normal(x.shape).astype(np.float32))
    grad = mx.grad(lambda y: (ops.rotary(y, place, base=100.0) * got).sum())(given)
    assert mx.allclose(grad, given, atol=1e-5)  # a rotation back
    (_,), (tangent,) = mx.jvp(lambda y: ops.rotary(y, place), [given], [direction])
    assert mx.array_equal(tangent, ops.rotary(direction, place))


def test_rotary_depends_on_differences_only():
    q, k = mx.random.normal((6, 1, 12)), mx.random.normal((6, 1, 12))
    place = mx.array(np.random.default_rng(1).integers(0, 9, (6, 3)))
    logits = []
    for shift in (0, 5):
        a, b = (ops.rotary(x, place + shift)[:, 0] for x in (q, k))
        logits.append(a @ b.T)
    assert mx.allclose(*logits, atol=1e-4)


@pytest.mark.parametrize(
    "x, place, options, message",
    [
        (mx.zeros((3, 4)), mx.zeros((3, 3)), {}, r"x must have shape \(N, heads, D\)"),
        (mx.zeros((3, 1, 4)), mx.zeros((2, 3)), {}, r"positions must have shape \(3, axes\)"),
        (mx.zeros((3, 1, 4)), mx.zeros((3, 4)), {}, "1 to 3 axes"),
        (mx.zeros((3, 1, 4)), mx.zeros((3, 3)), {"base": 0.0}, "base must be positive"),
        (mx.zeros((3, 1, 4), mx.int32), mx.zeros((3, 3)), {}, "found int32"),
    ],
)
def test_bad_rotary(x, place, options, message):
    with pytest.raises(ValueError, match=message):
        ops.rotary(x, place, **options)


def dense(layer, x):
    return np.array(x, np.float64) @ np.array(layer.weight, np.float64).T + np.array(layer.bias)


@pytest.mark.parametrize("kind", ["scalar", "vector"])
@pytest.mark.parametrize("given", [False, True])
def test_module(kind, given):
    """The module is its formula: linear layers, the softmax over edges, a linear layer."""
    mx.random.seed(3)
    coords = np.array([[0, x, y, 0] for x in range(4) for y in range(3)], np.int32)
    feats = mx.random.normal((12, 6))
    x = ml.SparseTensor(mx.array(coords), feats)
    module = nn.NeighborAttention(6, heads=HEADS, kind=kind)
    positions = mx.array(coords[:, 1:].astype(np.float32))
    relation = ml.core.NeighborIndex(positions).knn(k=3) if given else None
    got = module(x, relation, positions).feats
    used = relation or ops.submanifold_kernel_relation(x, (3, 3, 3))
    at, of, *_ = parts(used)
    apart = np.array(positions)[of] - np.array(positions)[at]
    bias = dense(module.far, np.maximum(dense(module.near, apart), 0))
    if not given:
        bias = bias + np.array(module.offset_table)[np.array(used.edges.kernel_ids)]
    rows = dense(module.qkv, feats)
    q = k = None
    if kind == "scalar":
        q, k, v = (part.reshape(12, HEADS, 2) for part in np.split(rows, 3, axis=1))
    else:
        v = rows.reshape(12, HEADS, 2)
        bias = bias + dense(module.weigh, feats)[of]
    expected = dense(module.proj, oracle(used, q, k, v, bias, 2**-0.5).reshape(12, 6))
    assert np.abs(np.array(got) - expected).max() < 1e-5
    grads = mlx.nn.value_and_grad(module, lambda m: m(x, relation, positions).feats.square().sum())
    slopes = grads(module)[1]["qkv"]["weight"]
    assert mx.isfinite(slopes).all().item() and mx.abs(slopes).max().item() > 0


def test_module_errors():
    with pytest.raises(ValueError, match=r"\[NeighborAttention\] heads must divide"):
        nn.NeighborAttention(6, heads=4)
    with pytest.raises(ValueError, match=r"\[NeighborAttention\] kind"):
        nn.NeighborAttention(6, heads=3, kind="matrix")
    module = nn.NeighborAttention(6, heads=3)
    with pytest.raises(TypeError, match=r"\[NeighborAttention\] an array needs a relation"):
        module(mx.ones((4, 6)))
    with pytest.raises(TypeError, match=r"\[NeighborAttention\] relation"):
        module(mx.ones((4, 6)), 7)
