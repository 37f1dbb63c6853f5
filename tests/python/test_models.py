"""Networks: parameter counts by formula, shapes, gradients, odd inputs, saving and loading."""

import json

import mlx.core as mx
import mlx.nn
import mlx.optimizers as optim
import mlx_lattice as ml
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lattice import SparseTensor, models, ops


def cloud(sizes=(60, 40), channels=3, reach=24, seed=0, dtype=mx.float32):
    rng = np.random.default_rng(seed)
    coords = [np.unique(rng.integers(0, reach, (n, 3)).astype(np.int32), axis=0) for n in sizes]
    feats = [
        mx.array(rng.standard_normal((len(c), channels)).astype(np.float32)).astype(dtype)
        for c in coords
    ]
    return ops.sparse_collate([mx.array(c) for c in coords], feats)


def trainable(model):
    return sum(v.size for _, v in tree_flatten(model.trainable_parameters()))


# ---- parameter counts, by hand ----
def conv_norm(c_in, c_out, k):
    return c_in * c_out * k + 2 * c_out


def block(c_in, planes, bottleneck):
    out = planes * (4 if bottleneck else 1)
    project = conv_norm(c_in, out, 1) if c_in != out else 0
    if bottleneck:
        return out, conv_norm(c_in, planes, 1) + conv_norm(planes, planes, 27) + conv_norm(
            planes, out, 1
        ) + project
    return out, conv_norm(c_in, planes, 27) + conv_norm(planes, planes, 27) + project


def blocks(c, planes, count, bottleneck):
    total = 0
    for _ in range(count):
        c, n = block(c, planes, bottleneck)
        total += n
    return c, total


def encoder(c_in, width, counts, bottleneck, stem):
    total, c, channels = conv_norm(c_in, width, stem**3), width, [width]
    for multiple, count in zip((1, 2, 4, 8), counts):
        total += conv_norm(c, c, 8)
        c, n = blocks(c, width * multiple, count, bottleneck)
        total += n
        channels.append(c)
    return channels, total


UNETS = {14: (1, 1, 1, 1), 18: (2, 2, 2, 2), 34: (2, 3, 4, 6), 50: (2, 3, 4, 6), 101: (2, 3, 4, 23)}
RESNETS = {
    14: (1, 1, 1, 1),
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
}


@pytest.mark.parametrize("depth", UNETS)
def test_minkunet_parameters(depth):
    width, deep = 4, depth >= 50
    (*skips, c), total = encoder(3, width, UNETS[depth], deep, 5)
    for multiple, skip in zip((8, 4, 3, 3), reversed(skips)):
        total += conv_norm(c, width * multiple, 8)
        c, n = blocks(width * multiple + skip, width * multiple, 1 if depth == 14 else 2, deep)
        total += n
    total += c * 7 + 7
    assert trainable(models.MinkUNet(3, 7, depth=depth, width=width)) == total


@pytest.mark.parametrize("depth", RESNETS)
def test_resnet_parameters(depth):
    channels, total = encoder(3, 4, RESNETS[depth], depth >= 50, 3)
    assert trainable(models.SparseResNet(3, depth=depth, width=4)) == total
    head = channels[-1] * 5 + 5
    assert trainable(models.SparseResNet(3, 5, depth=depth, width=4)) == total + head


def test_second_parameters():
    channels = (4, 6, 8, 10)
    total = 0
    c = 3
    for width in channels:
        total += conv_norm(c, width, 27) + 2 * conv_norm(width, width, 27)
        c = width
    total += conv_norm(c, 12, 3)
    assert trainable(models.SecondBackbone(3, (40, 40, 20), channels, 12)) == total


# ---- forward and backward ----
def make(name):
    return {
        "unet": lambda: models.MinkUNet(3, 5, depth=14, width=4, stem_kernel_size=3),
        "unet50": lambda: models.MinkUNet(3, 5, depth=50, width=2),
        "resnet": lambda: models.SparseResNet(3, 5, depth=18, width=4),
        "second": lambda: models.SecondBackbone(3, (25, 31, 27), (4, 4, 4, 4), 6),
    }[name]()


def values(y):
    return y if isinstance(y, mx.array) else y.feats


NAMES = ["unet", "unet50", "resnet", "second"]


@pytest.mark.parametrize("name", NAMES)
def test_gradients_reach_every_parameter_and_the_loss_falls(name):
    mx.random.seed(3)
    model, x = make(name), cloud((400, 300))
    shape = values(model(x)).shape
    goal = mx.random.normal(shape)

    def loss(m):
        return mx.mean((values(m(x)) - goal) ** 2)

    step = mlx.nn.value_and_grad(model, loss)
    optimizer = optim.Adam(learning_rate=1e-2)
    first, grads = step(model)
    flat = dict(tree_flatten(grads))
    assert set(flat) == {k for k, _ in tree_flatten(model.trainable_parameters())}
    assert [k for k, v in flat.items() if not mx.any(v != 0).item()] == []
    for _ in range(6):
        _, grads = step(model)
        optimizer.update(model, grads)
        mx.eval(model.parameters(), optimizer.state)
    assert loss(model).item() < first.item()


def test_gradient_is_the_directional_difference():
    """In float64 steps along a random direction of the input, in evaluation mode."""
    mx.random.seed(5)
    model, x = models.MinkUNet(3, 2, depth=14, width=4, stem_kernel_size=3), cloud((80,))
    model.eval()

    def loss(f):
        return mx.sum(mx.tanh(model(x.with_feats(f)).feats))

    way = mx.random.normal(x.feats.shape)
    slope = mx.sum(mx.grad(loss)(x.feats) * way).item()
    h = 1e-2
    numeric = (loss(x.feats + h * way).item() - loss(x.feats - h * way).item()) / (2 * h)
    assert abs(slope - numeric) < 2e-2 * max(1.0, abs(numeric))


@pytest.mark.parametrize("depth", [14, 34])
def test_unet_keeps_identity_and_aligns_nothing(depth):
    model, x = models.MinkUNet(3, 5, depth=depth, width=4), cloud()
    before = ml._ext.alignment_count()
    y = model(x)
    assert y.same_coords(x) and y.channels == 5 and ml._ext.alignment_count() == before


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sizes", [(), (1,), (30, 0, 7), (0, 0)])
def test_odd_batches(name, sizes):
    """No rows, one row, empty items: batch items do not see each other, and nothing fails."""
    model = make(name)
    model.eval()
    x = cloud(sizes) if sizes else SparseTensor(mx.zeros((0, 4), mx.int32), mx.zeros((0, 3)))
    y = values(model(x))
    expected = {"resnet": 5, "second": model.output_shape[-1] if name == "second" else 0}.get(
        name, 5
    )
    assert y.shape[-1] == expected and np.isfinite(np.array(y)).all()
    if name.startswith("unet"):
        assert y.shape[0] == x.active_count
    elif sizes:
        assert y.shape[0] == len(sizes)


@pytest.mark.parametrize("name", NAMES)
def test_batch_items_are_independent(name):
    model, x = make(name), cloud((50, 70), seed=4)
    model.eval()
    y = values(model(x))
    for b in range(2):
        coords, feats = x.decomposed_coordinates[b], x.decomposed_features[b]
        alone = values(model(ops.sparse_collate([coords], [feats])))
        part = (
            y[np.flatnonzero(np.array(x.coords[:, 0]) == b).tolist()]
            if name.startswith("unet")
            else y[b : b + 1]
        )
        np.testing.assert_allclose(np.array(part), np.array(alone), atol=2e-5)


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_half_precision(dtype):
    model, x = make("unet"), cloud()
    model.eval()
    exact = model(x).feats
    model.set_dtype(dtype)
    y = model(x.astype(dtype)).feats
    assert y.dtype == dtype
    assert mx.max(mx.abs(y.astype(mx.float32) - exact)).item() < 0.05 * max(
        1.0, mx.max(mx.abs(exact)).item()
    )


def test_negative_coordinates_shift_with_the_grid():
    """Moving a scan by a multiple of 16 voxels changes nothing."""
    model, x = make("unet"), cloud()
    model.eval()
    moved = SparseTensor(x.coords - mx.array([0, 160, 32, 16], mx.int32), x.feats)
    np.testing.assert_allclose(np.array(model(moved).feats), np.array(model(x).feats), atol=1e-5)


# ---- SECOND ----
def test_second_layout():
    """Value (b, x, y, c * Z + z) of the view is channel c of the sparse row (b, x, y, z)."""
    model, x = make("second"), cloud((90, 40))
    model.eval()
    bev, rows = np.array(model(x)), model.sparse(x)
    assert bev.shape == (2, 4, 4, 12) == (2, *model.output_shape)
    assert tuple(rows.stride) == (8, 8, 16)
    seen = np.zeros_like(bev)
    for (b, i, j, k), f in zip(np.array(rows.coords), np.array(rows.feats)):
        for c in range(6):
            seen[b, i, j, c * 2 + k] = f[c]
    np.testing.assert_array_equal(bev, seen)
    assert (bev != 0).any()


@pytest.mark.parametrize("bad", [(-1, 0, 0), (0, 31, 0), (0, 0, 27)])
def test_second_outside(bad):
    x = SparseTensor(mx.array([[0, *bad]], mx.int32), mx.ones((1, 3)))
    with pytest.raises(ValueError, match=r"\[SecondBackbone\] [xyz] must be in 0\.\."):
        make("second")(x)


# ---- saving ----
@pytest.mark.parametrize("name", NAMES)
def test_save_and_load(name, tmp_path):
    model, x = make(name), cloud()
    mx.eval(values(model(x)))  # running statistics move
    model.eval()
    path = tmp_path / "net.safetensors"
    model.save(path)
    other = models.load(path)
    assert type(other) is type(model) and other.config == model.config and not other.training
    assert mx.array_equal(values(other(x)), values(model(x)))
    assert type(type(model).load(str(path))) is type(model)
    again = type(model)(**model.config)
    assert [k for k, _ in tree_flatten(again.parameters())] == [
        k for k, _ in tree_flatten(model.parameters())
    ]


def test_half_weights_stay_half(tmp_path):
    model = make("unet")
    model.set_dtype(mx.bfloat16)
    model.save(tmp_path / "net.safetensors")
    assert models.load(tmp_path / "net.safetensors").head.weight.dtype == mx.bfloat16


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "net.safetensors"
    make("unet").save(path)
    return path


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda t: t.update(version=2), "version must be 1, found 2"),
        (lambda t: t.update(format="other"), "mlx-lattice-model"),
        (lambda t: t.update(extra=1), r"unknown keys \['extra'\]"),
        (lambda t: t.update(model="Nothing"), "model must be one of"),
        (lambda t: t.update(model=["MinkUNet"]), "model must be one of"),
        (lambda t: t.update(config=[]), "config must be an object"),
        (lambda t: t["config"].update(wide=3), r"unknown keys \['wide'\]"),
        (
            lambda t: t["config"].update(depth=15),
            r"depth must be one of \[14, 18, 34, 50, 101\], found 15",
        ),
        (lambda t: t["config"].update(depth=[]), "depth must be one of"),
        (lambda t: t["config"].update(width="8"), "width must be an integer"),
        (lambda t: t["config"].update(width=0), "width must be >= 1"),
        (lambda t: t["config"].update(width=6), "has shape"),
        (lambda t: t["config"].update(depth=18), "lacks"),
        (lambda t: t["config"].pop("out_channels"), "out_channels"),
    ],
)
def test_bad_configuration(saved, change, message):
    text = json.loads(saved.with_suffix(".json").read_text())
    change(text)
    saved.with_suffix(".json").write_text(json.dumps(text))
    with pytest.raises(ValueError, match=message):
        models.load(saved)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"', "\x00"])
def test_bad_json(saved, text):
    saved.with_suffix(".json").write_text(text)
    with pytest.raises(ValueError, match=r"\[models.load\]"):
        models.load(saved)


def test_bad_weights(saved, tmp_path):
    weights = mx.load(str(saved))
    mx.save_safetensors(str(saved), {**weights, "more": mx.zeros((1,))})
    with pytest.raises(ValueError, match="1 unknown weights, the first 'more'"):
        models.load(saved)
    mx.save_safetensors(str(saved), {**weights, "head.bias": mx.zeros((5,), mx.int32)})
    with pytest.raises(ValueError, match=r"head.bias has dtype"):
        models.load(saved)
    saved.write_bytes(b"not a safetensors file")
    with pytest.raises(ValueError, match="not a safetensors file"):
        models.load(saved)
    saved.unlink()
    with pytest.raises(FileNotFoundError):
        models.load(saved)
    with pytest.raises(ValueError, match=r"must end in .safetensors"):
        models.load(tmp_path / "net.bin")
    with pytest.raises(ValueError, match="holds a MinkUNet, expected a SparseResNet"):
        make("unet").save(saved)
        models.SparseResNet.load(saved)


def test_constructor_errors():
    with pytest.raises(ValueError, match=r"\[MinkUNet\] depth must be one of"):
        models.MinkUNet(3, 5, depth=20)
    with pytest.raises(TypeError, match=r"\[MinkUNet\] in_channels must be an integer"):
        models.MinkUNet(3.0, 5)
    with pytest.raises(ValueError, match=r"\[SubmConv3d\] needs an odd kernel_size"):
        models.MinkUNet(3, 5, stem_kernel_size=4)
    with pytest.raises(ValueError, match=r"\[SecondBackbone\] grid_size must be 3 integers"):
        models.SecondBackbone(3, (4, 4))


def test_point_networks_are_models():
    assert (
        models.PointUNet is ml.points.PointUNet
        and models.PointClassifier is ml.points.PointClassifier
    )
    assert issubclass(models.PointUNet, models.Model)
    with pytest.raises(AttributeError, match="no attribute 'PointNet'"):
        _ = models.PointNet
