"""Checks the arguments of networks with stages: each list has one number per stage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx

from .. import ops
from ..core._checks import flag, integer, layer_count, number, positive, share, sizes, told

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._model import Model

SIDES = {"enc": "encoder", "dec": "decoder"}
LISTS = ("depths", "channels", "num_head", "patch_size")


def checked_order(name: str, given: str | Sequence[str]) -> list[str]:
    """The names of curves as a list; a wrong one is a ValueError."""
    orders = [given] if isinstance(given, str) else given
    if not isinstance(orders, (list, tuple)) or not orders:
        raise ValueError(f"[{name}] order must name at least one curve, found {told(given)}")
    for curve in orders:
        ops.curve_codes(mx.zeros((0, 4), mx.int32), curve)  # raises for a wrong name
    return list(orders)


def checked_stages(
    model: Model, given: dict[str, Any], encoder_only: bool, least_depth: int = 1
) -> dict[str, Any]:
    """stride and the lists of both sides; the decoder has one stage fewer than the encoder."""
    config: dict[str, Any] = {}
    for key in ("stride", *(f"{side}_{key}" for side in SIDES for key in LISTS)):
        value = given[key]
        if key.endswith("_depths") and isinstance(value, (list, tuple)):
            least = least_depth if key == "dec_depths" else 1
            config[key] = [layer_count(model, key, n, least) for n in value]
        else:
            empty = isinstance(value, (list, tuple)) and not value
            config[key] = [] if empty else sizes(model, key, value)
    stages = len(config["enc_depths"])
    counts = [(f"enc_{key}", stages) for key in LISTS]
    if not encoder_only:
        counts += [(f"dec_{key}", stages - 1) for key in LISTS]
    for key, count in (*counts, ("stride", stages - 1)):
        if len(config[key]) != count:
            raise ValueError(
                f"[{type(model).__name__}] {key} must have {count} numbers for {stages} stages of "
                f"the encoder, found {len(config[key])}"
            )
    return config


def checked_shared(model: Model, given: dict[str, Any], flags: Sequence[str]) -> dict[str, Any]:
    """The arguments of all families: input, curves, flags and the numbers of a block."""
    name = type(model).__name__
    config: dict[str, Any] = {
        "in_channels": integer(model, "in_channels", given["in_channels"]),
        "order": checked_order(name, given["order"]),
        "mlp_ratio": positive(model, "mlp_ratio", given["mlp_ratio"]),
        "proj_drop": share(model, "proj_drop", given["proj_drop"]),
        "drop_path": share(model, "drop_path", given["drop_path"]),
        "qk_scale": None,
    }
    if given["qk_scale"] is not None:
        config["qk_scale"] = number(model, "qk_scale", given["qk_scale"]) or None
    for key in flags:
        config[key] = flag(model, key, given[key])
    if number(model, "attn_drop", given["attn_drop"], 0, 1) != 0:
        raise ValueError(
            f"[{name}] attn_drop must be 0, found {given['attn_drop']}: attention never makes the "
            "array of weights that would be dropped; use proj_drop or drop_path"
        )
    return config
