"""Convolution weights of other libraries as (C_out, Kx, Ky, Kz, C_in).

The table says what each function assumes about its library; docs/models.md says how to check the
assumption with one voxel. All libraries are taken to correlate, as this library does: the weight of
offset o meets the input at output + o, without a flip.

| library | array | offsets |
|---|---|---|
| MinkowskiEngine | (K, C_in, C_out), (C_in, C_out) | first axis fastest: k = ix + Kx (iy + Ky iz) |
| TorchSparse | the same shapes | odd K: the first axis fastest; even K: the last axis fastest |
| spconv 1 | (K1, K2, K3, C_in, C_out) | axes 1 2 3 as its indices have them, usually z y x |
| spconv 2 | (C_out, K1, K2, K3, C_in) | the same |

Point convolutions have weights (K, G, C_in / G, C_out / G). `from_legacy_points` makes them from
the (C_in, C_out / G, K) of older checkpoints of PointCNN++. The array is an MLX or NumPy array; a
torch tensor goes through `.numpy()`.
"""

import mlx.core as mx

from ..core import KernelSpec


def from_minkowski(weight, kernel_size=3):
    """(K, C_in, C_out) with the first axis fastest."""
    return _from_kernel_major("from_minkowski", weight, kernel_size, first_fastest=True)


def from_torchsparse(weight, kernel_size=3):
    """From (K, C_in, C_out): the first axis runs fastest for odd K, the last axis for even K."""
    volume = KernelSpec(kernel_size).volume
    return _from_kernel_major(
        "from_torchsparse", weight, kernel_size, first_fastest=volume % 2 == 1
    )


def from_spconv1(weight, axes="zyx"):
    """From (K1, K2, K3, C_in, C_out); `axes` names the three columns after the batch column."""
    weight = _array("from_spconv1", weight, 5, "(K1, K2, K3, C_in, C_out)")
    order = _axes("from_spconv1", axes)
    return weight.transpose(4, *order, 3)


def from_spconv2(weight, axes="zyx"):
    """(C_out, K1, K2, K3, C_in); `axes` as in from_spconv1."""
    weight = _array("from_spconv2", weight, 5, "(C_out, K1, K2, K3, C_in)")
    order = _axes("from_spconv2", axes)
    return weight.transpose(0, *(1 + a for a in order), 4)


def from_legacy_points(weight, groups=1):
    """The weight of `points.PointConv3d` from (C_in, C_out / G, K) of an old PointCNN++ checkpoint.

    new[k, g, c, m] = old[g C_in / G + c, m, k]
    """
    weight = _array("from_legacy_points", weight, 3, "(C_in, C_out / G, K)")
    c_in, c_out, volume = weight.shape
    if groups < 1 or c_in % groups:
        raise ValueError(
            f"[from_legacy_points] groups must divide {c_in} input channels, got {groups}"
        )
    return weight.reshape(groups, c_in // groups, c_out, volume).transpose(3, 0, 1, 2)


def _from_kernel_major(name, weight, kernel_size, first_fastest):
    size = KernelSpec(kernel_size).size
    volume = size[0] * size[1] * size[2]
    weight = mx.array(weight)
    if weight.ndim == 2 and volume == 1:
        weight = weight[None]
    if weight.ndim != 3 or weight.shape[0] != volume:
        raise ValueError(
            f"[{name}] weight must have shape ({volume}, C_in, C_out) "
            f"for kernel_size {tuple(size)}, got {weight.shape}"
        )
    c_in, c_out = weight.shape[1:]
    if first_fastest:
        return weight.reshape(*reversed(size), c_in, c_out).transpose(4, 2, 1, 0, 3)
    return weight.reshape(*size, c_in, c_out).transpose(4, 0, 1, 2, 3)


def _array(name, weight, ndim, shape):
    weight = mx.array(weight)
    if weight.ndim != ndim:
        raise ValueError(f"[{name}] weight must have shape {shape}, got {weight.shape}")
    return weight


def _axes(name, axes):
    """Where x, y and z are among the three kernel axes."""
    if not isinstance(axes, str) or sorted(axes) != ["x", "y", "z"]:
        raise ValueError(f"[{name}] axes must be an order of 'xyz', got {axes!r}")
    return [axes.index(a) for a in "xyz"]
