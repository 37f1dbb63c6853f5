"""Training with the rounding of integer networks in the loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn

from ..core import SparseTensor
from ..models._integer_layers import is_layer
from ..models._integer_ranges import layers_of, observe, replace
from ..models._integer_rounding import Rounding

if TYPE_CHECKING:
    from ..models import Model


@contextmanager
def integer_rounding(net: Model, scans: Iterable[Any]) -> Iterator[None]:
    """Inside the `with` block the network computes with rounded weights and activations.

    Formats are those that `models.quantize` would choose after seeing the scans, but the lane rule
    is left out. Rounding has the derivative of what it rounds, and 0 where it clamps (Bengio,
    Leonard and Courville, "Estimating or Propagating Gradients Through Stochastic Neurons", 2013).
    So a network that loses accuracy in integers learns to lose less: train a few epochs inside the
    block with a tenth of the rate, then call `models.quantize`.

    Args:
        net: A trained network; afterwards it has its layers again, with what they learned.
        scans: What the network is called with, a few times.

    Examples:
        >>> from mlx_lattice import models, samples, training
        >>> net = models.MinkUNet(4, 3, depth=14, width=4)
        >>> with training.integer_rounding(net, [samples.tensor()]):
        ...     net(samples.tensor()).shape
        (6, 3)
    """
    rounding = Rounding(net, observe(net, list(scans)))
    layers = [(n, m) for n, m in layers_of(net) if is_layer(m)]
    replace(net, [(n, _Rounded(m, n, rounding)) for n, m in layers])
    try:
        yield
    finally:
        replace(net, layers)


class _Rounded(mlx.nn.Module):
    """A layer whose weight, and whose input or output, are multiples of a step."""

    def __init__(self, inner: mlx.nn.Module, name: str, rounding: Rounding) -> None:
        super().__init__()
        self.inner = inner
        seen = rounding.seen[name]
        made = [n and rounding.formats[n] for n in seen.inputs]
        self._step_in = None if "uint8" in made else seen.top_input / 127 or None
        self._step_out = seen.top / 255 if rounding.formats[name] == "uint8" else None

    def __getattr__(self, name: str) -> Any:
        if name in self or name.startswith("_") or "inner" not in self:
            return super().__getattr__(name)
        return getattr(self["inner"], name)

    def _run(self, call: Any, x: Any, *given: Any, **more: Any) -> Any:
        if self._step_in is not None:
            step = self._step_in
            x = _each(x, lambda feats: rounded(feats, step, -127, 127))
        weight = self.inner.weight
        axes = tuple(range(1, weight.ndim))
        unit = mx.maximum(mx.max(mx.abs(weight), axis=axes, keepdims=True), 1e-12) / 127
        self.inner.weight = rounded(weight, mx.stop_gradient(unit), -127, 127)
        try:
            y = call(x, *given, **more)
        finally:
            self.inner.weight = weight
        if self._step_out is None:
            return y
        step = self._step_out
        return _each(y, lambda feats: rounded(feats, step, 0, 255))

    def __call__(self, x: Any, *given: Any, **more: Any) -> Any:
        return self._run(self.inner, x, *given, **more)

    def with_norm(self, x: Any, *given: Any, **more: Any) -> Any:
        return self._run(self.inner.with_norm, x, *given, **more)


def rounded(x: mx.array, step: float | mx.array, low: float, high: float) -> mx.array:
    """Codes times their step; the derivative is that of the clamped values."""
    codes = mx.clip(x / step, low, high)
    return (codes + mx.stop_gradient(mx.round(codes) - codes)) * step


def _each(x: Any, run: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return [_each(part, run) for part in x]
    return x.with_feats(run(x.feats)) if isinstance(x, SparseTensor) else run(x)
