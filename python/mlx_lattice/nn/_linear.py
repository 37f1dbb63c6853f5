"""Linear, and what it shares with convolutions: a weight that is packed or becomes codes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

import mlx.core as mx
import mlx.nn as nn

from .. import ops
from ..core._checks import flag, integer, parameter_shape, rows_input, wrong_type

if TYPE_CHECKING:
    from typing_extensions import Self

    from ..core import PackedKernel, QuantizedWeight
    from ..core.types import Rows

Net = TypeVar("Net", bound=nn.Module)


class Packable(nn.Module):
    """A module whose weight can be packed for the CPU, or turned into codes."""

    weight: mx.array
    _packed: PackedKernel | None = None
    _groups = 1

    def pack(self) -> Self:
        """Arranges the weight once for many calls on the CPU; returns the layer.

        The result of a call is the same. A newly assigned weight (also by `update`, `load_weights`,
        `set_dtype` or an optimizer) ends this: the next call reads the new weight. A write into the
        memory of the weight through a NumPy view is not seen until the next `pack()`.
        """
        self._packed = ops.pack_kernel(self.weight, self._groups)
        return self

    def _weight(self) -> mx.array | PackedKernel | QuantizedWeight:
        """The weight as the operation takes it."""
        if self._packed is not None and not self._packed.is_of(self.weight):
            self._packed = None  # it belonged to the previous weight
        return self.weight if self._packed is None else self._packed

    def to_quantized(
        self,
        group_size: int | None = None,
        bits: int | None = None,
        mode: str = "affine",
        quantize_input: bool = False,
    ) -> nn.Module:
        """The module with packed weights; what mlx.nn.quantize calls."""
        from ._quantized import quantized_form

        return quantized_form(self, group_size, bits, mode, quantize_input)


class Linear(Packable, nn.Linear):
    """x weight^T + bias on the features of a sparse tensor, or on an array (N, input_dims).

    The result has the kind of x: a SparseTensor on the same coordinates, or an array
    (N, output_dims). The weight is (output_dims, input_dims), uniform in +-sqrt(1 / input_dims).
    The layer is an mlx.nn.Linear, for programs that look for one.

    Raises:
        TypeError: x is neither of them; a NumPy array goes through mx.array first.
        ValueError: x has other channels.
    """

    def __init__(self, input_dims: int, output_dims: int, bias: bool = True) -> None:
        nn.Module.__init__(self)
        input_dims = integer(self, "input_dims", input_dims)
        output_dims = integer(self, "output_dims", output_dims)
        self._channels = input_dims, output_dims
        bound = math.sqrt(1 / input_dims)
        shape = parameter_shape(self, output_dims, input_dims)
        self.weight = mx.random.uniform(-bound, bound, shape)
        if flag(self, "bias", bias):
            self.bias = mx.zeros((output_dims,))

    @property
    def input_dims(self) -> int:
        """The channels of the input."""
        return self._channels[0]

    @property
    def output_dims(self) -> int:
        """The channels of the result."""
        return self._channels[1]

    def __call__(self, x: Rows) -> Rows:
        rows_input(self, x, self._channels[0])
        run = ops.linear_features if isinstance(x, mx.array) else ops.linear
        return run(x, self._weight(), self.get("bias"))

    def _extra_repr(self) -> str:
        return f"{self._channels[0]}, {self._channels[1]}, bias={'bias' in self}"


def pack(module: Net) -> Net:
    """Calls `pack()` of all layers in a module that are not packed yet; returns the module.

    A network does this before many calls in evaluation: `nn.pack(model.eval())`. Networks of
    `mlx_lattice.models` do it in `eval()`.

    Examples:
        >>> import mlx.nn
        >>> from mlx_lattice import nn, samples
        >>> net = nn.pack(mlx.nn.Sequential(nn.SubmConv3d(4, 8), nn.ReLU(), nn.SubmConv3d(8, 8)))
        >>> net(samples.tensor()).shape
        (6, 8)
    """
    if not isinstance(module, nn.Module):
        wrong_type("pack", "module", module, "a module of mlx.nn")
    for layer in module.modules():
        if isinstance(layer, Packable) and layer._weight() is layer.weight:
            layer.pack()
    return module
