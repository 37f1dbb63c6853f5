"""Synchronized batch normalization: statistics over the rows of all ranks.

    mean = sum over ranks of sum x / n,   var = sum over ranks of sum (x - mean)^2 / n

with n rows in all ranks together.
Every rank must normalize as often as the others: each step needs the same number of items per rank.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import mlx.core as mx

from .. import nn
from ..core import SparseTensor, _checks
from ..nn._features import _on_rows

if TYPE_CHECKING:
    from mlx.nn import Module

    from ..core.types import Rows
    from .distributed import Ranks


def synchronize_batch_norm(model: Module, ranks: Ranks) -> int:
    """Turns every `nn.BatchNorm` of a model into a `SyncBatchNorm`.

    One rank alone keeps the usual layers, which give the same result.

    Args:
        model: The network.
        ranks: The ranks that train together.

    Returns:
        The number of layers.

    Raises:
        TypeError: `model` is no module, or `ranks` are no `Ranks`.
    """
    _checks.model("synchronize_batch_norm", model)
    if not hasattr(ranks, "size"):
        _checks.wrong_type("synchronize_batch_norm", "ranks", ranks, "training.Ranks")
    found = [m for m in model.modules() if type(m) in (nn.BatchNorm, SyncBatchNorm)]
    if ranks.size > 1:
        for module in found:
            module.__class__ = SyncBatchNorm
            module._ranks = ranks
    return len(found)


class SyncBatchNorm(nn.BatchNorm):
    """`nn.BatchNorm` whose training statistics are those of the rows of all ranks.

    `synchronize_batch_norm` makes it. Every rank must normalize as often as the others: each step
    needs the same number of items per rank.
    """

    _ranks: Ranks | None = None

    def __call__(self, x: Rows, residual: Rows | None = None, relu: bool = False) -> Rows:
        if not self.training or self._ranks is None:
            return super().__call__(x, residual, relu)
        added = residual.feats if isinstance(residual, SparseTensor) else residual
        ranks = self._ranks
        return _on_rows(self, x, lambda f: self._over_ranks(f, added, relu, ranks))

    def _over_ranks(
        self, f: mx.array, residual: mx.array | None, relu: bool, ranks: Ranks
    ) -> mx.array:
        x = f.astype(mx.float32)
        add = total_over(ranks)
        n = add(mx.array([float(f.shape[0])]))
        mean = add(x.sum(axis=0)) / n
        centered = x - mean
        var = add((centered * centered).sum(axis=0)) / n
        y = centered * mx.rsqrt(var + self._eps)
        if "weight" in self:
            y = y * self.weight + self.bias
        if residual is not None:
            y = y + residual.astype(mx.float32)
        if relu:
            y = mx.maximum(y, 0)
        if self._track:
            m = self._momentum
            unbiased = mx.stop_gradient(var * n / mx.maximum(n - 1, 1))
            self.running_mean = (1 - m) * self.running_mean + m * mx.stop_gradient(mean)
            self.running_var = (1 - m) * self.running_var + m * unbiased
        return y.astype(f.dtype)


def total_over(ranks: Ranks) -> Callable[[mx.array], mx.array]:
    """Sum over the ranks whose derivative is the sum of the ranks' cotangents."""

    @mx.custom_function
    def add(a: mx.array) -> mx.array:
        return ranks.total(a)

    @add.vjp
    def add_vjp(_inputs: object, cotangent: mx.array, _output: object) -> mx.array:
        return ranks.total(cotangent)

    return cast("Callable[[mx.array], mx.array]", add)
