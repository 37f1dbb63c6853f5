"""Geometry plans: training on a plan builds no relation.

Stored plans serve another process; hostile files raise ValueError.
"""

import mlx.core as mx
import mlx.nn
import mlx.optimizers as optim
import numpy as np
import pytest
from mlx_lattice import ops
from mlx_lattice.core import GeometryPlan
from test_models import NAMES, cloud, make, values


def builds(x):
    stats = x.coord_manager.stats()
    return stats["misses"], stats["coordinate_sets"], stats["evictions"]


@pytest.mark.parametrize("name", NAMES)
def test_training_on_a_plan_builds_no_relation(name):
    model, x = make(name), cloud((300, 200))
    plan = model.plan(x)
    assert model.training and len(plan.relations) > 4
    before, size = builds(x), plan.nbytes
    goal = mx.zeros(values(model(x)).shape)
    step = mlx.nn.value_and_grad(model, lambda m, x: mx.mean((values(m(x)) - goal) ** 2))
    optimizer = optim.SGD(learning_rate=1e-3)
    for _ in range(2):
        _, grads = step(model, plan.bind(mx.random.normal(x.feats.shape)))
        optimizer.update(model, grads)
        mx.eval(model.parameters())
    assert builds(x) == before
    assert plan.nbytes == size  # no reversed list, no tile was made on the way either


def test_plan_leaves_the_model_alone():
    model, x = make("unet"), cloud()
    model.encoder.eval()
    mean = model.encoder.stem.norm.running_mean
    model.plan(x)
    assert (
        model.training
        and not model.encoder.training
        and model.encoder.stem.norm.running_mean is mean
    )


def test_bound_tensor_is_the_same_scan():
    model, x = make("unet"), cloud((50, 0, 20))
    model.eval()
    plan = model.plan(x)
    y = plan.bind(x.feats)
    assert y.same_coords(x) and y.batch_counts == x.batch_counts and plan.coord_key == x.coord_key
    assert mx.array_equal(model(y).feats, model(x).feats)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sizes", [(80, 60), (0, 3), (0,)])
def test_save_and_load(name, sizes, tmp_path):
    model, x = make(name), cloud(sizes)
    model.eval()
    path = tmp_path / "scan.plan"
    plan = model.plan(x)
    plan.save(path)
    loaded = GeometryPlan.load(str(path))
    assert mx.array_equal(loaded.coords, x.coords) and loaded.batch_counts == plan.batch_counts
    assert repr(loaded) == repr(plan)
    y = loaded.bind(x.feats)
    before = builds(y)
    assert mx.array_equal(values(model(y)), values(model(x)))
    assert builds(y) == before and y.coord_manager is not x.coord_manager


def test_inference_plan_is_smaller():
    model = make("unet")
    assert model.plan(cloud(), gradients=False).nbytes < model.plan(cloud()).nbytes


def test_hostile_files(tmp_path):
    path = tmp_path / "scan.plan"
    make("unet").plan(cloud((4,))).save(path)
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    for bad in [
        b"",
        b"MLATPLAN",
        good[:-1],
        good + b"\0",
        b"x" + good[1:],
        good[:9] + b"\2" + good[10:],
    ]:
        path.write_bytes(bad)
        with pytest.raises(ValueError, match=r"\[GeometryPlan.decode\] data"):
            GeometryPlan.load(path)
    for _ in range(300):
        broken = bytearray(good)
        broken[rng.integers(len(good))] ^= 1 << rng.integers(8)
        with pytest.raises(ValueError, match=r"\[GeometryPlan.decode\] data"):
            GeometryPlan.decode(bytes(broken))
    with pytest.raises(FileNotFoundError):
        GeometryPlan.load(tmp_path / "none")
    with pytest.raises(ValueError, match=r"\[GeometryPlan.bind\] feats must have shape \(4, C\)"):
        GeometryPlan.decode(good).bind(mx.zeros((3, 3)))


def test_any_function_can_be_planned():
    """record() takes what a user's own network asked for, also coordinates that were given."""
    x = cloud((60,))
    target = mx.array([[0, 1, 2, 3], [0, 4, 4, 4]], mx.int32)
    weight = mx.ones((2, 3, 3, 3, 3))
    y = ops.conv3d(x, weight, coordinates=target)
    plan = GeometryPlan.record(x)
    assert len(plan.relations) == 1 and plan.relations[0].n_out == 2
    again = GeometryPlan.decode(plan.encode())
    assert again.relations[0].edge_count == plan.relations[0].edge_count and y.active_count == 2
