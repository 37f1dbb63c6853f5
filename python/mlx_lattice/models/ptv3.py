"""Point Transformer V3: attention in patches of voxels along space-filling curves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn

from .. import nn, ops
from ..core._checks import flag, integer, number, one_of
from ._hierarchy import Hierarchy, Rules
from ._stage_config import checked_shared, checked_stages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..core import SparseTensor


class PointTransformerV3(Hierarchy):
    """Point Transformer V3: x (N, in_channels) -> features or logits on the coordinates of x.

    The network is that of Wu et al., "Point Transformer V3: Simpler, Faster, Stronger", CVPR 2024.
    The coordinates are voxels of the clouds, each once. Without out_channels the result has
    dec_channels[0] channels; with out_channels a linear layer follows.

    Args:
        order: The curves, from "z", "z-trans", "hilbert", "hilbert-trans"; block i of a stage uses
            order[i mod len(order)].
        stride: That of each pooling, a power of two.
        enc_depths, enc_channels, enc_num_head, enc_patch_size: Blocks, channels, heads and rows per
            patch of the encoder, one number per stage, finest first.
        dec_depths, dec_channels, dec_num_head, dec_patch_size: The same of the decoder, which has
            one stage fewer.
        mlp_ratio: The channels inside an MLP per channel of its block.
        qk_scale: The factor of q k^T; by default 1 / sqrt(size of a head).
        attn_drop: Must be 0: attention never makes the array that would be dropped.
        proj_drop: The probability with which a value after attention and in the MLP is 0 in
            training.
        drop_path: The probability with which the last block is skipped in training; it rises from 0
            at the first.
        enable_rpe: Adds a bias by relative position.
        enable_flash: A cloud of fewer rows than a patch is one segment. Otherwise all patches of a
            level have at most as many rows as its smallest cloud.
        shuffle_orders: Mixes the orders of the finest level in training.
        shuffle_pooled: Mixes the orders after each pooling in training.
        shuffle_in_evaluation: Mixes in evaluation too; the published code does so after poolings.
        conv_input: What the position encoding of the second and later blocks of a stage reads.
            "sum": the result of the block before, as Pointcept since v1.5.2. "branch": only what
            the MLP of that block added, as Pointcept v1.5.1, with which the released weights of
            Point Transformer V3 were trained.
        depth_plus_one: Whether the curves have room for the largest coordinate plus 1, as Pointcept
            since v1.6.0. It matters where the largest coordinate is 2^k - 1, for Hilbert curves.
        refresh_convolution: The position encoding after an upsampling reads the sum of both
            branches. The published code and weights read the branch of the skip alone, which is the
            default.
        cls_mode, enc_mode: The network is an encoder only. The result is the coarsest tensor, or
            with out_channels the logits (B, out_channels) of the mean of each cloud.
        momentum: The share of a new batch in the running statistics. The published 0.01 needs some
            hundred steps to forget the start; short trainings do better with 0.1.
        upcast_attention, upcast_softmax: Change nothing; the sums of attention are always float32.
        pdnorm_bn, pdnorm_ln: One norm per data set instead of each BatchNorm outside the blocks, of
            each LayerNorm inside (`nn.ConditionalNorm`). The network is then called with
            `condition=`, one of pdnorm_conditions.
        pdnorm_affine: Whether these norms have weight and bias.
        pdnorm_adaptive: Whether a context of the data set shifts and scales them: `context=`.
        pdnorm_decouple: Must be True; one norm for all data sets is not what was published.

    Raises:
        ValueError: A list has another length than there are stages, or an option has a value that
            this network does not have; the message names it.
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
        conv_input: str = "sum",
        depth_plus_one: bool = False,
        cls_mode: bool = False,
        enc_mode: bool = False,
        momentum: float = 0.01,
        upcast_attention: bool = False,
        upcast_softmax: bool = False,
        pdnorm_bn: bool = False,
        pdnorm_ln: bool = False,
        pdnorm_decouple: bool = True,
        pdnorm_adaptive: bool = False,
        pdnorm_affine: bool = True,
        pdnorm_conditions: Sequence[str] = ("ScanNet", "S3DIS", "Structured3D"),
    ) -> None:
        given = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        config = _checked_config(self, given)
        super().__init__(**config)
        width = config["enc_channels"][0]
        rules = Rules(
            cells=False,
            refreshed=config["refresh_convolution"],
            branch=config["conv_input"] == "branch",
            plus_one=config["depth_plus_one"],
        )
        stem = nn.SubmConv3d(config["in_channels"], width, 5, bias=False)
        self._build(rules, stem, self._norm("bn"), decoder=not config["cls_mode"])
        out = config["enc_channels"][-1]
        if not config["cls_mode"]:
            out = config["dec_channels"][0] if config["dec_channels"] else out
        if config["out_channels"] is not None:
            self.head = nn.Linear(out, config["out_channels"])

    def _norm(self, kind: str) -> Callable[[int], mlx.nn.Module]:
        """Makes a norm of "bn" or "ln" from its channels: one, or one per condition."""
        config = self._config
        affine = config.get("pdnorm_affine", True)

        def batch_norm(channels: int) -> mlx.nn.Module:
            return nn.BatchNorm(channels, eps=1e-3, momentum=config["momentum"], affine=affine)

        def layer_norm(channels: int) -> mlx.nn.Module:
            return nn.LayerNorm(channels, affine=affine)

        make = batch_norm if kind == "bn" else layer_norm
        if not config.get(f"pdnorm_{kind}", False):
            affine = True
            return make
        names, adaptive = config["pdnorm_conditions"], config["pdnorm_adaptive"]
        return lambda channels: nn.ConditionalNorm(channels, names, make, adaptive)

    def _block(self, side: str, s: int, rate: float) -> nn.TransformerBlock:
        rpe, shrink = self._config["enable_rpe"], not self._config["enable_flash"]
        attention = self._attention(side, s, rpe=rpe, shrink=shrink)
        return self._block_with(attention, side, s, rate, norm=self._norm("ln"))

    def select(self, condition: str, context: mx.array | None = None) -> None:
        """Chooses the norms of a condition, one of pdnorm_conditions, for the calls that follow.

        context: (1, 256) numbers of the condition, which adaptive norms need.
        """
        found = [m for m in self.modules() if isinstance(m, nn.ConditionalNorm)]
        if not found:
            raise ValueError(
                f"[{type(self).__name__}] condition: this network has one norm for all data sets; "
                "make it with pdnorm_bn=True or pdnorm_ln=True, or leave condition out"
            )
        for module in found:
            module.select(condition, context)

    def __call__(
        self,
        x: SparseTensor,
        *,
        condition: str | Sequence[str] | None = None,
        context: mx.array | None = None,
    ) -> SparseTensor | mx.array:
        """Features or logits.

        condition: the data set whose norms count; of a list the first, for the whole batch.
        context: (1, 256) numbers of the condition, where the norms are adaptive.
        """
        if condition is not None:
            self.select(condition if isinstance(condition, str) else condition[0], context)
        y = self.features(x)
        if "head" not in self:
            return y
        if not self._config["cls_mode"]:
            return self.head(y)
        return self.head(ops.global_avg_pool(y))

    def _extra_repr(self) -> str:
        return f"conv_input={self._config['conv_input']}"


_FLAGS = ("qkv_bias", "pre_norm", "shuffle_orders", "shuffle_pooled", "enable_rpe") + (
    "shuffle_in_evaluation",
    "enable_flash",
    "refresh_convolution",
    "depth_plus_one",
    "cls_mode",
)
_PDNORM = ("pdnorm_bn", "pdnorm_ln", "pdnorm_adaptive", "pdnorm_affine", "pdnorm_decouple")


def _checked_config(model: PointTransformerV3, given: dict[str, Any]) -> dict[str, Any]:
    """The configuration as plain numbers, lists and texts; a ValueError names what is wrong."""
    config = checked_shared(model, given, _FLAGS)
    config["cls_mode"] = config["cls_mode"] or flag(model, "enc_mode", given["enc_mode"])
    config["out_channels"] = given["out_channels"]
    if given["out_channels"] is not None:
        config["out_channels"] = integer(model, "out_channels", given["out_channels"])
    config.update(checked_stages(model, given, config["cls_mode"]))
    config["conv_input"] = one_of(model, "conv_input", given["conv_input"], ("sum", "branch"))
    config["attn_drop"] = 0.0
    config["momentum"] = number(model, "momentum", given["momentum"], 0, 1)
    flags = {key: flag(model, key, given[key]) for key in _PDNORM}
    if not flags["pdnorm_bn"] and not flags["pdnorm_ln"]:
        return config
    if not flags.pop("pdnorm_decouple"):
        raise ValueError(
            f"[{type(model).__name__}] pdnorm_decouple must be True, found False: one norm for all "
            "data sets does not run in the published code either"
        )
    names = given["pdnorm_conditions"]
    if not isinstance(names, (list, tuple)) or not names:
        raise ValueError(f"[{type(model).__name__}] pdnorm_conditions must name the data sets")
    return config | flags | {"pdnorm_conditions": [str(name) for name in names]}
