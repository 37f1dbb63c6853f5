"""Point Transformer V3 from a state dict of Pointcept."""

import re
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from .ptv3 import PointTransformerV3

# name of Pointcept -> name of this library, tried in order
_RULES = [
    (r"embedding\.stem\.conv\.(.*)", r"stem.\1"),
    (r"embedding\.stem\.norm\.(.*)", r"stem_norm.\1"),
    (r"(enc|dec)\.\w+?(\d+)\.down\.proj\.(.*)", r"\1.\2.down.linear.\3"),
    (r"(enc|dec)\.\w+?(\d+)\.down\.norm\.0\.(.*)", r"\1.\2.down.norm.\3"),
    (r"(enc|dec)\.\w+?(\d+)\.up\.proj\.0\.(.*)", r"\1.\2.up.linear.\3"),
    (r"(enc|dec)\.\w+?(\d+)\.up\.proj\.1\.(.*)", r"\1.\2.up.norm.\3"),
    (r"(enc|dec)\.\w+?(\d+)\.up\.proj_skip\.0\.(.*)", r"\1.\2.up.skip_linear.\3"),
    (r"(enc|dec)\.\w+?(\d+)\.up\.proj_skip\.1\.(.*)", r"\1.\2.up.skip_norm.\3"),
    (r"(enc|dec)\.\w+?(\d+)\.block(\d+)\.(.*)", r"\1.\2.blocks.\3.\4"),
]
_INSIDE = [
    (r"\.cpe\.0\.", ".position.conv."),
    (r"\.cpe\.1\.", ".position.linear."),
    (r"\.cpe\.2\.", ".position.norm."),
    (r"\.(norm[12])\.0\.", r".\1."),
    (r"\.attn\.rpe\.rpe_table$", ".attention.rpe_table"),
    (r"\.attn\.", ".attention."),
    (r"\.mlp\.0\.fc1\.", ".mlp.first."),
    (r"\.mlp\.0\.fc2\.", ".mlp.second."),
]
_PREFIXES = ("module.", "backbone.")
_HEADS = {"seg_head.": "head.", "cls_head.": "head."}


def _plain(name: Any) -> Any:
    """The name without the wrappers of training code."""
    while any(name.startswith(p) for p in _PREFIXES):
        name = name.partition(".")[2]
    return name


def _renamed(name: Any) -> Any:
    for theirs, ours in _HEADS.items():
        if name.startswith(theirs):
            return ours + name[len(theirs) :]
    for pattern, replacement in _RULES:
        if re.fullmatch(pattern, name):
            name = re.sub(pattern, replacement, name)
            for inner, by in _INSIDE:
                name = re.sub(inner, by, name)
            return name
    return None


def from_pointcept(state_dict: Any, **config: Any) -> Any:
    """A PointTransformerV3 in evaluation mode with the weights of a Pointcept state dict.

    state_dict: name -> array (a torch tensor goes through `.numpy()`), with or without the prefixes
        `module.` and `backbone.`; `seg_head` becomes the head.
    config: arguments of PointTransformerV3 that the weights do not tell: order, stride, patch
        sizes, numbers of heads, enable_flash. Channels, depths, in_channels, out_channels,
        qkv_bias, enable_rpe and cls_mode are read from the weights.
    """
    arrays, unknown = {}, []
    for theirs, value in dict(state_dict).items():
        if theirs.endswith("num_batches_tracked"):
            continue
        ours = _renamed(_plain(theirs))
        if ours is None:
            unknown.append(theirs)
        else:
            arrays[ours] = mx.array(value).astype(mx.float32)
    if unknown:
        raise ValueError(
            f"[from_pointcept] state_dict has {len(unknown)} unknown names, the first "
            f"{unknown[0]!r}; expected those of PointTransformerV3 without decoupled norms (pdnorm)"
        )
    if "stem.weight" not in arrays:
        raise ValueError(
            "[from_pointcept] state_dict lacks embedding.stem.conv.weight; is it a checkpoint of "
            "PointTransformerV3? Its weights are often under the key 'state_dict'"
        )
    model = PointTransformerV3(**{**_sizes(arrays), **config})
    expected = dict(tree_flatten(model.parameters()))
    for name in sorted(set(expected) ^ set(arrays)):
        where = "lacks" if name in expected else "has, beyond the configuration,"
        raise ValueError(f"[from_pointcept] state_dict {where} {name!r}")
    for name, value in arrays.items():
        if value.shape != expected[name].shape:
            raise ValueError(
                f"[from_pointcept] {name} has shape {value.shape}, expected "
                f"{expected[name].shape}; check the configuration"
            )
    model.load_weights(list(arrays.items()))
    model.eval()
    return model


def _sizes(arrays: Any) -> Any:
    """What the shapes and names of the weights say about the configuration."""
    depths: dict[str, Any] = {"enc": {}, "dec": {}}
    for name in arrays:
        if found := re.match(r"(enc|dec)\.(\d+)\.blocks\.(\d+)\.", name):
            side, stage, block = found[1], int(found[2]), int(found[3])
            depths[side][stage] = max(depths[side].get(stage, 0), block + 1)
    stem = arrays["stem.weight"].shape
    config = {
        "in_channels": stem[-1],
        "enable_rpe": any(name.endswith("rpe_table") for name in arrays),
        "qkv_bias": "enc.0.blocks.0.attention.qkv.bias" in arrays,
        "cls_mode": not depths["dec"],
        "out_channels": arrays["head.weight"].shape[0] if "head.weight" in arrays else None,
    }
    for side, stages in depths.items():
        config[f"{side}_depths"] = [stages[s] for s in sorted(stages)]
        config[f"{side}_channels"] = [
            arrays[f"{side}.{s}.blocks.0.norm1.weight"].shape[0] for s in sorted(stages)
        ]
    if config["enable_rpe"]:
        config["enable_flash"] = False
    return config
