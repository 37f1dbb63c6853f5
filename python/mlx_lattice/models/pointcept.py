"""Names and sizes of the networks of Pointcept, Sonata, Concerto, Utonia and LitePT.

A state dict says most about its network: the family, channels, depths and which parts there are.
Orders, strides, patch sizes and numbers of heads are not in it; published values are used for them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import mlx.core as mx

from ..core._checks import array, told
from ..nn._arrays import named_arrays
from .litept import LitePT
from .ptv3 import PointTransformerV3
from .sonata import Sonata, Utonia

if TYPE_CHECKING:
    from ..core.types import ArrayLike
    from ._hierarchy import Hierarchy

FAMILIES: dict[str, type[Hierarchy]] = {
    "v3m1": PointTransformerV3,
    "v3m2": Sonata,
    "v3m3": Utonia,
    "litept": LitePT,
}
# name of Pointcept -> name of this library, tried in order
_RULES = [
    (r"embedding\.stem\.(?:conv|linear)\.(.*)", r"stem.\1"),
    (r"embedding\.stem\.norm\.(.*)", r"stem_norm.\1"),
    (r"embedding\.mask_token", r"mask_token"),
    (r"(enc|dec)\.\w+?(\d+)\.down\.proj\.(.*)", r"\1.\2.down.linear.\3"),
    (r"(enc|dec)\.\w+?(\d+)\.down\.norm\.0\.(.*)", r"\1.\2.down.norm.\3"),
    (r"(enc|dec)\.\w+?(\d+)\.up\.proj\.0\.(.*)", r"\1.\2.up.linear.\3"),
    (r"(enc|dec)\.\w+?(\d+)\.up\.proj\.1\.(.*)", r"\1.\2.up.norm.\3"),
    (r"(enc|dec)\.\w+?(\d+)\.up\.proj_skip\.0\.(.*)", r"\1.\2.up.skip_linear.\3"),
    (r"(enc|dec)\.\w+?(\d+)\.up\.proj_skip\.1\.(.*)", r"\1.\2.up.skip_norm.\3"),
    (r"(enc|dec)\.\w+?(\d+)\.block(\d+)\.(.*)", r"\1.\2.blocks.\3.\4"),
    (r"(?:seg_head|cls_head)\.(weight|bias)", r"head.\1"),
]
_INSIDE = [
    (r"\.(?:cpe|conv)\.0\.", ".position.conv."),
    (r"\.(?:cpe|conv)\.1\.", ".position.linear."),
    (r"\.(?:cpe|conv)\.2\.", ".position.norm."),
    (r"\.(norm[012])\.0\.", r".\1."),
    (r"\.ls([12])\.0\.gamma$", r".scale\1"),
    (r"\.attn\.rpe\.rpe_table$", ".attention.rpe_table"),
    (r"\.attn\.", ".attention."),
    (r"\.mlp\.0\.fc1\.", ".mlp.first."),
    (r"\.mlp\.0\.fc2\.", ".mlp.second."),
    (r"norm([12]?)\.norm\.(\d+)\.", r"norm\1.norms.\2."),
    (r"norm([12]?)\.modulation\.1\.", r"norm\1.modulation."),
]
_PREFIXES = ("module.", "backbone.")
_RECOMPUTED = "attn.rope.inv_freq"
_UNUSED = "num_batches_tracked"


def plain_name(name: str, part: str = "student") -> str:
    """The name without the wrappers of training code: module., student., backbone."""
    while any(name.startswith(p) for p in (*_PREFIXES, f"{part}.")):
        name = name.partition(".")[2]
    return name


def our_name(name: str) -> str | None:
    """The name of this library for a plain name of Pointcept, or None where there is none."""
    for pattern, replacement in _RULES:
        if re.fullmatch(pattern, name):
            name = re.sub(pattern, replacement, name)
            for inner, by in _INSIDE:
                name = re.sub(inner, by, name)
            return name
    return None


def family_of(names: set[str]) -> str | None:
    """Which family plain names belong to, or None."""
    if "embedding.stem.linear.weight" in names:
        rotary = any(name.endswith(_RECOMPUTED) for name in names)
        return "v3m3" if rotary else "v3m2"
    if "embedding.stem.conv.weight" not in names:
        return None
    lite = any(re.search(r"\.block\d+\.(conv\.0|norm0)\.", name) for name in names)
    return "litept" if lite else "v3m1"


def translate(
    state_dict: Mapping[str, ArrayLike], part: str = "student"
) -> tuple[str, dict[str, mx.array], dict[str, mx.array], list[str]]:
    """(family, weights by our names, frequencies of rotary positions, names that are left over).

    A ValueError says where the names belong to none of the families.
    """
    plain = {plain_name(name, part): value for name, value in state_dict.items()}
    family = family_of(set(plain))
    if family is None:
        raise ValueError(
            "[from_pointcept] state_dict lacks embedding.stem.conv.weight and "
            "embedding.stem.linear.weight; is it a checkpoint of Point Transformer V3, Sonata, "
            "Concerto, Utonia or LitePT? Its weights are often under the key 'state_dict'"
        )
    weights: dict[str, mx.array] = {}
    frequencies: dict[str, mx.array] = {}
    left: list[str] = []
    for name, value in plain.items():
        if name.endswith(_UNUSED):
            continue
        ours = our_name(name)
        if ours is None:
            left.append(name)
            continue
        made = array("from_pointcept", name, value).astype(mx.float32)
        if name.endswith(_RECOMPUTED):
            frequencies[ours] = made
        else:
            weights[ours] = made
    return family, weights, frequencies, left


def sizes_of(
    family: str, weights: Mapping[str, mx.array], frequencies: Mapping[str, mx.array]
) -> dict[str, Any]:
    """The part of the configuration that follows from the shapes and names of the weights."""
    config = _stage_sizes(weights)
    if "head.weight" in weights:
        config["out_channels"] = weights["head.weight"].shape[0]
    first = next((w for n, w in weights.items() if n.endswith("mlp.first.weight")), None)
    if first is not None:
        config["mlp_ratio"] = first.shape[0] / first.shape[1]
    blocks = [n for n in weights if ".attention.qkv." in n]
    config["qkv_bias"] = any(n.endswith("bias") for n in blocks) or not blocks
    width = 16
    if family == "litept":
        config |= _litept_kinds(weights, config)
        width = 18
    else:
        config["enable_rpe"] = any(name.endswith("rpe_table") for name in weights)
        if config["enable_rpe"]:
            config["enable_flash"] = False
    if family in ("v3m2", "v3m3"):
        config["mask_token"] = "mask_token" in weights
        config["layer_scale"] = 1.0 if any(n.endswith(".scale1") for n in weights) else None
    if family == "v3m3":
        config |= _rope(frequencies)
    if family == "v3m1":
        config |= _conditions(weights)
    for side in ("enc", "dec"):
        config[f"{side}_num_head"] = [
            max(1, c // _head_size(frequencies, f"{side}.{s}.", width))
            for s, c in enumerate(config[f"{side}_channels"])
        ]
        config[f"{side}_patch_size"] = [1024] * len(config[f"{side}_channels"])
    return config


def _stage_sizes(weights: Mapping[str, mx.array]) -> dict[str, Any]:
    depths: dict[str, dict[int, int]] = {"enc": {0: 0}, "dec": {}}
    channels: dict[str, dict[int, int]] = {"enc": {}, "dec": {}}
    channels["enc"][0] = weights["stem.weight"].shape[0]
    for name, value in weights.items():
        found = re.match(r"(enc|dec)\.(\d+)\.(?:blocks\.(\d+)\.|(?:down|up)\.linear\.weight)", name)
        if found:
            side, stage, block = found[1], int(found[2]), found[3]
            count = depths[side].get(stage, 0)
            depths[side][stage] = count if block is None else max(count, int(block) + 1)
            if block is None:
                channels[side][stage] = value.shape[0]
    config: dict[str, Any] = {
        "in_channels": weights["stem.weight"].shape[-1],
        "enc_mode": not depths["dec"],
    }
    for side, stages in depths.items():
        config[f"{side}_depths"] = [stages[s] for s in sorted(stages)]
        config[f"{side}_channels"] = [channels[side].get(s, 1) for s in sorted(stages)]
    config["stride"] = [2] * (len(depths["enc"]) - 1)
    return config


def _litept_kinds(weights: Mapping[str, mx.array], config: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for side in ("enc", "dec"):
        stages = range(len(config[f"{side}_depths"]))
        for key, part in (("conv", "position.conv.weight"), ("attn", "attention.qkv.weight")):
            made[f"{side}_{key}"] = [f"{side}.{s}.blocks.0.{part}" in weights for s in stages]
        made[f"{side}_rope_freq"] = [100.0] * len(stages)
    return made


def _head_size(frequencies: Mapping[str, mx.array], stage: str, usual: int) -> int:
    """Channels of a head: six per frequency of the stage, or the usual number."""
    found = (f.shape[0] for name, f in frequencies.items() if name.startswith(stage))
    return next((6 * count for count in found), usual)


def _floats(values: mx.array) -> list[float]:
    return cast("list[float]", values.tolist())


def _rope(frequencies: Mapping[str, mx.array]) -> dict[str, Any]:
    """The base of the frequencies base^(-i / n), if there are two or more of them."""
    config: dict[str, Any] = {"dec_rope_enable": any(n.startswith("dec") for n in frequencies)}
    if not frequencies:
        return config | {"rope_base": None}
    values = max(map(_floats, frequencies.values()), key=len)
    if len(values) > 1:
        config["rope_base"] = float(f"{values[1] ** -len(values):.5g}")
    return config


def _conditions(weights: Mapping[str, mx.array]) -> dict[str, Any]:
    """The norms per data set of Point Transformer V3."""
    outer = [n for n in weights if n.startswith("stem_norm.norms.")]
    inner = [n for n in weights if ".norm1.norms." in n or ".norm1.modulation." in n]
    if not outer and not inner:
        return {}
    found = re.findall(r"norms\.(\d+)\.", " ".join(outer + inner))
    config: dict[str, Any] = {
        "pdnorm_bn": bool(outer),
        "pdnorm_ln": bool(inner),
        "pdnorm_affine": any(n.endswith(".weight") and ".norms." in n for n in outer + inner),
        "pdnorm_adaptive": any(".modulation." in n for n in weights),
    }
    count = 1 + max((int(i) for i in found), default=2)
    if count != 3:  # three: the published names, the default of the network
        config["pdnorm_conditions"] = [str(i) for i in range(count)]
    return config


def ask_for_rule(weights: Mapping[str, mx.array], who: str) -> None:
    """Raises if the input of convolutions matters and was not given."""
    if not any(re.match(r"(enc|dec)\.\d+\.blocks\.[1-9]", name) for name in weights):
        return  # one block per stage: both rules give the same
    raise ValueError(
        f"[{who}] conv_input is missing: the file does not say what the convolution of the second "
        'and later blocks of a stage reads. conv_input="branch": only what the block before '
        "added last, as Pointcept v1.5.1, with which the released PTv3 and PTv3 + PPT weights were "
        'trained. conv_input="sum": the whole result of that block, as Pointcept since v1.5.2, '
        "for weights that you trained with it. The wrong one loads and predicts badly"
    )


def set_weights(model: Hierarchy, weights: Mapping[str, mx.array], who: str) -> None:
    """Loads weights; a ValueError lists all names that are missing, left over or of other shape."""
    expected = dict(named_arrays(model.parameters()))
    lists = {
        "lacks": [n for n in expected if n not in weights],
        "has, beyond the configuration,": [n for n in weights if n not in expected],
        "has other shapes of": [
            f"{n} {tuple(w.shape)}, expected {tuple(expected[n].shape)}"
            for n, w in weights.items()
            if n in expected and w.shape != expected[n].shape
        ],
    }
    wrong = [f"{verb} {len(found)}: {_some(found)}" for verb, found in lists.items() if found]
    if wrong:
        raise ValueError(f"[{who}] state_dict {'; '.join(wrong)}; check the configuration")
    model.load_weights(list(weights.items()))
    model.eval()


def _some(names: list[str]) -> str:
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def from_pointcept(state_dict: Mapping[str, ArrayLike], **config: Any) -> Hierarchy:
    """The network of a state dict in evaluation mode: v3m1, Sonata, Concerto, Utonia or LitePT.

    Args:
        state_dict: Arrays by name (a torch tensor goes through `.numpy()`), with or without the
            prefixes `module.`, `student.` and `backbone.`; `seg_head` becomes the head.
        **config: Arguments of the network that the weights do not tell: order, stride, patch sizes,
            numbers of heads, enable_flash, and conv_input of a `PointTransformerV3` with two
            blocks in a stage. Channels, depths and which parts there are come from the weights.

    Raises:
        ValueError: Names are unknown or missing, arrays have other shapes than the configuration
            asks for, or conv_input must be named; the message lists all of them.
    """
    who = "from_pointcept"
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"[{who}] state_dict must map names to arrays, found {told(state_dict)}")
    family, weights, frequencies, left = translate(state_dict)
    if left:
        raise ValueError(f"[{who}] state_dict has {len(left)} unknown names: {_some(left)}")
    return build(family, weights, frequencies, config, who)


def build(
    family: str,
    weights: Mapping[str, mx.array],
    frequencies: Mapping[str, mx.array],
    config: Mapping[str, Any],
    who: str,
) -> Hierarchy:
    """The network of a family with these weights; config goes before what the weights say."""
    if family == "v3m1" and "conv_input" not in config:
        ask_for_rule(weights, who)
    if family == "v3m2" and "rope_base" in config:
        family = "v3m3"  # a Utonia without rotary positions has the names of Sonata
    model = FAMILIES[family](**{**sizes_of(family, weights, frequencies), **config})
    set_weights(model, weights, who)
    for name, found in frequencies.items():
        base, values = model.config["rope_base"], _floats(found)
        made = [base ** (-i / len(values)) for i in range(len(values))]
        if any(abs(a - b) > 1e-4 * a for a, b in zip(made, values)):
            raise ValueError(
                f"[{who}] {name} does not belong to rope_base={base}; leave rope_base out"
            )
    return model
