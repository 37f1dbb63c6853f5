"""Sonata, Concerto and Utonia: encoders that were trained without labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx

from .. import nn
from ..core._checks import integer, number, positive
from ._hierarchy import Hierarchy, Level, Rules, upcast
from ._stage_config import checked_shared, checked_stages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core import GeometryPlan, SparseTensor

_FLAGS = ("qkv_bias", "pre_norm", "shuffle_orders", "enable_rpe", "enable_flash") + (
    "mask_token",
    "enc_mode",
)


class Sonata(Hierarchy):
    """The encoder of Sonata and Concerto: x (N, in_channels) -> features of the coarsest level.

    Wu et al., "Sonata: Self-Supervised Learning of Reliable Point Representations", CVPR 2025;
    Zhang et al., "Concerto", 2025. Pointcept calls the network PT-v3m2. It differs from
    `PointTransformerV3`: a linear stem, LayerNorm everywhere, poolings by grid cell of any stride,
    and convolutions that see the sum after an unpooling.

    `net(x)` returns the coarsest tensor, or with a decoder the finest. `net.encode(x)` returns all
    levels; `features.upcast` carries them to the voxels. Orders are mixed in training only.

    Args:
        in_channels: Of the published weights 9: coordinates, color and normal.
        order, stride, enc_*, dec_*, mlp_ratio, qkv_bias, qk_scale, attn_drop, proj_drop, drop_path,
            pre_norm, enable_rpe, enable_flash: As in `PointTransformerV3`; stride is any integer.
        layer_scale: The start of learned factors per channel of both branches of a block, or None.
        mask_token: Whether there is a token that takes the place of masked rows.
        enc_mode: Whether there is no decoder.
        out_channels: Classes of a linear head, or None. It reads the finest level of the decoder,
            or without a decoder all levels side by side, as the published linear probes do.
        shuffle_orders: Mixes the orders in training.
        upcast_attention, upcast_softmax, traceable, freeze_encoder: Change nothing here: sums of
            attention are always float32, all levels are kept, and `freeze()` freezes.

    Raises:
        ValueError: A list has another length than there are stages, or an option has a value that
            this network does not have; the message names it.

    Examples:
        >>> from mlx_lattice import models, samples
        >>> net = models.Sonata(
        ...     4, stride=(2,), enc_depths=(1, 1), enc_channels=(8, 16), enc_num_head=(1, 2),
        ...     enc_patch_size=(64, 64),
        ... )
        >>> net.eval()(samples.tensor()).shape
        (4, 16)
    """

    def __init__(
        self,
        in_channels: int = 9,
        order: Sequence[str] = ("z", "z-trans", "hilbert", "hilbert-trans"),
        stride: Sequence[int] = (2, 2, 2, 2),
        enc_depths: Sequence[int] = (3, 3, 3, 12, 3),
        enc_channels: Sequence[int] = (48, 96, 192, 384, 512),
        enc_num_head: Sequence[int] = (3, 6, 12, 24, 32),
        enc_patch_size: Sequence[int] = (1024, 1024, 1024, 1024, 1024),
        dec_depths: Sequence[int] = (2, 2, 2, 2),
        dec_channels: Sequence[int] = (64, 96, 192, 384),
        dec_num_head: Sequence[int] = (4, 6, 12, 24),
        dec_patch_size: Sequence[int] = (1024, 1024, 1024, 1024),
        mlp_ratio: float = 4,
        qkv_bias: bool = True,
        qk_scale: float | None = None,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        drop_path: float = 0.3,
        layer_scale: float | None = None,
        pre_norm: bool = True,
        shuffle_orders: bool = True,
        enable_rpe: bool = False,
        enable_flash: bool = True,
        upcast_attention: bool = False,
        upcast_softmax: bool = False,
        traceable: bool = True,
        mask_token: bool = True,
        enc_mode: bool = True,
        freeze_encoder: bool = False,
        out_channels: int | None = None,
    ) -> None:
        given = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        super().__init__(**self._checked(given))
        self._make()

    def _checked(self, given: dict[str, Any]) -> dict[str, Any]:
        config = checked_shared(self, given, _FLAGS)
        scale = given["layer_scale"]
        config["layer_scale"] = None if scale is None else number(self, "layer_scale", scale)
        out = given["out_channels"]
        config["out_channels"] = None if out is None else integer(self, "out_channels", out)
        return config | checked_stages(self, given, config["enc_mode"])

    def _make(self) -> None:
        config = self._config
        width = config["enc_channels"][0]
        stem = nn.Linear(config["in_channels"], width)
        rules = Rules(cells=True, refreshed=True, positions="rope_base" in config)
        self._build(rules, stem, nn.LayerNorm, decoder=not config["enc_mode"])
        if config["mask_token"]:
            self.mask_token = mx.random.normal((1, width), scale=0.02)
        if config["out_channels"] is not None:
            all_levels = config["enc_mode"] or not config["dec_channels"]
            read = sum(config["enc_channels"]) if all_levels else config["dec_channels"][0]
            self.head = nn.Linear(read, config["out_channels"])

    def _rope(self, side: str) -> float | None:
        """The base of rotary positions of the encoder or decoder."""
        return None

    def _block(self, side: str, s: int, rate: float) -> nn.TransformerBlock:
        rpe, shrink = self._config["enable_rpe"], not self._config["enable_flash"]
        attention = self._attention(side, s, rpe=rpe, shrink=shrink, rope=self._rope(side))
        scale = self._config["layer_scale"]
        return self._block_with(attention, side, s, rate, layer_scale=scale)

    def __call__(self, x: SparseTensor, *, mask: mx.array | None = None) -> SparseTensor:
        """The coarsest tensor, or with a decoder the finest; with a head the logits of x.

        mask: rows that begin as the mask token.
        """
        return self._answer(x, None, mask)

    def _answer(
        self, x: SparseTensor, positions: mx.array | None, mask: mx.array | None
    ) -> SparseTensor:
        if "head" not in self:
            return self.features(x, positions=positions, mask=mask)
        levels = self.encode(x, positions=positions, mask=mask)
        seen = self.decode(levels)[0].feats if "dec" in self else upcast(levels, None)
        return x.with_feats(self.head(seen))


class Utonia(Sonata):
    """The encoder of Utonia (Pointcept PT-v3m3): Sonata with rotary positions in every block.

    `net(x, positions=points)` takes the real coordinates of the voxels (N, 3), as the transform
    makes them: meters times a scale, centered. Deeper levels use the means of their rows. Heads
    have a multiple of 6 channels.

    Args:
        rope_base: The base of the angles, 10 as published; None has no rotary positions.
        dec_rope_enable: Whether the blocks of the decoder turn too.
        shift_coords, jitter_coords, rescale_coords: Augmentations of the positions in training in
            the published code; without effect here: augment the clouds.
        in_channels, order, stride, enc_*, dec_*, mlp_ratio, qkv_bias, qk_scale, attn_drop,
            proj_drop, drop_path, layer_scale, pre_norm, shuffle_orders, enable_rpe, enable_flash,
            upcast_attention, upcast_softmax, traceable, mask_token, enc_mode, freeze_encoder,
            out_channels: As in `Sonata`.
    """

    def __init__(
        self,
        in_channels: int = 9,
        order: Sequence[str] = ("z", "z-trans", "hilbert", "hilbert-trans"),
        stride: Sequence[int] = (2, 2, 2, 2),
        enc_depths: Sequence[int] = (3, 3, 3, 12, 3),
        enc_channels: Sequence[int] = (54, 108, 216, 432, 576),
        enc_num_head: Sequence[int] = (3, 6, 12, 24, 32),
        enc_patch_size: Sequence[int] = (1024, 1024, 1024, 1024, 1024),
        dec_depths: Sequence[int] = (2, 2, 2, 2),
        dec_channels: Sequence[int] = (54, 108, 216, 432),
        dec_num_head: Sequence[int] = (3, 6, 12, 24),
        dec_patch_size: Sequence[int] = (1024, 1024, 1024, 1024),
        dec_rope_enable: bool = True,
        mlp_ratio: float = 4,
        qkv_bias: bool = True,
        qk_scale: float | None = None,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        drop_path: float = 0.3,
        layer_scale: float | None = None,
        pre_norm: bool = True,
        shuffle_orders: bool = True,
        enable_rpe: bool = False,
        enable_flash: bool = True,
        upcast_attention: bool = False,
        upcast_softmax: bool = False,
        traceable: bool = True,
        mask_token: bool = True,
        enc_mode: bool = True,
        freeze_encoder: bool = False,
        rope_base: float | None = 10,
        shift_coords: float | None = None,
        jitter_coords: float | None = None,
        rescale_coords: float | None = None,
        out_channels: int | None = None,
    ) -> None:
        given = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        Hierarchy.__init__(self, **self._checked(given))
        self._make()

    def _checked(self, given: dict[str, Any]) -> dict[str, Any]:
        config, base = super()._checked(given), given["rope_base"]
        config["rope_base"] = None if base is None else positive(self, "rope_base", base)
        config["dec_rope_enable"] = bool(given["dec_rope_enable"])
        return config

    def _rope(self, side: str) -> float | None:
        turned = side == "enc" or self._config["dec_rope_enable"]
        base: float | None = self._config["rope_base"]
        return base if turned else None

    def encode(
        self,
        x: SparseTensor,
        *,
        positions: mx.array | None = None,
        mask: mx.array | None = None,
    ) -> list[Level]:
        """As `Sonata.encode`; positions (N, 3) are needed."""
        if positions is None and self._config["rope_base"] is not None:
            raise ValueError(
                "[Utonia] positions are missing: the real coordinates (N, 3) of the voxels, as the "
                "transform makes them; not those of the grid"
            )
        return super().encode(x, positions=positions, mask=mask)

    def __call__(
        self,
        x: SparseTensor,
        *,
        positions: mx.array | None = None,
        mask: mx.array | None = None,
    ) -> SparseTensor:
        """As `Sonata.__call__`; positions: (N, 3) real coordinates."""
        return self._answer(x, positions, mask)

    def plan(self, x: SparseTensor, gradients: bool = True) -> GeometryPlan:
        """As `Model.plan`: relations do not depend on positions."""
        rope, self._config["rope_base"] = self._config["rope_base"], None
        try:
            return super().plan(x, gradients)
        finally:
            self._config["rope_base"] = rope
