"""Networks in exact integers: near the float network, equal after a file, refused when broken."""

import mlx.core as mx
import numpy as np
import pytest
from mlx_lattice import Program, SparseTensor, core, explain, models, nn
from mlx_lattice.models import _integer_checksum as whole
from mlx_lattice.models.integer import layer_errors, rounded


def scan(seed: int) -> SparseTensor:
    random = np.random.default_rng(seed)
    rows = np.unique(random.integers(0, 40, (700, 3)), axis=0)
    random.shuffle(rows)
    coords = np.concatenate([np.zeros((len(rows), 1)), rows], 1).astype(np.int32)
    feats = random.normal(size=(len(rows), 4)).astype(np.float32)
    return SparseTensor(mx.array(coords), mx.array(feats))


@pytest.fixture(scope="module")
def pair() -> tuple[models.MinkUNet, models.IntegerNetwork]:
    mx.random.seed(1)
    net = models.MinkUNet(4, 5, depth=14, width=8).eval()
    return net, models.quantize(net, [scan(1), scan(2)], mode="integer")


def test_near_the_float_network(pair):
    net, small = pair
    expected, found = np.array(net(scan(3)).feats), np.array(small(scan(3)).feats)
    assert found.dtype == np.float32
    assert np.abs(found - expected).max() < 0.1 * np.abs(expected).max()
    assert max(small.shares.values()) < 1


def test_equal_bits_after_a_file(pair, tmp_path):
    _, small = pair
    small.save(tmp_path / "integer.safetensors")
    again = models.load(tmp_path / "integer.safetensors")
    assert np.array_equal(np.array(small(scan(3)).feats), np.array(again(scan(3)).feats))


def test_a_file_that_breaks_the_lane_rule_is_refused(pair, tmp_path):
    _, small = pair
    path = tmp_path / "integer.safetensors"
    small.save(path)
    arrays = mx.load(str(path))
    name = "network.decoders.0.0.layers.0.conv.weight"
    arrays[name] = mx.full(arrays[name].shape, 127, mx.int8)
    mx.save_safetensors(str(path), arrays)
    with pytest.raises(ValueError, match=r"decoders\.0\.0\.layers\.0.*128"):
        models.load(path)


def relative(found: mx.array, expected: mx.array) -> float:
    return float(mx.linalg.norm(found - expected) / mx.linalg.norm(expected))


def settled(net: models.Model) -> models.Model:
    """Norms as after some training: running statistics of a scan, gains of all sizes."""
    net.train()
    for seed in range(8):
        mx.eval(net(scan(seed)))
        mx.eval(net.parameters())
    return net.eval()


def test_a_classifier():
    mx.random.seed(2)
    net = settled(models.SparseResNet(4, 3, depth=50, width=8))
    small = models.quantize(net, [scan(1), scan(2)])
    assert small(scan(3)).dtype == mx.float32
    assert relative(small(scan(3)), net(scan(3))) < 0.1
    assert small.network.pool._form["kind"] == "global_pool"


def test_the_backbone_of_second():
    mx.random.seed(3)
    net = settled(models.SecondBackbone(4, (40, 40, 40)))
    small = models.quantize(net, [scan(1)])
    assert relative(small(scan(3)), net(scan(3))) < 0.1
    assert set(small.shares) == {
        f"{n}.conv" for n in ["squeeze", *(f"levels.{i}.{j}" for i in range(4) for j in range(3))]
    }


@pytest.mark.parametrize("name", ["second_kitti", "voxelnext_nuscenes"])
def test_detectors(name):
    from mlx_lattice.models import detection

    mx.random.seed(4)
    columns = 4 if name == "second_kitti" else 5
    widths = (16, 16, 32, 32, 128) if name == "second_kitti" else None
    net = detection.Detector(name, in_channels=columns, widths=widths).eval()
    random = np.random.default_rng(0)
    low, high = np.array(net.settings.low), np.array(net.settings.high)
    places = random.uniform(low, low + (high - low) / 4, (2000, 3))
    points = np.concatenate([places, np.zeros((2000, columns - 3))], axis=1)
    frames = [mx.array(points.astype(np.float32))]
    small = models.quantize(net, [frames])
    assert all(n.startswith("backbone_3d.") for n in small.shares)
    assert len(small.shares) > 10


def test_a_transformer():
    mx.random.seed(5)
    sizes = {
        "stride": [2],
        "enc_depths": [1, 1],
        "enc_channels": [32, 64],
        "enc_num_head": [2, 4],
        "enc_patch_size": [64, 64],
        "dec_depths": [1],
        "dec_channels": [32],
        "dec_num_head": [2],
        "dec_patch_size": [64],
    }
    net = settled(models.PointTransformerV3(4, 5, **sizes))
    small = models.quantize(net, [scan(1), scan(2)])
    assert relative(small(scan(3)).feats, net(scan(3)).feats) < 0.1
    forms = {n: m._form for n, m in small.integer_layers().items()}
    assert forms["enc.0.blocks.0.mlp.first"]["table"]
    assert forms["enc.0.blocks.0.mlp.second"] == {
        "kind": "conv",
        "output": "float32",
        "input": "int8",
    }
    assert forms["enc.0.blocks.0.position.conv"]["input"] == "int8"
    assert "enc.0.blocks.0.attention.qkv" in forms


def test_a_percentile_clamps(pair):
    net, _ = pair
    steps = [rounded(net, [scan(1), scan(2)], q)[1].steps for q in (99.9, 100)]
    name = "encoder.stages.0.0.layers.0.conv"
    assert steps[0][name] < steps[1][name]


def test_errors_per_layer(pair):
    net, _ = pair
    made, rounding = rounded(net, [scan(1), scan(2)])
    errors = layer_errors(net, made, rounding, scan(1))
    assert set(errors) == set(made.shares)
    assert 0 < max(errors.values()) < 0.1


class Pooled(models.Model):
    """Convolution, pooling, convolution."""

    def __init__(self, mode: str = "max") -> None:
        super().__init__(mode=mode)
        self.one, self.norm1 = nn.SubmConv3d(4, 32), nn.BatchNorm(32)
        self.pool = nn.Pool3d(mode)
        self.two = nn.SubmConv3d(32, 5)

    def __call__(self, x: SparseTensor) -> SparseTensor:
        return self.two(self.pool(self.one.with_norm(x, self.norm1, relu=True)))


@pytest.mark.parametrize("mode", ["max", "sum", "avg"])
def test_pooling(mode):
    net = settled(Pooled(mode))
    small = models.quantize(net, [scan(1)])
    assert small.network.pool._form["kind"] == "pool"
    assert relative(small(scan(1)).feats, net(scan(1)).feats) < 0.03


class Gated(models.Model):
    """A sigmoid between two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.gate = nn.Linear(4, 32), nn.Linear(32, 5), nn.Sigmoid()

    def __call__(self, x: SparseTensor) -> SparseTensor:
        return self.two(self.gate(self.one(x)))


def test_sigmoid_is_a_table():
    net = Gated().eval()
    small = models.quantize(net, [scan(1)])
    assert small.network.one._form["table"]
    assert relative(small(scan(1)).feats, net(scan(1)).feats) < 0.03


def test_one_number_on_every_machine():
    found = whole.checksums()
    assert set(found.values()) == {whole.EXPECTED}, found
    assert {"cpu.tiles", "cpu.reference"} <= set(found)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_the_number_of_threads_changes_nothing(threads):
    before = core.thread_count()
    core.set_thread_count(threads)
    try:
        assert whole.checksum() == whole.EXPECTED
    finally:
        core.set_thread_count(before)


def test_explain_names_the_products(pair):
    _, small = pair
    told = explain(small, scan(1))
    rows = [route for operation, route in told.routes if operation == "integer_conv"]
    assert rows
    assert set(rows) <= {"cpu.vnni512", "cpu.vnni256", "cpu.avx2", "cpu.sdot", "cpu.tiles"}


def test_a_program_has_the_same_bits(pair, tmp_path):
    _, small = pair
    path = tmp_path / "integer.lattice.safetensors"
    small.export(path, scan(1))
    program = Program.load(path)
    found = program(scan(3))
    assert np.array_equal(np.array(found.feats), np.array(small(scan(3)).feats))


def test_a_program_that_breaks_the_lane_rule_is_refused(pair, tmp_path):
    _, small = pair
    path = tmp_path / "integer.lattice.safetensors"
    small.export(path, scan(1))
    arrays, notes = mx.load(str(path), return_metadata=True)
    name = next(n for n in arrays if n.endswith("decoders.0.0.layers.0.conv.weight"))
    arrays[name] = mx.full(arrays[name].shape, 127, mx.int8)
    mx.save_safetensors(str(path), arrays, notes)
    with pytest.raises(Exception, match="128"):
        Program.load(path)


def test_refusals(pair):
    net, _ = pair
    with pytest.raises(ValueError, match="mode must be"):
        models.quantize(net, [scan(1)], mode="int4")
    with pytest.raises(ValueError, match="at least one tensor"):
        models.quantize(net, [])
    with pytest.raises(ValueError, match="percentile"):
        models.quantize(net, [scan(1)], percentile=101)
    with pytest.raises(TypeError, match="network of models"):
        models.quantize(nn.Linear(4, 3), [scan(1)])
