"""Gradient checkpointing: stages keep their input only and are computed again in the backward pass.

    checkpoint_stages(model)                    the stages that the model names, or its blocks
    checkpoint_stages(model, [model.encoder])   these modules

Chen et al., "Training deep nets with sublinear memory cost", 2016. Memory falls from all
activations
to those of one stage; the forward pass of each stage runs twice. Values and gradients stay the
same.
Running statistics are taken from the first pass only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from mlx.utils import tree_flatten, tree_unflatten

from .._trees import leaves

if TYPE_CHECKING:
    from mlx.nn import Module


def checkpoint_stages(model: Module, modules: Sequence[Module] | None = None) -> int:
    """Makes modules of a model checkpointed; returns how many.

    A module takes one tensor or array.
    """
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


def default_stages(model: Module) -> list[Any]:
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


def _run(module: Any, kind: Any, x: Any) -> Any:
    if not module.training:
        return kind.__call__(module, x)
    is_array = isinstance(x, mx.array)
    names = [k for k, _ in leaves(module.parameters()) if _is_running(k)]
    seen: list[Any] = []

    def body(parameters: Any, feats: Any) -> tuple[Any, ...]:
        before = _named(module, names)
        module.update(parameters)
        y = kind.__call__(module, feats if is_array else x.replace(feats=feats))
        after = [a for _, a in _named(module, names)]
        module.update(tree_unflatten(before))
        seen[:] = [y]
        return y if is_array else y.feats, after

    parameters = module.trainable_parameters()
    feats, after = mx.checkpoint(body)(parameters, x if is_array else x.feats)
    module.update(parameters)
    if names:
        module.update(tree_unflatten(list(zip(names, after, strict=True))))
    return feats if is_array else seen[0].replace(feats=feats)


def _is_running(name: str) -> bool:
    return name.split(".")[-1].startswith("running_")


def _named(module: Module, names: Sequence[str]) -> list[Any]:
    every = dict(tree_flatten(module.parameters()))
    return [(name, every[name]) for name in names]
