"""The trainer: resume, checkpoints, non-finite losses, cached relations; metrics and scans."""

import mlx.core as mx
import mlx.nn
import mlx.optimizers as optim
import numpy as np
import pytest
from mlx.utils import tree_flatten, tree_map
from mlx_lattice import io, models, nn, ops
from mlx_lattice.training import checkpoint, optimizers, scans
from mlx_lattice.training.losses import classification_loss
from mlx_lattice.training.metrics import Confusion
from mlx_lattice.training.trainer import Trainer, TrainingError, warm_cosine


class Net(mlx.nn.Module):
    def __init__(self, channels=6, classes=3):
        super().__init__()
        self.conv, self.norm, self.drop = (
            nn.SubmConv3d(channels, 8),
            nn.BatchNorm(8),
            nn.Dropout(0.3),
        )
        self.head = nn.Linear(8, classes)

    def __call__(self, x):
        return self.head(self.drop(nn.ReLU()(self.norm(self.conv(x)))))


def cloud(seed, n=400):
    rng = np.random.default_rng(seed)
    points = rng.uniform(0, 4, (n, 3)).astype(np.float32)
    return io.PointCloud(points, {"label": (points[:, 2] // 1.4).astype(np.int32)})


def some_scans(count=5, voxel=0.5):
    recipe = scans.VoxelPipeline(voxel, ((0, "low"), (1, "middle"), (2, "high")))
    return [recipe.scan(cloud(i), str(i)) for i in range(count)], recipe


def trainer(tmp_path=None, seed=3, rate=1e-2, net=Net, loss=None, **options):
    mx.random.seed(seed)
    model = net()
    return Trainer(
        model,
        optim.AdamW(rate),
        loss or scans.segmentation_loss(),
        directory=tmp_path,
        seed=seed,
        **options,
    )


def weights(model):
    return {k: np.array(v) for k, v in tree_flatten(model.parameters())}


def test_loss_falls_and_validation_is_recorded():
    items, recipe = some_scans()
    t = trainer()
    history = t.fit(
        items,
        8,
        validate=lambda m, ranks: {
            "mean_iou": scans.evaluate(m, items, recipe.names, ranks).mean_iou
        },
    )
    assert [r["epoch"] for r in history] == list(range(1, 9))
    assert (
        history[-1]["loss"] < 0.7 * history[0]["loss"]
        and history[-1]["mean_iou"] > history[0]["mean_iou"]
    )
    assert not t.model.training


@pytest.mark.parametrize("batch", [1, 2])
def test_resume_gives_the_same_bits(tmp_path, batch):
    items, _ = some_scans()
    whole = trainer(batch=batch)
    whole.fit(items, 4)
    trainer(tmp_path, batch=batch).fit(items, 2)
    again = trainer(tmp_path, batch=batch)
    again.resume()
    assert again.epoch == 2
    again.fit(items, 4)
    assert [r["loss"] for r in again.history] == [r["loss"] for r in whole.history]
    for name, value in weights(whole.model).items():
        np.testing.assert_array_equal(value, weights(again.model)[name], err_msg=name)


def test_second_epoch_builds_no_relation():
    recipe = scans.VoxelPipeline(0.2, ((0, "low"), (1, "middle"), (2, "high")))
    items = [recipe.scan(cloud(i, 2000)) for i in range(2)]
    built = []
    t = trainer(net=lambda: models.MinkUNet(6, 3, depth=14, width=4, stem_kernel_size=3))
    t.fit(
        items,
        3,
        on_epoch=lambda row: built.append(
            [i.tensor.coord_manager.stats()["misses"] for i in items]
        ),
    )
    assert (
        min(built[0]) >= 9 and built[1] == built[0] and built[2] == built[0]
    )  # 5 submanifold, 4 down; up reverses them


def test_a_loss_that_is_not_finite_stops_before_the_update(tmp_path):
    items, _ = some_scans()
    t = trainer(tmp_path)
    t.fit(items, 1)
    before, saved = weights(t.model), (tmp_path / checkpoint.NAME).read_bytes()
    bad = scans.Scan(
        items[2].tensor.replace(feats=mx.full(items[2].tensor.feats.shape, float("nan"))),
        items[2].labels,
        items[2].rows,
    )
    with pytest.raises(TrainingError, match="loss is nan in epoch 2"):
        t.fit([bad], 2)
    after = weights(t.model)
    assert all(np.array_equal(after[k], v) for k, v in before.items() if "running" not in k)
    assert (tmp_path / checkpoint.NAME).read_bytes() == saved


def test_a_crash_while_writing_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    items, _ = some_scans()
    t = trainer(tmp_path)
    t.fit(items, 1)
    saved = (tmp_path / checkpoint.NAME).read_bytes()

    def half(path, arrays, about):
        with open(path, "wb") as file:
            file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(mx, "save_safetensors", half)
    with pytest.raises(OSError, match="disk full"):
        t.fit(items, 2)
    assert (tmp_path / checkpoint.NAME).read_bytes() == saved


def test_checkpoints_that_do_not_fit(tmp_path):
    items, _ = some_scans()
    with pytest.raises(TrainingError, match="no checkpoint"):
        trainer(tmp_path).resume()
    trainer(tmp_path).fit(items, 1)
    with pytest.raises(TrainingError, match="seed 3, found 4"):
        trainer(tmp_path, seed=4).resume()
    with pytest.raises(TrainingError, match="shape"):
        trainer(tmp_path, net=lambda: Net(classes=4)).resume()
    with pytest.raises(TrainingError, match="another network"):
        trainer(tmp_path, net=lambda: models.MinkUNet(6, 3, depth=14, width=4)).resume()
    (tmp_path / checkpoint.NAME).write_bytes(b"nonsense")
    with pytest.raises(TrainingError, match="not a checkpoint"):
        trainer(tmp_path).resume()
    with pytest.raises(ValueError, match="items"):
        trainer().fit([], 1)


def test_incomplete_batches_count_every_item_once():
    items, _ = some_scans(5)
    t = trainer(batch=2)
    with pytest.raises(TypeError, match="count must be an integer"):
        t.order(items)
    batches = t.order(len(items))
    assert sorted(np.concatenate(batches).tolist()) == list(range(5)) and [
        len(b) for b in batches
    ] == [2, 2, 1]


def test_classification_loss_is_the_weighted_mean():
    rng = np.random.default_rng(0)
    logits, labels, w = (
        rng.normal(size=(50, 4)),
        rng.integers(-1, 4, 50),
        np.array([1, 2, 0.5, 3.0]),
    )
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    known = labels >= 0
    share = w[labels[known]]
    expected = -(share * log_p[known, labels[known]]).sum() / share.sum()
    found = classification_loss(
        mx.array(logits.astype(np.float32)),
        mx.array(labels.astype(np.int32)),
        mx.array(w.astype(np.float32)),
    )
    assert found.item() == pytest.approx(expected, rel=1e-5)
    assert classification_loss(mx.zeros((3, 2)), mx.array([-1, -1, -1])).item() == 0
    p = np.exp(log_p) - (labels[:, None] == np.arange(4))
    gradient = np.where(known[:, None], p * w[labels][:, None], 0) / share.sum()
    back = mx.grad(
        lambda x: (
            2
            * classification_loss(
                x, mx.array(labels.astype(np.int32)), mx.array(w.astype(np.float32))
            )
        )
    )
    np.testing.assert_allclose(
        np.array(back(mx.array(logits.astype(np.float32)))), 2 * gradient, atol=1e-6
    )


@pytest.mark.parametrize(
    "options",
    [{}, {"bias_correction": True}, {"betas": [0.8, 0.9], "eps": 1e-3, "weight_decay": 0.2}],
)
def test_adamw_is_that_of_mlx(options):
    ours, theirs = (
        optimizers.AdamW(warm_cosine(0.1, 20), **options),
        optim.AdamW(warm_cosine(0.1, 20), **options),
    )
    start = {
        "a": mx.random.normal((5, 7)),
        "b": [mx.random.normal((3,)), mx.random.normal((4,)).astype(mx.float16)],
        "c": mx.zeros((0, 2)),
    }
    one = two = start
    for i in range(6):
        gradients = tree_map(lambda x: mx.sin(x.astype(mx.float32) * 9 + i).astype(x.dtype), start)
        one, two = ours.apply_gradients(gradients, one), theirs.apply_gradients(gradients, two)
    for (name, a), (_, b) in zip(
        tree_flatten([one, ours.state]), tree_flatten([two, theirs.state])
    ):
        assert a.dtype == b.dtype, name
        np.testing.assert_allclose(np.array(a), np.array(b), rtol=1e-5, atol=1e-6, err_msg=name)
    assert not mx.array_equal(one["a"], start["a"])


def test_adamw_step_checks_its_arrays():
    a, rates = mx.zeros((4,)), mx.zeros((3,))
    with pytest.raises(ValueError, match=r"\[adamw_step\] gradient must be float32 of shape"):
        ops.adamw_step(a, mx.zeros((5,)), a, a, rates)
    with pytest.raises(ValueError, match="rates"):
        ops.adamw_step(a, a, a, a, a)


def test_warm_cosine():
    rate = warm_cosine(0.1, 100)
    values = [rate(mx.array(i)).item() for i in range(100)]
    assert (
        values[0] == pytest.approx(0.01)
        and max(values) == pytest.approx(0.1)
        and values[-1] < 0.0012
    )
    assert np.argmax(values) in (9, 10)


def test_confusion():
    c = Confusion(["a", "b", "c"])
    c.add([0, 0, 1, 1, -1], [0, 1, 1, 1, 2])
    np.testing.assert_allclose(c.iou(), [1 / 2, 2 / 3, np.nan])
    assert c.mean_iou == pytest.approx(7 / 12) and c.accuracy == 0.75
    assert "mean" in str(c)
    with pytest.raises(ValueError, match="prediction"):
        c.add([0, 1], [0])
    with pytest.raises(ValueError, match=r"truth: found 0..3"):
        c.add([0, 3], [0, 1])


def test_scans_vote_and_give_labels_back():
    points = np.array(
        [[0, 0, 0], [0.1, 0, 0], [0.2, 0, 0], [5, 0, 0], [np.nan, 0, 0], [9, 0, 0]], np.float32
    )
    recipe = scans.pipeline_of(
        [("x", io.PointCloud(points, {"label": np.array([7, 3, 3, 7, 3, 0])}))], 1.0, ignored=[0]
    )
    assert recipe.classes == ((3, "3"), (7, "7"))
    scan = recipe.scan(io.PointCloud(points, {"label": np.array([7, 3, 3, 7, 3, 0])}))
    assert np.array(scan.labels).tolist() == [0, 1, -1] and scan.rows.tolist() == [
        0,
        0,
        0,
        1,
        -1,
        2,
    ]
    assert recipe.point_labels(scan, np.array([1, 0, 1])).tolist() == [7, 7, 7, 3, -1, 7]
    np.testing.assert_allclose(
        np.array(scan.tensor.feats[0]), [1, -0.4, -0.5, -0.5, 0, np.log(4) / 2], atol=1e-6
    )
    with pytest.raises(ValueError, match="label 5"):
        recipe.scan(io.PointCloud(points, {"label": np.full(6, 5)}))


def test_streets_are_seeded_and_labeled():
    from mlx_lattice.samples import streets

    points, labels = streets.street(5)
    again, _ = streets.street(5)
    other, _ = streets.street(6)
    np.testing.assert_array_equal(points, again)
    assert len(other) != len(points) or not np.array_equal(other, points)
    voxels = len(np.unique(np.floor(points / 0.2), axis=0))
    assert 20_000 <= voxels <= 60_000
    assert (np.bincount(labels, minlength=6) > 200).all() and len(streets.CLASSES) == 6
    assert (
        points[labels == streets.GROUND][:, 2].max()
        < 0.6
        < points[labels == streets.BUILDING][:, 2].max()
    )
