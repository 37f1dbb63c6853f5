"""Tiles give the bits of the whole run, and what is not local is refused by name."""

import mlx.core as mx
import mlx.nn as mnn
import mlx_lattice as ml
import numpy as np
import pytest
from mlx.utils import tree_map
from mlx_lattice import SparseTensor, _ext, models, nn, points, training
from mlx_lattice.programs.tiles import receptive_field, tile_program


def random_statistics(net):
    """The network in evaluation mode, with norms that do something."""
    rng = np.random.default_rng(0)
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm):
            n = layer.running_mean.shape[0]
            layer.running_mean = mx.array(rng.normal(0, 0.3, n).astype(np.float32))
            layer.running_var = mx.array(rng.uniform(0.5, 2, n).astype(np.float32))
    return net.eval()


class Second(models.SecondBackbone):
    def __call__(self, x):
        return self.sparse(x)


NETWORKS = {
    "minkunet14": lambda: models.MinkUNet(4, 5, depth=14, width=8),
    "minkunet18": lambda: models.MinkUNet(4, 5, depth=18, width=4),
    "minkunet34": lambda: models.MinkUNet(4, 5, depth=34, width=4),
    "sparseresnet18": lambda: models.SparseResNet(4, None, depth=18, width=8),
    "second": lambda: Second(4, (4096, 4096, 64), (8, 8, 8, 8), 8),
}
# Of networks on aligned tiles, as the interval rules give them by hand: before, after, alignment.
FIELDS = {
    "minkunet14": ((94, 94, 94), (94, 94, 94), (16, 16, 16)),
    "minkunet18": ((186, 186, 186), (186, 186, 186), (16, 16, 16)),
    "minkunet34": ((354, 354, 354), (354, 354, 354), (16, 16, 16)),
    "sparseresnet18": ((121, 121, 121), (121, 121, 121), (16, 16, 16)),
    "second": ((38, 38, 46), (31, 31, 31), (8, 8, 16)),
}


@pytest.fixture(scope="module")
def street():
    """A wavy ground with walls, 900 x 300 cells, in no order."""
    rng = np.random.default_rng(1)
    xy = rng.integers(0, (900, 300), (30000, 2))
    z = (3 * np.sin(xy[:, 0] / 40) + 3).astype(np.int32) + 5 * (xy[:, 1] % 64 == 0)
    coords = np.unique(np.c_[np.zeros(len(xy)), xy, z].astype(np.int32), axis=0)
    coords[:, 1:3] -= 200
    coords = coords[rng.permutation(len(coords))]
    feats = rng.normal(size=(len(coords), 4)).astype(np.float32)
    return SparseTensor(mx.array(coords), mx.array(feats))


def same_bits(a, b):
    assert a.stride == b.stride
    assert np.array_equal(np.array(a.coords), np.array(b.coords))
    bits = [np.array(t.feats.astype(mx.float32)).view(np.uint32) for t in (a, b)]
    return np.array_equal(*bits)


@pytest.mark.parametrize("name", NETWORKS)
def test_receptive_field(name):
    program = tile_program(NETWORKS[name]().eval(), 4)
    field = receptive_field(program)
    assert (field.before, field.after, field.alignment) == FIELDS[name]


@pytest.mark.parametrize("name", NETWORKS)
def test_tiles_have_the_bits_of_the_whole_run(name, street):
    net = random_statistics(NETWORKS[name]())
    whole = net(street)
    for tile, origin in ((256, (0, 0, 0)), (112, (37, -5, 0))):
        tiled = training.predict_tiled(net, street, tile=tile, origin=origin)
        assert same_bits(tiled, whole), (name, tile, origin)


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_tiles_of_16_bit_networks(dtype, street):
    net = random_statistics(NETWORKS["minkunet14"]())
    net.set_dtype(dtype)
    x = street.replace(feats=street.feats.astype(dtype))
    assert same_bits(training.predict_tiled(net, x, tile=200), net(x))


def test_a_program_knows_a_tight_halo():
    """One row less than the halo on a dense line changes the output; the halo does not."""
    rng = np.random.default_rng(2)

    def positive(p):  # so that no ReLU hides what is far
        return mx.array(0.3 * np.abs(rng.normal(size=p.shape)).astype(np.float32))

    net = NETWORKS["minkunet14"]().eval()
    net.update(tree_map(lambda p: positive(p) if p.ndim > 1 else p, net.trainable_parameters()))
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm):
            layer.running_var = 100 * layer.running_var
    program = tile_program(net, 4)
    line = np.zeros((400, 4), np.int32)
    line[:, 1] = np.arange(400)
    feats = np.abs(rng.normal(size=(400, 4))).astype(np.float32)
    whole = np.array(net(SparseTensor(mx.array(line), mx.array(feats))).feats)[192:208]

    def output(before):
        rows = slice(192 - before, 400)
        x = SparseTensor(mx.array(line[rows]), mx.array(feats[rows]))
        return np.array(_ext.run_tile(program, x, (192, -16, -16), (208, 16, 16)).feats)

    assert np.array_equal(output(94), whole)
    assert not np.array_equal(output(93), whole)


def test_full_tiles_are_split_for_a_budget(street):
    net = random_statistics(NETWORKS["minkunet14"]())
    seen = []
    few = training.predict_tiled(net, street, tile=0, progress=lambda *n: seen.append(n))
    assert len(seen) == 1 and seen[0] == (len(street), len(street))
    many = training.predict_tiled(
        net, street, tile=0, memory="16 MB", progress=lambda *n: seen.append(n)
    )
    assert len(seen) > 3
    assert same_bits(few, many)
    with pytest.raises(ValueError, match=r"smallest tile .* larger voxels"):
        training.predict_tiled(net, street, memory="100 KB")


def test_no_rows():
    net = random_statistics(NETWORKS["minkunet14"]())
    x = SparseTensor(mx.zeros((0, 4), mx.int32), mx.zeros((0, 4)))
    assert training.predict_tiled(net, x).feats.shape == (0, 5)


def test_several_clouds_of_a_batch(street):
    net = random_statistics(NETWORKS["minkunet14"]())
    coords = np.array(street.coords)[:9000]
    coords[5000:, 0] = 1
    x = SparseTensor(mx.array(coords), street.feats[:9000])
    assert same_bits(training.predict_tiled(net, x, tile=160), net(x))


class BatchStatistics(models.MinkUNet):
    def __call__(self, x):
        y = super().__call__(x)
        return y.with_feats(y.feats - mx.mean(y.feats, axis=0))


class Reached(models.MinkUNet):
    def __init__(self):
        super().__init__(4, 3, depth=14, width=4)
        self.last = nn.Conv3d(3, 3, 3, 2, support="reached")

    def __call__(self, x):
        return self.last(super().__call__(x))


class Normalized(models.MinkUNet):
    def __init__(self):
        super().__init__(4, 8, depth=14, width=8)
        self.layer, self.rms = mnn.LayerNorm(8), mnn.RMSNorm(8)

    def __call__(self, x):
        y = super().__call__(x)
        return y.with_feats(self.rms(self.layer(y.feats)))


def test_norms_of_rows_of_mlx(street):
    net = random_statistics(Normalized())
    assert same_bits(training.predict_tiled(net, street, tile=160), net(street))


def test_networks_of_points_are_refused_by_name(street):
    for net in (points.DGCNN(4, 3), points.PointNet2(4, 3)):
        with pytest.raises(ValueError, match=f"{type(net).__name__} is not local"):
            training.predict_tiled(net, street)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (Reached, "conv"),
        (lambda: models.SparseResNet(4, 3, depth=14, width=8), "global_"),
        (lambda: models.WindowUNet(4, 3), "attention_windows"),
        (lambda: BatchStatistics(4, 3, depth=14, width=4), "mean@1"),
    ],
)
def test_what_is_not_local_is_refused_by_name(make, name, street):
    with pytest.raises(ValueError, match=f"line .*{name}.* is not local"):
        training.predict_tiled(make(), street)


def test_only_routes_whose_rows_stand_alone_run(street):
    net = random_statistics(NETWORKS["minkunet14"]())
    alone = {(r.operation, r.name): r.row_independent for r in ml.routes()}
    assert alone["conv", "cpu.tiles"] and not alone["conv", "cpu.buckets"]
    assert not alone["outer", "cpu.tiles"] and not alone["per_edge_apply", "cpu.pairs"]
    program = tile_program(net, 4)
    told = str(ml.explain(_ext.run_tile, program, street, (0, 0, -256), (64, 64, 256)))
    assert "tiled run" in told and "conv -> cpu.tiles" in told


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"tile": -1}, "tile"),
        ({"tile": (1, 2)}, "tile"),
        ({"memory": "many"}, "memory.*2 GB"),
        ({"memory": 0}, "memory"),
    ],
)
def test_mistakes_are_named(given, match, street):
    with pytest.raises((ValueError, TypeError), match=match):
        training.predict_tiled(models.MinkUNet(4, 3, depth=14, width=4), street, **given)
