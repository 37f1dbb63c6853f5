"""Networks in exact integers: from a trained network to one whose bits are equal on every machine.

`quantize(net, scans)` measures the range of every layer on a few scans, folds the batch norms and
rounds the weights. docs/ops/integer.md explains the formats and the rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn
from mlx.utils import tree_unflatten

from .. import _ext, nn
from ..core import SparseTensor
from ..core._checks import instance, listed, model, one_of, sparse_input
from ._blocks import ConvNorm
from ._model import _REGISTRY, Model

if TYPE_CHECKING:
    from typing_extensions import Self

    from .._ext import IntegerKernel
    from ..core.types import Target

_NETWORKS = ("MinkUNet",)
_LEAST_BIAS, _LEAST_FACTOR = 2.0**28, 2.0**22  # in units: what bias and factor may take of int32
_INT16 = 32767.0  # largest value of a projection
_INPUT = 2047.0  # largest value of the 12-bit input


class IntegerConv(mlx.nn.Module):
    """Convolution, batch norm, residual and ReLU in integers, in the place of one layer.

    Its parameters are int8 weights (K, C_in, C_out), int32 `bias` and float32 `scale` of each
    output channel, with a residual its int32 `factor`, and of a first layer the `inverse` steps of
    its input channels.
    """

    def __init__(self, layer: mlx.nn.Module, form: dict[str, str | None], name: str) -> None:
        super().__init__()
        conv = layer.conv if isinstance(layer, ConvNorm) else layer
        self._form, self._name = {k: v for k, v in form.items() if v is not None}, name
        self._kernel: IntegerKernel | None = None
        self._spec = conv._spec if isinstance(layer, ConvNorm) else None
        self._kind = conv._kind if isinstance(layer, ConvNorm) else "submanifold"
        n_k, c_in, c_out = kernel_major(conv.weight).shape
        self.weight = mx.zeros((n_k, c_in, c_out), mx.int8)
        self.bias, self.scale = mx.zeros((c_out,), mx.int32), mx.zeros((c_out,))
        if form["residual"]:
            self.factor = mx.zeros((c_out,), mx.int32)
        if form["input"] == "int16":
            self.inverse = mx.zeros((c_in,))

    def prove(self) -> IntegerKernel:
        """The kernel of the arrays as they are; a ValueError if they break a rule."""
        kernel = _ext.IntegerKernel(
            self.weight, self.bias, self.scale, self.get("factor"), **self._form, name=self._name
        )
        self._kernel, self._of = kernel, self.weight
        return kernel

    def __call__(
        self,
        x: SparseTensor | list[SparseTensor],
        coordinates: Target | None = None,
        residual: SparseTensor | None = None,
    ) -> SparseTensor:
        """x: a tensor, or several whose channels stand side by side."""
        parts = x if isinstance(x, list) else [x]
        if "inverse" in self:
            parts = [
                p.with_feats(_ext.quantize_features(p.feats, self.inverse, None)) for p in parts
            ]
        if self._kernel is None or self._of is not self.weight:
            self.prove()
        s = self._spec
        size, stride, padding, dilation = (
            (1, 1, 0, 1) if s is None else (s.size, s.stride, s.padding, s.dilation)
        )
        return _ext.integer_conv(
            self._kind,
            parts,
            self._kernel,
            residual,
            size,
            stride,
            padding,
            dilation,
            coordinates,
            None,
        )


class IntegerNetwork(Model):
    """A network whose layers are integers: what `quantize` makes. Input and output are float32.

    Args:
        network: The class of the network that it was made from.
        settings: The configuration of that network.
        forms: Of each layer the dtypes of its input, output and residual.
    """

    def __init__(
        self, network: str, settings: dict[str, Any], forms: dict[str, dict[str, str | None]]
    ) -> None:
        one_of(self, "network", network, _NETWORKS)
        instance(self, "settings", settings, dict, "the configuration of the network")
        instance(self, "forms", forms, dict, "the dtypes of each layer")
        super().__init__(network=network, settings=settings, forms=forms)
        try:
            self.network = _REGISTRY[network](**settings)
        except TypeError as error:
            raise TypeError(f"[IntegerNetwork] settings do not fit {network}: {error}") from None
        layers = dict(layers_of(self.network))
        if set(layers) != set(forms):
            raise ValueError(
                f"[IntegerNetwork] forms must name the layers of {network}, "
                f"found {sorted(set(forms) ^ set(layers))[:3]} too many or missing"
            )
        for form in forms.values():
            instance(self, "forms", form, dict, "a dict of dtypes for each layer")
        made = [(name, IntegerConv(layers[name], form, name)) for name, form in forms.items()]
        replace(self.network, made)
        self.freeze()

    def __call__(self, x: SparseTensor) -> SparseTensor:
        return self.network(x)

    def pack(self) -> Self:
        """Proves every layer again: a loaded weight that breaks a rule is a ValueError."""
        for _, layer in layers_of(self.network):
            if isinstance(layer, IntegerConv):
                layer.prove()
        return self

    @property
    def shares(self) -> dict[str, float]:
        """Of each layer the largest part of int32 that a sum can use, for any input."""
        layers = layers_of(self.network)
        return {n: m.prove().share_of_range for n, m in layers if isinstance(m, IntegerConv)}


def kernel_major(weight: mx.array) -> mx.array:
    """A dense weight as (K, C_in, C_out) float32."""
    w = weight.astype(mx.float32)
    c_out, c_in = w.shape[0], w.shape[-1]
    return w.reshape(c_out, -1, c_in).transpose(1, 2, 0)


def layers_of(net: mlx.nn.Module) -> list[tuple[str, mlx.nn.Module]]:
    """The layers that become integers, by name, in the order of the network."""
    kinds = (ConvNorm, IntegerConv, _Observed)
    inside = [(n, m) for n, m in net.named_modules() if isinstance(m, (*kinds, nn.Linear))]
    return [(n, m) for n, m in inside if not n.endswith((".conv", ".inner"))]


def replace(net: mlx.nn.Module, layers: Sequence[tuple[str, mlx.nn.Module]]) -> None:
    """Puts modules in the places of others, by name."""
    net.update_modules(tree_unflatten(list(layers)))


@dataclass
class Range:
    """What calibration saw of one layer."""

    inputs: list[str | None] = field(default_factory=list)  # layers that made x; None: the input
    residual: str | None = None
    largest: mx.array = field(default_factory=lambda: mx.zeros((1,)))  # |y| by output channel
    largest_input: mx.array = field(default_factory=lambda: mx.zeros((1,)))  # |x| by channel


class _Observed(mlx.nn.Module):
    """A layer that writes down where its tensors come from and how large its values become."""

    def __init__(self, inner: mlx.nn.Module, name: str, seen: dict[str, Range], made: list[Any]):
        super().__init__()
        self.inner = inner
        self._name, self._seen, self._made = name, (seen,), (made,)

    def __call__(self, x: Any, *given: Any, **more: Any) -> SparseTensor:
        (seen,), (made,) = self._seen, self._made
        y: SparseTensor = self.inner(x, *given, **more)
        note = seen.setdefault(self._name, Range())
        parts = x if isinstance(x, list) else [x]
        found = [next((name for t, name in made if t is part), None) for part in parts]
        residual = more.get("residual")
        note.inputs = found
        note.residual = next((name for t, name in made if t is residual), None)
        note.largest = _larger(note.largest, y.feats)
        if found == [None]:
            note.largest_input = _larger(note.largest_input, parts[0].feats)
        made.append((y, self._name))
        return y


def _larger(before: mx.array, feats: mx.array) -> mx.array:
    if feats.shape[0] == 0:
        raise ValueError("[models.quantize] a scan has no rows")
    now = mx.maximum(before, mx.max(mx.abs(feats.astype(mx.float32)), axis=0))
    mx.eval(now)
    return now


def observe(net: Model, scans: Iterable[SparseTensor]) -> dict[str, Range]:
    """The ranges of all layers on the scans; the network is as before afterwards."""
    seen: dict[str, Range] = {}
    layers = layers_of(net)
    count = 0
    try:
        for scan in scans:
            sparse_input("models.quantize", scan)
            made: list[Any] = []
            replace(net, [(n, _Observed(m, n, seen, made)) for n, m in layers])
            mx.eval(net(scan).feats)
            count += 1
    finally:
        replace(net, layers)
    if not count:
        raise ValueError("[models.quantize] scans must have at least one tensor, found none")
    return seen


def folded(layer: mlx.nn.Module) -> tuple[mx.array, mx.array]:
    """Weight (K, C_in, C_out) and bias of a layer with its batch norm multiplied in."""
    conv = layer.conv if isinstance(layer, ConvNorm) else layer
    weight = kernel_major(conv.weight)
    bias = conv["bias"] if "bias" in conv else mx.zeros((weight.shape[2],))
    if not isinstance(layer, ConvNorm):
        return weight, bias.astype(mx.float32)
    norm = layer.norm
    gain = norm.weight * mx.rsqrt(norm.running_var + norm._eps)
    return weight * gain, (bias - norm.running_mean) * gain + norm.bias


class _Rounding:
    """Rounds one layer after the other; the last layer of a block before its projection."""

    def __init__(self, net: Model, seen: dict[str, Range]) -> None:
        self.seen, self.layers = seen, dict(layers_of(net))
        # Steps: of uint8 outputs one number each, of projections one per channel.
        self.steps = {n: float(mx.max(r.largest)) / 255 or 1.0 for n, r in seen.items()}
        self.forms: dict[str, dict[str, str | None]] = {}
        self.arrays: dict[str, mx.array] = {}
        self.project_steps: dict[str, mx.array] = {}

    def is_projection(self, name: str) -> bool:
        layer = self.layers[name]
        return isinstance(layer, ConvNorm) and not layer._relu

    def round(self, name: str) -> None:
        layer, seen = self.layers[name], self.seen[name]
        weight, bias = folded(layer)
        first = seen.inputs == [None]
        step_in = self._input_steps(name, weight.shape[1])
        least = mx.maximum(mx.abs(bias) / _LEAST_BIAS, 1e-30)
        whole = None
        whole_residual = seen.residual is not None and not self.is_projection(seen.residual)
        if seen.residual is not None and whole_residual:
            step = self.steps[seen.residual]
            whole = mx.full((weight.shape[2],), step)
            least = mx.maximum(least, step / _LEAST_FACTOR)
        codes, unit = _ext.round_kernel(
            weight * step_in[:, None], least, whole, "int16" if first else "uint8", name
        )
        head = not isinstance(layer, ConvNorm)
        output = "float32" if head else "int16" if self.is_projection(name) else "uint8"
        arrays = {"weight": codes, "bias": mx.round(bias / unit).astype(mx.int32)}
        if whole is not None:
            arrays["factor"] = mx.round(whole / unit).astype(mx.int32)
        elif seen.residual is not None:
            factor = self._factor_of_projection(seen.residual, unit)
            arrays["factor"] = factor.astype(mx.int32)
        step_out = self.project_steps.get(name, self.steps[name])
        arrays["scale"] = unit if head else unit / step_out
        if first:
            arrays["inverse"] = 1 / step_in
        residual = None if seen.residual is None else "uint8" if whole_residual else "int16"
        self.forms[name] = {
            "input": "int16" if first else "uint8",
            "output": output,
            "residual": residual,
        }
        self.arrays |= {f"network.{name}.{key}": value for key, value in arrays.items()}

    def _input_steps(self, name: str, channels: int) -> mx.array:
        """Of each input channel."""
        seen = self.seen[name]
        if seen.inputs == [None]:
            largest = seen.largest_input
            return mx.where(largest > 0, largest / _INPUT, 1.0)
        if None in seen.inputs or any(self.is_projection(n) for n in seen.inputs if n):
            raise ValueError(
                f"[models.quantize] layer {name!r}: its input does not come from layers with ReLU"
            )
        widths = [self.seen[n].largest.shape[0] for n in seen.inputs if n]
        steps = [mx.full((w,), self.steps[n]) for w, n in zip(widths, seen.inputs) if n]
        return mx.concatenate(steps)

    def _factor_of_projection(self, name: str, unit: mx.array) -> mx.array:
        """Whole multiples of the unit, so that the residual is exact."""
        factor = mx.maximum(mx.ceil(self.seen[name].largest / (_INT16 * unit)), 1.0)
        self.project_steps[name] = factor * unit
        return factor


def quantize(net: Model, scans: Iterable[SparseTensor], mode: str = "integer") -> IntegerNetwork:
    """The network in exact integers: uint8 activations, int8 weights, int32 sums.

    Args:
        net: A trained MinkUNet; it stays as it is.
        scans: Tensors as the network gets them; a few suffice. The largest absolute value of each
            layer sets its step.
        mode: "integer". `mlx.nn.quantize` packs weights alone.

    Raises:
        ValueError: A layer cannot be proven free of overflow; the message names it.
    """
    who = "models.quantize"
    model(who, net)
    scans = listed(who, "scans", scans, "a list of SparseTensors")
    name = type(net).__name__
    if mode != "integer":
        raise ValueError(
            f'[models.quantize] mode must be "integer", found {mode!r}; '
            "mlx.nn.quantize(net, bits=8) packs weights alone"
        )
    if name not in _NETWORKS:
        raise ValueError(f"[models.quantize] net must be one of {list(_NETWORKS)}, found {name}")
    training = net.training
    net.eval()
    try:
        seen = observe(net, scans)
    finally:
        net.train(training)
    rounding = _Rounding(net, seen)
    # A projection takes its steps from the layer that reads it, which is rounded first.
    for layer in sorted(seen, key=rounding.is_projection):
        rounding.round(layer)
    forms = {layer: rounding.forms[layer] for layer in seen}
    made = IntegerNetwork(name, net.config, forms)
    made.load_weights(list(rounding.arrays.items()))
    made.eval()
    return made
