"""Convolutions of sparse tensors and linear layers; docs/ops/conv.md.

A convolution sums over the edges (i, o, k) of a relation, which join input row i and output row o
by kernel offset k:

    y[o] = bias + sum over edges (i, o, k) of x[i] W[k]

The kinds of convolution differ in the output coordinates and in how edges are found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from .. import _ext

if TYPE_CHECKING:
    from collections.abc import Sequence

    import mlx.core as mx

    from .._ext import PackedKernel, SparseTensor
    from ..core.types import ArrayLike, Bounds, Kernel, StreamOrDevice, Target, Triple, Weight

__all__ = [
    "conv3d",
    "conv_norm",
    "conv_transpose3d",
    "generative_conv_transpose3d",
    "inverse_conv3d",
    "linear",
    "linear_features",
    "normalized_conv_transpose3d",
    "normalized_generative_conv_transpose3d",
    "normalized_subm_conv3d",
    "pack_kernel",
    "subm_conv3d",
]


def conv3d(
    x: SparseTensor,
    weight: Weight,
    bias: ArrayLike | None = None,
    *,
    kernel_size: Kernel = 3,
    stride: Triple = 1,
    padding: Triple = 0,
    dilation: Triple = 1,
    coordinates: Target | None = None,
    groups: int = 1,
    support: str = "floor",
    bounds: Bounds | None = None,
    order: str = "sorted",
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """Convolution onto the distinct `floor(c / stride)`, at stride 1 onto the coordinates of x.

    An edge joins output c with the input at `c * stride + offset - padding`. A pointwise kernel
    (size 1, stride 1) is a matrix product and keeps the coordinates of x themselves.

    Args:
        x: Features (N, C_in).
        weight: (C_out, Kx, Ky, Kz, C_in), (K, C_in, C_out), for one offset also (C_out, C_in); or a
            `QuantizedWeight`. With groups, C_in counts the channels inside a group.
        bias: (C_out,).
        kernel_size: One integer or one per axis (x, y, z), or a `KernelSpec`, which also has the
            next three. Odd sizes are centered, even ones begin at 0.
        stride: Step of the output lattice; the output has stride `x.stride * stride`.
        padding: Shift of the kernel, also negative. Odd kernels are centered already, so PyTorch's
            padding p is `p - (size - 1) // 2` here.
        dilation: Distance between kernel offsets.
        coordinates: Where the output lies instead: a tensor, a key of x's manager or rows (M, 4).
        groups: Groups of channels; `groups = C_in = C_out` is a depthwise convolution.
        support: "floor" as above, or "reached": every cell that the kernel reaches from some row,
            as in spconv. Then offsets count from 0, and padding is that of PyTorch: input `c`
            reaches output `o` with tap `t` if `c + padding - t * dilation = stride * o`.
        bounds: Of the input, ((0, 0, 0), (D, H, W)), for "reached": outputs lie inside of
            `(size + 2 padding - dilation (kernel - 1) - 1) // stride + 1` cells. By default those
            of `x.with_bounds(...)`, which the result has too. Without bounds all cells count.
        order: Rows of "reached": "sorted" by (batch, x, y, z), or "spconv", as its CPU code finds
            them: by tap, then by input row, first seen first.
        stream: Stream or device of MLX.

    Returns:
        A tensor with features (M, C_out) in the dtype of x. Sums are float32.

    Raises:
        ValueError: Shapes or dtypes do not fit together, or x has a coordinate twice.
        OverflowError: A coordinate would leave its dtype.

    Examples:
        >>> import mlx.core as mx
        >>> from mlx_lattice import ops, samples
        >>> x = samples.tensor()
        >>> ops.conv3d(x, mx.ones((8, 2, 2, 2, 4)), kernel_size=2, stride=2).shape
        (4, 8)
    """
    kernel, reach = (kernel_size, stride, padding, dilation), (support, bounds, order)
    return _ext.conv3d(x, weight, bias, *kernel, coordinates, groups, *reach, stream)


def subm_conv3d(
    x: SparseTensor,
    weight: Weight,
    bias: ArrayLike | None = None,
    *,
    kernel_size: Kernel = 3,
    dilation: Triple = 1,
    groups: int = 1,
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """Submanifold convolution: the output has the coordinates of x. Arguments as in `conv3d`.

    Returns features (N, C_out) on the same key, so that the result can be added to x without a
    join. An even kernel_size is a ValueError.

    Examples:
        >>> import mlx.core as mx
        >>> from mlx_lattice import ops, samples
        >>> x = samples.tensor()
        >>> y = ops.subm_conv3d(x, mx.ones((8, 3, 3, 3, 4)))
        >>> y.shape, y.same_coords(x)
        ((6, 8), True)
    """
    return _ext.subm_conv3d(x, weight, bias, kernel_size, dilation, groups, stream)


def normalized_subm_conv3d(
    x: SparseTensor,
    weight: Weight,
    bias: ArrayLike | None = None,
    *,
    kernel_size: Kernel = 3,
    dilation: Triple = 1,
    groups: int = 1,
    eps: float = 1e-8,
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """`subm_conv3d(x, W) / sqrt(subm_conv3d(1, W ** 2) + eps) + bias`.

    This makes a row with few neighbors as large as one with many. Pointwise kernels are not
    normalized. Raises ValueError for eps <= 0 and for a packed weight.
    """
    return _ext.normalized_subm_conv3d(x, weight, bias, kernel_size, dilation, groups, eps, stream)


def conv_transpose3d(
    x: SparseTensor,
    weight: Weight,
    bias: ArrayLike | None = None,
    *,
    kernel_size: Kernel = 2,
    stride: Triple = 2,
    padding: Triple = 0,
    dilation: Triple = 1,
    coordinates: Target | None = None,
    groups: int = 1,
    support: str = "floor",
    bounds: Bounds | None = None,
    order: str = "sorted",
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """Transposed convolution onto the distinct `c * stride + offset - padding`.

    The output has stride `x.stride / stride`, which must divide. `coordinates` are where the output
    lies instead, usually those of the level from which x came. Offsets count from 0; the other
    arguments are those of `conv3d`. With `support="reached"` outputs lie inside of
    `(size - 1) stride - 2 padding + dilation (kernel - 1) + 1` cells of the bounds.

    Examples:
        >>> import mlx.core as mx
        >>> from mlx_lattice import ops, samples
        >>> x = samples.tensor()
        >>> down = ops.conv3d(x, mx.ones((8, 2, 2, 2, 4)), kernel_size=2, stride=2)
        >>> up = ops.conv_transpose3d(down, mx.ones((4, 2, 2, 2, 8)), coordinates=x)
        >>> up.same_coords(x)
        True
    """
    kernel, reach = (kernel_size, stride, padding, dilation), (support, bounds, order)
    return _ext.conv_transpose3d(x, weight, bias, *kernel, coordinates, groups, *reach, stream)


def inverse_conv3d(
    x: SparseTensor,
    weight: Weight,
    fine: Target,
    bias: ArrayLike | None = None,
    *,
    kernel_size: Kernel = 3,
    stride: Triple = 2,
    padding: Triple = 0,
    dilation: Triple = 1,
    groups: int = 1,
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """The way back from `conv3d(fine, ..., support="reached")`, onto the rows of `fine`.

    Edges are those of the layer on the way down with their ends swapped and the same offset; so
    kernel_size, stride, padding and dilation are those of that layer. Weights are
    (C_out, Kx, Ky, Kz, C_in) with the C_in of x. Poolings with support="reached" have the same way
    back.

    Raises:
        ValueError: `fine` has another stride than `x.stride / stride`.

    Examples:
        >>> import mlx.core as mx
        >>> from mlx_lattice import ops, samples
        >>> x = samples.tensor()
        >>> kernel = {"kernel_size": 3, "stride": 2, "padding": 1}
        >>> down = ops.conv3d(x, mx.ones((8, 3, 3, 3, 4)), **kernel, support="reached")
        >>> ops.inverse_conv3d(down, mx.ones((4, 3, 3, 3, 8)), x, **kernel).same_coords(x)
        True
    """
    return _ext.inverse_conv3d(
        x, weight, fine, bias, kernel_size, stride, padding, dilation, groups, stream
    )


def normalized_conv_transpose3d(
    x: SparseTensor,
    weight: Weight,
    bias: ArrayLike | None = None,
    *,
    kernel_size: Kernel = 2,
    stride: Triple = 2,
    padding: Triple = 0,
    dilation: Triple = 1,
    coordinates: Target | None = None,
    groups: int = 1,
    eps: float = 1e-8,
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """`conv_transpose3d(x, W) / sqrt(conv_transpose3d(1, W ** 2) + eps) + bias`.

    Raises ValueError for eps <= 0 and for a packed weight.
    """
    return _ext.normalized_conv_transpose3d(
        x, weight, bias, kernel_size, stride, padding, dilation, coordinates, groups, eps, stream
    )


def generative_conv_transpose3d(
    x: SparseTensor,
    weight: Weight,
    bias: ArrayLike | None = None,
    *,
    kernel_size: Kernel = 2,
    stride: Triple = 2,
    coordinates: Target | None = None,
    groups: int = 1,
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """Transposed convolution that makes new coordinates: `c * stride + offset` for every offset.

    Candidates with equal coordinates become one row. A decoder calls it and prunes the rows that
    are empty. The output has stride `x.stride / stride`; arguments as in `conv_transpose3d`.
    """
    return _ext.generative_conv_transpose3d(
        x, weight, bias, kernel_size, stride, coordinates, groups, stream
    )


def normalized_generative_conv_transpose3d(
    x: SparseTensor,
    weight: Weight,
    bias: ArrayLike | None = None,
    *,
    kernel_size: Kernel = 2,
    stride: Triple = 2,
    coordinates: Target | None = None,
    groups: int = 1,
    eps: float = 1e-8,
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """`generative_conv_transpose3d`, divided by the root of the same sum of ones and squares.

    `conv(x, W) / sqrt(conv(1, W ** 2) + eps) + bias`. Raises ValueError for eps <= 0 and for a
    packed weight.
    """
    return _ext.normalized_generative_conv_transpose3d(
        x, weight, bias, kernel_size, stride, coordinates, groups, eps, stream
    )


def linear(
    x: SparseTensor,
    weight: Weight,
    bias: ArrayLike | None = None,
    *,
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """`x W^T + bias` on the features; weight (C_out, C_in), dense or packed. Coordinates stay."""
    return _ext.linear(x, weight, bias, stream)


def linear_features(
    x: ArrayLike,
    weight: Weight,
    bias: ArrayLike | None = None,
    *,
    stream: StreamOrDevice = None,
) -> mx.array:
    """`linear` of an array (N, C_in): (N, C_out)."""
    return _ext.linear_features(x, weight, bias, stream)


def conv_norm(
    x: SparseTensor | Sequence[SparseTensor],
    weight: Weight,
    bias: ArrayLike | None = None,
    *,
    kind: str = "submanifold",
    mean: ArrayLike,
    var: ArrayLike,
    norm_weight: ArrayLike | None = None,
    norm_bias: ArrayLike | None = None,
    eps: float = 1e-5,
    residual: SparseTensor | None = None,
    relu: bool = False,
    kernel_size: Kernel = 3,
    stride: Triple = 1,
    padding: Triple = 0,
    dilation: Triple = 1,
    coordinates: Target | None = None,
    groups: int = 1,
    bounds: Bounds | None = None,
    order: str = "sorted",
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """A convolution with the norm, the sum and the ReLU that follow it in evaluation.

        relu((conv(x) - mean) / sqrt(var + eps) * norm_weight + norm_bias + residual)

    On the CPU this is one pass over memory, and a 16-bit result is rounded once. It is
    differentiable, but a gradient computes the convolution again: in training the separate
    operations are faster.

    Args:
        x: A tensor, or several on the same coordinates, whose channels are taken side by side. Two
            with multiples of 16 channels are read where they lie, without a copy.
        kind: "forward" as in `conv3d`, "submanifold", "transposed", "generative", and with
            support="reached" of `conv3d` and `conv_transpose3d` "reached", "reached_transposed".
        mean, var: (C_out,), running statistics.
        norm_weight, norm_bias: (C_out,).
        residual: A tensor on the coordinates of the result, of its dtype.

    The other arguments are those of `conv3d`.

    Raises:
        ValueError: Shapes or dtypes do not fit together, or tensors are on other coordinates.

    Examples:
        >>> import mlx.core as mx
        >>> from mlx_lattice import ops, samples
        >>> x = samples.tensor()
        >>> w, zeros, ones = mx.ones((4, 3, 3, 3, 4)), mx.zeros((4,)), mx.ones((4,))
        >>> y = ops.conv_norm(x, w, mean=zeros, var=ones, eps=0.0, residual=x)
        >>> mx.allclose(y.feats, ops.subm_conv3d(x, w).feats + x.feats).item()
        True
    """
    parts = cast("Sequence[SparseTensor]", x if isinstance(x, (list, tuple)) else [x])
    norm = (mean, var, norm_weight, norm_bias, eps, residual, relu)
    kernel = (kernel_size, stride, padding, dilation)
    target = (coordinates, groups, bounds, order)
    return _ext.conv_norm(kind, parts, weight, bias, *norm, *kernel, *target, stream)


def pack_kernel(
    weight: ArrayLike, groups: int = 1, *, stream: StreamOrDevice = None
) -> PackedKernel:
    """A dense weight, arranged once for many calls on the CPU. Layouts are those of `conv3d`.

    A convolution with an array as weight arranges the array in every call, which costs some percent
    of a small scene. The result with a `PackedKernel` is the same. It belongs to this array: a
    write into the array's memory through a NumPy view is not seen. On a GPU nothing is arranged.
    Layers do this with `layer.pack()`, whole networks with `nn.pack(model)`.

    Examples:
        >>> import mlx.core as mx
        >>> from mlx_lattice import ops, samples
        >>> x, w = samples.tensor(), mx.ones((8, 3, 3, 3, 4))
        >>> packed = ops.pack_kernel(w)
        >>> packed.is_of(w)
        True
        >>> mx.array_equal(ops.subm_conv3d(x, packed).feats, ops.subm_conv3d(x, w).feats).item()
        True
    """
    return _ext.pack_kernel(weight, groups, stream)
