"""Networks over the k nearest neighbors.

Graph, forms of the convolution, encoder, operations with their own derivative.
"""

import mlx.core as mx
import mlx.nn
import numpy as np
import pytest
from mlx_lattice import points

LENGTHS = [5, 0, 1, 9, 2, 0]
RNG = np.random.default_rng(0)
POSITIONS = RNG.normal(size=(17, 3)).astype(np.float32)


def neighbors(positions, lengths, k):
    """The contract, in NumPy float32: by (distance, row), short clouds repeat the first."""
    idx, begin = np.empty((len(positions), k), dtype=int), 0
    for n in lengths:
        cloud = positions[begin : begin + n]
        for r in range(n):
            d = ((cloud - cloud[r]) ** 2).sum(1)
            order = begin + np.lexsort((np.arange(n), d))[:k]
            idx[begin + r] = np.concatenate([order, np.repeat(order[:1], k - len(order))])
        begin += n
    return idx


@pytest.mark.parametrize("k", [1, 3, 16])
def test_graph(k):
    idx, rel = points.knn_graph(mx.array(POSITIONS), k, mx.array(LENGTHS))
    expected = neighbors(POSITIONS, LENGTHS, k)
    assert np.array_equal(np.array(idx), expected)
    assert np.array_equal(np.array(rel), POSITIONS[expected] - POSITIONS[:, None])
    for lengths in ([0, 0], []):
        idx, rel = points.knn_graph(mx.zeros((0, 3)), k, mx.array(lengths, dtype=mx.int32))
        assert idx.shape == (0, k) and rel.shape == (0, k, 3)
    same, _ = points.knn_graph(mx.zeros((6, 3)), 3)  # identical points: by row
    assert same.tolist() == [[0, 1, 2]] * 6


def test_graph_gradient():
    """rel_pos[i, s] = p[idx[i, s]] - p[i].

    The neighbor gets the cotangent, the point its negative sum.
    """
    p, w = mx.array(POSITIONS), mx.array(RNG.normal(size=(17, 4, 3)).astype(np.float32))
    grad = mx.grad(lambda q: (points.knn_graph(q, 4, mx.array(LENGTHS))[1] * w).sum())(p)
    expected = -np.array(w).sum(1)
    np.add.at(expected, neighbors(POSITIONS, LENGTHS, 4).reshape(-1), np.array(w).reshape(-1, 3))
    np.testing.assert_allclose(np.array(grad), expected, atol=1e-5)


def relu(a):
    return np.maximum(a, 0)


def affine(layer, a):
    y = a @ np.array(layer.weight, dtype=np.float64).T
    return y + np.array(layer.bias, dtype=np.float64) if "bias" in layer else y


def oracle(conv, kind, x, idx, rel):
    if kind == "features":
        return affine(conv.mlp.layers[2], relu(affine(conv.mlp.layers[0], x[idx]))).max(1)
    if kind == "relative":
        return affine(
            conv.mlp.layers[2],
            relu(affine(conv.mlp.layers[0], x[idx]) + affine(conv.relative, rel)),
        ).max(1)
    n, k = idx.shape
    lift1, _, lift2 = conv.mlp.layers
    inputs = np.concatenate([affine(lift2, relu(affine(lift1, rel))), x[idx]], 2)
    matrix = affine(conv.x2, relu(affine(conv.x1, rel.reshape(n, -1)))).reshape(n, k, k)
    return affine(conv.conv, (matrix @ inputs).reshape(n, -1))


OPTIONS = {"features": {}, "relative": {"use_rel_pos": True}, "xconv": {"xconv": True, "k": 4}}


@pytest.mark.parametrize("kind", OPTIONS)
def test_convolution(kind):
    mx.random.seed(3)
    conv = points.PointCNNConv(5, 7, hidden=6, **OPTIONS[kind])
    x = RNG.normal(size=(17, 5))
    idx, rel = points.knn_graph(mx.array(POSITIONS), 4, mx.array(LENGTHS))
    i, r = np.array(idx), np.array(rel, dtype=np.float64)
    y = conv(mx.array(x.astype(np.float32)), None, idx, rel)
    np.testing.assert_allclose(np.array(y), oracle(conv, kind, x, i, r), rtol=1e-5, atol=1e-5)
    w = RNG.normal(size=(17, 7))
    grad = mx.grad(lambda a: (conv(a, None, idx, rel) * mx.array(w.astype(np.float32))).sum())(
        mx.array(x.astype(np.float32))
    )
    h = RNG.normal(size=x.shape)
    slope = (
        (oracle(conv, kind, x + 1e-6 * h, i, r) - oracle(conv, kind, x - 1e-6 * h, i, r)) * w
    ).sum() / 2e-6
    assert abs((np.array(grad, dtype=np.float64) * h).sum() - slope) < 1e-3 * max(1, abs(slope))
    loss = mlx.nn.value_and_grad(conv, lambda a: (conv(a, None, idx, rel) ** 2).sum())
    _, gradients = loss(mx.array(x.astype(np.float32)))
    assert all(mx.abs(g).max().item() > 0 for _, g in mlx.utils.tree_flatten(gradients))


def test_equal_values_share_the_gradient():
    conv = points.PointCNNConv(1, 1, hidden=1)
    for layer in (conv.mlp.layers[0], conv.mlp.layers[2]):
        layer.weight = mx.ones((1, 1))
    idx = mx.array([[0, 1, 2]] * 3)
    grad = mx.grad(lambda a: conv(a, None, idx).sum())(mx.array([[2.0], [2.0], [1.0]]))
    assert grad.tolist() == [[1.5], [1.5], [0.0]]


@pytest.mark.parametrize("options", [{}, {"use_rel_pos": True}, {"xconv": True}])
def test_encoder(options, tmp_path):
    model = points.PointCNNEncoder(
        num_layers=2, in_channels=3, channels=8, k=4, hidden=8, **options
    )
    p = mx.array(POSITIONS)
    y = model(p, p, mx.array(LENGTHS))
    assert y.shape == (17, 8) and mx.isfinite(y).all().item()
    # clouds do not see each other
    alone = model(p[6:15], p[6:15])
    assert mx.allclose(y[6:15], alone, atol=1e-5)
    assert model(p[:0], p[:0], mx.array([0, 0])).shape == (0, 8)
    model.save_weights(str(tmp_path / "w.safetensors"))
    other = points.PointCNNEncoder(
        num_layers=2, in_channels=3, channels=8, k=4, hidden=8, **options
    )
    other.load_weights(str(tmp_path / "w.safetensors"))
    assert mx.array_equal(other(p, p, mx.array(LENGTHS)), y)


def test_attributes():
    for options in ({}, {"use_rel_pos": True}, {"xconv": True, "k": 3}):
        conv = points.PointCNNConv(3, 8, hidden=5, **options)
        assert (conv.in_channels, conv.out_channels) == (3, 8) and len(conv.mlp.layers) == 3


def test_custom_operation():
    def forward(x, scale, power):
        y = x * scale
        return y**power, {"y": y, "power": power, "scale": scale, "x": x}

    def backward(saved, grad):
        g = grad * saved["power"] * saved["y"] ** (saved["power"] - 1)
        return g * saved["scale"], (g * saved["x"]).sum()

    x, s = mx.array([1.0, -2.0, 3.0]), mx.array(0.5)
    run = lambda a, b: points.custom_sparse_op_with_grad(forward, backward, a, b, 3).sum()
    plain = lambda a, b: ((a * b) ** 3).sum()
    assert mx.allclose(run(x, s), plain(x, s))
    for g, e in zip(mx.grad(run, argnums=(0, 1))(x, s), mx.grad(plain, argnums=(0, 1))(x, s)):
        assert mx.allclose(g, e)
    # without saved: the arguments; None is no gradient
    twice = lambda a: points.custom_sparse_op_with_grad(
        lambda v, w: v * w, lambda saved, g: (g * saved[1], None), a, s
    ).sum()
    assert mx.grad(twice)(x).tolist() == [0.5] * 3
    # One gradient per argument, None for indices, whatever they are kept in.
    for rows in ([2, 0], np.array([2, 0]), mx.array([2, 0])):
        taken = lambda a, rows=rows: points.custom_sparse_op_with_grad(
            lambda v, i, k: v[mx.array(i)] * k,
            lambda saved, g: (mx.zeros((3,)).at[mx.array(saved[1])].add(g * 3.0), None, None),
            a, rows, 3.0,
        ).sum()  # fmt: skip
        assert mx.grad(taken)(x).tolist() == [3.0, 0.0, 3.0]
    wrong = lambda a: points.custom_sparse_op_with_grad(
        lambda v: v, lambda saved, g: (g, g), a
    ).sum()
    with pytest.raises(ValueError, match="must return 1 gradients, found 2"):
        mx.grad(wrong)(x)


def test_errors():
    p = mx.array(POSITIONS)
    with pytest.raises(ValueError, match="k must be >= 1"):
        points.knn_graph(p, 0)
    for rows in (p, mx.zeros((8, 5))):
        with pytest.raises(ValueError, match=r"\[knn_graph\] k must be at most 65,536"):
            points.knn_graph(rows, 2**31 - 1)
    with pytest.raises(ValueError, match="needs k"):
        points.PointCNNConv(3, 4, xconv=True)
    conv = points.PointCNNConv(3, 4)
    with pytest.raises(ValueError, match=r"shape \(17, k\)"):
        conv(p, p, mx.zeros((3, 2), dtype=mx.int32))
    with pytest.raises(ValueError, match=r"outside 0..16"):
        conv(p, p, mx.full((17, 2), 17, dtype=mx.int32))
    with pytest.raises(ValueError, match="neighbors_rel_pos must have shape"):
        points.PointCNNConv(3, 4, use_rel_pos=True)(p, p, mx.zeros((17, 2), dtype=mx.int32))
    with pytest.raises(ValueError, match="made for 4 neighbors, found 2"):
        points.PointCNNConv(3, 4, xconv=True, k=4)(
            p, p, mx.zeros((17, 2), dtype=mx.int32), mx.zeros((17, 2, 3))
        )
