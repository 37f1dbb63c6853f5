"""EdgeConv, DGCNN, PointNet++, outliers and ICP against plain formulas in float64."""

import mlx.core as mx
import mlx.nn
import numpy as np
import pytest
from mlx_lattice import models, ops, points


def clouds(seed=0, lengths=(40, 25, 9)):
    rng = np.random.default_rng(seed)
    return mx.array(rng.normal(size=(sum(lengths), 3)).astype(np.float32)), mx.array(lengths)


@pytest.mark.parametrize("width", [2, 3, 8])
def test_knn_graph_in_any_dimension(width):
    rng = np.random.default_rng(width)
    lengths, k = [30, 4, 0, 12], 6
    x = rng.normal(size=(46, width)).astype(np.float32)
    idx, rel = points.knn_graph(mx.array(x), k, lengths)
    begin = 0
    for size in lengths:
        part = x[begin : begin + size].astype(np.float64)
        order = np.argsort(((part[:, None] - part[None]) ** 2).sum(-1), 1, kind="stable")[:, :k]
        if size == 0:
            continue
        if size < k:
            order = np.concatenate([order, np.repeat(order[:, :1], k - size, 1)], 1)
        assert np.array_equal(np.array(idx)[begin : begin + size], order + begin)
        begin += size
    assert np.array_equal(np.array(rel), x[np.array(idx)] - x[:, None])


def test_edge_conv_is_its_formula():
    x, lengths = clouds()
    layer = points.EdgeConv(3, 7, k=5, norm="none", slope=0.2)
    y = np.array(layer(x, lengths))
    idx, _ = points.knn_graph(x, 5, lengths)
    p, rows = np.array(x, np.float64), np.array(idx)
    a, b = (np.array(m.weight, np.float64) for m in (layer.own, layer.other))
    edges = p[:, None] @ a.T + (p[rows] - p[:, None]) @ b.T
    edges = np.where(edges > 0, edges, 0.2 * edges)
    assert np.abs(y - edges.max(axis=1)).max() < 1e-5


NETWORKS = {
    "dgcnn": lambda **o: points.DGCNN(num_classes=5, channels=(8, 8, 16), width=32, k=6, **o),
    "pointnet2": lambda **o: points.PointNet2(
        num_classes=5, width=8, radii=(0.8, 1.6), most=16, **o
    ),
}


@pytest.mark.parametrize("per_point", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name, per_point, tmp_path):
    mx.random.seed(0)
    x, lengths = clouds()
    model = NETWORKS[name](per_point=per_point)
    y = model(x, lengths=lengths)
    assert y.shape == (74 if per_point else 3, 5)
    model.eval()
    y = np.array(model(x, lengths=lengths))
    # Clouds do not see each other: alone, a cloud gets the same result.
    alone = np.array(model(x[40:65], lengths=[25]))
    assert np.abs(alone - (y[40:65] if per_point else y[1:2])).max() < 1e-4
    model.save(tmp_path / "net.safetensors")
    again = models.load(tmp_path / "net.safetensors")
    assert np.array_equal(np.array(again(x, lengths=lengths)), y)
    labels = mx.array(np.arange(len(y)) % 5)
    model.train()

    def loss(m):
        return mlx.nn.losses.cross_entropy(m(x, lengths=lengths), labels, reduction="mean")

    optimizer, first = mlx.optimizers.Adam(5e-3), None
    step = mlx.nn.value_and_grad(model, loss)
    for _ in range(30):
        value, gradients = step(model)
        optimizer.update(model, gradients)
        mx.eval(model.parameters(), optimizer.state, value)
        first = first or value.item()
    assert value.item() < 0.6 * first


def test_set_abstraction_is_its_formula():
    x, lengths = clouds()
    layer = points.SetAbstraction(0, (6,), share=0.3, radius=0.9, most=64, norm="none")
    y, centers, sizes = layer(None, x, lengths)
    assert sizes.tolist() == [12, 8, 3]
    weight, bias = (
        np.array(a, np.float64) for a in (layer.mlp.layers[0].weight, layer.mlp.layers[0].bias)
    )
    p, c = np.array(x, np.float64), np.array(centers, np.float64)
    cloud_p, cloud_c = np.repeat([0, 1, 2], [40, 25, 9]), np.repeat([0, 1, 2], [12, 8, 3])
    for i in range(len(c)):
        near = (cloud_p == cloud_c[i]) & (((p - c[i]) ** 2).sum(1) <= 0.81)
        want = np.maximum((p[near] - c[i]) / 0.9 @ weight.T + bias, 0).max(axis=0)
        assert np.abs(np.array(y[i]) - want).max() < 1e-5
    assert np.array_equal(
        np.array(centers[:12]), np.array(x)[np.array(ops.farthest_point_sample(x[:40], 12))]
    )


def test_feature_propagation_is_its_formula():
    x, lengths = clouds()
    rows = mx.array([0, 5, 9, 30, 41, 50, 60, 65, 66, 67])
    sizes = mx.array([4, 3, 3])
    feats = mx.array(np.random.default_rng(1).random((10, 2)).astype(np.float32))
    layer = points.FeaturePropagation(2, [2], norm="none")
    layer.mlp.layers[0].weight, layer.mlp.layers[0].bias = mx.eye(2), mx.zeros(2)
    y = np.array(layer(feats, x[rows], sizes, None, x, lengths))
    p, q, f = np.array(x, np.float64), np.array(x[rows], np.float64), np.array(feats, np.float64)
    d2 = np.maximum(((p[3] - q[:4]) ** 2).sum(1), 1e-8)
    best = np.argsort(d2)[:3]
    w = 1 / d2[best]
    assert np.abs(y[3] - (w[:, None] * f[best]).sum(0) / w.sum()).max() < 1e-5
    assert np.abs(y[5] - f[1]).max() < 1e-4  # a center keeps its own features


def test_outliers():
    rng = np.random.default_rng(2)
    cloud = rng.normal(size=(500, 3)).astype(np.float32)
    cloud[:5] += 40 * np.arange(1, 6)[:, None]
    d = np.sqrt(((cloud[:, None].astype(np.float64) - cloud[None]) ** 2).sum(-1))
    mean = np.sort(d, axis=1)[:, 1:9].mean(axis=1)
    want = mean <= mean.mean() + 1.5 * mean.std(ddof=1)
    found = points.statistical_inliers(cloud, 8, 1.5)
    assert np.array_equal(found, want) and not found[:5].all() and found[5:].mean() > 0.95
    near = (d <= 1.0).sum(axis=1) - 1
    assert np.array_equal(points.radius_inliers(cloud, 1.0, 3), near >= 3)
    assert points.statistical_inliers(np.zeros((1, 3)), 1).tolist() == [True]
    assert points.radius_inliers(np.zeros((0, 3)), 1.0).shape == (0,)


@pytest.mark.parametrize("offset", [5e5, 5e6])
def test_outliers_on_a_map(offset):
    """Positions are subtracted in float64 first: far from the origin the answer is the same."""
    cloud = np.random.default_rng(3).random((3000, 3)) * 5
    for find in (
        lambda p: points.radius_inliers(p, 0.25, 2),
        lambda p: points.statistical_inliers(p, 8, 0.5),
    ):
        assert np.array_equal(find(cloud + offset), find(cloud))


def room(n=3000, seed=0):
    """Points on the floor and two walls: all six motions are seen."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(0, 4, (n, 3))
    p[np.arange(n), rng.integers(0, 3, n)] = 0
    return p


def cross(x):
    """(3, 3) that multiplies a vector by x from the left: x cross v."""
    return np.array([[0, -x[2], x[1]], [x[2], 0, -x[0]], [-x[1], x[0], 0]])


def pose_of(rotation, translation):
    """(4, 4) of a rotation vector and a translation (Rodrigues)."""
    angle, turn = np.linalg.norm(rotation), cross(rotation)
    pose = np.eye(4)
    pose[:3, :3] += np.sin(angle) / angle * turn + (1 - np.cos(angle)) / angle**2 * turn @ turn
    pose[:3, 3] = translation
    return pose


def test_icp_finds_the_pose():
    target = room()
    truth = pose_of((0.02, -0.03, 0.05), (0.1, -0.05, 0.08))
    source = (room(2500, 1) - truth[:3, 3]) @ truth[:3, :3]  # other points of the same room
    found = points.icp(source, target, reach=0.5)
    assert found.converged and found.pairs > 2000
    assert np.abs(found.pose - truth).max() < 2e-3
    same = points.icp((target - truth[:3, 3]) @ truth[:3, :3], target, reach=0.5)
    assert np.abs(same.pose - truth).max() < 1e-5 and same.rms < 1e-5


def test_icp_covariance_is_that_of_many_runs():
    """The deviation over noisy scans of one room is what one run predicts."""
    target = room(4000)
    normals = np.zeros_like(target)
    normals[np.arange(4000), (target == 0).argmax(axis=1)] = 1
    poses, predicted = [], []
    for seed in range(40):
        source = room(800, 100 + seed) + np.random.default_rng(seed).normal(0, 0.02, (800, 3))
        found = points.icp(source, target, normals=normals, reach=1.0)
        poses.append([*found.pose[:3, 3]])
        predicted.append(np.diag(found.covariance)[3:])
    ratio = np.std(poses, axis=0) / np.sqrt(np.mean(predicted, axis=0))
    assert (ratio > 0.6).all() and (ratio < 1.5).all()


@pytest.mark.parametrize("offset", [1e3, 5e3, 5e5, 5e6])
def test_icp_on_a_map(offset):
    truth = pose_of((0.002, -0.001, 0.003), (0.03, -0.02, 0.05))
    target, source = room(), (room(2500, 1) - truth[:3, 3]) @ truth[:3, :3]
    there = points.icp(source + offset, target + offset, reach=0.5)
    # R (p + o) + t' = R p + t + o
    moved = there.pose[:3, 3] + there.pose[:3, :3] @ np.full(3, offset) - offset
    here = points.icp(source, target, reach=0.5)
    assert there.converged and np.abs(there.pose[:3, :3] - here.pose[:3, :3]).max() < 1e-5
    assert np.abs(moved - here.pose[:3, 3]).max() < 1e-4
    again = points.icp(source + offset, target + offset, reach=0.5, pose=there.pose)
    assert again.steps == 1 and np.abs(again.pose - there.pose).max() < 1e-6 * offset


def test_icp_covariance_is_about_the_origin():
    """A motion about another origin: t = t' + c x w, so the covariance turns with it."""
    source, target, c = room(800, 2) + 0.01, room(), np.array([30.0, -20.0, 10.0])
    near, far = points.icp(source, target), points.icp(source + c, target + c)
    change = np.eye(6)
    change[3:, :3] = cross(c)
    expected = change @ near.covariance @ change.T
    assert np.abs(far.covariance - expected).max() < 2e-3 * np.abs(expected).max()


@pytest.mark.parametrize("size", [1e-5, 1e5])
def test_icp_of_any_size(size):
    target, shift = room() * size, np.array([0.03, -0.02, 0.05]) * size
    found = points.icp(target - shift, target, reach=size, tolerance=1e-9 * size)
    assert np.abs(found.pose[:3, 3] - shift).max() < 1e-4 * size


def test_icp_mistakes():
    flat = room()
    flat[:, 2] = 0
    with pytest.raises(ValueError, match="leaves a motion open"):
        points.icp(flat, flat, normals=np.tile([0.0, 0, 1], (3000, 1)))
    with pytest.raises(ValueError, match=r"0 pairs within reach = 0\.1"):
        points.icp(room() + 100, room(), reach=0.1)
    with pytest.raises(ValueError, match=r"normals: found shape \(2, 3\), expected \(3000, 3\)"):
        points.icp(room(), room(), normals=np.zeros((2, 3)))
    with pytest.raises(ValueError, match="source: row 1 is not finite"):
        points.icp([[0, 0, 0], [np.nan, 0, 0]], room())
    with pytest.raises(ValueError, match="k must be at most 2, found 5"):
        points.statistical_inliers(np.zeros((3, 3)), 5)
