"""Attention over ragged segments and along edges, rotary positions; docs/ops/attention.md.

No array of lengths squared is made, also not in the gradient. Sums and softmax are float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import _ext
from .._ext import PositionBias

if TYPE_CHECKING:
    import mlx.core as mx

    from .._ext import KernelRelation, NeighborRelation
    from ..core.types import ArrayLike, StreamOrDevice

__all__ = ["PositionBias", "attention", "neighbor_attention", "rotary"]


def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    offsets: ArrayLike,
    *,
    k_offsets: ArrayLike | None = None,
    scale: float | None = None,
    bias: ArrayLike | Sequence[ArrayLike] | PositionBias | None = None,
    mask: str | ArrayLike | Sequence[ArrayLike] | None = None,
    stream: StreamOrDevice = None,
) -> mx.array:
    """`softmax(scale * q k^T + bias) v` for each segment: an array like q.

    Args:
        q: Queries (T, H, D), 1 <= D <= 256.
        k: Keys (S, H_kv, D); H is a multiple of H_kv.
        v: Values, like k.
        offsets: (B + 1,) integers from 0 to T; segment s is rows offsets[s] .. offsets[s + 1].
        k_offsets: The same for k and v; by default offsets.
        scale: Factor of the products; by default D ** -0.5.
        bias: None, a list with one array (H, L_q, L_k) per segment, all of them as one flat array,
            or a `PositionBias`.
        mask: None, "causal", or booleans like a bias without H, true where a key is seen. A query
            that sees no key gives 0.
        stream: Stream or device of MLX.
    """
    return _ext.attention(q, k, v, offsets, k_offsets, scale, bias, mask, stream)


def neighbor_attention(
    q: ArrayLike | None,
    k: ArrayLike | None,
    v: ArrayLike,
    relation: NeighborRelation | KernelRelation,
    *,
    bias: ArrayLike | None = None,
    scale: float | None = None,
    stream: StreamOrDevice = None,
) -> mx.array:
    """Softmax over the edges of each query, times v: (N, H, D). A query without edges gives 0.

    The logit of an edge is `scale * <q, k> + bias`. Without q and k the bias alone is the logit:
    grouped vector attention.

    Args:
        q: Queries (N, H, D), or None.
        k: Keys (M, H, D), or None together with q.
        v: Values (M, H, D), one row per source.
        relation: A `NeighborRelation` from sources to queries, or a `KernelRelation` from input
            rows to output rows.
        bias: (E, H), one row per edge of the relation, or None.
        scale: Factor of the products; by default D ** -0.5.
        stream: Stream or device of MLX.
    """
    return _ext.neighbor_attention(q, k, v, relation, bias, scale, stream)


def rotary(
    x: ArrayLike,
    positions: ArrayLike,
    *,
    base: float = 10000.0,
    halves: bool = False,
    stream: StreamOrDevice = None,
) -> mx.array:
    """Rotary position encoding on 1 to 3 axes: an array like x.

    Pairs of channels are turned by angles that grow with the position: pair m of P pairs by
    `position * base ** (-m / P)`.

    Args:
        x: (N, H, D); each axis owns 2 * (D // (2 * axes)) channels, the rest is copied.
        positions: (N, axes) numbers, constant for derivatives.
        base: Base of the angles.
        halves: Whether a pair is channel m of the first and of the second half of an axis, as in
            Utonia and LitePT; otherwise channels 2 m and 2 m + 1.
        stream: Stream or device of MLX.

    Examples:
        >>> import mlx.core as mx
        >>> from mlx_lattice import ops
        >>> turned = ops.rotary(mx.array([[[1.0, 0.0]]]), [[3.14159265]])
        >>> round(turned[0, 0, 0].item(), 3)
        -1.0
    """
    return _ext.rotary(x, positions, base, halves, stream)
