"""Rotated boxes: overlaps, non-maximum suppression, and points inside; docs/ops/boxes.md.

A box is a row (x, y, z, dx, dy, dz, heading): z is the center, dx lies along the heading, and the
heading turns counterclockwise from x. More columns are not read. Results are computed on the CPU
when a function is called, and have no derivative.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _ext

if TYPE_CHECKING:
    import mlx.core as mx

    from ..core.types import ArrayLike

__all__ = ["box_overlap", "box_overlap_pairs", "nms", "points_in_boxes"]


def box_overlap(a: ArrayLike, b: ArrayLike, *, kind: str = "bev") -> mx.array:
    """(N, M) overlaps of boxes a (N, 7) and b (M, 7), exact to the rounding of float64.

    kind: "bev" is the intersection over union (IoU) seen from above, "3d" that of the volumes,
    "upright" that seen from above without the headings, and "area" the area that both cover.
    float64 boxes give float64, others float32.

    Raises ValueError for a value that is not finite and for a negative size; it names the row.

    >>> from mlx_lattice import ops
    >>> ops.box_overlap([[0.0, 0, 0, 2, 2, 2, 0]], [[1.0, 0, 0, 2, 2, 2, 0]], kind="area").item()
    2.0
    """
    return _ext.box_overlap(a, b, kind)


def box_overlap_pairs(a: ArrayLike, b: ArrayLike, *, kind: str = "bev") -> mx.array:
    """(N,) overlaps of row i of a with row i of b; `box_overlap` says what `kind` means."""
    return _ext.box_overlap_pairs(a, b, kind)


def nms(
    boxes: ArrayLike,
    scores: ArrayLike,
    threshold: float,
    *,
    kind: str = "rotated",
    pre: int = -1,
    post: int = -1,
) -> mx.array:
    """Non-maximum suppression: (K,) int32, the rows that stay, by falling score.

    A box falls when its overlap with a box that stays is above the threshold; equality stays. Boxes
    are compared as seen from above.

    Args:
        kind: "rotated", "upright" (without the headings), or "circle": a box falls when the SQUARED
            distance to a center that stays is at most the threshold.
        pre: Only so many of the best rows take part; -1: all.
        post: At most so many stay; -1: all.

    Examples:
        >>> from mlx_lattice import ops
        >>> boxes = [[0.0, 0, 0, 4, 2, 2, 0], [0.5, 0, 0, 4, 2, 2, 0], [9, 0, 0, 4, 2, 2, 1.57]]
        >>> ops.nms(boxes, [0.5, 0.9, 0.7], 0.2).tolist()
        [1, 2]
    """
    return _ext.nms(boxes, scores, threshold, kind, pre, post)


def points_in_boxes(points: ArrayLike, boxes: ArrayLike) -> mx.array:
    """(N,) int32: for each point (N, 3) the first box that holds it, sides included; -1 if none.

    >>> from mlx_lattice import ops
    >>> ops.points_in_boxes([[0.0, 0, 0], [5, 0, 0]], [[0.0, 0, 0, 4, 2, 2, 0]]).tolist()
    [0, -1]
    """
    return _ext.points_in_boxes(points, boxes)
