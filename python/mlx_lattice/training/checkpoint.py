"""Checkpoints: one safetensors file with weights, optimizer state, epoch, seed and history.

A checkpoint is written to a temporary file, flushed to disk, then renamed. So after a crash the
file is either the old one or the new one, complete. The random numbers of an epoch follow from
(seed, epoch, rank, step), so that these numbers are the whole random state.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from mlx.utils import tree_unflatten

from .._atomic import atomic_path, save_safetensors
from .._trees import leaves, load_arrays
from .distributed import TrainingError

if TYPE_CHECKING:
    from mlx.nn import Module
    from mlx.optimizers import Optimizer

    from .average import WeightAverage

__all__ = ["load", "save"]

NAME, FORMAT, VERSION = "checkpoint.safetensors", "mlx-lattice-checkpoint", "1"


def save(
    path: str | os.PathLike[str],
    model: Module,
    optimizer: Optimizer,
    average: WeightAverage | None = None,
    **state: Any,
) -> None:
    """Writes weights, optimizer state, average and `state` into one file.

    average: a WeightAverage, or None. state: plain values that JSON holds.
    """
    arrays = {f"model.{k}": v for k, v in leaves(model.parameters())}
    if average is not None:
        arrays |= {f"average.{k}": v for k, v in leaves(average.values)}
        state["average_steps"] = average.steps
    arrays |= {f"optimizer.{k}": v for k, v in leaves(optimizer.state)}
    about = {"format": FORMAT, "version": VERSION, "state": json.dumps(state)}
    with atomic_path(path) as temporary:
        save_safetensors(temporary, arrays, about)


def load(
    path: str | os.PathLike[str],
    model: Module,
    optimizer: Optimizer,
    average: WeightAverage | None = None,
) -> dict[str, Any]:
    """Sets weights, optimizer state and average; returns the state that was saved."""
    path = Path(path)

    def fail(what: str) -> NoReturn:
        raise TrainingError(f"{path}: {what}")

    if not path.is_file():
        fail("this path holds no checkpoint to resume from")
    try:
        arrays, about = load_arrays(path)
    except Exception as error:  # MLX raises several kinds for broken files
        fail(f"not a checkpoint: {error}")
    if about.get("format") != FORMAT or about.get("version") != VERSION:
        fail(
            f"found format {about.get('format')!r} version {about.get('version')!r}, "
            f"expected {FORMAT!r} {VERSION!r}"
        )
    parts: dict[str, dict[str, Any]] = {"model": {}, "optimizer": {}, "average": {}}
    for name, value in arrays.items():
        part, _, rest = name.partition(".")
        parts.setdefault(part, {})[rest] = value
    averaged = {} if average is None else average.values
    for part, now in (
        ("model", model.parameters()),
        ("optimizer", optimizer.state),
        ("average", averaged),
    ):
        _compare(dict(leaves(now)), parts[part], part, fail)
    model.load_weights(list(parts["model"].items()))
    optimizer.state = tree_unflatten(list(parts["optimizer"].items()))
    try:
        state: dict[str, Any] = json.loads(about["state"])
        state["epoch"], state["seed"], state["history"]
        if average is not None:
            average.values = tree_unflatten(list(parts["average"].items()))
            average.steps = state["average_steps"]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        fail(f"not a checkpoint: no training state ({type(error).__name__}: {error})")
    return state


def _compare(expected: Any, found: Any, part: Any, fail: Any) -> None:
    for name in sorted(set(expected) | set(found)):
        if name not in found:
            fail(f"{part} lacks {name!r}: it belongs to another network or optimizer")
        if name not in expected:
            fail(f"{part} has the unknown {name!r}: it belongs to another network or optimizer")
        if found[name].shape != expected[name].shape:
            fail(f"{part} {name!r} has shape {found[name].shape}, expected {expected[name].shape}")
