"""Convolution weights of other libraries as (C_out, Kx, Ky, Kz, C_in).

The table says what each function assumes about its library; docs/models.md says how to check the
assumption with one voxel. All libraries are taken to correlate, as this library does: the weight of
offset o meets the input at output + o, without a flip.

| library | array | offsets |
|---|---|---|
| MinkowskiEngine | (K, C_in, C_out), (C_in, C_out) | first axis fastest: k = ix + Kx (iy + Ky iz) |
| TorchSparse | the same shapes | odd K: the first axis fastest; even K: the last axis fastest |
| spconv 1 | (K1, K2, K3, C_in, C_out) | axes 1 2 3 as its indices have them, usually z y x |
| spconv 2 | (C_out, K1, K2, K3, C_in); 2.0 and 2.1: (K1, K2, K3, C_out, C_in) | the same |

`from_*` returns the weight alone. `minkowski_layer`, `torchsparse_layer` and `spconv2_layer` return
a `ConvertedLayer`, which also has stride, padding and dilation as this library counts them.

Point convolutions have weights (K, G, C_in / G, C_out / G). `from_legacy_points` makes them from
the (C_in, C_out / G, K) of older checkpoints of PointCNN++. The array is an MLX or NumPy array; a
torch tensor goes through `.numpy()`.

`from_pointcept` makes a whole PointTransformerV3 from a state dict of Pointcept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import mlx.core as mx

from .. import ops
from ..core import KernelSpec
from ..core._checks import array, integer, one_of, sparse_input, told
from .pointcept import from_pointcept  # noqa: F401

if TYPE_CHECKING:
    from ..core import SparseTensor
    from ..core.types import ArrayLike, Target, Triple

__all__ = [
    "ConvertedLayer",
    "from_legacy_points",
    "from_minkowski",
    "from_spconv1",
    "from_spconv2",
    "from_torchsparse",
    "minkowski_layer",
    "spconv2_layer",
    "torchsparse_layer",
]

MOST_TAPS = 11  # taps of one axis; a larger size is a number of channels


def from_minkowski(weight: ArrayLike, kernel_size: Triple = 3) -> mx.array:
    """The weight (C_out, Kx, Ky, Kz, C_in) of a MinkowskiEngine kernel (K, C_in, C_out).

    The offsets of MinkowskiEngine count with the first axis fastest: k = ix + Kx (iy + Ky iz). A
    1x1x1 kernel may be (C_in, C_out). Another shape is a ValueError.
    """
    return _from_kernel_major("from_minkowski", weight, kernel_size, first_fastest=True)


def from_torchsparse(weight: ArrayLike, kernel_size: Triple = 3) -> mx.array:
    """The weight (C_out, Kx, Ky, Kz, C_in) of a TorchSparse kernel (K, C_in, C_out).

    The first axis of the offsets runs fastest for odd K, the last axis for even K. A 1x1x1 kernel
    may be (C_in, C_out). Another shape is a ValueError.
    """
    volume = KernelSpec(kernel_size).volume
    return _from_kernel_major(
        "from_torchsparse", weight, kernel_size, first_fastest=volume % 2 == 1
    )


def from_spconv1(weight: ArrayLike, axes: str = "zyx") -> mx.array:
    """The weight (C_out, Kx, Ky, Kz, C_in) of an spconv 1 kernel (K1, K2, K3, C_in, C_out).

    axes: names the three columns after the batch column of spconv's indices, usually "zyx".
    """
    given = array("from_spconv1", "weight", weight, "K1", "K2", "K3", "C_in", "C_out")
    order = _axes("from_spconv1", axes)
    return given.transpose(4, *order, 3)


def from_spconv2(
    weight: ArrayLike,
    axes: str = "zyx",
    *,
    kind: str = "conv",
    stride: Triple = 1,
    kernel_size: Triple | None = None,
    layout: str | None = None,
) -> mx.array:
    """The weight (C_out, Kx, Ky, Kz, C_in) of an spconv 2 kernel (C_out, K1, K2, K3, C_in).

    In 1x1x1 layers spconv multiplies the features by `weight.view(C_in, C_out)`, whatever the
    stored shape says. It does so in every submanifold layer, in every layer of stride 1, and in
    inverse layers.

    Args:
        axes: The three columns after the batch column of spconv's indices, usually "zyx".
        kind: "subm", "conv", "inverse" or "transpose"; with the stride it says whether a 1x1x1
            kernel is viewed like that.
        layout: "krsc" as above, or "native" for the (K1, K2, K3, C_out, C_in) of spconv 2.0 and
            2.1. By default the shape decides, and a shape that both could have is an error.
        kernel_size: Helps to tell the two layouts apart.
    """
    name = "from_spconv2"
    w = array(name, "weight", weight, "C_out", "K1", "K2", "K3", "C_in")
    one_of(name, "kind", kind, ("conv", "subm", "inverse", "transpose"))
    if _layout(name, tuple(w.shape), kernel_size, layout) == "native":
        w = w.transpose(3, 0, 1, 2, 4)
    c_out, *size, c_in = w.shape
    if size == [1, 1, 1]:
        plain = kind in ("conv", "transpose") and tuple(KernelSpec(1, stride).stride) != (1, 1, 1)
        if not plain:
            w = w.reshape(c_in, c_out).T.reshape(c_out, 1, 1, 1, c_in)
    order = _axes(name, axes)
    return w.transpose(0, *(1 + a for a in order), 4)


def from_legacy_points(weight: ArrayLike, groups: int = 1) -> mx.array:
    """The weight of `points.PointConv3d` from (C_in, C_out / G, K) of an old PointCNN++ checkpoint.

    new[k, g, c, m] = old[g C_in / G + c, m, k], of shape (K, G, C_in / G, C_out / G)
    """
    given = array("from_legacy_points", "weight", weight, "C_in", "C_out / G", "K")
    c_in, c_out, volume = given.shape
    groups = integer("from_legacy_points", "groups", groups)
    if c_in % groups:
        raise ValueError(
            f"[from_legacy_points] groups must divide {c_in} input channels, found {groups}"
        )
    return given.reshape(groups, c_in // groups, c_out, volume).transpose(3, 0, 1, 2)


def _from_kernel_major(
    name: str, given: ArrayLike, kernel_size: Triple, first_fastest: bool
) -> mx.array:
    size = KernelSpec(kernel_size).size
    volume = size[0] * size[1] * size[2]
    weight = array(name, "weight", given)
    if weight.ndim == 2 and volume == 1:
        weight = weight[None]
    if weight.ndim != 3 or weight.shape[0] != volume:
        raise ValueError(
            f"[{name}] weight must have shape ({volume}, C_in, C_out) "
            f"for kernel_size {tuple(size)}, found {weight.shape}"
        )
    c_in, c_out = weight.shape[1:]
    if first_fastest:
        return weight.reshape(*reversed(size), c_in, c_out).transpose(4, 2, 1, 0, 3)
    return weight.reshape(*size, c_in, c_out).transpose(4, 0, 1, 2, 3)


@dataclass(frozen=True, eq=False)
class ConvertedLayer:
    """A layer of another library, converted to this library. Call it, or read the arguments of
    modules.

    Coordinates are lattice indices: those of MinkowskiEngine and TorchSparse divided by their
    tensor stride.

    Attributes:
        kind: "conv", "subm", "transpose" (also inverse layers), or "pointwise", which keeps the
            rows.
        weight: (C_out, Kx, Ky, Kz, C_in).
        bias: (C_out,), or None.
        padding: Counts from the offsets of this library, so that it may be negative. Odd kernels of
            "conv" are centered first; kernels of "transpose" begin at 0.
    """

    kind: str
    weight: mx.array
    bias: mx.array | None
    kernel_size: tuple[int, int, int]
    stride: tuple[int, int, int]
    padding: tuple[int, int, int]
    dilation: tuple[int, int, int]

    def __post_init__(self) -> None:
        one_of(self, "kind", self.kind, ("conv", "subm", "transpose", "pointwise"))
        array(self, "weight", self.weight, "C_out", "Kx", "Ky", "Kz", "C_in")

    def __call__(self, x: SparseTensor, coordinates: Target | None = None) -> SparseTensor:
        """The layer's result on a SparseTensor.

        coordinates: the output rows; strided layers of spconv and all transposed layers need them.
        """
        sparse_input(self, x, self.weight.shape[-1])
        if self.kind == "pointwise":
            return ops.conv3d(x, self.weight, self.bias, kernel_size=1)
        if self.kind == "subm":
            return ops.subm_conv3d(
                x, self.weight, self.bias, kernel_size=self.kernel_size, dilation=self.dilation
            )
        run = ops.conv3d if self.kind == "conv" else ops.conv_transpose3d
        return run(
            x,
            self.weight,
            self.bias,
            kernel_size=self.kernel_size,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            coordinates=coordinates,
        )


def minkowski_layer(
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    kind: str = "conv",
    kernel_size: Triple = 3,
    stride: Triple = 1,
    dilation: Triple = 1,
) -> ConvertedLayer:
    """ConvertedLayer of MinkowskiConvolution, MinkowskiConvolutionTranspose or the generative one.

    kind: "conv" or "transpose"; a generative layer is "transpose" called without coordinates.

    Examples:
        >>> import numpy as np
        >>> from mlx_lattice import samples
        >>> from mlx_lattice.models import convert
        >>> layer = convert.minkowski_layer(np.ones((27, 4, 8), np.float32), kernel_size=3)
        >>> layer(samples.tensor()).shape
        (6, 8)
    """
    one_of("minkowski_layer", "kind", kind, ("conv", "transpose"))
    spec = KernelSpec(kernel_size, stride, 0, dilation)
    padding = (0, 0, 0)
    if kind == "transpose":  # out = in * stride + offset, odd kernels centered
        x, y, z = (d * (k // 2) if k % 2 else 0 for k, d in zip(spec.size, spec.dilation))
        padding = x, y, z
    return _layer(kind, from_minkowski(weight, kernel_size), bias, spec, padding, spec.dilation)


def torchsparse_layer(
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    kind: str = "conv",
    kernel_size: Triple = 3,
    stride: Triple = 1,
    dilation: Triple = 1,
) -> ConvertedLayer:
    """ConvertedLayer of torchsparse.nn.Conv3d (1.4): "conv", or "transpose" for transposed=True.

    Offsets run from -((k - 1) // 2) to k // 2. TorchSparse 1.4 ignores dilation, and so does this
    layer.
    """
    one_of("torchsparse_layer", "kind", kind, ("conv", "transpose"))
    spec = KernelSpec(kernel_size, stride, 0, dilation)
    low = [(k - 1) // 2 for k in spec.size]
    x, y, z = (0 if k % 2 and kind == "conv" else n for k, n in zip(spec.size, low))
    return _layer(kind, from_torchsparse(weight, kernel_size), bias, spec, (x, y, z), (1, 1, 1))


def spconv2_layer(
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    kind: str = "subm",
    stride: Triple = 1,
    padding: Triple = 0,
    dilation: Triple = 1,
    axes: str = "zyx",
    kernel_size: Triple | None = None,
    layout: str | None = None,
) -> ConvertedLayer:
    """ConvertedLayer of a layer of spconv 2.

    A 1x1x1 inverse layer of spconv stays on the coarse rows, and so does this one.

    Args:
        kind: "subm" (SubMConv3d), "conv" (SparseConv3d), "inverse" (SparseInverseConv3d) or
            "transpose" (SparseConvTranspose3d).
        stride, padding, dilation: As spconv counts them, in its order of axes; an inverse layer
            takes those of its forward layer.
        axes, kernel_size, layout: As in `from_spconv2`.
    """
    name = "spconv2_layer"
    one_of(name, "kind", kind, ("subm", "conv", "inverse", "transpose"))
    given = KernelSpec(1, stride, padding, dilation)
    order = _axes(name, axes)
    moved = from_spconv2(
        weight, axes, kind=kind, stride=stride, kernel_size=kernel_size, layout=layout
    )
    _, kx, ky, kz, _ = moved.shape
    size, (a, b, c) = (kx, ky, kz), order
    strides, paddings, dilations = (
        (values[a], values[b], values[c])
        for values in (given.stride, given.padding, given.dilation)
    )
    spec = KernelSpec(size, strides, 0, dilations)
    if size == (1, 1, 1) and (kind in ("subm", "inverse") or strides == (1, 1, 1)):
        return _layer("pointwise", moved, bias, KernelSpec(1), (0, 0, 0), (1, 1, 1))
    if kind == "subm":
        return _layer("subm", moved, bias, KernelSpec(size), (0, 0, 0), dilations)
    if kind == "conv":  # in = out * stride - padding + tap * dilation
        px, py, pz = (
            p - d * (k // 2) if k % 2 else p for p, k, d in zip(paddings, size, dilations)
        )
        paddings = px, py, pz
        return _layer("conv", moved, bias, spec, paddings, dilations)
    return _layer("transpose", moved, bias, spec, paddings, dilations)


def _layer(
    kind: str,
    weight: mx.array,
    bias: ArrayLike | None,
    spec: KernelSpec,
    padding: tuple[int, int, int],
    dilation: tuple[int, int, int],
) -> ConvertedLayer:
    made = None if bias is None else array("convert", "bias", bias).reshape(-1)
    if made is not None and made.shape[0] != weight.shape[0]:
        raise ValueError(
            f"[convert] bias must have {weight.shape[0]} values, one per output channel, "
            f"found {made.shape[0]}"
        )
    size, stride = spec.size, spec.stride
    if kind == "conv" and size == (1, 1, 1) and stride == (1, 1, 1):
        kind = "pointwise"
    return ConvertedLayer(kind, weight, made, size, stride, padding, dilation)


def _layout(
    name: str, shape: tuple[int, ...], kernel_size: Triple | None, layout: str | None
) -> str:
    """krsc (C_out, K, K, K, C_in) or native (K, K, K, C_out, C_in), by the shape."""
    if layout is not None:
        return one_of(name, "layout", layout, ("krsc", "native"))
    krsc, native = shape[1:4], shape[:3]
    if krsc == native == (1, 1, 1):
        return "krsc"  # one output channel: both are the same
    if kernel_size is not None:
        size = tuple(KernelSpec(kernel_size).size)
        fits = [form for form, found in (("krsc", krsc), ("native", native)) if found == size]
    else:
        cube = len(set(native)) == 1 and native[0] <= MOST_TAPS
        fits = ["krsc"] * (max(krsc) <= MOST_TAPS) + ["native"] * cube
    if len(fits) != 1:
        raise ValueError(
            f"[{name}] weight of shape {shape} is "
            + ("neither" if not fits else "both")
            + " (C_out, K1, K2, K3, C_in) and (K1, K2, K3, C_out, C_in) of spconv 2.0 and 2.1; "
            'give layout="krsc" or layout="native", and the right kernel_size'
        )
    return fits[0]


def _axes(name: str, axes: str) -> list[int]:
    """Where x, y and z are among the three kernel axes."""
    if not isinstance(axes, str) or sorted(axes) != ["x", "y", "z"]:
        raise ValueError(f"[{name}] axes must be an order of 'xyz', found {told(axes)}")
    return [axes.index(a) for a in "xyz"]
