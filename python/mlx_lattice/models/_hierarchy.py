"""The encoder and decoder that Point Transformer V3, Sonata, Utonia and LitePT share.

    encoder  stem, then per stage: pooling (not the first), blocks
    decoder  per stage: unpooling with the skip of the encoder, blocks

A family says by `Rules` how its poolings and convolutions behave, and makes its own blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import mlx.core as mx
import mlx.nn

from .. import nn, ops
from ..core._checks import array, instance, integer, integers, listed, sparse_input
from ..nn._transformer import stochastic_depth
from ._model import Model

if TYPE_CHECKING:
    from ..core import SparseTensor
    from ..core.layouts import GridPooling


class Level(NamedTuple):
    """One level of an encoder.

    Attributes:
        tensor: The features after the blocks of the level.
        orders: The curves, as the blocks use them in turn.
        pooling: The blocks of the finer level that made this one; None at the finest.
        depth: Bits per axis of the curves; None for as many as the coordinates need.
        positions: (N, 3) real coordinates, means of the finer level, where they were given.
    """

    tensor: SparseTensor
    orders: list[str]
    pooling: GridPooling | None
    depth: int | None
    positions: mx.array | None

    @property
    def made_by(self) -> GridPooling:
        """The pooling of a level that is not the finest."""
        if self.pooling is None:
            raise ValueError("[Level.made_by] the finest level was not pooled")
        return self.pooling


@dataclass(frozen=True)
class Rules:
    """The differences between the families.

    Attributes:
        cells: Poolings go by grid cell, with rows by batch, x, y and z, and every level measures
            its curves anew. Otherwise they go by curve code.
        refreshed: The first convolution after an unpooling sees the sum of both branches; otherwise
            the skip alone.
        branch: The convolution of a later block sees the last branch of the block before it;
            otherwise its result.
        plus_one: The bits of a curve have room for the largest coordinate plus 1.
        positions: Rotary positions are real coordinates; otherwise those of the grid.
    """

    cells: bool
    refreshed: bool
    branch: bool = False
    plus_one: bool = True
    positions: bool = False


def upcast(levels: Sequence[Level], concatenate: int | None = 2) -> mx.array:
    """Features (N, C) on the finest level from all levels of an encoder.

    From the coarse end: for the first `concatenate` poolings the features of a level and those of
    its coarser level stand side by side, the own first; then the coarser ones are copied down.
    None concatenates everywhere, as linear heads want it. Published demos use 2.
    """
    levels = listed("models.upcast", "levels", levels, "the levels of an encoder")
    for level in levels:
        instance("models.upcast", "levels", level, Level, "a list of Level")
    if not levels:
        raise ValueError("[models.upcast] levels must hold at least one level")
    if concatenate is not None:
        concatenate = integer("models.upcast", "concatenate", concatenate, 0)
    feats = levels[-1].tensor.feats
    for step, s in enumerate(reversed(range(len(levels) - 1))):
        feats = ops.grid_unpool(feats, levels[s + 1].made_by)
        if concatenate is None or step < concatenate:
            feats = mx.concatenate([levels[s].tensor.feats, feats], axis=1)
    return feats


class Stage(mlx.nn.Module):
    """A change of level and the blocks after it."""

    def __init__(
        self,
        blocks: list[nn.TransformerBlock],
        down: nn.GridPool | None = None,
        up: nn.GridUnpool | None = None,
    ) -> None:
        super().__init__()
        if down is not None:
            self.down = down
        if up is not None:
            self.up = up
        self.blocks = blocks


class Hierarchy(Model):
    """Encoder and decoder over levels of voxels; families make `_block` and call `_build`."""

    def _block(self, side: str, s: int, rate: float) -> nn.TransformerBlock:
        """A block of stage s of "enc" or "dec" with a rate of stochastic depth."""
        raise NotImplementedError

    def _attention(self, side: str, s: int, **options: Any) -> nn.SerializedAttention:
        config = self._config
        return nn.SerializedAttention(
            config[f"{side}_channels"][s],
            config[f"{side}_num_head"][s],
            config[f"{side}_patch_size"][s],
            config["order"][0],
            qkv_bias=config["qkv_bias"],
            scale=config["qk_scale"],
            dropout=config["proj_drop"],
            **options,
        )

    def _block_with(
        self,
        attention: nn.SerializedAttention | None,
        side: str,
        s: int,
        rate: float,
        **options: Any,
    ) -> nn.TransformerBlock:
        config = self._config
        return nn.TransformerBlock(
            config[f"{side}_channels"][s],
            attention,
            mlp_ratio=config["mlp_ratio"],
            drop_path=rate,
            dropout=config["proj_drop"],
            pre_norm=config["pre_norm"],
            **options,
        )

    def _build(
        self, rules: Rules, stem: mlx.nn.Module, norm: Callable[[int], mlx.nn.Module], decoder: bool
    ) -> None:
        config = self._config
        self._rules = rules
        self.stem, self.stem_norm = stem, norm(config["enc_channels"][0])
        self.activation = nn.GELU()
        self.enc = self._encoder(norm)
        if decoder:
            self.dec = self._decoder(norm)

    def _encoder(self, norm: Callable[[int], mlx.nn.Module]) -> list[Stage]:
        config, stages = self._config, []
        channels = config["enc_channels"]
        order = "lexicographic" if self._rules.cells else config["order"][0]
        for s, rates in enumerate(stochastic_depth(config["drop_path"], config["enc_depths"])):
            down = None
            if s:
                stride = config["stride"][s - 1]
                down = nn.GridPool(channels[s - 1], channels[s], stride, order, norm=norm)
            stages.append(Stage([self._block("enc", s, rate) for rate in rates], down=down))
        return stages

    def _decoder(self, norm: Callable[[int], mlx.nn.Module]) -> list[Stage]:
        """Finest first, as the configuration names them."""
        config = self._config
        channels = [*config["dec_channels"], config["enc_channels"][-1]]
        rates = stochastic_depth(config["drop_path"], config["dec_depths"])
        return [
            Stage(
                [self._block("dec", s, rate) for rate in stage_rates[::-1]],
                up=nn.GridUnpool(
                    channels[s + 1], config["enc_channels"][s], channels[s], norm=norm
                ),
            )
            for s, stage_rates in enumerate(rates)
        ]

    def _shuffled(self, orders: list[str], wanted: bool) -> list[str]:
        mixed = wanted and (self.training or self._config.get("shuffle_in_evaluation", False))
        if not mixed or len(orders) < 2:
            return orders
        return [orders[i] for i in integers(mx.random.permutation(len(orders)))]

    def _depth(self, x: SparseTensor) -> int | None:
        """Bits per axis of the curves of a level, or None for as many as it needs."""
        if not self._rules.plus_one or x.shape[0] == 0:
            return None
        cells = x.coords[:, 1:]
        low, high = cast("int", cells.min().item()), cast("int", cells.max().item())
        return None if low < 0 else (high + 1).bit_length()

    def _embed(self, x: SparseTensor, mask: mx.array | None) -> SparseTensor:
        y = self.activation(self.stem_norm(self.stem(x)))
        if mask is None:
            return y
        if "mask_token" not in self:
            raise ValueError(
                f"[{type(self).__name__}] mask needs a mask token; make the network with "
                "mask_token=True"
            )
        chosen = array(self, "mask", mask, x.shape[0]).astype(mx.bool_)[:, None]
        return y.with_feats(mx.where(chosen, self.mask_token, y.feats))

    def _pooled(self, level: Level, s: int) -> Level:
        """The level after the pooling of stage s, before its blocks."""
        config, cells = self._config, self._rules.cells
        order = "lexicographic" if cells else level.orders[0]
        x, pooling = self.enc[s].down(level.tensor, order, None if cells else level.depth)
        positions, depth = level.positions, level.depth
        if positions is not None:
            fine = level.tensor.with_feats(positions)
            positions = ops.grid_pool(fine, pooling, "mean").feats
        if cells:
            depth = self._depth(x)
        elif depth is not None:
            step = config["stride"][s - 1].bit_length() - 1
            depth -= step if step <= depth else 0
        orders = self._shuffled(level.orders, config.get("shuffle_pooled", True))
        return Level(x, orders, pooling, depth, positions)

    def _through(self, stage: Stage, level: Level, seen: SparseTensor | None) -> SparseTensor:
        """The tensor of a level after the blocks of a stage."""
        x, orders = level.tensor, level.orders
        for i, block in enumerate(stage.blocks):
            options: dict[str, Any] = {"depth": level.depth}
            if self._rules.positions:
                options["positions"] = level.positions
            x, branch = block.steps(x, orders[i % len(orders)], seen, **options)
            seen = branch if self._rules.branch else None
        return x

    def encode(
        self,
        x: SparseTensor,
        *,
        positions: mx.array | None = None,
        mask: mx.array | None = None,
    ) -> list[Level]:
        """All levels of the encoder, finest first.

        positions: (N, 3) real coordinates of the voxels. Only Utonia uses them; the levels of all
            networks carry their means.
        mask: (N,) booleans; rows that are True begin as the mask token.
        """
        sparse_input(self, x, self._config["in_channels"])
        if positions is not None:
            positions = array(self, "positions", positions, x.shape[0], 3).astype(mx.float32)
        orders = self._shuffled(list(self._config["order"]), self._config["shuffle_orders"])
        level, levels = Level(self._embed(x, mask), orders, None, self._depth(x), positions), []
        for s, stage in enumerate(self.enc):
            if s:
                level = self._pooled(level, s)
            level = level._replace(tensor=self._through(stage, level, None))
            levels.append(level)
        return levels

    def decode(self, levels: Sequence[Level]) -> list[SparseTensor]:
        """Features of all levels after the decoder, finest first; the coarsest is the encoder's.

        levels: what `encode` returned. A network without a decoder gives a ValueError.
        """
        if "dec" not in self:
            raise ValueError(f"[{type(self).__name__}.decode] this network has no decoder")
        tensors = [levels[-1].tensor]
        for s in reversed(range(len(self.dec))):
            pooling = levels[s + 1].made_by
            y, branch = self.dec[s].up(tensors[0], levels[s].tensor, pooling)
            seen = None if self._rules.refreshed else branch
            tensors.insert(0, self._through(self.dec[s], levels[s]._replace(tensor=y), seen))
        return tensors

    def features(
        self,
        x: SparseTensor,
        *,
        positions: mx.array | None = None,
        mask: mx.array | None = None,
    ) -> SparseTensor:
        """The finest tensor of the decoder, or without a decoder the coarsest of the encoder."""
        levels = self.encode(x, positions=positions, mask=mask)
        return self.decode(levels)[0] if "dec" in self else levels[-1].tensor
