"""Published encoders against recorded runs of the originals: features near, indices exact.

goldens/encoder_*.npz: Sonata (facebookresearch/sonata 18c09ff), Utonia and LitePT and PT-v3m1 with
PDNorm (Pointcept d74c646), and PT-v3m1 of Pointcept v1.5.1, run on the CPU in evaluation mode with
random weights. They are parts of larger recordings; LATTICE_GOLDENS names a folder with all of
them, and then every recorded array of every stage is compared.
"""

import os
from pathlib import Path

import mlx.core as mx
import mlx.nn
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lattice import SparseTensor, models
from mlx_lattice.models import convert
from recordings import FOLDER, Recording

FULL = Path(os.environ.get("LATTICE_GOLDENS", FOLDER))
BOUNDS = {"encoder_utonia": 2e-5, "encoder_utonia_dec": 2e-5}
NETWORKS = ["encoder_sonata", "encoder_sonata_dec", "encoder_concerto", "encoder_utonia"] + [
    "encoder_utonia_dec",
    "encoder_litept",
    "encoder_litept_dec",
]


def recording(name, **options):
    folder = FULL if (FULL / f"{name}.npz").is_file() else FOLDER
    if not (folder / f"{name}.npz").is_file():
        pytest.skip(f"{name}.npz is only in the full recordings")
    return Recording(name, folder, BOUNDS.get(name, 1e-5), **options)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_stage(name):
    recorded = recording(name)
    recorded.every_stage()
    assert recorded.worst > 0


@pytest.mark.parametrize("name", ["encoder_sonata", "encoder_utonia"])
def test_flash_patches_and_masks(name):
    recorded = recording(name)
    mask = mx.array(recorded["mask/mask"])
    recorded.near("mask/embedding/feat", recorded.net._embed(recorded.x, mask))
    levels = recorded.net.encode(recorded.x, positions=recorded.positions, mask=mask)
    recorded.near("mask/final/feat", levels[-1].tensor)
    recorded.net = recorded.network(enable_flash=True)
    for s, level in enumerate(recorded.net.encode(recorded.x, positions=recorded.positions)):
        recorded.near(f"flash/stage/enc{s}/feat", level.tensor)
    recorded.near("flash/final/feat", level.tensor)


def test_decoder_without_rotary_positions():
    recorded = recording("encoder_utonia_dec")
    state = {k: v for k, v in recorded.state.items() if "inv_freq" not in k or k[:3] == "enc"}
    recorded.state = state
    net = recorded.network()
    assert not net.config["dec_rope_enable"] and net.config["rope_base"] == 100
    recorded.near("norope_dec/final/feat", net(recorded.x, positions=recorded.positions))
    with pytest.raises(ValueError, match="positions are missing"):
        net(recorded.x)


def test_heads_and_base_come_from_the_frequencies():
    """The state dict of Utonia says how large its heads are; without frequencies there is none."""
    recorded = recording("encoder_utonia_dec")
    patches = {key: recorded.config[key] for key in ("enc_patch_size", "dec_patch_size", "order")}
    net = convert.from_pointcept(recorded.state, enable_flash=False, **patches)
    assert net.config["enc_num_head"] == recorded.config["enc_num_head"]
    assert net.config["dec_num_head"] == recorded.config["dec_num_head"]
    recorded.near("final/feat", net(recorded.x, positions=recorded.positions))
    with pytest.raises(ValueError, match="does not belong to rope_base"):
        convert.from_pointcept(recorded.state, rope_base=7.0)
    plain = {k: v for k, v in recorded.state.items() if "inv_freq" not in k}
    heads = {key: recorded.config[key] for key in ("enc_num_head", "dec_num_head")}
    none = convert.from_pointcept(plain, rope_base=None, **heads)
    assert isinstance(none, models.Utonia) and none(recorded.x).shape[1] == 18


@pytest.mark.parametrize("name", ["encoder_pdnorm", "encoder_pdnorm_adaptive"])
def test_norms_per_data_set(name):
    recorded = recording(name, depth_plus_one=True)
    with pytest.raises(ValueError, match="no condition is chosen"):
        recorded.net(recorded.x)
    context = mx.array(recorded["context"]) if "context" in recorded else None
    for condition in map(str, recorded["conditions"]):
        recorded.net.select(condition, context)
        recorded.every_stage(f"cond_{condition}/")
    assert recorded.worst > 0
    with pytest.raises(ValueError, match="condition must be one of"):
        recorded.net.select("Mars", context)


class Older(Recording):
    """The outputs of v1.5.1 for the weights and the input of another recording."""

    def __init__(self, name, prefix):
        folder = FULL if (FULL / f"{name}.npz").is_file() else FOLDER
        super().__init__(name, folder, conv_input="branch")
        outputs = np.load((folder if folder == FULL else FOLDER) / "encoder_v151.npz")
        self.data = {k[len(prefix) :]: outputs[k] for k in outputs.files if k.startswith(prefix)}

    def __contains__(self, key):
        return key in self.data


@pytest.mark.parametrize("name", ["ptv3_rpe", "ptv3_tiny", "ScanNet", "Structured3D"])
def test_released_weights_need_the_branch_rule(name):
    if name.startswith("ptv3"):
        recorded = Older(name, f"{name}/")
    elif (FULL / "encoder_pdnorm.npz").is_file():
        recorded = Older("encoder_pdnorm", f"encoder_pdnorm/cond_{name}/")
        recorded.net.select(name)
    else:
        pytest.skip("encoder_pdnorm.npz is only in the full recordings")
    if "final/feat" not in recorded:
        pytest.skip("only in the full recordings")
    recorded.every_stage()
    assert recorded.worst > 0
    assert "conv_input=branch" in repr(recorded.net)


def test_the_rule_must_be_named():
    recorded = recording("ptv3_rpe")
    with pytest.raises(ValueError, match=r'"branch".*v1\.5\.1.*"sum".*since v1\.5\.2'):
        convert.from_pointcept(recorded.state)
    single = {k: v for k, v in recorded.state.items() if "block1" not in k and "block2" not in k}
    given = {k: recorded.config[k] for k in ("enc_num_head", "dec_num_head")}
    patches = {k: recorded.config[k] for k in ("enc_patch_size", "dec_patch_size")}
    convert.from_pointcept(single, **given, **patches)  # one block per stage: both are the same


def test_prompt_heads():
    """The recorded logits of PPT-v1m1 and v1m2, or a formula in float64 where there are none."""
    recorded = recording("encoder_pdnorm", depth_plus_one=True)
    names = [str(c) for c in recorded["ppt/conditions"]]
    kept = [recorded[f"ppt_v1m1/valid_index{i}"].tolist() for i in range(3)]
    body = {f"backbone.{k}": v for k, v in tree_flatten(recorded.net.parameters())}
    for head, version, classes in (("text", 1, kept), ("linear", 2, [len(k) for k in kept])):
        prefix = f"ppt_v1m{version}/param/"
        own = {k[len(prefix) :]: mx.array(recorded[k]) for k in recorded.data.files if prefix in k}
        net = models.PointPromptSegmenter(recorded.net.config, names, classes, head, 40, 36)
        net.load_weights(list((body | own).items()))
        net.eval()
        for name in names:
            logits = np.array(net(recorded.x, name).feats)[::5]
            recorded.near(f"cond_{name}/ppt_v1m{version}/logits_rows", logits)


def cloud(n=90, channels=4, side=12):
    random = np.random.default_rng(1)
    coords = np.unique(random.integers(0, [2, side, side, side], (n, 4)), axis=0).astype(np.int32)
    feats = random.standard_normal((len(coords), channels)).astype(np.float32)
    return SparseTensor(coords, feats)


SMALL = {
    "stride": (2,),
    "enc_depths": (2, 1),
    "enc_channels": (12, 24),
    "enc_num_head": (2, 2),
    "enc_patch_size": (16, 16),
    "dec_depths": (1,),
    "dec_channels": (12,),
    "dec_num_head": (2,),
    "dec_patch_size": (16,),
    "drop_path": 0.0,
    "shuffle_orders": False,
}
LITE = {
    "enc_conv": (True, False),
    "enc_attn": (True, True),
    "enc_rope_freq": (100, 30),
    "dec_conv": (True,),
    "dec_attn": (True,),
    "dec_rope_freq": (100,),
}
MADE = {
    "sum": lambda: models.PointTransformerV3(4, **SMALL, shuffle_pooled=False),
    "branch": lambda: models.PointTransformerV3(
        4, **SMALL, shuffle_pooled=False, conv_input="branch"
    ),
    "adaptive": lambda: models.PointTransformerV3(
        4, **SMALL, pdnorm_bn=True, pdnorm_ln=True, pdnorm_adaptive=True, pdnorm_affine=False
    ),
    "sonata": lambda: models.Sonata(4, **SMALL, layer_scale=0.5, enc_mode=False),
    "utonia": lambda: models.Utonia(4, **SMALL, enc_mode=False),
    "litept": lambda: models.LitePT(4, **SMALL, **LITE),
}


@pytest.mark.parametrize("name", MADE)
def test_gradients(name):
    """The derivative along a random direction against a difference quotient, for every family."""
    mx.random.seed(4)
    net, x = MADE[name](), cloud()
    net.eval()
    options = {}
    if name == "adaptive":
        options = {"condition": "S3DIS", "context": mx.random.normal((1, 256))}
    if name == "utonia":
        options = {"positions": x.coords[:, 1:] * 0.05}
    goal = mx.random.normal((x.shape[0], 12))

    def loss(parameters):
        net.update(parameters)
        return (net(x, **options).feats * goal).sum()

    parameters = net.trainable_parameters()
    _, gradients = mx.value_and_grad(loss)(parameters)
    flat = dict(tree_flatten(gradients))
    used = {k for k, g in flat.items() if mx.abs(g).max().item() > 0}
    unused = {k for k in flat if k not in used}
    assert all(".norms." in k or k == "mask_token" for k in unused), unused
    steps = {k: mx.random.normal(v.shape) for k, v in tree_flatten(parameters)}
    length = sum((step**2).sum().item() for step in steps.values()) ** 0.5
    steps = {k: step / length for k, step in steps.items()}
    slope = sum((flat[k] * steps[k]).sum().item() for k in steps)

    def moved(t):
        changed = [(k, v + t * steps[k]) for k, v in tree_flatten(parameters)]
        return loss(mlx.utils.tree_unflatten(changed)).item()

    h = 1e-2
    quotient = (8 * (moved(h) - moved(-h)) - (moved(2 * h) - moved(-2 * h))) / (12 * h)
    assert abs(slope - quotient) < 0.01 * abs(slope) + 0.01


@pytest.mark.parametrize("name", MADE)
def test_saved_and_loaded(name, tmp_path):
    net, x = MADE[name](), cloud()
    net.eval()
    options = {"positions": x.coords[:, 1:] * 0.05} if name == "utonia" else {}
    if name == "adaptive":
        options = {"condition": "S3DIS", "context": mx.ones((1, 256))}
    net.save(tmp_path / "net.safetensors")
    again = models.load(tmp_path / "net.safetensors")
    assert again.config == net.config
    assert mx.array_equal(net(x, **options).feats, again(x, **options).feats)
    net.plan(x) if name != "adaptive" else net.select("ScanNet", mx.ones((1, 256)))


@pytest.mark.parametrize(
    "make, count",
    [
        (lambda: models.Sonata(), 108_461_376),
        (lambda: models.Utonia(), 137_253_744),
        (lambda: models.LitePT(), 12_712_932),
    ],
)
@pytest.mark.slow
def test_published_sizes(make, count):
    """Numbers of parameters of the published configurations; running statistics do not count."""
    net = make()
    flat = [v.size for k, v in tree_flatten(net.parameters()) if "running" not in k]
    assert sum(flat) == count


def test_orders_are_not_mixed_in_evaluation():
    net, x = models.Sonata(4, **SMALL | {"shuffle_orders": True}), cloud()
    net.eval()
    assert mx.array_equal(net(x).feats, net(x).feats)
    net.train()
    mx.random.seed(1)
    runs = [net(x).feats for _ in range(4)]
    assert any(not mx.array_equal(runs[0], run) for run in runs[1:])


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: models.Sonata(4, **SMALL | {"enc_num_head": (2,)}), "enc_num_head must have 2"),
        (lambda: models.Sonata(4, **SMALL | {"stride": (2, 2)}), "stride must have 1"),
        (lambda: models.Utonia(4, **SMALL | {"enc_num_head": (3, 2)}), "multiple of 6"),
        (lambda: models.LitePT(4, **SMALL, **LITE | {"enc_conv": (True,)}), "enc_conv must have 2"),
        (lambda: models.PointTransformerV3(4, **SMALL, conv_input="both"), "conv_input"),
        (lambda: models.Sonata(4, **SMALL | {"attn_drop": 0.1}), "attn_drop must be 0"),
        (
            lambda: models.PointTransformerV3(4, **SMALL, pdnorm_bn=True, pdnorm_decouple=False),
            "pdnorm_decouple",
        ),
        (
            lambda: models.Sonata(4, **SMALL, mask_token=False)(cloud(), mask=mx.ones((90,))),
            "mask needs a mask token",
        ),
        (lambda: models.PointTransformerV3(4, **SMALL)(cloud(), condition="a"), "condition"),
    ],
)
def test_wrong_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
