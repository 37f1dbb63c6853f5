"""Calibration of integer networks: the sources and the largest values of each layer's tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn
from mlx.utils import tree_flatten, tree_unflatten

from .. import nn
from ..core import SparseTensor
from ..nn._pool import _Global
from ._integer_layers import Leave, is_layer

if TYPE_CHECKING:
    from ._model import Model

Made = list[tuple[object, str]]


@dataclass
class Seen:
    """The observations of one layer during calibration."""

    inputs: list[str | None] = field(default_factory=list)  # the layer that made x, if any
    widths: list[int] = field(default_factory=list)  # channels of each part of x
    residual: str | None = None
    adds: bool = False  # whether a residual is added, from any layer
    norm: str | None = None
    relu: bool = False
    largest: mx.array = field(default_factory=lambda: mx.zeros((1,)))  # |y| by output channel
    top: float = 0.0  # |y| of all channels, or a percentile of it
    largest_input: mx.array = field(default_factory=lambda: mx.zeros((1,)))  # |x| by channel
    top_input: float = 0.0


class Observed(mlx.nn.Module):
    """A layer that writes down where its tensors come from and how large its values become."""

    def __init__(self, inner: mlx.nn.Module, name: str, watch: Watch) -> None:
        super().__init__()
        self.inner = inner
        self._name, self._watch = name, (watch,)

    def __getattr__(self, name: str) -> Any:
        if name in self or name.startswith("_") or "inner" not in self:
            return super().__getattr__(name)
        return getattr(self["inner"], name)

    def __call__(self, x: Any, *given: Any, **more: Any) -> Any:
        y = self.inner(x, *given, **more)
        self._watch[0].note(self._name, x, y, None, None, False)
        return y

    def with_norm(
        self,
        x: Any,
        norm: mlx.nn.Module,
        residual: SparseTensor | None = None,
        relu: bool = False,
        coordinates: Any = None,
    ) -> SparseTensor:
        y: SparseTensor = self.inner.with_norm(x, norm, residual, relu, coordinates)
        self._watch[0].note(self._name, x, y, norm, residual, relu)
        return y


class Watch:
    """Notes of all layers of a network over all scans."""

    def __init__(self, net: Model, percentile: float) -> None:
        self.seen: dict[str, Seen] = {}
        self.values: dict[str, Any] | None = None  # the results of each layer, if wanted
        self._made: Made = []
        self._percentile = percentile
        self._norms = {id(m): n for n, m in net.named_modules() if isinstance(m, nn.BatchNorm)}

    def begin_scan(self) -> None:
        self._made = []

    def _maker(self, x: object) -> str | None:
        return next((name for thing, name in self._made if thing is x), None)

    def _top(self, feats: mx.array) -> float:
        if self._percentile == 100:
            return float(mx.max(mx.abs(feats.astype(mx.float32))))
        import numpy as np

        return float(np.percentile(np.abs(np.array(feats)), self._percentile))

    def note(
        self,
        name: str,
        x: Any,
        y: Any,
        norm: mlx.nn.Module | None,
        residual: SparseTensor | None,
        relu: bool,
    ) -> None:
        seen = self.seen.setdefault(name, Seen())
        parts = list(x) if isinstance(x, (list, tuple)) else [x]
        seen.inputs = [self._maker(part) for part in parts]
        seen.widths = [feats_of(part).shape[1] for part in parts]
        seen.adds, seen.residual = residual is not None, self._maker(residual)
        seen.norm, seen.relu = self._norms.get(id(norm)), relu
        out = feats_of(y)
        if out.shape[0] == 0:
            raise ValueError(f"[models.quantize] layer {name!r} gets no rows from a scan")
        seen.largest = _larger(seen.largest, out)
        seen.top = max(seen.top, self._top(out))
        if None in seen.inputs:
            joined = mx.concatenate([feats_of(part) for part in parts], axis=1)
            seen.largest_input = _larger(seen.largest_input, joined)
            seen.top_input = max(seen.top_input, self._top(joined))
        self._made.append((y, name))
        if self.values is not None:
            self.values[name] = out


def feats_of(x: SparseTensor | mx.array) -> mx.array:
    """Rows (N, C) of a tensor or an array."""
    return x if isinstance(x, mx.array) else x.feats


def _larger(before: mx.array, feats: mx.array) -> mx.array:
    now = mx.maximum(before, mx.max(mx.abs(feats.astype(mx.float32)), axis=0))
    mx.eval(now)
    return now


def layers_of(net: Model) -> list[tuple[str, mlx.nn.Module]]:
    """The layers that can become integers, by name, in the order of the network."""
    watched = (nn.GELU, nn.Sigmoid, nn.Pool3d, _Global, Leave)
    return [
        (name, module)
        for name, module in net.named_modules()
        if (is_layer(module) or isinstance(module, watched))
        and name.startswith(getattr(net, "_integer_part", ""))
    ]


def replace(net: mlx.nn.Module, layers: Sequence[tuple[str, mlx.nn.Module]]) -> None:
    """Replaces modules by name."""
    net.update_modules(tree_unflatten(list(layers)))


def observe(
    net: Model, scans: Iterable[Any], percentile: float = 100, values: dict[str, Any] | None = None
) -> dict[str, Seen]:
    """The observations of all layers on the scans; the network is unchanged afterwards.

    values: receives the result of each layer for the last scan.
    """
    layers = layers_of(net)
    watch = Watch(net, percentile)
    watch.values = values
    training = net.training
    net.eval()
    count = 0
    try:
        replace(net, [(n, Observed(m, n, watch)) for n, m in layers])
        for scan in scans:
            watch.begin_scan()
            evaluate(net(scan))
            count += 1
    finally:
        replace(net, layers)
        net.train(training)
    if not count:
        raise ValueError("[models.quantize] scans must have at least one tensor, found none")
    return watch.seen


def evaluate(result: Any) -> None:
    """Evaluates whatever a network returned."""
    leaves = [result]
    if isinstance(result, (dict, list)):
        leaves = [pair[1] for pair in tree_flatten(result)]
    mx.eval([feats_of(a) for a in leaves if isinstance(a, (mx.array, SparseTensor))])
