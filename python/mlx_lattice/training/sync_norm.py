"""Synchronized batch normalization: statistics over the rows of all ranks.

    mean = sum over ranks of sum x / n,   var = sum over ranks of sum (x - mean)^2 / n,   n of all
    ranks

Every rank must normalize as often as the others: each step needs the same number of items per rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx

from .. import nn
from ..nn._features import _on_rows

if TYPE_CHECKING:
    from mlx.nn import Module

    from mlx_lattice.core import SparseTensor
    from mlx_lattice.training.distributed import Ranks

    from .._types import Rows


def synchronize_batch_norm(model: Module, ranks: Ranks) -> int:
    """Turns every nn.BatchNorm of a model into a synchronized one; returns how many.

    One rank alone keeps the usual layers, which give the same result.
    """
    found = [m for m in model.modules() if type(m) in (nn.BatchNorm, SyncBatchNorm)]
    if ranks.size > 1:
        for module in found:
            module.__class__ = SyncBatchNorm
            module._ranks = ranks
    return len(found)


class SyncBatchNorm(nn.BatchNorm):
    """nn.BatchNorm whose training statistics are those of all ranks."""

    def __call__(  # type: ignore[override]
        self, x: Rows, residual: Rows | None = None, relu: bool = False
    ) -> Rows:
        if not self.training:
            return super().__call__(x, residual, relu)
        added = residual.feats if isinstance(residual, SparseTensor) else residual
        return _on_rows(self, x, lambda f: self._over_ranks(f, added, relu))

    def _over_ranks(self, f: mx.array, residual: mx.array | None, relu: bool) -> mx.array:
        x = f.astype(mx.float32)
        add = total_over(self._ranks)
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


def total_over(ranks: Ranks) -> Any:
    """Sum over the ranks whose derivative is the sum of the ranks' cotangents."""

    @mx.custom_function
    def add(a: Any) -> Any:
        return ranks.total(a)

    @add.vjp
    def add_vjp(_inputs: Any, cotangent: Any, _output: Any) -> Any:
        return ranks.total(cotangent)

    return add
