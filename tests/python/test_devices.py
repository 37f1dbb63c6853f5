"""async_eval(): work on a GPU starts while the program goes on. --device of the commands."""

import contextlib

import mlx.core as mx
import mlx_lattice as ml
import numpy as np
import pytest
from metal.host import standing_in
from mlx_lattice import _ext, cli, devices, models, ops, samples
from mlx_lattice._explain import SelftestReport
from mlx_lattice.cli import options


@pytest.fixture
def started(monkeypatch):
    """The arrays that were handed over."""
    arrays = []
    monkeypatch.setattr(devices, "start_on_gpu", arrays.extend)
    return arrays


@pytest.fixture
def as_on_a_gpu():
    """A host makes every stream count as one of a GPU; no kernel of the library runs here."""
    with standing_in(lambda launch, _: pytest.fail(f"{launch.name} must not run")):
        yield


def test_nothing_starts_on_the_cpu():
    with ml.on(mx.cpu):
        assert _ext.start_on_gpu([mx.zeros(3)]) is False


def test_features_start(as_on_a_gpu, started):
    x = ops.relu(samples.tensor())
    assert ml.async_eval(x) is x
    assert [a.shape for a in started] == [x.feats.shape]
    assert _ext.start_on_gpu(started) is True


def test_compile_and_gradients(as_on_a_gpu):
    x = samples.tensor()

    def loss(feats):
        return ml.async_eval(ops.relu(x.replace(feats=feats))).feats.sum()

    want = mx.maximum(x.feats, 0).sum().item()
    assert mx.compile(loss)(x.feats).item() == pytest.approx(want)
    value, gradient = mx.value_and_grad(loss)(x.feats)
    assert value.item() == pytest.approx(want)
    np.testing.assert_array_equal(np.array(gradient), np.array(x.feats > 0))
    assert mx.vmap(lambda a: ml.async_eval(a) * 2)(x.feats).shape == x.feats.shape


@pytest.mark.parametrize(
    ("build", "levels"),
    [
        (lambda c: models.MinkUNet(c, 3, depth=14, width=8), 9),
        (lambda c: models.SparseResNet(c, depth=14, width=8), 5),
        (lambda c: models.SecondBackbone(c, (64, 64, 32)).sparse, 4),
    ],
    ids=["MinkUNet", "SparseResNet", "SecondBackbone"],
)
def test_networks_start_each_level(started, build, levels):
    x = samples.tensor()
    mx.random.seed(0)
    network = build(x.feats.shape[1])
    result = network(x).feats
    assert len(started) == levels
    assert mx.isfinite(result).all()


@pytest.mark.parametrize(
    "command",
    [
        ["selftest", "--quick"],
        ["demo", "--quick"],
        ["train", "nothing.ply", "--voxel", "1", "--output", "run"],
        ["predict", "run", "scan.ply", "out.ply"],
        ["bench", "conv"],
    ],
    ids=lambda c: c[0],
)
def test_commands_take_a_device(command, capsys):
    if mx.is_available(mx.gpu):
        pytest.skip("this machine has a GPU")
    assert cli.main([*command, "--device", "gpu"]) == 1
    assert "found no GPU" in capsys.readouterr().err


def test_a_command_runs_on_its_device(monkeypatch, capsys):
    """bench takes the option before and behind its topic."""
    chosen = []
    monkeypatch.setattr(options, "on", lambda d: chosen.append(d) or contextlib.nullcontext())
    for module in ("routes.selftest", "bench.conv.bench_conv"):
        monkeypatch.setattr(f"mlx_lattice.cli.{module}", lambda *_: SelftestReport([]))
    for command in (
        ["selftest", "--device", "cpu"],
        ["bench", "--device", "cpu", "conv"],
        ["bench", "conv", "--device", "cpu"],
    ):
        cli.main(command)
    cli.main(["bench", "conv"])
    assert chosen == [mx.cpu] * 3


def test_memory_comes_back():
    """Of results through MLX's own call; of kernels too through ours."""
    rows = np.stack(np.meshgrid([0], *[np.arange(20)] * 3, indexing="ij"), -1).reshape(-1, 4)
    x = ml.SparseTensor(mx.array(rows.astype(np.int32)), mx.ones((8000, 32)))
    weight = mx.ones((64, 3, 3, 3, 32))
    for clear in (mx.clear_cache, ml.clear_cache):
        mx.eval(ops.subm_conv3d(x, weight).feats)
        clear()
        before = mx.get_active_memory()
        many = [ops.subm_conv3d(x, weight * i).feats for i in range(10)]
        mx.eval(many)
        assert mx.get_active_memory() - before >= 10 * 8000 * 64 * 4
        del many
        clear()
        assert mx.get_active_memory() - before < 1 << 20 and mx.get_cache_memory() == 0
