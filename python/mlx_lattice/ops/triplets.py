"""Sums over triplets and point convolution, which `mlx_lattice.points` shows.

A triplet t joins rows a_idx[t], b_idx[t] and o_idx[t], integers (T,). Indices outside their range
are a ValueError. docs/ops/triplets.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _ext

if TYPE_CHECKING:
    import mlx.core as mx

    from .._ext import KernelRelation
    from ..core.types import ArrayLike, StreamOrDevice


def mvmr(
    a: ArrayLike,
    a_idx: ArrayLike | None,
    b: ArrayLike,
    b_idx: ArrayLike | None,
    o_idx: ArrayLike,
    n_o: int,
    *,
    layout: str = "gmc",
    stream: StreamOrDevice = None,
) -> mx.array:
    """(n_o, G, M): the sum over the triplets of an output row of `a[a_idx[t], g] b[b_idx[t], g]`.

    Args:
        a: Matrices (N_a, G, M, C), or with layout "gcm" (N_a, G, C, M).
        b: Vectors (N_b, G, C).
        a_idx, b_idx: Integers (T,); None for 0..T - 1.
        o_idx: Output rows, integers (T,).
        n_o: The number of output rows.
        layout: "gmc" or "gcm".
        stream: Stream or device of MLX.

    Examples:
        >>> import mlx.core as mx
        >>> from mlx_lattice import points
        >>> a, b = mx.ones((2, 1, 4, 3)), mx.ones((2, 1, 3))
        >>> points.mvmr(a, [0, 1], b, [0, 1], [0, 0], 1).tolist()
        [[[6.0, 6.0, 6.0, 6.0]]]
    """
    return _ext.mvmr(a, a_idx, b, b_idx, o_idx, n_o, layout, stream)


def mvmr_on(
    a: ArrayLike,
    b: ArrayLike,
    triplets: KernelRelation,
    *,
    layout: str = "gmc",
    stream: StreamOrDevice = None,
) -> mx.array:
    """`mvmr` on a `triplet_relation` that was made before."""
    return _ext.mvmr_on(a, b, triplets, layout, stream)


def vvor(
    a: ArrayLike,
    a_idx: ArrayLike,
    b: ArrayLike,
    b_idx: ArrayLike,
    o_idx: ArrayLike,
    n_o: int,
    *,
    stream: StreamOrDevice = None,
) -> mx.array:
    """(n_o, G, M, C): the sum over triplets of the outer product of `a[a_idx[t]]`, `b[b_idx[t]]`.

    a is (N_a, G, M) and b is (N_b, G, C).
    """
    return _ext.vvor(a, a_idx, b, b_idx, o_idx, n_o, stream)


def triplet_relation(
    a_idx: ArrayLike | None,
    b_idx: ArrayLike | None,
    o_idx: ArrayLike,
    *,
    n_a: int,
    n_b: int,
    n_o: int,
) -> KernelRelation:
    """The triplets of `mvmr` as a relation, checked and sorted once for any number of calls."""
    return _ext.triplet_relation(a_idx, b_idx, o_idx, n_a, n_b, n_o)


def point_conv(
    x: ArrayLike,
    weight: ArrayLike,
    relation: KernelRelation,
    bias: ArrayLike | None = None,
    *,
    stream: StreamOrDevice = None,
) -> mx.array:
    """`y[o] = bias + sum over the edges (i, o, k) of x[i] weight[k]`: (n_out, C_out).

    x is (n_in, C_in), weight (K, G, C_in / G, C_out / G) with G groups, bias (C_out,).
    """
    return _ext.point_conv(x, weight, relation, bias, stream)
