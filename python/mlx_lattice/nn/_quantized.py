"""Modules with packed weights: the arrays of ops.quantize_weight as frozen parameters.

Parameters are named as in mlx.nn.QuantizedLinear: `weight` (uint32 codes), `scales`, `biases` and,
if any, `bias`. So `mlx.nn.quantize`, `save_weights` and `load_weights` work on a whole model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NoReturn

import mlx.nn as nn

from ..core import QuantizedWeight
from ..ops import quantize_weight
from ._conv import Conv3d, ConvTranspose3d, GenerativeConvTranspose3d, SubmConv3d
from ._linear import Linear

if TYPE_CHECKING:
    import mlx.core as mx
    from mlx.nn import Module
    from typing_extensions import Self

    from ._conv import _Conv


class _Quantized(nn.Module):
    """Packs the weight that the dense class has made; the operation gets a QuantizedWeight."""

    _dense: ClassVar[type[Conv3d | SubmConv3d | ConvTranspose3d | Linear | _Conv]]

    def __init__(
        self, *args: object, group_size: int | None = None, bits: int = 4, **kwargs: object
    ) -> None:
        super().__init__(*args, **kwargs)
        self._pack(self.weight, group_size, bits)

    def _pack(self, weight: mx.array, group_size: int | None, bits: int) -> None:
        q = quantize_weight(weight, group_size=group_size, bits=bits)
        self.weight, self.scales, self.biases = q.weight, q.scales, q.biases
        self._form = (q.group_size, q.bits, q.in_channels, q.out_channels, q.kernel_size, q.layout)
        self.freeze()

    @classmethod
    def _from(cls, dense: Module, group_size: int | None, bits: int) -> Self:
        of = cls._dense
        if not isinstance(dense, of) or not hasattr(dense, "to_quantized"):
            raise TypeError(
                f"[{cls.__name__}] expected a {of.__name__}, found {type(dense).__name__}"
            )
        module = cls.__new__(cls)
        nn.Module.__init__(module)
        for name in ("_spec", "_groups", "_channels"):
            if hasattr(dense, name):
                setattr(module, name, getattr(dense, name))
        if "bias" in dense:
            module.bias = dense.bias
        module._pack(dense.weight, group_size, bits)
        return module

    def pack(self) -> Self:
        """Returns the layer as it is: kernels read the codes themselves."""
        return self

    def _weight(self) -> QuantizedWeight:
        return QuantizedWeight(self.weight, self.scales, self.biases, *self._form)

    @property
    def group_size(self) -> int:
        """The number of input channels that share one scale and one bias."""
        return self._form[0]

    @property
    def bits(self) -> int:
        """The number of bits per code."""
        return self._form[1]

    @property
    def to_quantized(self) -> NoReturn:
        """Absent: mlx.nn.quantize leaves a packed module as it is."""
        raise AttributeError(f"{type(self).__name__} is packed already")

    def unfreeze(
        self, *, recurse: bool = True, keys: str | list[str] | None = None, strict: bool = False
    ) -> Self:
        """Its own parameters stay frozen, as in mlx.nn.QuantizedLinear: codes have no gradient."""
        super().unfreeze(recurse=recurse, keys=keys, strict=strict)
        self.freeze(recurse=False)
        return self

    def _extra_repr(self) -> str:
        return f"{super()._extra_repr()}, group_size={self.group_size}, bits={self.bits}"


class _QuantizedConv(_Quantized):
    """The base of packed convolutions."""

    @classmethod
    def from_conv(cls, conv: _Conv, group_size: int | None = None, bits: int = 4) -> Self:
        """The packed form of a convolution, which shares its bias.

        group_size is 32, 64 or 128, by default 64 from 64 input channels on, else 32. bits is 4 or
        8. A convolution of another class is a TypeError.
        """
        return cls._from(conv, group_size, bits)


class QuantizedConv3d(_QuantizedConv, Conv3d):
    """Conv3d whose weights are codes of 4 or 8 bits, for inference.

    `from_conv` makes it from a trained layer, `mlx.nn.quantize(model)` in a whole model. The
    constructor takes the arguments of Conv3d, and group_size (32, 64 or 128 input channels that
    share a scale) and bits (4 or 8).

    Examples:
        >>> from mlx_lattice import nn, samples
        >>> packed = nn.QuantizedConv3d.from_conv(nn.Conv3d(4, 8), bits=8)
        >>> packed(samples.tensor()).shape, packed.weight.dtype
        ((6, 8), mlx.core.uint32)
    """

    _dense = Conv3d


class QuantizedSubmConv3d(_QuantizedConv, SubmConv3d):
    """SubmConv3d whose weights are codes of 4 or 8 bits; see `QuantizedConv3d`."""

    _dense = SubmConv3d


class QuantizedConvTranspose3d(_QuantizedConv, ConvTranspose3d):
    """ConvTranspose3d whose weights are codes of 4 or 8 bits; see `QuantizedConv3d`."""

    _dense = ConvTranspose3d


class QuantizedGenerativeConvTranspose3d(_QuantizedConv, GenerativeConvTranspose3d):
    """GenerativeConvTranspose3d whose weights are codes of 4 or 8 bits; see `QuantizedConv3d`."""

    _dense = GenerativeConvTranspose3d


class QuantizedLinear(_Quantized, Linear):
    """Linear whose weights are codes of 4 or 8 bits, made by `from_linear` or `mlx.nn.quantize`.

    The constructor takes the arguments of Linear, and group_size (32, 64 or 128 input channels that
    share a scale) and bits (4 or 8).
    """

    _dense = Linear

    @classmethod
    def from_linear(cls, linear: Linear, group_size: int | None = None, bits: int = 4) -> Self:
        """The packed form of a Linear, which shares its bias; another class is a TypeError."""
        return cls._from(linear, group_size, bits)


def quantized_form(
    module: Module, group_size: int | None, bits: int | None, mode: str, quantize_input: bool
) -> Module:
    """The result of `to_quantized` of a dense module."""
    if mode != "affine" or quantize_input:
        raise ValueError(
            f'[{type(module).__name__}] packed weights are mode="affine" with '
            f"quantize_input=False, found mode={mode!r}, "
            f"quantize_input={quantize_input}"
        )
    bits = 4 if bits is None else bits
    for form in (
        QuantizedConv3d,
        QuantizedSubmConv3d,
        QuantizedConvTranspose3d,
        QuantizedGenerativeConvTranspose3d,
    ):
        if isinstance(module, form._dense):
            return form.from_conv(module, group_size, bits)
    return QuantizedLinear._from(module, group_size, bits)
