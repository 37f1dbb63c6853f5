"""What one training step and one inference of MinkUNet-18 launch, counted on a GPU that counts.

The scene is a rough floor of 316 x 316 = 99,856 voxels, features float16. Run with -s to see the
tables; docs/metal.md keeps them.
"""

import re
import threading

import mlx.core as mx
import mlx_lattice as ml
import numpy as np
import pytest
from metal.counting import counting, tile_use
from metal.step import CLASSES, floor, scan, trainer
from mlx_lattice import models


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
    assert len(work) / 2 <= 1050
    assert work.bytes / 2 <= 6.6e9
    assert len(work.named(r"^gpu\.norm_")) / 2 <= 6 * 48
    assert len(work.named(r"^gpu\.adamw")) == 2 * 146
    assert len(work.named(r"^gpu\.running")) == 2 * 48
    tiles = [row for row in work.rows if tile_use(row)]
    # Weight gradients of the first layer and of the head: 4 and 20 of 32 channels on one side.
    assert {tile_use(row) for row in tiles} == {4 / 32, CLASSES / 32, 1.0}
    assert {tile_use(row) for row in tiles if "conv" in row[0]} == {1.0}


def bytes_per_value(rows):
    """The most that one of these launches moves for a value of its result."""
    return max((read + written) / np.prod(shape) for _, read, written, shape, _ in rows)


def test_bytes_of_norms_and_of_the_optimizer(steps):
    """Of one value; parts and channels are few beside the rows of a norm."""
    work, _, _ = steps
    large = [row for row in work.rows if row[1] > 2e6]
    named = lambda name: [row for row in large if re.fullmatch(rf"gpu\.norm_{name}(_by8)?", row[0])]

    def read(name):  # of x
        return max(row[1] / (2 * np.prod(row[4][0])) for row in named(name))

    # Forward 6 bytes, with a residual 8; backward 14, with a residual 16.
    assert 2 * read("parts") + bytes_per_value(named("apply_relu")) <= 6.1
    assert 2 * read("parts") + bytes_per_value(named("apply_add_relu")) <= 8.1
    slopes = 2 * read("slope_parts_relu")
    assert slopes + bytes_per_value(named("slope_apply_relu")) <= 14.1
    assert slopes + bytes_per_value(named("slope_apply_relu_keep")) <= 16.1
    assert bytes_per_value([row for row in large if row[0] == "gpu.adamw"]) <= 28.1


def test_no_view_is_built_on_a_prepared_plan(steps):
    _, before, after = steps
    assert after == before


def test_a_step_starts_once_and_waits_once(steps):
    work, _, _ = steps
    assert (work.starts, work.waits, work.hidden) == (2, 2, 0)


@pytest.mark.parametrize(
    ("precision", "options"),
    [("float32", {}), ("bfloat16", {}), ("float16", {"average": 0.99, "clip_norm": 1.0})],
)
def test_one_wait_with_every_option(precision, options):
    items = [scan(24), scan(24)]
    with counting() as work:
        made = trainer(precision, **options)
        before = work.starts, work.waits
        for item in items:
            made._finish(made._start([item]))
    assert (work.starts - before[0], work.waits - before[1], work.hidden) == (2, 2, 0)


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
    assert (work.starts, work.waits, work.hidden, len(work)) == (0, 0, 0, 0)
