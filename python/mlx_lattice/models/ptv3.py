"""Point Transformer V3: attention in patches of voxels along space-filling curves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn

from .. import nn, ops
from ..nn._checks import integer, integers, layer_count, number, sizes
from ..nn._transformer import stochastic_depth
from ._blocks import checked
from ._model import Model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlx.nn import Module

    from ..core import SparseTensor
    from ..core.layouts import GridPooling


class _Stage(mlx.nn.Module):
    """A change of level and the blocks behind it."""

    def __init__(self, blocks: Any, down: Any = None, up: Any = None) -> None:
        super().__init__()
        if down is not None:
            self.down = down
        if up is not None:
            self.up = up
        self.blocks = blocks


class PointTransformerV3(Model):
    """Point Transformer V3: x (N, in_channels) -> features or logits on the coordinates of x.

    The network is that of Wu et al., "Point Transformer V3: Simpler, Faster, Stronger", CVPR 2024.
    The coordinates are voxels of the clouds, each once. Without out_channels the result has
    dec_channels[0] channels; with out_channels a linear layer follows.

    order: curves, from "z", "z-trans", "hilbert", "hilbert-trans"; block i of a stage uses
        order[i mod len(order)].
    stride: of each pooling, powers of two.
    enc_depths, enc_channels, enc_num_head, enc_patch_size: one number per stage, finest first.
    dec_depths, dec_channels, dec_num_head, dec_patch_size: the same, one stage fewer.
    enable_rpe: relative position bias.
    enable_flash: a cloud of fewer rows than a patch is one segment. Otherwise all patches of a
        level have at most as many rows as its smallest cloud.
    shuffle_orders: mixes the orders of the finest level in training.
    shuffle_pooled: mixes the orders behind each pooling in training.
    shuffle_in_evaluation: mixes in evaluation too; the published code does so behind poolings.
    refresh_convolution: the position encoding behind an upsampling reads the sum of both branches.
        The published code and weights read the branch of the skip alone, which is the default.
    cls_mode: encoder only. The result is the coarsest tensor, or with out_channels the logits
        (B, out_channels) of the mean of each cloud.
    momentum: of the running statistics. The published 0.01 needs some hundred steps to forget the
        start; short trainings do better with 0.1.
    upcast_attention, upcast_softmax: change nothing; the sums of attention are always float32.
    pdnorm_bn, pdnorm_ln: norms per data set; must be False, as published. The other pdnorm options
        then mean nothing and are accepted, so that a published configuration loads as it is.
    """

    def __init__(
        self,
        in_channels: int = 6,
        out_channels: int | None = None,
        order: Sequence[str] = ("z", "z-trans", "hilbert", "hilbert-trans"),
        stride: Sequence[int] = (2, 2, 2, 2),
        enc_depths: Sequence[int] = (2, 2, 2, 6, 2),
        enc_channels: Sequence[int] = (32, 64, 128, 256, 512),
        enc_num_head: Sequence[int] = (2, 4, 8, 16, 32),
        enc_patch_size: Sequence[int] = (1024, 1024, 1024, 1024, 1024),
        dec_depths: Sequence[int] = (2, 2, 2, 2),
        dec_channels: Sequence[int] = (64, 64, 128, 256),
        dec_num_head: Sequence[int] = (4, 4, 8, 16),
        dec_patch_size: Sequence[int] = (1024, 1024, 1024, 1024),
        mlp_ratio: int = 4,
        qkv_bias: bool = True,
        qk_scale: float | None = None,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        drop_path: float = 0.3,
        pre_norm: bool = True,
        shuffle_orders: bool = True,
        shuffle_pooled: bool = True,
        shuffle_in_evaluation: bool = False,
        enable_rpe: bool = False,
        enable_flash: bool = True,
        refresh_convolution: bool = False,
        cls_mode: bool = False,
        momentum: float = 0.01,
        upcast_attention: bool = False,
        upcast_softmax: bool = False,
        pdnorm_bn: bool = False,
        pdnorm_ln: bool = False,
        pdnorm_decouple: bool = True,
        pdnorm_adaptive: bool = False,
        pdnorm_affine: bool = True,
        pdnorm_conditions: Any = ("ScanNet", "S3DIS", "Structured3D"),
    ) -> None:
        given = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        config = _checked_config(self, given)
        super().__init__(**config)
        self.stem = nn.SubmConv3d(config["in_channels"], config["enc_channels"][0], 5, bias=False)
        self.stem_norm = nn.BatchNorm(
            config["enc_channels"][0], eps=1e-3, momentum=config["momentum"]
        )
        self.activation = nn.GELU()
        self.enc = self._encoder(config)
        out = config["enc_channels"][-1]
        if not config["cls_mode"]:
            self.dec = self._decoder(config)
            out = config["dec_channels"][0] if config["dec_channels"] else out
        if config["out_channels"] is not None:
            self.head = nn.Linear(out, config["out_channels"])

    def _blocks(self, config: Any, side: Any, s: Any, rates: Any) -> list[Any]:
        c = config[f"{side}_channels"][s]
        return [
            nn.TransformerBlock(
                c,
                nn.SerializedAttention(
                    c,
                    config[f"{side}_num_head"][s],
                    config[f"{side}_patch_size"][s],
                    config["order"][0],
                    qkv_bias=config["qkv_bias"],
                    scale=config["qk_scale"],
                    rpe=config["enable_rpe"],
                    shrink=not config["enable_flash"],
                    dropout=config["proj_drop"],
                ),
                mlp_ratio=config["mlp_ratio"],
                drop_path=rate,
                dropout=config["proj_drop"],
                pre_norm=config["pre_norm"],
            )
            for rate in rates
        ]

    def _encoder(self, config: Any) -> Any:
        rates = stochastic_depth(config["drop_path"], config["enc_depths"])
        channels, stages = config["enc_channels"], []
        for s, stage_rates in enumerate(rates):
            down = None
            if s:
                down = nn.GridPool(
                    channels[s - 1],
                    channels[s],
                    config["stride"][s - 1],
                    momentum=config["momentum"],
                )
            stages.append(_Stage(self._blocks(config, "enc", s, stage_rates), down=down))
        return stages

    def _decoder(self, config: Any) -> list[Any]:
        """Finest first, as the configuration names them."""
        rates = stochastic_depth(config["drop_path"], config["dec_depths"])
        channels = [*config["dec_channels"], config["enc_channels"][-1]]
        return [
            _Stage(
                self._blocks(config, "dec", s, stage_rates[::-1]),
                up=nn.GridUnpool(
                    channels[s + 1], config["enc_channels"][s], channels[s], config["momentum"]
                ),
            )
            for s, stage_rates in enumerate(rates)
        ]

    def _shuffled(self, orders: list[str], wanted: bool) -> list[str]:
        mixed = wanted and (self.training or self._config["shuffle_in_evaluation"])
        if not mixed or len(orders) < 2:
            return orders
        return [orders[i] for i in integers(mx.random.permutation(len(orders)))]

    def encode(self, x: SparseTensor) -> list[tuple[SparseTensor, list[str], GridPooling | None]]:
        """[(tensor, orders, pooling that made it)] of all stages, finest first."""
        config = self._config
        x = self.activation(self.stem_norm(self.stem(x)))
        orders, levels = self._shuffled(list(config["order"]), config["shuffle_orders"]), []
        for s, stage in enumerate(self.enc):
            pooling = None
            if s:
                x, pooling = stage.down(x, orders[0])
                orders = self._shuffled(orders, config["shuffle_pooled"])
            for i, block in enumerate(stage.blocks):
                x = block(x, orders[i % len(orders)])
            levels.append((x, orders, pooling))
        return levels

    def features(self, x: SparseTensor) -> SparseTensor:
        """What the head sees: the finest tensor, or in cls_mode the coarsest."""
        levels = self.encode(x)
        y, _, pooling = levels.pop()
        if self._config["cls_mode"]:
            return y
        for stage in reversed(self.dec):
            skip, orders, before = levels.pop()
            y, branch = stage.up(y, skip, pooling)
            seen = None if self._config["refresh_convolution"] else branch
            for i, block in enumerate(stage.blocks):
                y = block(y, orders[i % len(orders)], seen if i == 0 else None)
            pooling = before
        return y

    def __call__(self, x: SparseTensor) -> SparseTensor | mx.array:
        y = self.features(x)
        if "head" not in self:
            return y
        if not self._config["cls_mode"]:
            return self.head(y)
        size = None if x.batch_counts is None else len(x.batch_counts)
        return self.head(ops.global_avg_pool(y, batch_size=size))


_LISTS = ("stride", "enc_depths", "enc_channels", "enc_num_head", "enc_patch_size") + (
    "dec_depths",
    "dec_channels",
    "dec_num_head",
    "dec_patch_size",
)


# Options of the published configuration that change nothing here.
_WITHOUT_EFFECT = ("upcast_attention", "upcast_softmax", "pdnorm_bn", "pdnorm_ln") + (
    "pdnorm_decouple",
    "pdnorm_adaptive",
    "pdnorm_affine",
    "pdnorm_conditions",
)


def _checked_config(model: Module, given: Any) -> Any:
    """The configuration as plain numbers, lists and texts; a ValueError names what is wrong."""
    name, config = type(model).__name__, dict(given)
    config.update(checked(model, in_channels=given["in_channels"]))
    if given["out_channels"] is not None:
        config["out_channels"] = integer(model, "out_channels", given["out_channels"])
    orders = [given["order"]] if isinstance(given["order"], str) else list(given["order"])
    if not orders:
        raise ValueError(f"[{name}] order must name at least one curve, got {given['order']!r}")
    for curve in orders:
        ops.curve_codes(mx.zeros((0, 4), mx.int32), curve)
    config["order"] = orders
    for key in _LISTS:
        values = list(given[key])
        config[key] = sizes(model, key, values) if values else []
    for key in ("enc_depths", "dec_depths"):
        config[key] = [layer_count(model, key, n) for n in config[key]]
    stages = len(config["enc_depths"])
    for side, count in (("enc", stages), ("dec", stages - 1)):
        if side == "dec" and given["cls_mode"]:
            continue
        for key in ("depths", "channels", "num_head", "patch_size"):
            found = len(config[f"{side}_{key}"])
            if found != count:
                raise ValueError(
                    f"[{name}] {side}_{key} must have {count} numbers for {stages} stages of the "
                    f"encoder, got {found}"
                )
    if len(config["stride"]) != stages - 1:
        raise ValueError(
            f"[{name}] stride must have {stages - 1} numbers, got {len(config['stride'])}"
        )
    if number(model, "attn_drop", given["attn_drop"], 0, 1) != 0:
        raise ValueError(
            f"[{name}] attn_drop must be 0, got {given['attn_drop']}: attention never makes the "
            "array of weights that would be dropped; use proj_drop or drop_path"
        )
    for key in ("pdnorm_bn", "pdnorm_ln"):
        if given[key]:
            raise ValueError(
                f"[{name}] {key} must be False, got {given[key]!r}: norms per data set are not "
                "built; train one network per data set"
            )
    for key in _WITHOUT_EFFECT:
        del config[key]
    config["qk_scale"] = given["qk_scale"] or None
    config["momentum"] = number(model, "momentum", given["momentum"], 0, 1)
    for key in ("qkv_bias", "pre_norm", "shuffle_orders", "shuffle_pooled", "enable_rpe") + (
        "shuffle_in_evaluation",
        "enable_flash",
        "refresh_convolution",
        "cls_mode",
    ):
        config[key] = bool(given[key])
    return config
