"""Mixed precision: float32 weights, forward and backward in 16 bits, loss scaling.

Weights are cast inside the differentiated function, so that their gradients come back in float32.
Norms of rows read float32 weights beside 16-bit rows, so their weights are not cast: that saves
rounding them, and on a GPU two launches for each.
float16 has few exponents: the loss is multiplied by `scale` before the backward pass and gradients
are divided by it (Micikevicius et al., ICLR 2018). A step whose gradients are not finite is left
out and halves the scale; `GROWTH` good steps double it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import mlx.core as mx
from mlx.utils import tree_map_with_path

from .. import nn, ops
from ..core._checks import told
from ..nn._arrays import named_arrays

if TYPE_CHECKING:
    from mlx.nn import Module

Tree = TypeVar("Tree")
Gradient = Callable[[object], tuple[tuple[mx.array, object], "dict[str, Any]"]]
DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16, "float16": mx.float16}
NORMS = (nn.BatchNorm, nn.LayerNorm, nn.RMSNorm)  # their weights have any dtype
FIRST, LEAST, MOST, GROWTH = 2.0**15, 1.0, 2.0**24, 500


class Precision:
    """name: float32, bfloat16 or float16. `state` is what a checkpoint keeps.

    The scale is a lazy value: each step decides how it changes, and the next step may begin before
    that is evaluated.
    """

    def __init__(self, name: str = "float32") -> None:
        if not isinstance(name, str) or name not in DTYPES:
            raise ValueError(
                f"[Precision] name: found {told(name)}, expected one of {', '.join(DTYPES)}"
            )
        self.dtype = DTYPES[name]
        self._set(FIRST if name == "float16" else 1.0, 0, 0)

    def _set(self, scale: float, good_steps: int, left_out: int) -> None:
        self.lazy_scale = mx.array(float(scale))
        self._good_steps, self._left_out = mx.array(int(good_steps)), mx.array(int(left_out))

    @property
    def plain(self) -> bool:
        return bool(self.dtype == mx.float32)

    @property
    def scale(self) -> float:
        return float(self.lazy_scale)

    @property
    def left_out(self) -> int:
        return int(self._left_out)

    @property
    def arrays(self) -> list[mx.array]:
        """The state that a step passes to the next one."""
        return [self.lazy_scale, self._good_steps, self._left_out]

    @property
    def state(self) -> dict[str, float]:
        return {
            "scale": self.scale,
            "good_steps": int(self._good_steps),
            "left_out": self.left_out,
        }

    @state.setter
    def state(self, values: dict[str, float]) -> None:
        self._set(values["scale"], int(values["good_steps"]), int(values["left_out"]))

    def cast(self, model: Module, parameters: Tree) -> Tree:
        """Parameters of a model in this precision; those of norms and integers as they are."""
        if self.plain:
            return parameters
        norms = {name for name, module in model.named_modules() if isinstance(module, NORMS)}

        def one(name: str, a: mx.array) -> mx.array:
            kept = a.dtype != mx.float32 or name.rpartition(".")[0] in norms
            return a if kept else a.astype(self.dtype)

        return cast(Tree, tree_map_with_path(one, parameters))

    def item(self, item: object) -> object:
        """An item whose tensor has its features in this precision."""
        if self.plain:
            return item
        if not hasattr(item, "with_feats"):
            raise TypeError(
                f"[Precision] an item of type {type(item).__name__} cannot be cast; "
                "expected a Scan, or an item with the method with_feats(cast)"
            )
        change: Callable[[Callable[[mx.array], mx.array]], object] = item.with_feats
        return change(lambda feats: feats.astype(self.dtype))

    def usable(self, gradients: dict[str, Any]) -> mx.array:
        """Whether all gradients are finite, as a lazy scalar; adjusts the scale."""
        if self.dtype != mx.float16:
            return mx.array(True)
        finite = ops.all_finite([a for _, a in named_arrays(gradients)])
        good = mx.where(finite, self._good_steps + 1, 0)
        grown = mx.minimum(self.lazy_scale * 2, MOST)
        scale = mx.where(good % GROWTH == 0, grown, self.lazy_scale)
        self.lazy_scale = mx.where(finite, scale, mx.maximum(self.lazy_scale / 2, LEAST))
        self._good_steps, self._left_out = (
            good,
            mx.where(finite, self._left_out, self._left_out + 1),
        )
        return finite


def value_and_grad(
    model: Module,
    loss: Callable[..., mx.array | tuple[mx.array, object]],
    precision: Precision,
) -> Gradient:
    """f(item) -> ((value, outputs), gradients) for the float32 trainable parameters.

    The gradients are those of value * scale; the caller divides them.
    """

    scaled_loss = precision.dtype == mx.float16

    def scaled(parameters: dict[str, Any], item: object) -> tuple[mx.array, object]:
        model.update(precision.cast(model, parameters))
        found = loss(model, precision.item(item))
        value, outputs = found if isinstance(found, tuple) else (found, None)
        value = value.astype(mx.float32)
        return (value if not scaled_loss else value * precision.lazy_scale), outputs

    gradient = mx.value_and_grad(scaled)

    def call(item: object) -> tuple[tuple[mx.array, object], dict[str, Any]]:
        master = model.trainable_parameters()
        try:
            (value, outputs), gradients = gradient(master, item)
        finally:
            model.update(master)
        if scaled_loss:
            value = value / precision.lazy_scale
        return (value, outputs), gradients

    return call
