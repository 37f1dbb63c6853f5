"""Gradient checkpointing: stages keep only their input and are computed again in the backward pass.

    checkpoint_stages(model)                    the residual blocks of a network
    checkpoint_stages(model, [model.encoder])   these modules

Chen et al., "Training deep nets with sublinear memory cost", 2016. Running statistics are taken
from the first pass only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from mlx.utils import tree_flatten, tree_unflatten

from .. import ops
from ..core import _checks
from ..nn._arrays import named_arrays

if TYPE_CHECKING:
    from mlx.nn import Module

    from ..core import SparseTensor
    from ..core.types import Rows


def checkpoint_stages(model: Module, modules: Sequence[Module] | None = None) -> int:
    """Computes modules of a model again in the backward pass instead of keeping their activations.

    Memory falls from all activations to those of one module; the forward pass of each module runs
    twice. Values and gradients stay the same. A module must take one tensor or array.

    Args:
        model: The network.
        modules: The modules; by default the residual blocks of the network.

    Returns:
        The number of modules.

    Raises:
        TypeError: `model` or one of `modules` is no module.
        ValueError: There are no residual blocks, so that `modules` is needed.
    """
    _checks.model("checkpoint_stages", model)
    if modules is not None:
        for module in _checks.listed("checkpoint_stages", "modules", modules, "modules"):
            _checks.model("checkpoint_stages(modules)", module)
    chosen = default_stages(model) if modules is None else list(modules)
    if not chosen:
        raise ValueError(
            f"[checkpoint_stages] {type(model).__name__} has no residual blocks of this library;"
            " name the modules to compute again: checkpoint_stages(model, [model.first, ...])"
        )
    for module in chosen:
        kind = type(module)
        if not getattr(kind, "checkpointed", False):
            module.__class__ = _checkpointed(kind)
    return len(chosen)


def default_stages(model: Module) -> list[Module]:
    """The residual blocks of a network."""
    from ..models._blocks import BasicBlock, Bottleneck

    return [m for m in model.modules() if isinstance(m, BasicBlock | Bottleneck)]


_MADE: dict[type, type] = {}


def _checkpointed(kind: type) -> type:
    if kind not in _MADE:
        _MADE[kind] = type(
            f"Checkpointed{kind.__name__}",
            (kind,),
            {"__call__": lambda self, x: _run(self, kind, x), "checkpointed": True},
        )
    return _MADE[kind]


def _run(module: Module, kind: type[Module], given: Rows | list[SparseTensor]) -> Rows:
    """The module on its input: the forward pass runs again when the gradient is computed.

    given: one tensor or array, or tensors that the module reads side by side.
    """
    call = kind.__call__
    if not module.training:
        return call(module, given)
    x: Any = ops.cat(given) if isinstance(given, list) else given
    names = [k for k, _ in named_arrays(module.parameters()) if _is_running(k)]
    seen: list[Rows] = []

    def body(parameters: dict[str, Any], feats: mx.array) -> tuple[mx.array, list[mx.array]]:
        before = _named(module, names)
        module.update(parameters)
        y = call(module, _with_rows(x, feats))
        after = [a for _, a in _named(module, names)]
        module.update(tree_unflatten(before))
        seen[:] = [y]
        return _rows(y), after

    parameters = module.trainable_parameters()
    feats, after = mx.checkpoint(body)(parameters, _rows(x))
    module.update(parameters)
    if names:
        module.update(tree_unflatten(list(zip(names, after, strict=True))))
    return _with_rows(seen[0], feats)


def _rows(x: mx.array | SparseTensor) -> mx.array:
    return x if isinstance(x, mx.array) else x.feats


def _with_rows(x: Rows, feats: mx.array) -> Rows:
    return feats if isinstance(x, mx.array) else x.replace(feats=feats)


def _is_running(name: str) -> bool:
    return name.split(".")[-1].startswith("running_")


def _named(module: Module, names: Sequence[str]) -> list[tuple[str, mx.array]]:
    every = dict(tree_flatten(module.parameters()))
    return [(name, every[name]) for name in names]
