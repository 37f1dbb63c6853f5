"""What one training step and one inference of MinkUNet-18 launch, counted on a GPU that counts.

The scene is a rough floor of 316 x 316 = 99,856 voxels, features float16. Run with -s to see the
tables; docs/metal.md keeps them.
"""

import threading

import mlx.core as mx
import mlx_lattice as ml
import numpy as np
import pytest
from metal.counting import counting, tile_use
from mlx_lattice import models, training

SIDE, CLASSES = 316, 20


def floor(side=SIDE, channels=4):
    """Heights differ by up to two voxels between neighbors, as on ground that a scanner sees."""
    x, y = np.meshgrid(np.arange(side), np.arange(side), indexing="ij")
    z = np.rint(1.5 * np.sin(x / 3.0) + 1.5 * np.cos(y / 4.0)).astype(np.int64)
    coords = np.stack([np.zeros_like(x), x, y, z], -1).reshape(-1, 4).astype(np.int32)
    order = np.random.default_rng(0).permutation(len(coords))
    feats = np.random.default_rng(1).standard_normal((len(coords), channels), np.float32)
    return ml.SparseTensor(mx.array(coords[order]), mx.array(feats))


def scan(side=SIDE):
    x = floor(side)
    labels = mx.array(np.random.default_rng(2).integers(0, CLASSES, len(x)).astype(np.int32))
    return training.Scan(x, labels, mx.arange(len(x)))


def trainer(precision="float16"):
    net = models.MinkUNet(4, CLASSES, depth=18)
    mx.eval(net.parameters())
    made = training.Trainer(
        net,
        training.adamw(1e-3, steps=10),
        training.segmentation_loss(),
        precision=precision,
        quiet=True,
    )
    mx.eval(made.optimizer.state)
    net.train()
    return made


@pytest.fixture(scope="module")
def steps():
    """Two training steps on a prepared plan: the work of the second, and bytes of views."""
    items = [scan(), scan()]
    with counting():
        made = trainer()
        plans = [made.model.plan(item.tensor) for item in items]
        made.step([items[0]])
    before = [plan.nbytes for plan in plans]
    with counting() as work:
        first = made._start([items[0]])
        second = made._start([items[1]])
        made._finish(first)
        made._finish(second)
    return work, before, [plan.nbytes for plan in plans]


def test_a_training_step(steps):
    work, _, _ = steps
    print(f"\ntwo training steps, float16\n{work.table()}")
    assert len(work) / 2 <= 1100
    norms = work.named(r"^gpu\.norm_")
    assert len(norms) / 2 <= 6 * 48
    assert len(work.named(r"^gpu\.adamw")) == 2 * 146
    assert len(work.named(r"^gpu\.running")) == 2 * 48
    uses = [tile_use(name, shape) for name, _, _, shape in work.rows]
    assert min(use for use in uses if use) >= 0.6


def test_no_view_is_built_on_a_prepared_plan(steps):
    _, before, after = steps
    assert after == before


def test_a_step_starts_once_and_waits_once(steps):
    work, _, _ = steps
    assert (work.starts, work.waits) == (2, 2)


def test_a_step_is_awaited_while_the_next_one_runs(monkeypatch):
    """The order of starts and waits of an epoch, and which losses they give."""
    made, items, seen = trainer("float32"), [scan(12) for _ in range(3)], []
    start, finish = made._start, made._finish
    monkeypatch.setattr(made, "_start", lambda *a: seen.append("start") or start(*a))
    monkeypatch.setattr(made, "_finish", lambda *a: seen.append("wait") or finish(*a))
    made.fit(items, epochs=1)
    assert seen == ["start", "start", "wait", "start", "wait", "wait"]


def test_an_inference():
    x, net = floor(), models.MinkUNet(4, CLASSES, depth=18)
    net.set_dtype(mx.float16)
    x = x.astype(mx.float16)
    mx.eval(net.parameters())
    with counting():
        net.eval()
        net.plan(x, gradients=False)
    with counting() as work:
        mx.eval(net(x).feats)
    print(f"\ninference, float16\n{work.table()}")
    assert len(work) <= 250
    # Norm, residual and ReLU happen where the tile is stored; 1x1x1 layers are products of MLX.
    assert len(work.named(r"^gpu\.norm_")) <= 7


def test_planning_starts_nothing():
    """In a thread of a loader, with weights that nobody has computed yet."""
    found = []
    fresh = models.MinkUNet(4, CLASSES, depth=14, width=8)  # lazy weights
    x = floor(20)

    def plan():
        try:
            found.append(fresh.plan(x))
        except Exception as error:
            found.append(error)

    with counting() as work:
        thread = threading.Thread(target=plan)
        thread.start()
        thread.join()
    assert isinstance(found[0], ml.core.GeometryPlan), found[0]
    assert (work.starts, work.waits, len(work)) == (0, 0, 0)
