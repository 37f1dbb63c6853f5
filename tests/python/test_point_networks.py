"""Classifier, U-Net and residual block.

Shapes, empty clouds in every place, independence of clouds, training, saving.
"""

import mlx.core as mx
import mlx.nn
import mlx.optimizers as optim
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lattice import models, points

LENGTHS = [[30, 0, 1, 25, 0], [0, 30], [1], [0, 0], []]


def batch(lengths, channels=2, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.uniform(-1, 1, size=(sum(lengths), 3)).astype(np.float32).reshape(-1, 3)
    return points.PointCloudBatch(
        mx.array(p),
        mx.array(rng.normal(size=(len(p), channels)).astype(np.float32).reshape(-1, channels)),
        lengths,
    )


def classifier(**options):
    return points.PointClassifier(
        in_channels=2, num_classes=3, channels=(8, 16), grid=0.3, **options
    )


def unet(**options):
    return points.PointUNet(
        in_channels=2,
        num_classes=3,
        channels=(8, 12, 16),
        blocks=(1, 1, 2),
        grid=0.2,
        stem=3,
        **options,
    )


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("norm", ["row", "batch", "instance", "layer", "group", "none"])
def test_empty_clouds(lengths, norm):
    b = batch(lengths)
    for model, rows in (
        (classifier(norm=norm, blocks=1), len(lengths)),
        (unet(norm=norm), sum(lengths)),
    ):
        y = model(b)
        assert y.shape == (rows, 3) and mx.isfinite(y).all().item()
        _, g = mlx.nn.value_and_grad(model, lambda: (model(b) ** 2).sum())()
        assert all(mx.isfinite(v).all().item() for _, v in tree_flatten(g))


@pytest.mark.parametrize("norm", ["row", "instance", "layer"])
def test_clouds_do_not_see_each_other(norm):
    b = batch([30, 0, 25])
    alone = points.PointCloudBatch(b.get_points(2), b.get_features(2))
    model = classifier(norm=norm)
    assert mx.allclose(model(b)[2:], model(alone), atol=1e-4)
    model = unet(norm=norm)
    assert mx.allclose(model(b)[30:], model(alone), atol=1e-3)
    assert mx.allclose(model(b.positions, b.features, b.lengths), model(b))
    assert mx.allclose(model(b.to_offsets()), model(b))


def test_block():
    b = batch([40, 0, 9], 4)
    set_ = b.point_set(0.3)
    block = points.BasicBlock(4, 4, norm="none")
    y, where = block(b.features, set_)
    inner = block.second.conv(mx.maximum(block.first.conv(b.features, set_)[0], 0), set_)[0]
    assert where is set_ and mx.allclose(y, mx.maximum(b.features + inner, 0), atol=1e-6)
    y, where = points.BasicBlock(4, 6, stride=2)(b.features, set_)
    assert (
        y.shape == (len(where), 6)
        and where is set_.downsample(2)[0]
        and where.lengths.tolist()[1] == 0
    )


def test_bottleneck():
    b = batch([40, 0, 9], 16)
    set_ = b.point_set(0.3)
    block = points.Bottleneck(16, 4, norm="none", groups=2, width_per_group=64)
    y, where = block(b.features, set_)
    inner = mx.maximum(block.conv.conv(mx.maximum(block.reduce(b.features), 0), set_)[0], 0)
    assert where is set_ and mx.allclose(
        y, mx.maximum(b.features + block.expand(inner), 0), atol=1e-6
    )
    assert block.conv.conv.weight.shape == (27, 2, 4, 4)
    y, where = points.Bottleneck(16, 8, stride=2)(b.features, set_)
    assert (
        y.shape == (len(where), 32)
        and where is set_.downsample(2)[0]
        and where.lengths.tolist()[1] == 0
    )


# Parameters of the networks for images (3 channels, 1000 classes) as torchvision documents them.
IMAGES = {
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "resnext50_32x4d": 25_028_904,
    "resnext101_32x8d": 88_791_336,
    "wide_resnet50_2": 68_883_240,
    "wide_resnet101_2": 126_886_696,
}


@pytest.mark.parametrize("name", IMAGES)
def test_resnet_parameters(name):
    """On points 27 cells take the place of 9 and 343 that of 49.

    All else has as many parameters.
    """
    model = getattr(points, name)(3, 1000)
    depth, config = model.config["depth"], model.config
    blocks = {
        18: [2, 2, 2, 2],
        34: [3, 4, 6, 3],
        50: [3, 4, 6, 3],
        101: [3, 4, 23, 3],
        152: [3, 8, 36, 3],
    }[depth]
    convolutions, before = 0, 64  # products of the channels of all 3x3 convolutions
    for stage, n in enumerate(blocks):
        c = 64 * 2**stage
        if depth < 50:
            convolutions += before * c + (2 * n - 1) * c * c
            before = c
        else:
            width = c * config["width_per_group"] // 64 * config["groups"]
            convolutions += n * width * width // config["groups"]
    count = sum(v.size for _, v in tree_flatten(model.trainable_parameters()))
    assert count == IMAGES[name] + (27 - 9) * convolutions + (343 - 49) * 3 * 64


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize(
    "options",
    [{}, {"depth": 50, "groups": 4, "width_per_group": 16}, {"depth": 34, "norm": "none"}],
)
def test_resnet(lengths, options, tmp_path):
    b = batch(lengths)
    model = points.PointResNet(2, 3, width=8, grid=0.1, stem=5, **options)
    y = model(b)
    assert y.shape == (len(lengths), 3) and mx.isfinite(y).all().item()
    _, g = mlx.nn.value_and_grad(model, lambda: (model(b) ** 2).sum())()
    assert all(mx.isfinite(v).all().item() for _, v in tree_flatten(g))
    if lengths == LENGTHS[0]:
        assert all(
            mx.abs(v).max().item() > 0
            for k, v in tree_flatten(g)
            if k.endswith("conv.weight") and "stem" in k
        )
        x, where = model.features(b)
        assert (
            where.grid == pytest.approx(3.2)
            and where.lengths.tolist()[1] == 0
            and len(x) == len(where)
        )
        model.eval()
        model.save(tmp_path / "m.safetensors")
        again = models.load(tmp_path / "m.safetensors")
        assert type(again) is models.PointResNet and mx.array_equal(again(b), model(b))


@pytest.mark.parametrize("make", [classifier, unet])
def test_save_and_load(make, tmp_path):
    b, model = batch([20, 0, 7]), make()
    model.eval()
    model.save(tmp_path / "m.safetensors")
    again = models.load(tmp_path / "m.safetensors")
    assert type(again) is type(model) and mx.array_equal(again(b), model(b))


def test_second_epoch_searches_nothing(monkeypatch):
    b, model = batch([30, 0, 20]), unet()
    model(b)

    def search(*args, **kwargs):
        raise AssertionError("a rulebook was built again")

    for name in ("build_rulebook", "grid_downsample", "radius_search"):
        monkeypatch.setattr(points.point_set, name, search)
    model(b.with_features(b.features + 1))
    with pytest.raises(AssertionError):
        model(batch([30, 0, 20]))


def test_segmentation_learns():
    """Upper half against lower half of each cloud."""
    b = batch([60, 40]).with_features(None)
    labels = (b.positions[:, 2] > b.segment_reduce(b.positions, "mean")[b.indices][:, 2]).astype(
        mx.int32
    )
    mx.random.seed(0)
    model = points.PointUNet(
        in_channels=1, num_classes=2, channels=(8, 12), blocks=(1, 1), grid=0.4, stem=3
    )
    loss = lambda y, t: mlx.nn.losses.cross_entropy(y, t, reduction="mean")
    history = points.train_pointcnn(
        model, [{"batch": b, "labels": labels}], optim.Adam(1e-2), loss, 30, log=None
    )
    assert history[-1]["loss"] < 0.3 * history[0]["loss"] and history[-1]["accuracy"] > 0.9


def test_errors():
    with pytest.raises(ValueError, match="features must have 2 channels, found 5"):
        classifier()(batch([4], 5))
    with pytest.raises(ValueError, match="equal lengths"):
        points.PointUNet(channels=(8, 8), blocks=(1,))
    with pytest.raises(ValueError, match="norm must be one of"):
        classifier(norm="weight")
    with pytest.raises(ValueError, match="depth must be one of"):
        points.PointResNet(depth=20)
    with pytest.raises(ValueError, match="basic blocks have groups 1"):
        points.PointResNet(depth=18, groups=2)


@pytest.mark.parametrize("make", [points.DGCNN, points.PointNet2])
def test_an_empty_cloud_has_finite_scores(make):
    """The maximum over no point was -inf, and the scores NaN."""
    net = make(num_classes=3, width=8)
    for lengths in ([0], [4, 0]):
        scores = net(mx.random.uniform(shape=(sum(lengths), 3)), lengths=lengths)
        assert scores.shape == (len(lengths), 3) and mx.isfinite(scores).all().item()
