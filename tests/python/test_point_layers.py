"""Point convolutions, upsampling and pooling against NumPy float64.

PyTorch: test_torch_parity.py.
"""

import math
import warnings

import mlx.core as mx
import mlx_lattice as ml
import numpy as np
import point_oracle as oracle
import pytest
from mlx_lattice import points

LENGTHS = [[40, 0, 1, 25, 0], [0, 30], [1], [0, 0], []]
GRID = 0.25


def cloud(lengths, seed=0, spread=1.0):
    """Ragged points; some on borders of cells, some twice."""
    p = (
        np.random.default_rng(seed)
        .uniform(-spread, spread, size=(sum(lengths), 3))
        .astype(np.float32)
    )
    p[::5] = np.round(p[::5] / GRID * 2) * np.float32(
        GRID / 2
    )  # multiples of half a grid step: ties of rounding
    if len(p) > 12:
        p[11] = p[7]
    return p.reshape(-1, 3)


def make(lengths, **options):
    p = cloud(lengths, **options)
    return p, points.PointSet(mx.array(p), mx.array(lengths, dtype=mx.int32), grid=GRID)


def features(n, c, seed=1):
    return np.random.default_rng(seed).normal(size=(n, c))


def f32(a):
    return mx.array(np.asarray(a, dtype=np.float32).reshape(a.shape))


def f64(a):
    return np.array(a, dtype=np.float64)


def check(module, run, x, expected):
    """Values, and the gradient of the features and of the weights along a direction.

    Run(x) -> y, expected(x, weight) -> y.
    """
    w64 = f64(module.weight)
    y = run(f32(x))
    exact = expected(x, w64)
    assert y.shape == exact.shape
    np.testing.assert_allclose(np.array(y), exact, rtol=2e-5, atol=2e-5)
    g = features(*exact.shape, seed=3) if exact.size else np.zeros(exact.shape)
    weight = module.weight

    def loss(a, w):
        module.weight = w
        return (run(a) * f32(g)).sum()

    dx, dw = mx.grad(loss, argnums=(0, 1))(f32(x), weight)
    module.weight = weight
    hx, hw = features(*x.shape, seed=4), np.random.default_rng(5).normal(size=w64.shape)
    for found, exact in [
        ((f64(dx) * hx).sum(), (expected(hx, w64) - expected(0 * hx, w64)) * g),
        ((f64(dw) * hw).sum(), (expected(x, hw) - expected(x, 0 * hw)) * g),
    ]:
        assert abs(found - exact.sum()) <= 1e-4 * max(1.0, np.abs(exact).sum())


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize(
    "ks, groups, stride, options",
    [
        (3, 1, 1, {}),
        (3, 2, 2, {}),
        (5, 4, 1, {}),
        (2, 1, 1.7, {}),
        (1, 1, 1, {}),
        (3, 1, 2, {"rfs": 2.5}),
        (3, 2, 1, {"shape": "cube"}),
    ],
)
def test_convolution(lengths, ks, groups, stride, options):
    p, set_ = make(lengths)
    conv = points.PointConv3d(8, 12, ks, groups, **options)
    target, counts = p, lengths
    if stride != 1:
        rows, counts, _, _ = oracle.downsample(p, lengths, GRID * stride)
        target = p[rows]
    radius = GRID * oracle.scaler(ks, options.get("rfs", 1.0), options.get("shape", "ball"))
    i, j, k = oracle.edges(
        p, lengths, target, counts, ks, GRID, radius, options.get("shape", "ball")
    )
    y, where = conv(f32(features(len(p), 8)), set_, stride)
    assert where.lengths.tolist() == list(counts) and np.array_equal(
        np.array(where.positions).reshape(-1, 3), target
    )
    assert where.grid == pytest.approx(GRID * stride) and (where is set_) == (stride == 1)
    check(
        conv,
        lambda x: conv(x, set_, stride)[0],
        features(len(p), 8),
        lambda x, w: oracle.conv(x, w, f64(conv.bias), i, j, k, len(target)),
    )
    book = set_.rulebook(where, ks, **options)
    assert mx.array_equal(conv(f32(features(len(p), 8)), book), y) and len(book) == len(i)


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("ks, stride", [(2, 2), (3, 2), (3, 3.5)])
def test_partition(lengths, ks, stride):
    p, set_ = make(lengths)
    rows, counts, place, centers = oracle.downsample(p, lengths, GRID * stride)
    part = p / np.float32(GRID * stride)
    slot = np.clip(np.floor((part - np.floor(part)) * np.float32(ks)), 0, ks - 1).astype(int)
    k = (slot[:, 0] * ks + slot[:, 1]) * ks + slot[:, 2]
    conv = points.PartitionConv3d(4, 6, ks)
    _y, where = conv(f32(features(len(p), 4)), set_, stride)
    assert where.lengths.tolist() == list(counts)
    np.testing.assert_allclose(np.array(where.positions).reshape(-1, 3), centers, rtol=1e-6)
    j = np.arange(len(p))
    check(
        conv,
        lambda x: conv(x, set_, stride)[0],
        features(len(p), 4),
        lambda x, w: oracle.conv(x, w, f64(conv.bias), place, j, k, len(rows)),
    )


@pytest.mark.parametrize("lengths", [*LENGTHS, [300]])
@pytest.mark.parametrize("ks, stride, margin", [(5, 2, 0.01), (6, 2, 0.0), (9, 4, 0.1)])
def test_full_cover(lengths, ks, stride, margin):
    p, set_ = make(lengths, seed=3)
    rows, counts, radius = oracle.full_cover(p, lengths, GRID, stride, margin)
    q = p[rows]
    i, j, _ = oracle.edges(p, lengths, q, counts, ks, GRID, radius)
    cell = np.rint((p[j] - q[i]) / np.float32(GRID)).astype(int) + ks // 2  # not clamped
    k = (cell[:, 0] * ks + cell[:, 1]) * ks + cell[:, 2]
    assert set(j) == set(range(len(p)))  # every point is seen
    conv, x = points.FullCoverConv3d(4, 6, ks, 2, margin=margin), features(len(p), 4)
    y, where = conv(f32(x), set_, stride)
    assert where.lengths.tolist() == list(counts) and where.grid == GRID * stride
    assert np.array_equal(np.array(where.positions).reshape(-1, 3), q)
    book, _, indices, added = points.build_full_cover_rulebook(set_, stride, ks, margin)
    assert indices.tolist() == rows.tolist() and added == len(rows) - len(
        oracle.downsample(p, lengths, GRID * stride)[0]
    )
    assert book.radius == radius and mx.array_equal(conv(f32(x), book), y)
    check(
        conv,
        lambda a: conv(a, set_, stride)[0],
        x,
        lambda a, w: oracle.conv(a, w, f64(conv.bias), i, j, k, len(q)),
    )
    # The way back has the same edges with the opposite offsets.
    up, z = points.PointConv3d(6, 3, ks), features(len(q), 6)
    back = set_.full_cover(stride, ks, margin)[1].transposed(negate=True)
    cell = np.rint((q[i] - p[j]) / np.float32(GRID)).astype(int) + ks // 2
    k = (cell[:, 0] * ks + cell[:, 1]) * ks + cell[:, 2]
    check(
        up, lambda a: up(a, back), z, lambda a, w: oracle.conv(a, w, f64(up.bias), j, i, k, len(p))
    )


@pytest.mark.parametrize("stride", [2, 1.3, 3])
def test_full_cover_adds_a_net(stride):
    """Cells whose representative lies at one side and sees nothing of the crowded other side."""
    rng = np.random.default_rng(0)
    half, p = GRID * stride / 2, []
    for cell in range(40):
        center = np.array([2 * half * (2 * cell + 0.5), half, -half])
        side = (
            np.stack(
                [np.full(15, 0.95), rng.choice([-0.98, 0.98], 15), rng.uniform(-0.98, 0.98, 15)], 1
            )
            * half
        )
        p += [center + [-0.9 * half, 0, 0], *(center + side)]
    p = np.array(p, np.float32)
    lengths = [16 * 15, 0, 16 * 25]
    rows, counts, radius = oracle.full_cover(p, lengths, GRID, stride)
    ks = 2 * math.ceil(math.sqrt(3) / 2 * stride * 1.01) + 1
    book, targets, indices, added = points.build_full_cover_rulebook(
        points.PointSet(mx.array(p), mx.array(lengths), grid=GRID), stride, ks
    )
    assert added >= 80 and len(rows) == added + 40 and targets.lengths.tolist() == counts
    assert indices.tolist() == rows.tolist() and book.radius == radius
    q, cloud = p[rows], oracle.clouds_of(counts)
    assert (
        oracle.far(q, q)[(cloud[:, None] == cloud) & ~np.eye(len(q), dtype=bool)] > radius
    ).all()


def test_full_cover_errors():
    _, set_ = make([30])
    for stride, ks in [(2, 4), (8, 14), (1, 5), (math.nan, 5)]:
        with pytest.raises(ValueError, match=r"kernel_size must be at least|stride must be"):
            points.build_full_cover_rulebook(set_, stride, ks)
    points.build_full_cover_rulebook(set_, 8, 15)
    with pytest.raises(ValueError, match="margin"):
        points.build_full_cover_rulebook(set_, 2, 5, -0.5)
    with pytest.raises(ValueError, match="even size has no cell"):
        set_.rulebook(set_, 2).transposed(negate=True)


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"kernel_size": 2, "expansion": 2.5},
        {"stencil": [[0, 0, 0], [5, -1, 0]]},
        {"subdivide": True, "expansion": 3},
    ],
)
def test_generative(lengths, options):
    p, set_ = make(lengths)
    conv, x = points.GenerativeConv3d(4, 6, groups=2, **options), features(len(p), 4)
    expansion = options.get("expansion", 1)
    if "subdivide" in options:
        want = oracle.generate(
            p, lengths, GRID, oracle.cube(3, 0), 3, np.float32(GRID) / np.float32(3)
        )
    else:
        ks = options.get("kernel_size", 3)
        want = oracle.generate(
            p,
            lengths,
            np.float32(GRID) / np.float32(expansion),
            options.get("stencil", oracle.cube(ks, -(ks // 2))),
        )
    i, j, k, centers, counts = want
    _y, where = conv(f32(x), set_)
    assert where.lengths.tolist() == list(counts) and where.grid == np.float32(GRID) / np.float32(
        expansion
    )
    assert np.array_equal(np.array(where.positions).reshape(-1, 3), centers)
    check(
        conv,
        lambda a: conv(a, set_)[0],
        x,
        lambda a, w: oracle.conv(a, w, f64(conv.bias), i, j, k, len(centers)),
    )


def test_generative_edges_and_errors():
    _p, set_ = make([40, 0, 25])
    target, book = set_.generate(3, 2.0)
    i, _j, _k, begins = (np.array(a) for a in book.triplets())
    assert (
        len(book) == 65 * 27 and (np.diff(begins) == 65).all() and set(i) == set(range(len(target)))
    )
    assert set_.generate(3, 2.0)[1] is book and set_.generate(3, 1.0)[1] is not book
    lattice = points.PointSet(mx.array(oracle.cube(3, 0).astype(np.float32) + 0.5))
    parts, split = lattice.subdivide(2)
    assert split.exact_cover_out and not split.exact_cover_in and len(parts) == 27 * 8
    assert not book.exact_cover_out and lattice.partition(3, 3)[1].exact_cover_in
    with pytest.raises(ValueError, match="expansion"):
        set_.generate(3, 0.0)
    with pytest.raises(ValueError, match="stencil"):
        set_.generate(3, 1.0, mx.array([[1, 2]]))
    with pytest.raises(TypeError, match=r"\[PointSet.generate\] expansion must be a number"):
        set_.generate(3, "sum")
    corners = [[0, 0, 0], [1, 1, 1]]
    assert set_.generate(3, 1.0, corners)[1] is set_.generate(3, 1.0, mx.array(corners))[1]
    with pytest.raises(ValueError, match="stencil"):
        points.GenerativeConv3d(2, 2, stencil=[])
    with pytest.raises(TypeError, match="expansion"):
        points.GenerativeConv3d(2, 2, expansion=1.5, subdivide=True)
    with pytest.raises(OverflowError):
        points.PointSet(mx.full((1, 3), 2.0**30), grid=1.0).subdivide(8)
    conv, x = points.PointConv3d(2, 4, 5), f32(features(65, 2))
    assert mx.array_equal(
        points.conv_with_stride_full_cover(conv, x, set_)[0], conv(x, set_.full_cover(2, 5)[1])
    )
    assert mx.array_equal(
        points.conv_with_stride_disjoint(conv, x, set_)[0], conv(x, set_.partition(2, 5)[1])
    )


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("options", [{}, {"straight_recover": True}, {"recompute_k": True}])
def test_upsample(lengths, options):
    p, fine = make(lengths)
    coarse, rows = fine.downsample(2)
    q, counts = p[np.array(rows)] if rows.size else p[:0], coarse.lengths.tolist()
    up = points.Upsample(6, 5, **options)
    if options:
        j, i, k = oracle.edges(p, lengths, q, counts, 3, GRID, GRID * oracle.scaler(3))
        if "recompute_k" in options:
            k = oracle.tap(q[j] - p[i], GRID, 3)
    else:
        i, j, k = oracle.edges(q, counts, p, lengths, 3, 2 * GRID, 2 * GRID * oracle.scaler(3))
        assert set(i) == set(range(len(p)))  # every fine point has a neighbor
    check(
        up,
        lambda x: up(x, coarse, fine),
        features(len(q), 6),
        lambda x, w: oracle.conv(x, w, f64(up.bias), i, j, k, len(p)),
    )


def test_equals_submanifold_convolution():
    rng = np.random.default_rng(0)
    coords = np.unique(
        rng.integers(-4, 4, (300, 4)) * [0, 1, 1, 1] + [1, 0, 0, 0] * rng.integers(0, 2, (300, 1)),
        axis=0,
    )
    x = rng.normal(size=(len(coords), 6)).astype(np.float32)
    conv = points.PointConv3d(6, 4, 3)
    lengths = np.bincount(coords[:, 0], minlength=2)
    set_ = points.PointSet(
        mx.array((coords[:, 1:] + 0.5).astype(np.float32) * np.float32(0.1)),
        mx.array(lengths),
        grid=0.1,
    )
    y, _ = conv(mx.array(x), set_)
    t = ml.SparseTensor(mx.array(coords.astype(np.int32)), mx.array(x))
    expected = ml.ops.subm_conv3d(t, conv.weight.reshape(27, 6, 4), conv.bias).feats
    assert mx.allclose(y, expected, atol=1e-5)


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("stride", [1, 2])
def test_max_pool(lengths, stride):
    p, set_ = make(lengths)
    x = features(len(p), 3).astype(np.float32)
    target, counts = p, lengths
    if stride != 1:
        rows, counts, _, _ = oracle.downsample(p, lengths, GRID * stride)
        target = p[rows]
    i, j, _ = oracle.edges(p, lengths, target, counts, 3, GRID, GRID * oracle.scaler(3))
    expected = np.full((len(target), 3), -np.inf, np.float32)
    np.maximum.at(expected, i, x[j])
    y, where = points.max_pool3d(f32(x), set_, 3, stride)
    assert np.array_equal(
        np.array(y).reshape(expected.shape), expected
    ) and where.lengths.tolist() == list(counts)


def test_global_pool():
    x, lengths = mx.array([[1.0], [5.0], [-2.0]]), mx.array([2, 0, 1])
    for mode, expected in {
        "max": [5, 0, -2],
        "min": [1, 0, -2],
        "mean": [3, 0, -2],
        "sum": [6, 0, -2],
    }.items():
        assert points.GlobalPool(mode)(x, lengths).tolist() == [[e] for e in expected]
    assert points.GlobalPool("max", empty_value=-9)(x, lengths).tolist() == [[5], [-9], [-2]]


def test_equal_layers_share_one_search():
    _, set_ = make([30, 20])
    conv, other = points.PointConv3d(2, 4), points.PointConv3d(2, 4)
    x = mx.zeros((50, 2))
    _, a = conv(x, set_, 2)
    _, b = other(x, set_, 2)
    assert a is b and set_.rulebook(a) is set_.rulebook(b)
    assert set_.rulebook(a, rfs=2.0) is not set_.rulebook(
        a
    ) and set_.rulebook() is not set_.rulebook(a)
    batch = points.PointCloudBatch(set_.positions, lengths=[30, 20])
    assert batch.point_set(GRID) is batch.point_set(GRID) and batch.point_set(
        GRID
    ) is not batch.point_set(0.5)


def test_other_names():
    p, set_ = make([30])
    conv, x = points.PointConv3d(2, 4), f32(features(30, 2))
    assert mx.array_equal(points.conv_with_stride(conv, x, set_, 2)[0], conv(x, set_, 2)[0])
    i, j, k, _ = points.build_triplets(set_, kernel_size=3)
    want = oracle.edges(p, [30], p, [30], 3, GRID, GRID * oracle.scaler(3))
    assert sorted(zip(i.tolist(), j.tolist(), k.tolist())) == sorted(
        zip(*(a.tolist() for a in want))
    )
    assert points.radius_scaler_for_kernel_size(3) == pytest.approx(1.8610, abs=1e-4)
    # float32(0.09) / float32(0.02) is a little more than 4.5. The product with the reciprocal would
    # be 4.5, which rounds to 4.
    assert (
        points.voxelize_3d(mx.array([[0.09, 0.05, 0.0]]), 0.02, 11).item()
        == ((5 + 5) * 11 + 5 + 2) * 11 + 5
    )


@pytest.mark.parametrize("p", [[[0, 0, 0]] * 7, [[-1e6, 1e6, 0.5]], [[0, 0, 0], [1.8610, 0, 0]]])
def test_degenerate_clouds(p):
    p = np.array(p, np.float32)
    i, j, k = oracle.edges(p, [len(p)], p, [len(p)], 3, 1.0, oracle.scaler(3))
    conv, x = points.PointConv3d(2, 3), features(len(p), 2)
    y, _ = conv(f32(x), points.PointSet(mx.array(p)))
    np.testing.assert_allclose(
        np.array(y),
        oracle.conv(x, f64(conv.weight), f64(conv.bias), i, j, k, len(p)),
        rtol=1e-5,
        atol=1e-5,
    )


def test_second_derivative_and_compile():
    _, set_ = make([12, 0, 9])
    conv, x = points.PointConv3d(3, 2), f32(features(21, 3))
    loss = lambda a: (conv(a, set_)[0] ** 2).sum()
    v = f32(features(21, 3, seed=8))
    product = mx.grad(lambda a: (mx.grad(loss)(a) * v).sum())(x)
    plain = conv(v, set_)[0] - conv.bias  # loss is quadratic: H v = 2 A^T A v
    expected = mx.vjp(lambda a: conv(a, set_)[0], [x], [2 * plain])[1][0]
    assert mx.allclose(product, expected, atol=1e-4)
    assert mx.allclose(mx.compile(mx.grad(loss))(x), mx.grad(loss)(x), atol=1e-5)


@pytest.mark.parametrize("dtype, tolerance", [(mx.float16, 5e-3), (mx.bfloat16, 3e-2)])
def test_half(dtype, tolerance):
    _, set_ = make([40])
    conv, x = points.PointConv3d(8, 8), f32(features(40, 8)).astype(dtype)
    conv.set_dtype(dtype)
    y, _ = conv(x, set_)
    assert y.dtype == dtype
    half = y.astype(mx.float32)
    conv.set_dtype(mx.float32)
    y, _ = conv(x.astype(mx.float32), set_)
    assert mx.allclose(half, y, rtol=tolerance, atol=tolerance)


def test_initial_weights_and_errors():
    conv = points.PointConv3d(8, 32, 3, 2)
    assert conv.weight.shape == (27, 2, 4, 16) and mx.abs(
        conv.weight
    ).max().item() <= 1 / math.sqrt(4 * 27)
    assert mx.abs(points.PointConv3d(8, 32, init="fan_out").weight).max().item() <= 1 / math.sqrt(
        32 * 27
    )
    for options, message in [
        ({"groups": 3}, "groups must divide"),
        ({"init": "he"}, "fan_in, fan_out"),
        ({"shape": "cone"}, "ball or cube"),
        ({"rfs": 0}, "rfs"),
    ]:
        with pytest.raises(ValueError, match=message):
            points.PointConv3d(8, 8, **options)
    _, set_ = make([4])
    with pytest.raises(ValueError, match="weight must have shape"):
        conv(mx.zeros((4, 5)), set_)
    with pytest.raises(ValueError):
        conv(mx.zeros((3, 8)), set_)
    with pytest.raises(ValueError, match="mode must be one of max, min, mean, sum"):
        points.GlobalPool("median")
    with pytest.warns(UserWarning, match="less than a cell's diagonal"):
        points.Upsample(4, 4, rfs=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        points.Upsample(4, 4)
    far = points.PointSet(mx.full((1, 3), 9.0), grid=GRID)
    with pytest.raises(ValueError, match="increase the radius"):
        set_.rulebook(far)
    empty = set_.rulebook(far, allow_empty=True)
    assert mx.array_equal(conv(mx.zeros((4, 8)), empty), conv.bias[None])  # no neighbor: the bias


def test_ties_in_pooling():
    p = points.PointSet(mx.zeros((3, 3)))
    g = mx.grad(lambda x: points.max_pool3d(x, p, 3, 2)[0].sum())(mx.ones((3, 2)))
    assert mx.allclose(g, mx.full((3, 2), 1 / 3))
