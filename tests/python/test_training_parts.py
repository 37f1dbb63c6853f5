"""Parts of training: loader, losses, schedules, averages, precision, stages, windows."""

import csv
import math
import threading
import time
from itertools import pairwise

import mlx.core as mx
import mlx.nn
import mlx.optimizers
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lattice import SparseTensor, models, nn, training
from mlx_lattice import transforms as tf
from mlx_lattice.io import PointCloud
from mlx_lattice.training import losses, schedules
from mlx_lattice.training.average import WeightAverage
from mlx_lattice.training.inference import predict_points, probabilities, standard_views, windows
from mlx_lattice.training.loader import ClassBalanced, Loader, LoaderError, class_counts
from mlx_lattice.training.precision import Precision
from mlx_lattice.training.recompute import checkpoint_stages


class Clouds:
    """A data set in memory whose item 5 cannot be read when `bad`."""

    classes = ("low", "high")

    def __init__(self, count=8, bad=False, n=300):
        self.count, self.bad, self.n = count, bad, n
        self.reads = 0

    def __len__(self):
        return self.count

    def name(self, i):
        return f"scan {i}.bin"

    def __getitem__(self, i):
        self.reads += 1
        if self.bad and i == 5:
            raise ValueError("17 bytes, expected a multiple of 16")
        rng = np.random.default_rng(i)
        time.sleep(0.002 * (i % 3))  # workers finish in another order
        points = rng.uniform(0, [9, 9, 4], (self.n, 3)).astype(np.float32)
        return PointCloud(points, {"label": (points[:, 2] > 2).astype(np.int32)})


def total(cloud, name):
    return name, float(cloud.points.sum())


def test_any_number_of_workers_gives_the_same_items():
    transform = tf.Compose([tf.Flip(), tf.Rotate(), tf.Jitter(0.1), tf.Mix3D()])
    order = [3, 1, 7, 0, 2, 6, 5, 4]
    runs = []
    for workers, ahead in ((0, 1), (1, 1), (2, 4), (5, 2)):
        loader = Loader(Clouds(), total, transform=transform, seed=9, workers=workers, ahead=ahead)
        runs.append([list(loader.stream(order, epoch)) for epoch in (0, 1)])
    assert all(run == runs[0] for run in runs)
    assert [name for name, _ in runs[0][0]] == [f"scan {i}.bin" for i in order]
    assert runs[0][0] != runs[0][1]  # another epoch, other numbers


def test_the_queue_is_bounded():
    data = Clouds(50)
    stream = Loader(data, total, workers=2, ahead=3).stream(range(50), 0)
    next(stream)
    time.sleep(0.2)
    assert data.reads <= 1 + 3 + 1
    stream.close()


def test_threads_end():
    before = threading.active_count()
    stream = Loader(Clouds(20), total, workers=3).stream(range(20), 0)
    next(stream)
    stream.close()
    assert threading.active_count() == before
    with pytest.raises(KeyboardInterrupt):  # as Ctrl-C does in the training step
        for _ in (stream := Loader(Clouds(20), total, workers=3).stream(range(20), 0)):
            try:
                raise KeyboardInterrupt
            finally:
                stream.close()
    assert threading.active_count() == before


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_names_the_item(workers):
    before = threading.active_count()
    loader = Loader(Clouds(bad=True), total, workers=workers)
    seen = []
    with pytest.raises(LoaderError, match=r"^scan 5\.bin: 17 bytes, expected a multiple of 16"):
        for item in loader.stream(range(8), 0):
            seen.append(item)
    assert len(seen) == 5 and threading.active_count() == before


def test_class_balanced():
    counts = np.zeros((100, 3), np.int64)
    counts[:, 0], counts[7, 1] = 10, 5  # class 1 is in one item, class 2 in none
    sampler = ClassBalanced(counts, seed=2, length=400)
    drawn = [sampler.index(p, 0) for p in range(400)]
    assert 150 < drawn.count(7) < 250 and len(sampler) == 400
    assert drawn == [sampler.index(p, 0) for p in range(400)]
    assert drawn != [sampler.index(p, 1) for p in range(400)]
    found = class_counts(Clouds(3))
    assert found.shape == (3, 2) and found.sum() == 900
    with pytest.raises(TypeError, match="sampler"):
        Loader(Clouds(100, n=5), total, sampler=(1, 2, 3))  # its index() looks for a value
    loader = Loader(Clouds(100, n=5), total, sampler=sampler, workers=0)
    names = [loader.item(p, 0)[0] for p in range(20)]
    assert names == [f"scan {i}.bin" for i in drawn[:20]]


def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def lovasz_oracle(logits, labels):
    """The definition of the paper, class by class in float64."""
    keep = labels >= 0
    p, labels, found = softmax(logits)[keep], labels[keep], []
    for c in range(p.shape[1]):
        truth = (labels == c).astype(float)
        if not truth.any():
            continue
        error = np.abs(truth - p[:, c])
        order = np.argsort(-error, kind="stable")
        t = truth[order]
        jaccard = 1 - (t.sum() - t.cumsum()) / (t.sum() + (1 - t).cumsum())
        found.append((error[order] * np.diff(jaccard, prepend=0)).sum())
    return np.mean(found) if found else 0.0


def oracle(name, logits, labels, weights):
    keep = labels >= 0
    p, y = softmax(logits)[keep], labels[keep]
    own = p[np.arange(len(y)), y]
    w = weights[y]
    if name == "plain":
        return (-np.log(own) * w).sum() / w.sum()
    if name == "smooth":
        target = 0.9 * np.eye(p.shape[1])[y] + 0.1 / p.shape[1]
        return ((-(target * np.log(p)).sum(1)) * w).sum() / w.sum()
    if name == "focal":
        return ((1 - own) ** 2 * -np.log(own) * w).sum() / w.sum()
    if name == "dice":
        t = np.eye(p.shape[1])[y]
        score = (2 * (p * t).sum(0) + 1) / (p.sum(0) + t.sum(0) + 1)
        return (1 - score)[t.sum(0) > 0].mean()
    return lovasz_oracle(logits, labels)


W = np.array([1.0, 2.0, 0.5, 3.0, 1.0])
MADE = {
    "plain": losses.cross_entropy(mx.array(W.astype(np.float32))),
    "smooth": losses.cross_entropy(mx.array(W.astype(np.float32)), 0.1),
    "focal": losses.focal(2.0, mx.array(W.astype(np.float32))),
    "dice": losses.dice(),
    "lovasz": losses.lovasz(),
}


@pytest.mark.parametrize("name", MADE)
def test_losses(name):
    rng = np.random.default_rng(4)
    logits, labels = rng.normal(size=(90, 5)) * 2, rng.integers(-1, 4, 90)  # class 4 is absent
    x, y = mx.array(logits.astype(np.float32)), mx.array(labels.astype(np.int32))
    value, slope = mx.value_and_grad(MADE[name])(x, y)
    assert abs(value.item() - oracle(name, logits, labels, W)) < 1e-5
    assert not np.array(slope)[labels < 0].any()
    for i, c in ((0, 1), (7, 0), (33, 3)):  # central differences of the float64 oracle
        step = np.zeros_like(logits)
        step[i, c] = 1e-5
        up, down = (oracle(name, logits + s * step, labels, W) for s in (1, -1))
        assert abs(slope[i, c].item() - (up - down) / 2e-5) < 1e-4, (i, c)
    assert MADE[name](x, mx.full((90,), -1)).item() == 0
    half = MADE[name](x.astype(mx.bfloat16), y)
    assert abs(half.item() - value.item()) < 0.05
    both = losses.combine([(1.0, MADE[name]), (0.5, MADE["plain"])])(x, y).item()
    assert abs(both - value.item() - 0.5 * MADE["plain"](x, y).item()) < 1e-5


@pytest.mark.parametrize("name", MADE)
def test_losses_without_rows(name):
    none = mx.zeros((0, 5)), mx.zeros((0,), mx.int32)
    value, slope = mx.value_and_grad(MADE[name])(*none)
    assert value.item() == 0 and slope.shape == (0, 5)


def test_cross_entropy_has_higher_derivatives():
    """Those of MLX's own formula, and the slope in the class weights."""
    rng = np.random.default_rng(6)
    x, d = (mx.array(rng.normal(size=(40, 5)).astype(np.float32)) for _ in range(2))
    y, w = mx.array(rng.integers(-1, 5, 40)), mx.array(W.astype(np.float32))

    def formula(x, w):
        known = y >= 0
        share = mx.where(known, w[mx.maximum(y, 0)], 0.0)
        own = mx.take_along_axis(x, mx.maximum(y, 0)[:, None], axis=1)[:, 0]
        return ((mx.logsumexp(x, axis=1) - own) * share).sum() / share.sum()

    def ours(x, w):
        return losses.classification_loss(x, y, w)

    def second(loss):
        return mx.grad(lambda z: (mx.grad(loss)(z, w) * d).sum())

    def third(loss):
        return mx.grad(lambda z: (second(loss)(z) * d).sum())

    for order in (second, third):
        found, expected = order(ours)(x), order(formula)(x)
        assert mx.abs(expected).max() > 1e-3 and mx.abs(found - expected).max() < 1e-6
    of_weights = [mx.grad(loss, argnums=1)(x, w) for loss in (ours, formula)]
    assert mx.abs(of_weights[0]).max() > 1e-3
    assert mx.abs(of_weights[0] - of_weights[1]).max() < 1e-6


def test_schedules():
    for name, make in schedules.SCHEDULES.items():
        rate = [make(0.1, 100, 0.2)(mx.array(s)).item() for s in range(100)]
        peak = int(np.argmax(rate))
        assert abs(max(rate) - 0.1) < 1e-6 and 15 <= peak <= 21, name
        assert all(a <= b + 1e-9 for a, b in pairwise(rate[: peak + 1]))
        assert all(a >= b - 1e-9 for a, b in pairwise(rate[peak:]))
        if name != "constant":
            assert rate[-1] < 0.1 * 0.05
    for name in ("adamw", "sgd"):
        optimizer = schedules.make_optimizer(name, schedules.constant(0.1, 10), 1e-4)
        layer = mlx.nn.Linear(2, 2)
        optimizer.update(layer, layer.parameters())
    with pytest.raises(ValueError, match="found 'adam', expected adamw or sgd"):
        schedules.make_optimizer("adam", schedules.constant(0.1, 10))


def network(seed=0):
    mx.random.seed(seed)
    return models.MinkUNet(6, 2, depth=14, width=4, stem_kernel_size=3)


PIPELINE = training.VoxelPipeline(0.5, ((0, "low"), (1, "high")), ignored=(-1,))


def scans(count=4):
    data = Clouds(count, n=1500)
    return [PIPELINE.scan(data[i], data.name(i)) for i in range(count)]


def loss_of(model, scan):
    return training.classification_loss(model(scan.tensor).feats, scan.labels)


def weights_of(model):
    return {k: np.array(v) for k, v in tree_flatten(model.parameters())}


def same_weights(a, b, tolerance=0.0):
    x, y = weights_of(a), weights_of(b)
    assert x.keys() == y.keys()
    return max(float(np.abs(x[k] - y[k]).max()) for k in x) <= tolerance


def fit(items, epochs=2, seed=3, **options):
    model = network()
    steps = epochs * len(items)
    trainer = training.Trainer(
        model, training.adamw(1e-2, steps), loss_of, seed=seed, quiet=True, **options
    )
    trainer.fit(items, epochs)
    return trainer


def test_a_loader_trains_as_a_list_does():
    data = Clouds(4, n=1500)
    plain = fit(scans())
    for workers in (0, 2):
        loader = Loader(data, PIPELINE.scan, workers=workers)
        assert same_weights(plain.model, fit(loader).model)
    assert loader.waited >= 0


def test_average_follows_the_weights(tmp_path):
    layer = mlx.nn.Linear(1, 1, bias=False)
    layer.weight = mx.array([[0.0]])
    average = WeightAverage(layer, 0.9)
    expected = 0.0
    for t in range(1, 30):
        layer.weight = mx.array([[float(t)]])
        average.update()
        d = min(0.9, (1 + t) / (10 + t))
        expected = d * expected + (1 - d) * t
        with average.applied():
            assert abs(layer.weight.item() - expected) < 1e-3
        assert layer.weight.item() == t
    seen = []
    trainer = training.Trainer(
        network(), training.adamw(1e-2, 8), loss_of, seed=3, quiet=True, average=0.9
    )
    trainer.fit(scans(), 1, validate=lambda model, ranks: seen.append(weights_of(model)) or {})
    name = "head.weight"
    assert np.array_equal(seen[0][name], np.array(dict(tree_flatten(trainer.average.values))[name]))
    assert not np.array_equal(seen[0][name], weights_of(trainer.model)[name])


@pytest.mark.parametrize(
    "options", [{}, {"average": 0.9, "precision": "bfloat16", "clip_norm": 1.0}]
)
def test_resume_gives_the_same_bits(tmp_path, options):
    items, whole = scans(), None
    for folder, stops in (("a", [3]), ("b", [1, 3])):
        for stop in stops:
            trainer = training.Trainer(
                network(),
                training.adamw(1e-2, 12),
                loss_of,
                directory=tmp_path / folder,
                seed=3,
                quiet=True,
                **options,
            )
            if stop != stops[0]:
                trainer.resume()
            trainer.fit(items, stop)
        if whole is None:
            whole = trainer
    assert same_weights(whole.model, trainer.model) and len(trainer.history) == 3
    if options:
        a, b = (dict(tree_flatten(t.average.values)) for t in (whole, trainer))
        assert all(mx.array_equal(a[k], b[k]).item() for k in a)
    with open(tmp_path / "b/history.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [r["epoch"] for r in rows] == ["1", "2", "3"] and float(rows[2]["loss"]) > 0


class Killed(BaseException):
    """Ends a run as kill -9 does: nothing may catch it."""


def cut(folder, at, **options):
    """A trainer whose loss ends the run at its call number `at`; None: never."""
    calls = [0]

    def loss(model, scan):
        calls[0] += 1
        if at is not None and calls[0] > at:
            raise Killed
        drop = mx.random.bernoulli(0.9, scan.tensor.feats.shape)  # random numbers of the step
        kept = scan.tensor.replace(feats=scan.tensor.feats * drop)
        return training.classification_loss(model(kept).feats, scan.labels)

    return training.Trainer(
        network(),
        training.adamw(1e-2, 12),
        loss,
        directory=folder,
        seed=3,
        quiet=True,
        batch=2,
        average=0.9,
        **options,
    )


@pytest.mark.parametrize("at", [1, 4, 7, 8])
@pytest.mark.parametrize("loader", [False, True])
def test_a_killed_run_loses_the_step_under_way_only(tmp_path, at, loader):
    items = Loader(Clouds(6, n=1500), PIPELINE.scan) if loader else scans(6)
    whole = cut(tmp_path / "whole", None, checkpoint_seconds=0)
    whole.fit(items, 2)
    first = cut(tmp_path / "cut", at, checkpoint_seconds=0)
    with pytest.raises(Killed):
        first.fit(items, 2)
    again = cut(tmp_path / "cut", None, checkpoint_seconds=0)
    if at > 1:
        again.resume()
        inside = {4: "after epoch 0, 4 scans into the next", 7: "after epoch 1"}
        assert again.where == inside.get(at, again.where)
    again.fit(items, 2)
    assert same_weights(whole.model, again.model)
    for a, b in zip(whole.history, again.history, strict=True):
        assert (a["epoch"], a["loss"]) == (b["epoch"], b["loss"])
    x, y = (dict(tree_flatten(t.average.values)) for t in (whole, again))
    assert all(mx.array_equal(x[k], y[k]).item() for k in x)


def test_a_run_that_ends_before_its_checkpoint_writes_its_files_again(tmp_path):
    seen = []

    def killed(row):
        seen.append(row["epoch"])
        if seen == [1, 2]:
            raise Killed

    with pytest.raises(Killed):
        cut(tmp_path, None).fit(scans(2), 2, on_checkpoint=killed)
    again = cut(tmp_path, None)
    again.resume()
    again.fit(scans(2), 2, on_checkpoint=killed)
    assert seen == [1, 2, 2]


def test_clipping_bounds_the_step():
    item = scans(1)
    before = network()
    moved = {}
    for limit in (None, 1e-3):
        trainer = training.Trainer(
            network(), mlx.optimizers.SGD(1.0), loss_of, quiet=True, clip_norm=limit
        )
        trainer.step(item)
        a, b = weights_of(before), weights_of(trainer.model)
        trained = [k for k in a if "running_" not in k]
        moved[limit] = math.sqrt(sum(((a[k] - b[k]) ** 2).sum() for k in trained))
    assert moved[1e-3] <= 1.01e-3 and moved[None] > 1e-2


def test_mixed_precision_trains():
    plain = fit(scans(), epochs=4).history
    for name in ("bfloat16", "float16"):
        trainer = fit(scans(), epochs=4, precision=name)
        assert all(v.dtype == mx.float32 for _, v in tree_flatten(trainer.model.parameters()))
        assert abs(trainer.history[-1]["loss"] - plain[-1]["loss"]) < 0.15
        assert trainer.history[-1]["loss"] < trainer.history[0]["loss"]


def test_norms_keep_their_weights_in_mixed_precision():
    """A norm reads float32 weights beside 16-bit rows; everything else is cast."""
    net = models.MinkUNet(4, 3, depth=14, width=4)
    net.more = [nn.LayerNorm(4), nn.RMSNorm(4), nn.Linear(4, 4)]
    cast = dict(tree_flatten(Precision("bfloat16").cast(net, net.trainable_parameters())))
    kept = {name for name, a in cast.items() if a.dtype == mx.float32}
    norms = {name for name, m in net.named_modules() if type(m).__name__.endswith("Norm")}
    assert kept == {name for name in cast if name.rpartition(".")[0] in norms}
    assert {"more.0.weight", "more.0.bias", "more.1.weight"} <= kept
    assert all(a.dtype == mx.bfloat16 for name, a in cast.items() if name not in kept)
    x = SparseTensor(mx.zeros((1, 4), mx.int32), mx.ones((1, 4), mx.bfloat16))
    assert all(norm(x).dtype == mx.bfloat16 for norm in net.more[:2])


def test_loss_scale_falls_and_grows():
    precision = Precision("float16")
    first = precision.scale
    assert not precision.usable({"a": mx.array([1.0, float("inf")])})
    assert precision.scale == first / 2 and precision.left_out == 1
    for _ in range(500):
        assert precision.usable({"a": mx.array([1.0])})
    assert precision.scale == first
    copy = Precision("float16")
    copy.state = precision.state
    assert copy.state == precision.state
    with pytest.raises(ValueError, match="found 'int8', expected one of float32"):
        Precision("int8")


def test_checkpointed_stages_change_nothing():
    items = scans(2)
    plain, staged = network(), network()
    count = checkpoint_stages(staged)
    assert count == 8
    for model in (plain, staged):
        model.train()
    found = [
        mlx.nn.value_and_grad(m, lambda s, m=m: loss_of(m, s))(items[0]) for m in (plain, staged)
    ]
    mx.eval(found, plain.parameters(), staged.parameters())
    assert abs(found[0][0].item() - found[1][0].item()) < 1e-6
    a, b = (dict(tree_flatten(g)) for _, g in found)
    assert a.keys() == b.keys()
    assert max(mx.abs(a[k] - b[k]).max().item() for k in a) < 1e-5
    assert same_weights(plain, staged, 1e-6)  # running statistics moved once
    plain.eval(), staged.eval()
    assert mx.allclose(plain(items[1].tensor).feats, staged(items[1].tensor).feats, 1e-5, 1e-5)


def test_early_stop():
    values = iter([0.1, 0.5, 0.4, 0.45, 0.9])
    trainer = training.Trainer(
        network(), training.adamw(1e-3, 9), loss_of, quiet=True, patience=2, monitor="score"
    )
    trainer.fit(scans(1), 9, validate=lambda model, ranks: {"score": next(values)})
    assert [row["score"] for row in trainer.history] == [0.1, 0.5, 0.4, 0.45]
    lost = training.Trainer(network(), training.adamw(1e-3, 9), loss_of, quiet=True, patience=1)
    with pytest.raises(training.TrainingError, match="validation gave no 'mean_iou'"):
        lost.fit(scans(1), 3, validate=lambda model, ranks: {"score": 1.0})


def test_views_and_windows():
    cloud = Clouds(1, n=2000)[0]
    model = network()
    model.eval()
    plain = probabilities(model, PIPELINE, cloud)
    assert plain.shape == (2000, 2) and np.abs(plain.sum(1) - 1).max() < 1e-5
    whole = probabilities(model, PIPELINE, cloud, window=100.0)
    assert np.array_equal(plain, whole)  # one window holds all
    parts = list(windows(cloud, 4.0))
    assert len(parts) > 4 and set(np.concatenate(parts).tolist()) == set(range(2000))
    assert all((np.ptp(cloud.points[rows, :2], axis=0) <= 4.0 + 1e-5).all() for rows in parts)
    cut = probabilities(model, PIPELINE, cloud, window=4.0)
    assert np.abs(cut.sum(1) - 1).max() < 1e-5
    views = standard_views()
    assert len(views) == 8 and all(abs(abs(np.linalg.det(v)) - 1) < 1e-12 for v in views)
    several = probabilities(model, PIPELINE, cloud, views=views)
    by_hand = np.mean([probabilities(model, PIPELINE, cloud, views=[v]) for v in views], axis=0)
    assert np.abs(several - by_hand).max() < 1e-5
    bad = PointCloud(np.concatenate([cloud.points, np.full((1, 3), np.nan, np.float32)]))
    assert not probabilities(model, PIPELINE, bad)[-1].any()
    assert predict_points(model, PIPELINE, cloud).tolist() == plain.argmax(1).tolist()


def test_windows_pass_over_empty_space():
    cloud = Clouds(1, n=500)[0]
    points = np.concatenate([cloud.points, [[1e7, 2e7, 0]]])
    parts = list(windows(PointCloud(points), 4.0, 0.5))
    assert set(np.concatenate(parts).tolist()) == set(range(501)) and len(parts) < 200
    for wrong in (np.array([[1e30, 0, 0]]), np.array([[0, 0, 0], [1, 1, 0]])):
        far = PointCloud(np.concatenate([cloud.points, wrong]))
        with pytest.raises(ValueError, match=r"more than 2\^53 windows; give a larger window"):
            next(windows(far, 1e-45 if len(wrong) > 1 else 10.0))


@pytest.mark.parametrize("overlap", [0.0, 0.3, 0.75])
def test_windows_hold_what_their_bounds_say(overlap):
    """Every window is tried, one by one, as the definition says."""
    rng = np.random.default_rng(8)
    p = rng.uniform(0, [9, 5, 1], (300, 3)).round(1)  # many points on borders
    step, low = 1.2 * (1 - overlap), p.min(0)
    xy, expected = p[:, :2] - low[:2], []
    last = np.maximum(np.ceil((xy.max(0) - 1.2) / step), 0).astype(int)
    for i in range(last[0] + 1):
        for j in range(last[1] + 1):
            begin = np.array([i, j]) * step
            end = np.where([i, j] < last, begin + 1.2, np.inf)
            rows = np.flatnonzero(((xy >= begin) & (xy <= end)).all(1))
            expected += [rows.tolist()] if len(rows) else []
    assert [rows.tolist() for rows in windows(PointCloud(p), 1.2, overlap)] == expected


def test_average_leaves_codes_alone():
    net = mlx.nn.Sequential(nn.QuantizedSubmConv3d(32, 8, 3, bits=4))
    x = SparseTensor(mx.array([[0, 0, 0, 0]]), mx.ones((1, 32)))
    average = WeightAverage(net, 0.9)
    average.update()
    with average.applied() as applied:
        assert mx.array_equal(applied(x).feats, net(x).feats)
    half = mlx.nn.Linear(2, 1)
    half.set_dtype(mx.float16)
    with WeightAverage(half, 0.9).applied():
        assert half.weight.dtype == mx.float16


def test_callbacks_name_the_missing_package(monkeypatch):
    import sys

    from mlx_lattice.training import callbacks

    monkeypatch.setitem(sys.modules, "tensorboard.summary", None)
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ImportError, match="pip install tensorboard"):
        callbacks.TensorBoard("x")
    with pytest.raises(ImportError, match="pip install wandb"):
        callbacks.WeightsAndBiases("x")
