"""Point Transformer V3 against recorded runs of the original: every intermediate within 2e-5.

goldens/ptv3_tiny.npz and ptv3_rpe.npz: the official Point Transformer V3 (commit 3229e9b) was run
on the CPU in evaluation mode with random weights. No code of theirs is here. Orders, inverses and
paddings are compared exactly.
"""

import json
from pathlib import Path

import mlx.core as mx
import mlx.nn
import mlx.optimizers as optim
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lattice import SparseTensor, models, ops
from mlx_lattice.models import PointTransformerV3, convert

FOLDER = Path(__file__).with_name("goldens")
GIVEN = ("order", "stride", "enc_num_head", "dec_num_head", "enc_patch_size", "dec_patch_size")
TINY = {
    "enc_depths": (1, 1),
    "enc_channels": (16, 32),
    "enc_num_head": (2, 4),
    "enc_patch_size": (16, 16),
    "dec_depths": (1,),
    "dec_channels": (16,),
    "dec_num_head": (2,),
    "dec_patch_size": (16,),
    "stride": (2,),
}


class Recorded:
    def __init__(self, name):
        self.data = np.load(FOLDER / f"{name}.npz")
        self.config = json.loads(str(self.data["config"]))
        state = {k[6:]: self.data[k] for k in self.data.files if k.startswith("param/")}
        given = {key: self.config[key] for key in GIVEN}
        self.net = convert.from_pointcept(state, **given, enable_flash=False, conv_input="sum")
        cloud = np.searchsorted(self["offset"], np.arange(len(self["feat"])), side="right")
        coords = np.column_stack([cloud, self["grid_coord"]]).astype(np.int32)
        self.x = SparseTensor(coords, self["feat"])

    def __getitem__(self, key):
        return self.data[key]

    def __contains__(self, key):
        return key in self.data.files

    def near(self, key, found, bound=2e-5):
        expected, found = self[key], np.array(getattr(found, "feats", found))
        assert found.shape == expected.shape, key
        error = np.abs(found - expected).max() / np.abs(expected).max()
        assert error < bound, f"{key}: {error:.2e}"


@pytest.fixture(scope="module", params=["ptv3_tiny", "ptv3_rpe"])
def recorded(request):
    return Recorded(request.param)


def same_orders(recorded, coords, codes, order, inverse):
    for i, curve in enumerate(recorded.config["order"]):
        made = ops.curve_sort_coords(coords, curve)
        assert np.array_equal(ops.curve_codes(coords, curve), recorded[codes][i])
        assert np.array_equal(made.order, recorded[order][i])
        assert np.array_equal(made.inverse_rows, recorded[inverse][i])


def test_orders_and_paddings(recorded):
    x = recorded.x
    same_orders(recorded, x.coords, *(f"serialized_{w}" for w in ("code", "order", "inverse")))
    layout = recorded.net.enc[0].blocks[0].attention.layout(x)
    order = recorded["serialized_order"][0]
    assert np.array_equal(layout.rows, order[recorded["attn0/pad"]])
    unpad = recorded["attn0/unpad"][recorded["serialized_inverse"][0]]
    assert np.array_equal(layout.slots, unpad)
    assert np.array_equal(layout.offsets, recorded["attn0/cu_seqlens"])
    assert layout.length == recorded["attn0/patch_size"]


def test_first_block(recorded):
    net, block = recorded.net, recorded.net.enc[0].blocks[0]
    x = net.activation(net.stem_norm(net.stem(recorded.x)))
    recorded.near("embedding/feat", x)
    cpe = block.position(x)
    recorded.near("block0/cpe", cpe)
    x = x.with_feats(x.feats + cpe.feats)
    attended = block.attention(block.norm1(x))
    recorded.near("block0/attn", attended)
    x = x.with_feats(x.feats + attended.feats)
    mlp = block.mlp(block.norm2(x))
    recorded.near("block0/mlp", mlp)
    out = "block0/out" if "block0/out" in recorded else "stage/enc0/feat"
    recorded.near(out, x.feats + mlp.feats)


def test_every_stage(recorded):
    net, order = recorded.net, recorded.config["order"]
    levels = net.encode(recorded.x)
    coord = recorded["coord"]
    for s, (x, orders, pooling, _, _) in enumerate(levels):
        assert orders == order
        recorded.near(f"stage/enc{s}/feat", x)
        for i, block in enumerate(net.enc[s].blocks):
            layout = block.attention.layout(x, orders[i % len(orders)])
            name = f"blk/enc.enc{s}.block{i}"
            assert layout.length == recorded[f"{name}/patch_size"]
            assert layout.n_segments == recorded[f"{name}/patches"]
            assert recorded[f"{name}/order_index"] == i % len(orders)
        if s == 0:
            continue
        pool, cluster = f"pool{s}", np.array(pooling.cluster)
        made, again = net.enc[s].down(levels[s - 1][0])
        assert again is pooling
        recorded.near(f"{pool}/feat", made)
        assert np.array_equal(np.array(x.coords)[:, 1:], recorded[f"{pool}/grid_coord"])
        assert np.array_equal(cluster, recorded[f"{pool}/cluster"])
        ends = np.cumsum(np.bincount(np.array(x.coords)[:, 0]))
        assert np.array_equal(ends, recorded[f"{pool}/offset"])
        same_orders(recorded, x.coords, *(f"{pool}/{w}" for w in ("code", "order", "inverse")))
        fine = levels[s - 1][0].with_feats(mx.array(coord))
        coord = np.array(ops.grid_pool(fine, pooling, "mean").feats)
        recorded.near(f"{pool}/coord", coord)
    y = levels[-1][0]
    for s in reversed(range(len(net.dec))):
        skip, orders = levels[s][:2]
        y, branch = net.dec[s].up(y, skip, levels[s + 1][2])
        recorded.near(f"unpool{s}/feat", y)
        recorded.near(f"unpool{s}/conv_feat", branch)
        for i, block in enumerate(net.dec[s].blocks):
            y = block(y, orders[i % len(orders)], branch if i == 0 else None)
        recorded.near(f"stage/dec{s}/feat" if s else "final/feat", y)


def test_final_features(recorded):
    recorded.near("final/feat", recorded.net(recorded.x), 1e-4)


def test_the_quirk_matters(recorded):
    """Position encodings that see the sum after an upsampling give something else."""
    config = {**recorded.net.config, "refresh_convolution": True}
    other = PointTransformerV3(**config)
    other.load_weights(tree_flatten(recorded.net.parameters()))
    other.eval()
    expected = recorded["final/feat"]
    error = np.abs(np.array(other(recorded.x).feats) - expected).max() / np.abs(expected).max()
    assert error > 0.05


def tensor(n=150, channels=4, seed=0):
    random = np.random.default_rng(seed)
    coords = np.unique(random.integers(0, [2, 12, 12, 12], (n, 4)), axis=0).astype(np.int32)
    return SparseTensor(coords, random.standard_normal((len(coords), channels)).astype(np.float32))


def test_published_configuration():
    net = PointTransformerV3()
    count = sum(v.size for _, v in tree_flatten(net.parameters()))
    assert 46.0e6 < count < 46.3e6


def test_options_without_effect_are_accepted():
    plain = PointTransformerV3(4, **TINY)
    same = PointTransformerV3(4, **TINY, upcast_softmax=True, pdnorm_ln=False, pdnorm_affine=False)
    assert same.config == plain.config


def test_shuffled_orders_follow_the_seed():
    x = tensor()
    net = PointTransformerV3(4, **TINY, shuffle_in_evaluation=True, drop_path=0.0)
    net.eval()

    def run(seed):
        mx.random.seed(seed)
        return np.array(net(x).feats)

    runs = [run(seed) for seed in range(6)]
    assert np.array_equal(runs[0], run(0))
    assert any(not np.array_equal(runs[0], other) for other in runs[1:])
    plain = PointTransformerV3(4, **TINY)
    plain.eval()
    assert np.array_equal(plain(x).feats, plain(x).feats)


def test_rows_of_a_cloud_do_not_see_other_clouds():
    x = tensor()
    net = PointTransformerV3(4, **TINY)
    net.eval()
    first = np.array(x.coords)[:, 0] == 0
    alone = SparseTensor(np.array(x.coords)[first], np.array(x.feats)[first])
    assert np.allclose(np.array(net(x).feats)[first], net(alone).feats, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"cls_mode": True, "out_channels": 3},
        {"out_channels": 5, "enable_rpe": True, "enable_flash": False},
        {"pre_norm": False, "qkv_bias": False, "proj_drop": 0.1, "qk_scale": 0.3},
    ],
)
def test_options_train_and_are_saved(options, tmp_path):
    mx.random.seed(0)
    x = tensor()
    net = PointTransformerV3(4, **TINY, drop_path=0.0, **options)
    rows = 2 if options.get("cls_mode") else x.shape[0]
    target = mx.random.normal((rows, options.get("out_channels", 16)))

    def loss(model):
        y = model(x)
        return mx.mean((getattr(y, "feats", y) - target) ** 2)

    optimizer, losses = optim.Adam(2e-3), []
    for _ in range(15):
        value, grads = mlx.nn.value_and_grad(net, loss)(net)
        optimizer.update(net, grads)
        mx.eval(net.parameters(), optimizer.state)
        losses.append(value.item())
    assert losses[-1] < 0.9 * losses[0]
    assert all(mx.isfinite(g).all().item() for _, g in tree_flatten(grads))
    net.eval()
    net.save(tmp_path / "net.safetensors")
    again = models.load(tmp_path / "net.safetensors")
    y, z = net(x), again(x)
    assert np.array_equal(getattr(y, "feats", y), getattr(z, "feats", z))


def test_packed_network(tmp_path):
    x = tensor()
    sizes = {**TINY, "enc_channels": (32, 64), "dec_channels": (32,)}
    net = PointTransformerV3(4, 3, **sizes)
    net.eval()
    expected = np.array(net(x).feats)
    mlx.nn.quantize(net, bits=8, group_size=32, class_predicate=_packable)
    found = np.array(net(x).feats)
    assert 0 < np.abs(found - expected).max() < 0.1 * np.abs(expected).max()
    net.save(tmp_path / "net.safetensors")
    assert np.array_equal(models.load(tmp_path / "net.safetensors")(x).feats, found)


def _packable(_, module):
    return hasattr(module, "to_quantized") and module.weight.shape[-1] % 32 == 0


def test_gradients_are_right():
    """A directional derivative of the whole network against a difference."""
    x = tensor(60)
    mx.random.seed(1)
    net = PointTransformerV3(4, **TINY, enable_rpe=True, enable_flash=False)
    net.eval()

    def value(feats):
        return (net(x.with_feats(feats)).feats ** 2).mean()

    direction = mx.random.normal(x.feats.shape)
    slope = (mx.grad(value)(x.feats) * direction).sum().item()
    step = 1e-2
    change = value(x.feats + step * direction) - value(x.feats - step * direction)
    assert abs(change.item() / (2 * step) - slope) < 2e-2 * max(abs(slope), 0.1)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"order": ["peano"]}, "order must be z, z-trans"),
        ({"order": []}, "at least one curve"),
        ({"enc_depths": (1, 1, 1)}, "must have 3 numbers"),
        ({"stride": (2, 2)}, "stride must have 1 numbers"),
        ({"stride": (3,)}, "power of two"),
        ({"enc_num_head": (3, 4)}, "heads must divide 16 channels"),
        ({"attn_drop": 0.1}, "attn_drop must be 0"),
        ({"pdnorm_bn": True, "pdnorm_conditions": ()}, "pdnorm_conditions must name"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        PointTransformerV3(4, **{**TINY, **options})


def test_wrong_state_dicts():
    data = np.load(FOLDER / "ptv3_tiny.npz")
    state = {k[6:]: data[k] for k in data.files if k.startswith("param/")}
    config = json.loads(str(data["config"]))
    given = {key: config[key] for key in GIVEN} | {"conv_input": "sum"}
    wrapped = {f"module.backbone.{k}": v for k, v in state.items()}
    head = {"module.seg_head.weight": np.ones((5, 32)), "module.seg_head.bias": np.ones(5)}
    net = convert.from_pointcept({**wrapped, **head}, **given)
    assert net.config["out_channels"] == 5
    with pytest.raises(ValueError, match=r"1 unknown names: conv1\.weight"):
        convert.from_pointcept({**state, "conv1.weight": np.ones(3)}, **given)
    with pytest.raises(ValueError, match=r"lacks embedding\.stem\.conv\.weight"):
        convert.from_pointcept({})
    few = {k: v for k, v in state.items() if not k.endswith("attn.proj.bias")}
    with pytest.raises(ValueError, match=r"lacks \d+: .*dec\.0\.blocks\.0\.attention\.proj"):
        convert.from_pointcept(few, **given)
    bad = {**state, "enc.enc0.block0.attn.proj.weight": np.ones((3, 16))}
    with pytest.raises(ValueError, match=r"other shapes of 1: enc\.0\.blocks\.0\.attention"):
        convert.from_pointcept(bad, **given)
