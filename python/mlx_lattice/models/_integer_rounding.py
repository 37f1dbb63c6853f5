"""Rounds a trained network to integers: the format of each layer, its steps, its weights."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn

from .. import _ext, nn
from ..nn._pool import _Global
from ._integer_layers import Form, Leave, folded, is_layer
from ._integer_ranges import layers_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._integer_ranges import Seen
    from ._model import Model

_LEAST_BIAS, _LEAST_FACTOR = 2.0**28, 2.0**22  # units that bias and factor may use
_MOST = {"uint8": 255.0, "int8": 127.0, "int16": 2047.0}  # largest code of an input
_PROJECTION = 32767.0  # largest code of a residual that a projection makes
_GLOBAL_MODES: dict[type, str] = {
    nn.GlobalSumPool: "sum",
    nn.GlobalAvgPool: "mean",
    nn.GlobalMaxPool: "max",
}
_FEW_CHANNELS = 16  # up to so many channels, floats are rounded to 12 bits, one step each


class Rounding:
    """Forms and arrays of all layers. A projection is rounded after the layer that reads it."""

    def __init__(self, net: Model, seen: dict[str, Seen]) -> None:
        self.seen, self.layers = seen, dict(layers_of(net))
        self.modules = dict(net.named_modules())
        self.forms: dict[str, Form] = {}
        self.arrays: dict[str, mx.array] = {}
        self.steps: dict[str, float | mx.array] = {}  # steps of the results of a layer
        self.readers: dict[str, list[str]] = {n: [] for n in seen}
        self.adders: dict[str, list[str]] = {n: [] for n in seen}
        for name, s in seen.items():
            for source in s.inputs:
                if source is not None:
                    self.readers[source].append(name)
            if s.residual is not None:
                self.adders[s.residual].append(name)
        self.formats = {name: self._format(name) for name in seen}

    def run(self) -> None:
        """Rounds all layers."""
        for name, form in self.formats.items():
            if form in ("uint8", "int8"):
                self.steps[name] = self.seen[name].top / _MOST[form] or 1.0
        for name in self.seen:
            layer = self.layers[name]
            if is_layer(layer):
                continue
            self._other(name, layer)
        for name in sorted(self.seen, key=self._is_projection):
            if is_layer(self.layers[name]):
                self._conv(name)

    # formats
    def _is_projection(self, name: str) -> bool:
        s = self.seen[name]
        return bool(s.norm and not s.relu and self.adders[name] and not self.readers[name])

    def _format(self, name: str) -> str:
        """The step of the result of a layer."""
        layer, s = self.layers[name], self.seen[name]
        if isinstance(layer, (nn.GELU, nn.Sigmoid)):
            return "int8" if self._is_table(name) else "float32"
        if isinstance(layer, (nn.Pool3d, _Global)):
            if not self._reads_bytes(name):
                return "float32"
            return "uint8" if isinstance(layer, nn.Pool3d) else "int16"
        if isinstance(layer, Leave):
            return "float32"
        if self.table_of(name):
            return "int8"
        if self._is_projection(name):
            return "int16"
        used = self.readers[name] or self.adders[name]
        return "uint8" if s.norm and s.relu and used else "float32"

    def _reads_bytes(self, name: str) -> bool:
        source = self.seen[name].inputs[0]
        return source is not None and self._format(source) == "uint8"

    def _is_table(self, name: str) -> bool:
        """Whether an activation stands between two linear layers and nowhere else."""
        source = self.seen[name].inputs[0]
        if source is None or not is_layer(self.layers[source]) or self.seen[source].norm:
            return False
        readers = self.readers[name]
        alone = self.readers[source] == [name] and not self.adders[source]
        return alone and bool(readers) and all(is_layer(self.layers[r]) for r in readers)

    def table_of(self, name: str) -> str | None:
        readers = self.readers[name]
        if len(readers) == 1 and isinstance(self.layers[readers[0]], (nn.GELU, nn.Sigmoid)):
            return readers[0] if self._is_table(readers[0]) else None
        return None

    # layers
    def _other(self, name: str, layer: mlx.nn.Module) -> None:
        """Poolings, activations and ends of the integer part."""
        s, form = self.seen[name], self.formats[name]
        if isinstance(layer, (nn.GELU, nn.Sigmoid)):
            if form == "int8":
                self.forms[name] = {"kind": "nothing"}
            return
        if s.inputs[0] is None or not self._reads_bytes(name):
            return
        before = float(self.steps[s.inputs[0]])
        if isinstance(layer, Leave):
            self.forms[name] = {"kind": "leave", "input": "uint8", "step": before}
            return
        mode = layer.mode if isinstance(layer, nn.Pool3d) else _GLOBAL_MODES[type(layer)]
        if isinstance(layer, nn.Pool3d):
            self.steps[name] = before if mode != "sum" else self.steps[name]
            scale = before / float(self.steps[name])
            self.forms[name] = {"kind": "pool", "mode": mode, "scale": scale}
            return
        self.steps[name] = s.top / _MOST["int16"] or 1.0
        scale = before / float(self.steps[name])
        self.forms[name] = {"kind": "global_pool", "mode": mode, "scale": scale, "output": "int16"}

    def _conv(self, name: str) -> None:
        layer, s = self.layers[name], self.seen[name]
        weight, bias = folded(layer, self.modules[s.norm] if s.norm else None)
        form: Form = {"kind": "conv", "output": self.formats[name]}
        step_in = self._input(name, weight.shape[1], form)
        least = mx.maximum(mx.abs(bias) / _LEAST_BIAS, 1e-30)
        whole = self._residual(name, weight.shape[2], form)
        if whole is not None:
            least = mx.maximum(least, whole / _LEAST_FACTOR)
        codes, unit = _ext.round_kernel(
            weight * step_in[:, None], least, whole, form["input"], name
        )
        arrays = {"weight": codes, "bias": mx.round(bias / unit).astype(mx.int32)}
        if whole is not None:
            arrays["factor"] = mx.round(whole / unit).astype(mx.int32)
        elif s.residual is not None:  # of a projection: whole multiples of the unit are exact
            largest = self.seen[s.residual].largest
            factor = mx.maximum(mx.ceil(largest / (_PROJECTION * unit)), 1.0)
            arrays["factor"] = factor.astype(mx.int32)
            self.steps[s.residual] = factor * unit
        arrays["scale"] = unit if form["output"] == "float32" else unit / self.steps[name]
        if form["output"] == "float32" and s.relu:
            form["relu"] = True
        if (activation := self.table_of(name)) is not None:
            form["table"] = True
            steps = float(self.steps[name]), float(self.steps[activation])
            arrays["table"] = table(type(self.layers[activation]).__name__, *steps)
        if form.get("rounds"):
            arrays["inverse"] = 1 / step_in
        self.forms[name] = form
        if s.norm:
            self.forms[s.norm] = {"kind": "nothing"}
        self.arrays |= {f"network.{name}.{key}": value for key, value in arrays.items()}

    def _input(self, name: str, channels: int, form: Form) -> mx.array:
        """The step of each input channel; sets the format of the input."""
        s = self.seen[name]
        formats = {None if n is None else self.formats[n] for n in s.inputs}
        if len(formats) == 1 and (one := formats.pop()) in ("uint8", "int8", "int16"):
            form["input"] = one
            steps = [mx.full((w,), self.steps[n]) for w, n in zip(s.widths, s.inputs) if n]
            return mx.concatenate(steps)
        if formats & {"uint8", "int8", "int16"}:
            raise ValueError(
                f"[models.quantize] layer {name!r} reads integers and floats side by side: "
                f"{s.inputs}"
            )
        form["rounds"] = True
        tops = [s.top_input if n is None else self.seen[n].top for n in s.inputs]
        if channels > _FEW_CHANNELS:
            form["input"] = "int8"
            return mx.full((channels,), max(tops) / _MOST["int8"] or 1.0)
        form["input"] = "int16"
        largest = s.largest_input
        if largest.shape[0] != channels:
            largest = mx.full((channels,), max(tops))
        return mx.where(largest > 0, largest / _MOST["int16"], 1.0)

    def _residual(self, name: str, channels: int, form: Form) -> mx.array | None:
        """The step of a residual of bytes, which must be a whole multiple of the unit."""
        s = self.seen[name]
        if not s.adds:
            return None
        if s.residual is None or self.formats[s.residual] == "float32":
            raise ValueError(f"[models.quantize] layer {name!r} adds a residual of floats")
        form["residual"] = self.formats[s.residual]
        if form["residual"] == "int16":
            return None
        return mx.full((channels,), self.steps[s.residual])


def _gelu(x: float) -> float:
    return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


_FUNCTIONS: dict[str, Callable[[float], float]] = {"GELU": _gelu, "Sigmoid": _sigmoid}


def table(function: str, step_in: float, step_out: float) -> mx.array:
    """The 256 bytes of an activation: entry 128 + a is 128 + rint(f(a * step_in) / step_out)."""
    values = [_FUNCTIONS[function](a * step_in) / step_out for a in range(-128, 128)]
    return mx.array([128 + round(min(max(v, -127.0), 127.0)) for v in values], mx.uint8)
