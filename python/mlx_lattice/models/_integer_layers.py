"""Layers of integer networks, which take the places of convolutions, poolings and activations.

All are described by the same kind of dict, which the file holds for each layer (`Form`):

    kind      "conv", "pool", "global_pool", "leave" or "nothing"
    input     of a conv: "uint8", "int8", "int16"; rounds: x comes as floats and is rounded here
    output    of a conv or a global pool: "uint8", "int8", "int16", "float32"
    residual  of a conv: "uint8" or "int16"
    relu      of a conv with float32 output
    table     of a conv: whether output bytes pass a table
    step      of bytes that a layer makes or reads: value = code * step
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn

from .. import _ext
from ..core import SparseTensor
from ..nn._conv import _Conv
from ..nn._linear import Linear

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .._ext import IntegerKernel
    from ..core.types import Target

Form = dict[str, Any]


class Leave(mlx.nn.Module):
    """Passes on a tensor that float layers read too; for them it becomes float32."""

    def __call__(self, x: SparseTensor) -> SparseTensor:
        return x


class IntegerConv(mlx.nn.Module):
    """Convolution or linear layer, batch norm, residual and ReLU in integers.

    Its parameters are int8 weights (K, C_in, C_out), int32 `bias` and float32 `scale` of each
    output channel, with a residual its int32 `factor`, with a table its 256 bytes, and where floats
    come in the `inverse` steps of the input channels.
    """

    def __init__(self, layer: mlx.nn.Module, form: Form, name: str) -> None:
        super().__init__()
        self._form, self._name = form, name
        self._kernel: IntegerKernel | None = None
        self._kind, self._order = "submanifold", getattr(layer, "_order", "sorted")
        self._sizes: tuple[Any, Any, Any, Any] = (1, 1, 0, 1)
        if isinstance(layer, _Conv):
            s = layer._spec
            self._kind = layer._kind or "submanifold"
            self._sizes = (s.size, s.stride, s.padding, s.dilation)
        n_k, c_in, c_out = kernel_major(layer.weight).shape
        self.weight = mx.zeros((n_k, c_in, c_out), mx.int8)
        self.bias, self.scale = mx.zeros((c_out,), mx.int32), mx.zeros((c_out,))
        if form.get("residual"):
            self.factor = mx.zeros((c_out,), mx.int32)
        if form.get("table"):
            self.table = mx.zeros((256,), mx.uint8)
        if form.get("rounds"):
            self.inverse = mx.zeros((c_in,))

    def prove(self) -> IntegerKernel:
        """The kernel of the arrays as they are; a ValueError if they break a rule."""
        form = self._form
        self._kernel, self._of = (
            _ext.IntegerKernel(
                self.weight,
                self.bias,
                self.scale,
                self.get("factor"),
                form["input"],
                form["output"],
                form.get("residual"),
                form.get("relu", False),
                self.get("table"),
                self._name,
            ),
            self.weight,
        )
        return self._kernel

    def _proven(self) -> IntegerKernel:
        if self._kernel is None or self._of is not self.weight:
            return self.prove()
        return self._kernel

    def _rounded(self, feats: mx.array, begin: int = 0) -> mx.array:
        """Floats as codes; columns [begin, begin + channels) of the input."""
        if not self._form.get("rounds"):
            return feats
        inverse = self.inverse
        if feats.shape[1] != inverse.shape[0]:
            inverse = inverse[begin : begin + feats.shape[1]]
        return _ext.quantize_features(feats, inverse, self._form["input"], None)

    def __call__(self, x: Any, coordinates: Target | None = None) -> Any:
        if isinstance(x, mx.array):
            return _ext.integer_linear(self._rounded(x), self._proven(), None)
        return self.with_norm(x, None, coordinates=coordinates)

    def with_norm(
        self,
        x: SparseTensor | Sequence[SparseTensor],
        norm: object,
        residual: SparseTensor | None = None,
        relu: bool = False,
        coordinates: Target | None = None,
    ) -> SparseTensor:
        """Like `with_norm` of the original layer; the norm is part of the weights already."""
        given = [x] if isinstance(x, SparseTensor) else x
        parts, begin = [], 0
        for part in given:
            feats = self._rounded(part.feats, begin)
            parts.append(part if feats is part.feats else part.with_feats(feats))
            begin += feats.shape[1]
        return _ext.integer_conv(
            self._kind,
            parts,
            self._proven(),
            residual,
            *self._sizes,
            coordinates,
            self._order,
            None,
        )


class IntegerPool(mlx.nn.Module):
    """Sum, mean or maximum of bytes over a kernel, or over each batch item."""

    def __init__(self, layer: mlx.nn.Module, form: Form, name: str) -> None:
        super().__init__()
        self._form, self._name, self._layer = form, name, (layer,)

    def __call__(self, x: SparseTensor) -> SparseTensor | mx.array:
        form = self._form
        if form["kind"] == "global_pool":
            return _ext.integer_global_pool(x, form["mode"], form["scale"], form["output"], None)
        s = self._layer[0].spec
        sizes = (s.size, s.stride, s.padding, s.dilation)
        return _ext.integer_pool(x, form["mode"], *sizes, form["scale"], None)


class IntegerLeave(mlx.nn.Module):
    """Bytes become float32."""

    def __init__(self, layer: mlx.nn.Module, form: Form, name: str) -> None:
        super().__init__()
        self._form = form

    def __call__(self, x: SparseTensor) -> SparseTensor:
        form = self._form
        return x.with_feats(_ext.dequantize_features(x.feats, form["step"], form["input"], None))


class Nothing(mlx.nn.Module):
    """Takes the place of a norm or an activation that the layer before it contains."""

    def __init__(self, *given: object) -> None:
        super().__init__()

    def __call__(self, x: Any) -> Any:
        return x


KINDS: dict[str, Callable[[mlx.nn.Module, Form, str], mlx.nn.Module]] = {
    "conv": IntegerConv,
    "pool": IntegerPool,
    "global_pool": IntegerPool,
    "leave": IntegerLeave,
    "nothing": Nothing,
}


def is_layer(module: mlx.nn.Module) -> bool:
    """Whether a module is a convolution or a linear layer that can become integers."""
    if isinstance(module, Linear):
        return True
    return isinstance(module, _Conv) and module._kind is not None and module._groups == 1


def kernel_major(weight: mx.array) -> mx.array:
    """A dense weight as (K, C_in, C_out) float32."""
    w = weight.astype(mx.float32)
    c_out, c_in = w.shape[0], w.shape[-1]
    return w.reshape(c_out, -1, c_in).transpose(1, 2, 0)


def folded(layer: mlx.nn.Module, norm: mlx.nn.Module | None) -> tuple[mx.array, mx.array]:
    """Weight (K, C_in, C_out) and bias of a layer with its batch norm multiplied in."""
    weight = kernel_major(layer.weight)
    bias = layer["bias"] if "bias" in layer else mx.zeros((weight.shape[2],))
    if norm is None:
        return weight, bias.astype(mx.float32)
    gain = mx.rsqrt(norm.running_var + norm._eps)
    if "weight" in norm:
        gain = gain * norm.weight
    shift = norm.bias if "bias" in norm else 0.0
    return weight * gain, (bias - norm.running_mean) * gain + shift
