"""What every loss checks before it reads by label: shapes, dtypes and the range of labels."""

from __future__ import annotations

import mlx.core as mx


def check_labels(
    name: str, logits: mx.array, labels: mx.array, weights: mx.array | None = None
) -> None:
    """Shapes, dtypes and, where the labels have values, their range."""
    for argument, value, axes in (
        ("logits", logits, 2),
        ("labels", labels, 1),
        ("weights", weights, 1),
    ):
        if value is None and argument == "weights":
            continue
        if not isinstance(value, mx.array):
            raise TypeError(f"[{name}] {argument} must be an array, found {type(value).__name__}")
        if value.ndim != axes:
            raise ValueError(
                f"[{name}] {argument} must have {axes} axes, found shape {tuple(value.shape)}"
            )
    rows, classes = logits.shape
    if classes < 1:
        raise ValueError(f"[{name}] logits must have a column per class, found none")
    if not mx.issubdtype(labels.dtype, mx.integer):
        raise TypeError(f"[{name}] labels must hold integers, found {labels.dtype}; -1 is unknown")
    if labels.shape[0] != rows:
        raise ValueError(
            f"[{name}] labels must have shape ({rows},), one per row of logits, "
            f"found {tuple(labels.shape)}"
        )
    if weights is not None and weights.shape[0] != classes:
        raise ValueError(
            f"[{name}] weights must have shape ({classes},), one per class, "
            f"found {tuple(weights.shape)}"
        )
    if rows:
        try:
            largest = int(labels.max())
        except ValueError:  # traced by mx.compile
            return
        if largest >= classes:
            raise ValueError(f"[{name}] labels holds {largest}, expected -1..{classes - 1}")
