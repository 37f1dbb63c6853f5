"""Losses of segmentation and classification: loss(logits (N, C), labels (N,)) is a scalar.

Rows with label -1 do not count; without a row that counts every loss is 0. All are computed in
float32. `combine` adds several; recipes name them. `segmentation_loss` is the one of a `Trainer`
on scans.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, cast

import mlx.core as mx
import numpy as np

from ..core import _checks
from .voxel_pipeline import Scan

if TYPE_CHECKING:
    from mlx.nn import Module

__all__ = [
    "balanced_weights",
    "class_weights",
    "classification_loss",
    "combine",
    "cross_entropy",
    "dice",
    "focal",
    "lovasz",
    "segmentation_loss",
]

Loss = Callable[[mx.array, mx.array], mx.array]


def classification_loss(
    logits: mx.array, labels: mx.array, weights: mx.array | None = None
) -> mx.array:
    """Mean cross-entropy over the rows with label >= 0, weighted by the class of each row.

        sum_i w_i (logsumexp(logits_i) - logits_i[label_i]) / sum_i w_i

    Args:
        logits: Scores (N, C).
        labels: Class indices (N,), integers; rows with -1 do not count.
        weights: The weight of each class, (C,); by default all are equal.

    Returns:
        A scalar, float32; 0 without a row that counts.

    Raises:
        TypeError, ValueError: A shape or dtype does not fit, or a label is C or more.

    Examples:
        >>> import mlx.core as mx
        >>> from mlx_lattice import training
        >>> loss = training.classification_loss(mx.zeros((3, 4)), mx.array([0, 3, -1]))
        >>> round(loss.item(), 4)  # log 4
        1.3863
    """
    _check_labels("classification_loss", logits, labels, weights)
    known = labels >= 0
    # In range whatever the labels are: traced ones have no values to check, and a wrong one makes
    # the loss NaN.
    index = mx.clip(labels, 0, logits.shape[1] - 1)
    right = mx.where(labels < logits.shape[1], 1.0, math.nan)
    share = mx.where(known, right if weights is None else right * weights[index], 0.0)
    share = share / mx.maximum(share.sum(), 1e-12)
    rows, _ = cast("tuple[mx.array, mx.array]", _cross_entropy(logits.astype(mx.float32), index))
    return (rows * share).sum()


@mx.custom_function
def _cross_entropy(logits: mx.array, index: mx.array) -> tuple[mx.array, mx.array]:
    """Of each row logsumexp(logits) - logits[index], and its slope softmax - one-hot (N, C).

    The slope is kept for the derivative, which takes half the time of MLX's own; most of the rest
    is exp. Classes lie along the first axis, because MLX reduces a few long rows faster than many
    short ones.
    """
    x = mx.contiguous(logits.T)
    x = x - x.max(axis=0)
    e = mx.exp(x)
    total = e.sum(axis=0)
    one_hot = mx.arange(x.shape[0])[:, None] == index
    rows = mx.log(total) - mx.where(one_hot, x, 0.0).sum(axis=0)
    return rows, mx.contiguous((e / total - one_hot).T)


@_cross_entropy.vjp
def _cross_entropy_vjp(
    inputs: Sequence[mx.array], cotangents: Sequence[mx.array], outputs: Sequence[mx.array]
) -> tuple[mx.array, ...]:
    slope = cast("mx.array", _slope(outputs[1], inputs[0]))
    return cotangents[0][:, None] * slope, mx.zeros_like(inputs[1])


@mx.custom_function
def _slope(slope: mx.array, logits: mx.array) -> mx.array:
    """The slope that was kept, as a function of the logits: second derivatives look at these."""
    return slope


@_slope.vjp
def _slope_vjp(
    inputs: Sequence[mx.array], cotangent: mx.array, output: mx.array
) -> tuple[mx.array, mx.array]:
    p = mx.softmax(inputs[1], axis=1)
    inner = (p * cotangent).sum(axis=1, keepdims=True)
    return mx.zeros_like(inputs[0]), p * (cotangent - inner)


def cross_entropy(weights: mx.array | None = None, smoothing: float = 0.0) -> Loss:
    """Cross-entropy with class weights w and label smoothing s.

        target = (1 - s) one-hot + s / C,    loss = sum_i w_i CE(target_i) / sum_i w_i

    Args:
        weights: The weight of each class, (C,); by default all are equal.
        smoothing: The share of the target that all classes get in equal parts, below 1.

    Returns:
        A function of (logits (N, C), labels (N,)) that gives a scalar; see `classification_loss`.

    Raises:
        TypeError, ValueError: `smoothing` is no number from 0 to below 1.

    Examples:
        >>> import mlx.core as mx
        >>> from mlx_lattice.training import losses
        >>> sure, labels = mx.array([[9.0, 0.0], [0.0, 9.0]]), mx.array([0, 1])
        >>> plain, smooth = losses.cross_entropy(), losses.cross_entropy(smoothing=0.1)
        >>> plain(sure, labels).item() < 1e-3, round(smooth(sure, labels).item(), 2)
        (True, 0.45)
    """
    smoothing = _checks.share("cross_entropy", "smoothing", smoothing)

    def loss(logits: mx.array, labels: mx.array) -> mx.array:
        _check_labels("cross_entropy", logits, labels, weights)
        plain = classification_loss(logits, labels, weights)
        if smoothing == 0:
            return plain
        share = _share(labels, weights)
        x = logits.astype(mx.float32)
        flat = _log_total(x) - x.mean(axis=1)  # cross-entropy with the uniform target
        return (1 - smoothing) * plain + smoothing * (flat * share).sum()

    return loss


def focal(gamma: float = 2.0, weights: mx.array | None = None) -> Loss:
    """Focal loss (Lin et al., 2017): the mean of (1 - p)^gamma (-log p), p of the true class.

    Args:
        gamma: The exponent by which rows that are already right count less; 0 or more.
        weights: The weight of each class, (C,); by default all are equal.

    Returns:
        A function of (logits (N, C), labels (N,)) that gives a scalar.

    Raises:
        TypeError, ValueError: `gamma` is no finite number of 0 or more.

    Examples:
        >>> import mlx.core as mx
        >>> from mlx_lattice.training import losses
        >>> unsure = mx.zeros((1, 2)), mx.array([0])  # p = 1/2
        >>> round((losses.focal(2.0)(*unsure) / losses.cross_entropy()(*unsure)).item(), 4)
        0.25
    """
    gamma = _checks.finite("focal", "gamma", gamma, 0)

    def loss(logits: mx.array, labels: mx.array) -> mx.array:
        _check_labels("focal", logits, labels, weights)
        log_p = _true_log(logits, labels)
        rest = mx.maximum(1 - mx.exp(log_p), 1e-8)  # its power has a slope at 0
        return (rest**gamma * -log_p * _share(labels, weights)).sum()

    return loss


def dice(smooth: float = 1.0) -> Loss:
    """Soft Dice (Milletari et al., 2016), the mean over the classes present.

        1 - (2 |p t| + smooth) / (|p| + |t| + smooth), p of the rows, t one-hot

    Args:
        smooth: The number that is added above and below the fraction; 0 or more.

    Returns:
        A function of (logits (N, C), labels (N,)) that gives a scalar.

    Raises:
        TypeError, ValueError: `smooth` is no finite number of 0 or more.

    Examples:
        >>> import mlx.core as mx
        >>> from mlx_lattice.training import losses
        >>> loss = losses.dice(smooth=0.0)
        >>> loss(mx.array([[99.0, 0.0], [0.0, 99.0]]), mx.array([0, 1])).item()
        0.0
    """
    smooth = _checks.finite("dice", "smooth", smooth, 0)

    def loss(logits: mx.array, labels: mx.array) -> mx.array:
        _check_labels("dice", logits, labels)
        p, truth, known = _probabilities(logits, labels)
        p = p * known[:, None]
        present = (truth.sum(axis=0) > 0).astype(mx.float32)
        both = 2 * (p * truth).sum(axis=0) + smooth
        either = p.sum(axis=0) + truth.sum(axis=0) + smooth
        lost = (1 - both / mx.maximum(either, 1e-12)) * present
        return lost.sum() / mx.maximum(present.sum(), 1)

    return loss


def lovasz() -> Loss:
    """Lovasz-softmax (Berman et al., CVPR 2018): the convex extension of 1 - IoU.

    For class c let e_i = |[label_i = c] - p_i| be the errors in descending order. The loss of the
    class is the sum of e_i (J_i - J_(i-1)), where J_i = 1 - IoU when the first i rows are wrong.
    The result is the mean over the classes present.

    Returns:
        A function of (logits (N, C), labels (N,)) that gives a scalar.

    Examples:
        >>> import mlx.core as mx
        >>> from mlx_lattice.training import losses
        >>> right, wrong = mx.array([[99.0, 0.0]]), mx.array([[0.0, 99.0]])
        >>> [losses.lovasz()(logits, mx.array([0])).item() for logits in (right, wrong)]
        [0.0, 1.0]
    """

    def loss(logits: mx.array, labels: mx.array) -> mx.array:
        _check_labels("lovasz", logits, labels)
        p, truth, known = _probabilities(logits, labels)
        error = mx.abs(truth - p)
        error = mx.where(known[:, None], error, -1.0)  # rows that do not count come last
        order = mx.stop_gradient(mx.argsort(-error, axis=0))
        error = mx.take_along_axis(error, order, axis=0)
        truth = mx.take_along_axis(truth, order, axis=0)
        counted = mx.take_along_axis(
            mx.broadcast_to(known[:, None].astype(mx.float32), truth.shape), order, axis=0
        )
        total = truth.sum(axis=0)
        both = total - mx.cumsum(truth, axis=0)
        either = total + mx.cumsum((1 - truth) * counted, axis=0)
        jaccard = 1 - both / mx.maximum(either, 1)
        before = mx.concatenate([mx.zeros((1, jaccard.shape[1])), jaccard[:-1]], axis=0)
        grades = mx.stop_gradient((jaccard - before) * counted)
        present = (total > 0).astype(mx.float32)
        per_class = (error * grades).sum(axis=0) * present
        return per_class.sum() / mx.maximum(present.sum(), 1)

    return loss


def combine(parts: list[tuple[float, Loss]]) -> Loss:
    """The weighted sum of losses.

    Args:
        parts: Pairs (factor, loss).

    Returns:
        A function of (logits (N, C), labels (N,)) that gives a scalar.

    Raises:
        TypeError: `parts` are no pairs of a number and a function.

    Examples:
        >>> import mlx.core as mx
        >>> from mlx_lattice.training import losses
        >>> loss = losses.combine([(1.0, losses.cross_entropy()), (0.5, losses.lovasz())])
        >>> round(loss(mx.zeros((1, 2)), mx.array([0])).item(), 4)  # log 2 + 0.5 / 2
        0.9431
    """
    expected = "pairs (factor, loss)"
    _checks.instance("combine", "parts", parts, (list, tuple), expected)
    for part in parts:
        if not isinstance(part, (list, tuple)) or len(part) != 2 or not callable(part[1]):
            _checks.wrong_type("combine", "parts", part, expected)
    pairs = [(_checks.finite("combine", "factor", factor), part) for factor, part in parts]

    def loss(logits: mx.array, labels: mx.array) -> mx.array:
        total = mx.array(0.0)
        for factor, part in pairs:
            total = total + factor * part(logits, labels)
        return total

    return loss


LOSSES: dict[str, Callable[..., Loss]] = {
    "cross_entropy": cross_entropy,
    "focal": focal,
    "dice": dice,
    "lovasz": lovasz,
}


def segmentation_loss(weights: mx.array | None = None) -> Callable[[Module, Scan], mx.array]:
    """The loss of a `Trainer` on scans: mean cross-entropy over the voxels.

    Args:
        weights: The weight of each class, (C,); see `class_weights`.

    Returns:
        A function of (model, scan) that gives a scalar.

    Raises:
        TypeError, ValueError: When it is called: the item is no `Scan`, or has no labels.
    """

    def loss(model: Module, scan: Scan) -> mx.array:
        expected = "a Scan; VoxelPipeline.scan makes one of a cloud."
        _checks.instance("segmentation_loss", "scan", scan, Scan, expected)
        if scan.labels is None:
            raise ValueError(f"[segmentation_loss] scan {scan.name!r} has no labels")
        return classification_loss(model(scan.tensor).feats, scan.labels, weights)

    return loss


def class_weights(scans: Iterable[Scan], count: int) -> mx.array:
    """Weights of classes by their share of the voxels, so that rare classes count.

    Args:
        scans: Scans with labels.
        count: The number of classes.

    Returns:
        `balanced_weights` of the voxels of each class, an array of shape (count,).

    Raises:
        TypeError, ValueError: A scan has no labels, or one outside the classes.
    """
    counts = np.zeros(_checks.integer("class_weights", "count", count, 1, 1 << 16), np.int64)
    for scan in _checks.listed("class_weights", "scans", scans, "scans with labels"):
        if not isinstance(scan, Scan) or scan.labels is None:
            _checks.wrong_type("class_weights", "scans", scan, "scans with labels")
        labels = np.array(scan.labels)
        found = np.bincount(labels[labels >= 0], minlength=count)
        if len(found) > count:
            _checks.wrong_value("class_weights", "scans", len(found) - 1, f"labels below {count}")
        counts += found
    return mx.array(balanced_weights(counts))


def balanced_weights(counts: np.ndarray) -> np.ndarray:
    """Weights of classes by the numbers of their rows: 1 / sqrt(share).

    Args:
        counts: The number of rows of each class, (C,).

    Returns:
        A float32 array of shape (C,) whose mean over all rows is 1.

    Raises:
        TypeError: `counts` are no numbers of one axis.

    Examples:
        >>> import numpy as np
        >>> from mlx_lattice import training
        >>> weights = training.balanced_weights(np.array([90, 10]))
        >>> float((weights * [90, 10]).sum().round(3)), float((weights[1] / weights[0]).round(3))
        (100.0, 3.0)
    """
    expected = "numbers of shape (classes,)"
    rows = _checks.numpy_array("balanced_weights", "counts", counts, expected)
    if rows.ndim != 1:
        _checks.wrong_type("balanced_weights", "counts", counts, expected)
    share = rows / max(rows.sum(), 1)
    weights = 1 / np.sqrt(np.maximum(share, 1e-4))
    return (weights / max((weights * share).sum(), 1e-12)).astype(np.float32)


def _share(labels: mx.array, weights: mx.array | None) -> mx.array:
    """Weight of each row over the sum of all weights; 0 where the label is -1."""
    known = labels >= 0
    w = known.astype(mx.float32)
    if weights is not None:
        w = mx.where(known, weights[mx.clip(labels, 0, weights.shape[0] - 1)], 0.0)
    return w / mx.maximum(w.sum(), 1e-12)


def _log_total(x: mx.array) -> mx.array:
    """log of the sum of exp of each row; MLX refuses an array without rows."""
    return mx.logsumexp(x, axis=1) if x.shape[0] else mx.zeros((0,))


def _true_log(logits: mx.array, labels: mx.array) -> mx.array:
    """log p of the true class; 0 where the label is -1.

    NaN for a class that does not exist, which only labels under mx.compile can hold.
    """
    x = logits.astype(mx.float32)
    index = mx.clip(labels, 0, x.shape[1] - 1)
    own = mx.take_along_axis(x, index[:, None], axis=1)[:, 0]
    own = mx.where(labels < x.shape[1], own - _log_total(x), math.nan)
    return mx.where(labels >= 0, own, 0.0)


def _probabilities(logits: mx.array, labels: mx.array) -> tuple[mx.array, mx.array, mx.array]:
    """(softmax (N, C), one-hot (N, C), rows that count (N,))"""
    # MLX's sum over no rows may never return where they are strided; a copy of them is not.
    x = mx.contiguous(logits.astype(mx.float32))
    truth = (labels[:, None] == mx.arange(x.shape[1])).astype(mx.float32)
    return mx.softmax(x, axis=1), truth, labels >= 0


def _check_labels(
    name: str, logits: mx.array, labels: mx.array, weights: mx.array | None = None
) -> None:
    """The checks of all losses: shapes, dtypes and, where the labels have values, their range."""
    for argument, value, axes in (
        ("logits", logits, 2),
        ("labels", labels, 1),
        ("weights", weights, 1),
    ):
        if value is None and argument == "weights":
            continue
        if not isinstance(value, mx.array):
            raise TypeError(f"[{name}] {argument} must be an array, found {_checks.told(value)}")
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
        try:  # NumPy reads them where they lie; a maximum of MLX would wait for the last step
            largest = int(np.asarray(labels).max())
        except ValueError:  # traced by mx.compile
            return
        if largest >= classes:
            raise ValueError(f"[{name}] labels holds {largest}, expected -1..{classes - 1}")
