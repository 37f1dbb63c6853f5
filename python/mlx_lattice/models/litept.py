"""LitePT: convolutions where there are many voxels, attention where there are few."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import nn
from ..core._checks import flag, integer, number, positive, told
from ._hierarchy import Hierarchy, Rules
from ._stage_config import checked_shared, checked_stages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import mlx.core as mx
    import mlx.nn

    from ..core import SparseTensor


class LitePT(Hierarchy):
    """LitePT: x (N, in_channels) -> features or logits on the coordinates of x.

    Published as "LitePT: Lighter Yet Stronger Point Transformer", prs-eth, 2025. Early stages have
    convolutions only, late stages attention with rotary positions of the grid. The defaults are
    LitePT-S.

    Args:
        out_channels: Classes of a linear head after the decoder, or None.
        enc_conv, enc_attn: One flag per stage. A block with convolution adds norm(linear(conv(x)));
            without, x = norm(x). A block with attention has an MLP too; without, neither.
        enc_rope_freq: The base of the rotary positions per stage.
        dec_depths: Blocks after each unpooling; 0 for none.
        dec_conv, dec_attn, dec_rope_freq: The same of the decoder. Attention there needs attention
            in the encoder stage of the level.
        in_channels, order, stride, enc_depths, enc_channels, enc_num_head, enc_patch_size,
            dec_channels, dec_num_head, dec_patch_size, mlp_ratio, qkv_bias, qk_scale, attn_drop,
            proj_drop, drop_path, pre_norm, shuffle_orders, momentum: As in `PointTransformerV3`.
        enc_mode: Whether there is no decoder; the result is the coarsest tensor.

    Raises:
        ValueError: A list has another length than there are stages, or heads with attention do not
            have a multiple of 6 channels.

    Examples:
        >>> from mlx_lattice import models, samples
        >>> net = models.LitePT(
        ...     4, 3, stride=(2,), enc_depths=(1, 1), enc_channels=(12, 24), enc_num_head=(1, 2),
        ...     enc_patch_size=(64, 64), enc_conv=(True, False), enc_attn=(False, True),
        ...     enc_rope_freq=(100, 100), dec_depths=(0,), dec_channels=(12,), dec_num_head=(1,),
        ...     dec_patch_size=(64,), dec_conv=(False,), dec_attn=(False,), dec_rope_freq=(100,),
        ... )
        >>> net.eval()(samples.tensor()).shape
        (6, 3)
    """

    def __init__(
        self,
        in_channels: int = 6,
        out_channels: int | None = None,
        order: Sequence[str] = ("z", "z-trans", "hilbert", "hilbert-trans"),
        stride: Sequence[int] = (2, 2, 2, 2),
        enc_depths: Sequence[int] = (2, 2, 2, 6, 2),
        enc_channels: Sequence[int] = (36, 72, 144, 252, 504),
        enc_num_head: Sequence[int] = (2, 4, 8, 14, 28),
        enc_patch_size: Sequence[int] = (1024, 1024, 1024, 1024, 1024),
        enc_conv: Sequence[bool] = (True, True, True, False, False),
        enc_attn: Sequence[bool] = (False, False, False, True, True),
        enc_rope_freq: Sequence[float] = (100.0, 100.0, 100.0, 100.0, 100.0),
        dec_depths: Sequence[int] = (0, 0, 0, 0),
        dec_channels: Sequence[int] = (72, 72, 144, 252),
        dec_num_head: Sequence[int] = (4, 4, 8, 14),
        dec_patch_size: Sequence[int] = (1024, 1024, 1024, 1024),
        dec_conv: Sequence[bool] = (False, False, False, False),
        dec_attn: Sequence[bool] = (False, False, False, False),
        dec_rope_freq: Sequence[float] = (100.0, 100.0, 100.0, 100.0),
        mlp_ratio: float = 4,
        qkv_bias: bool = True,
        qk_scale: float | None = None,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        drop_path: float = 0.3,
        pre_norm: bool = True,
        shuffle_orders: bool = True,
        enc_mode: bool = False,
        momentum: float = 0.01,
    ) -> None:
        given = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        config = checked_shared(self, given, ("qkv_bias", "pre_norm", "shuffle_orders", "enc_mode"))
        config.update(checked_stages(self, given, config["enc_mode"], least_depth=0))
        config.update(self._checked_kinds(given, config))
        config["out_channels"] = given["out_channels"]
        if out_channels is not None:
            config["out_channels"] = integer(self, "out_channels", out_channels)
        config["momentum"] = number(self, "momentum", momentum, 0, 1)
        super().__init__(**config)
        stem = nn.SubmConv3d(config["in_channels"], config["enc_channels"][0], 5, bias=False)
        rules = Rules(cells=True, refreshed=True)
        self._build(rules, stem, self._norm(), decoder=not config["enc_mode"])
        if out_channels is not None:
            self.head = nn.Linear(config[self._last_side()][0], config["out_channels"])

    def _last_side(self) -> str:
        if self._config["enc_mode"]:
            raise ValueError("[LitePT] out_channels needs a decoder; leave enc_mode out")
        return "dec_channels" if self._config["dec_channels"] else "enc_channels"

    def _checked_kinds(self, given: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
        """Which stages have convolutions and attention, and the bases of their positions."""
        made: dict[str, Any] = {}
        for side in ("enc",) if config["enc_mode"] else ("enc", "dec"):
            count = len(config[f"{side}_depths"])
            for key in (f"{side}_conv", f"{side}_attn", f"{side}_rope_freq"):
                values = given[key]
                if not isinstance(values, (list, tuple)) or len(values) != count:
                    raise ValueError(
                        f"[LitePT] {key} must have {count} values, one per stage, found "
                        f"{told(values)}"
                    )
                check = positive if key.endswith("freq") else flag
                made[key] = [check(self, key, value) for value in values]
        return made

    def _norm(self) -> Callable[[int], mlx.nn.Module]:
        momentum = self._config["momentum"]
        return lambda channels: nn.BatchNorm(channels, eps=1e-3, momentum=momentum)

    def _block(self, side: str, s: int, rate: float) -> nn.TransformerBlock:
        config, attention = self._config, None
        if config[f"{side}_attn"][s]:
            attention = self._attention(side, s, rope=config[f"{side}_rope_freq"][s])
        position = True if config[f"{side}_conv"][s] else "norm"
        return self._block_with(attention, side, s, rate, position=position)

    def __call__(self, x: SparseTensor) -> SparseTensor | mx.array:
        y = self.features(x)
        return self.head(y) if "head" in self else y
