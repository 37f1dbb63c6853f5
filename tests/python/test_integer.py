"""Networks in exact integers: near the float network, equal after a file, refused when broken."""

import mlx.core as mx
import numpy as np
import pytest
from mlx_lattice import SparseTensor, models


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
    name = "network.decoders.0.0.layers.0.weight"
    arrays[name] = mx.full(arrays[name].shape, 127, mx.int8)
    mx.save_safetensors(str(path), arrays)
    with pytest.raises(ValueError, match=r"decoders\.0\.0\.layers\.0.*128"):
        models.load(path)


def test_refusals(pair):
    net, _ = pair
    with pytest.raises(ValueError, match="mode must be"):
        models.quantize(net, [scan(1)], mode="int4")
    with pytest.raises(ValueError, match="at least one tensor"):
        models.quantize(net, [])
    with pytest.raises(ValueError, match="MinkUNet"):
        models.quantize(models.SparseResNet(4, 3, depth=14, width=8), [scan(1)])
