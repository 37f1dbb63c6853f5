"""train_pointcnn: the loss falls, evaluation, checkpoints, same bits after resume, errors."""

import mlx.core as mx
import mlx.nn
import mlx.optimizers as optim
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lattice import points
from mlx_lattice.training.trainer import TrainingError


class Net(mlx.nn.Module):
    """Mean of an encoder over each cloud, with dropout, so that random numbers matter."""

    def __init__(self):
        super().__init__()
        self.encoder = points.PointCNNEncoder(2, 3, 8, k=4, hidden=8)
        self.drop, self.head = mlx.nn.Dropout(0.1), mlx.nn.Linear(8, 2)

    def __call__(self, positions, features=None, lengths=None):
        if isinstance(positions, points.PointCloudBatch):
            positions, lengths = positions.positions, positions.lengths
        y = self.drop(self.encoder(positions, positions, lengths))
        return self.head(points.segment_reduce(y, lengths, "mean"))


def loader(count=6, seed=0, whole=False):
    """Flat clouds against long ones."""
    rng = np.random.default_rng(seed)
    batches = []
    for _ in range(count):
        labels, clouds = rng.integers(0, 2, 8), []
        for label in labels:
            clouds.append(
                mx.array(
                    (
                        rng.normal(size=(rng.integers(5, 12), 3))
                        * ([1, 1, 0.1], [0.1, 0.1, 1])[label]
                    ).astype(np.float32)
                )
            )
        b = points.PointCloudBatch.from_list(clouds)
        parts = (
            {"batch": b}
            if whole
            else {"positions": b.positions, "features": None, "lengths": b.lengths}
        )
        batches.append({**parts, "labels": mx.array(labels)})
    return batches


def loss_fn(scores, labels):
    return mlx.nn.losses.cross_entropy(scores, labels, reduction="mean")


def run(epochs, **options):
    mx.random.seed(5)
    model = Net()
    history = points.train_pointcnn(
        model, loader(), optim.Adam(1e-2), loss_fn, epochs, **{"log": None, **options}
    )
    return model, history


def test_loss_falls_and_is_reported():
    lines = []
    model, history = run(6, eval_loader=loader(3, 9, whole=True), log=lines.append)
    assert [row["epoch"] for row in history] == [1, 2, 3, 4, 5, 6] and len(lines) == 6
    assert history[-1]["loss"] < 0.7 * history[0]["loss"] and history[-1]["eval_accuracy"] > 0.7
    assert not model.training and "eval_loss" in lines[0]
    row = points.evaluate(model, loader(3, 9), loss_fn)
    assert row["loss"] == pytest.approx(history[-1]["eval_loss"], rel=1e-5)


def test_resume_gives_the_same_bits(tmp_path):
    path = tmp_path / "run" / "c.safetensors"
    whole, history = run(4)
    run(2, checkpoint=path)
    assert sorted(p.name for p in path.parent.iterdir()) == ["c.safetensors"]
    with pytest.raises(TrainingError, match="was started with seed 0, found 7"):
        run(4, checkpoint=path, resume=True, seed=7)
    again, rest = run(4, checkpoint=path, resume=True)
    assert [r["loss"] for r in rest] == [r["loss"] for r in history]
    for (name, a), (_, b) in zip(
        tree_flatten(whole.parameters()), tree_flatten(again.parameters())
    ):
        assert mx.array_equal(a, b), name


def test_non_finite_loss_keeps_the_weights():
    model = Net()
    before = dict(tree_flatten(model.parameters()))
    with pytest.raises(TrainingError, match="the loss is nan in epoch 1, batch 1"):
        points.train_pointcnn(
            model, loader(1), optim.Adam(1e-2), lambda y, t: y.sum() * float("nan"), 1, log=None
        )
    assert all(
        mx.array_equal(before[name], value) for name, value in tree_flatten(model.parameters())
    )


def test_other_forward_and_errors(tmp_path):
    model = Net()
    seen = []

    def forward(m, batch):
        seen.append(1)
        return m(batch["positions"], lengths=batch["lengths"])

    points.train_pointcnn(model, loader(2), optim.SGD(1e-2), loss_fn, 1, forward=forward, log=None)
    assert len(seen) >= 2
    with pytest.raises(ValueError, match="read only once"):
        points.train_pointcnn(model, iter(loader(1)), optim.SGD(1e-2), loss_fn, 2, log=None)
    with pytest.raises(ValueError, match=r"must end in .safetensors"):
        points.train_pointcnn(
            model, loader(1), optim.SGD(1e-2), loss_fn, 1, checkpoint=tmp_path / "a.npz", log=None
        )
    with pytest.raises(ValueError, match="needs checkpoint"):
        points.train_pointcnn(model, loader(1), optim.SGD(1e-2), loss_fn, 1, resume=True, log=None)
    broken = tmp_path / "b.safetensors"
    broken.write_bytes(b"nothing")
    with pytest.raises(ValueError, match="not a checkpoint"):
        points.train_pointcnn(
            model, loader(1), optim.SGD(1e-2), loss_fn, 1, checkpoint=broken, resume=True, log=None
        )
