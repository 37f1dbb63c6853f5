"""Losses of segmentation and classification: loss(logits (N, C), labels (N,)) is a scalar.

Rows with label -1 do not count; without a row that counts every loss is 0. All are computed in
float32. `combine` adds several; recipes name them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mlx.core as mx

from .label_checks import check_labels

__all__ = ["classification_loss", "combine", "cross_entropy", "dice", "focal", "lovasz"]

Loss = Callable[[mx.array, mx.array], mx.array]


def classification_loss(
    logits: mx.array, labels: mx.array, weights: mx.array | None = None
) -> mx.array:
    """Mean cross-entropy over the rows with label >= 0, weighted by the class of each row.

    Without such a row the loss is 0. The gradient, share * (softmax - one-hot), is written out,
    which takes half the time of MLX's own derivative; most of the rest is exp.
    """
    check_labels("classification_loss", logits, labels, weights)
    known = labels >= 0
    # In range whatever the labels are: traced ones have no values to check, and a wrong one makes
    # the loss NaN.
    index = mx.clip(labels, 0, logits.shape[1] - 1)
    right = mx.where(labels < logits.shape[1], 1.0, math.nan)
    share = mx.where(known, right if weights is None else right * weights[index], 0.0)
    found: Any = _cross_entropy(
        logits.astype(mx.float32), index, share / mx.maximum(share.sum(), 1e-12)
    )
    return found[0]


@mx.custom_function
def _cross_entropy(logits: mx.array, index: Any, share: Any) -> tuple[Any, ...]:
    """Sum over rows of share * (logsumexp(logits) - logits[index]), and the gradient of that sum.

    Classes lie along the first axis, because MLX reduces a few long rows faster than many short
    ones.
    """
    x = mx.contiguous(logits.T)
    x = x - x.max(axis=0)
    e = mx.exp(x)
    total = e.sum(axis=0)
    one_hot = mx.arange(x.shape[0])[:, None] == index
    loss = ((mx.log(total) - mx.where(one_hot, x, 0.0).sum(axis=0)) * share).sum()
    return loss, mx.contiguous(((e / total - one_hot) * share).T)


@_cross_entropy.vjp
def _cross_entropy_vjp(inputs: Any, cotangents: Any, outputs: Any) -> tuple[Any, ...]:
    return cotangents[0] * outputs[1], mx.zeros_like(inputs[1]), mx.zeros_like(inputs[2])


def cross_entropy(weights: mx.array | None = None, smoothing: float = 0.0) -> Loss:
    """Cross-entropy with class weights w and label smoothing s:

    target = (1 - s) one-hot + s / C,    loss = sum_i w_i CE(target_i) / sum_i w_i
    """
    if not 0 <= smoothing < 1:
        raise ValueError(f"[cross_entropy] smoothing: found {smoothing}, expected 0 to below 1")

    def loss(logits: mx.array, labels: mx.array) -> Any:
        check_labels("cross_entropy", logits, labels, weights)
        plain = classification_loss(logits, labels, weights)
        if smoothing == 0:
            return plain
        share = _share(labels, weights)
        x = logits.astype(mx.float32)
        flat = mx.logsumexp(x, axis=1) - x.mean(axis=1)  # cross-entropy with the uniform target
        return (1 - smoothing) * plain + smoothing * (flat * share).sum()

    return loss


def _at_least_zero(loss: str, name: str, value: float) -> float:
    """value as a float, also of an integer that MLX cannot take."""
    if not 0 <= value < math.inf:
        raise ValueError(f"[{loss}] {name}: found {value}, expected a finite number, 0 or more")
    return float(value)


def focal(gamma: float = 2.0, weights: mx.array | None = None) -> Loss:
    """Focal loss (Lin et al., 2017): the mean of (1 - p)^gamma (-log p), p of the true class."""
    gamma = _at_least_zero("focal", "gamma", gamma)

    def loss(logits: mx.array, labels: mx.array) -> Any:
        check_labels("focal", logits, labels, weights)
        log_p = _true_log(logits, labels)
        rest = mx.maximum(1 - mx.exp(log_p), 1e-8)  # its power has a slope at 0
        return -(rest**gamma * log_p * _share(labels, weights)).sum()

    return loss


def dice(smooth: float = 1.0) -> Loss:
    """Soft Dice (Milletari et al., 2016): mean over the classes present of 1 - (2 |pt| + s) / (|p|
    + |t| + s).
    """
    smooth = _at_least_zero("dice", "smooth", smooth)

    def loss(logits: mx.array, labels: mx.array) -> Any:
        check_labels("dice", logits, labels)
        p, truth, known = _probabilities(logits, labels)
        p = p * known[:, None]
        present = (truth.sum(axis=0) > 0).astype(mx.float32)
        both = 2 * (p * truth).sum(axis=0) + smooth
        either = p.sum(axis=0) + truth.sum(axis=0) + smooth
        lost = (1 - both / mx.maximum(either, 1e-12)) * present
        return lost.sum() / mx.maximum(present.sum(), 1)

    return loss


def lovasz() -> Loss:
    """Lovasz-softmax (Berman et al., CVPR 2018).

    The convex extension of 1 - IoU, mean over the classes present.

    For class c let e_i = |[label_i = c] - p_i| be the errors in descending order. The loss is the
    sum of e_i (J_i - J_(i-1)), where J_i = 1 - IoU when the first i rows are wrong.
    """

    def loss(logits: mx.array, labels: mx.array) -> Any:
        check_labels("lovasz", logits, labels)
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
    """The weighted sum of losses: parts are (factor, loss)."""
    parts = [(float(factor), part) for factor, part in parts]
    wrong = [type(part).__name__ for _, part in parts if not callable(part)]
    if wrong:
        raise TypeError(f"[combine] parts: found (factor, {wrong[0]}), expected (factor, loss)")

    def loss(logits: mx.array, labels: mx.array) -> Any:
        total = mx.array(0.0)
        for factor, part in parts:
            total = total + factor * part(logits, labels)
        return total

    return loss


LOSSES: dict[str, Callable[..., Loss]] = {
    "cross_entropy": cross_entropy,
    "focal": focal,
    "dice": dice,
    "lovasz": lovasz,
}


def _share(labels: mx.array, weights: mx.array | None) -> mx.array:
    """Weight of each row over the sum of all weights; 0 where the label is -1."""
    known = labels >= 0
    w = known.astype(mx.float32)
    if weights is not None:
        w = mx.where(known, weights[mx.clip(labels, 0, weights.shape[0] - 1)], 0.0)
    return w / mx.maximum(w.sum(), 1e-12)


def _true_log(logits: mx.array, labels: mx.array) -> Any:
    """log p of the true class; 0 where the label is -1.

    NaN for a class that does not exist, which only labels under mx.compile can hold.
    """
    x = logits.astype(mx.float32)
    index = mx.clip(labels, 0, x.shape[1] - 1)
    own = mx.take_along_axis(x, index[:, None], axis=1)[:, 0]
    own = mx.where(labels < x.shape[1], own - mx.logsumexp(x, axis=1), math.nan)
    return mx.where(labels >= 0, own, 0.0)


def _probabilities(logits: mx.array, labels: mx.array) -> tuple[Any, ...]:
    """(softmax (N, C), one-hot (N, C), rows that count (N,))"""
    x = logits.astype(mx.float32)
    truth = (labels[:, None] == mx.arange(x.shape[1])).astype(mx.float32)
    return mx.softmax(x, axis=1), truth, labels >= 0
