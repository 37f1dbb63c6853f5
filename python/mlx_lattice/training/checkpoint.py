"""Checkpoints: one safetensors file with weights, optimizer state, epoch, seed and history.

The file is replaced as a whole (`io/atomic_files.py`): after a crash it is the old one or the new
one. The random numbers of an epoch follow from (seed, epoch, rank, step), so that these numbers are
the whole random state.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from mlx.utils import tree_unflatten

from ..core import _checks
from ..nn._arrays import load_arrays, named_arrays, save_arrays
from .distributed import TrainingError

if TYPE_CHECKING:
    import mlx.core as mx
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
    **state: object,
) -> None:
    """Writes weights, optimizer state, average and `state` into one file.

    Args:
        path: Path of the checkpoint, a .safetensors file.
        model: The network, an `mlx.nn.Module`.
        optimizer: An optimizer of `mlx.optimizers` or `training.AdamW`.
        average: A `WeightAverage`, or None.
        state: Plain values that JSON holds; `load` asks for `epoch`, `seed` and `history`.

    Raises:
        TypeError: An argument is of another kind.
        OSError: The file cannot be written.
    """
    _check("checkpoint.save", path, model, optimizer)
    if average is not None and not hasattr(average, "steps"):
        _checks.wrong_type("checkpoint.save", "average", average, "a WeightAverage")
    arrays = {f"model.{k}": v for k, v in named_arrays(model.parameters())}
    if average is not None:
        arrays |= {f"average.{k}": v for k, v in named_arrays(average.values)}
        state["average_steps"] = average.steps
    arrays |= {f"optimizer.{k}": v for k, v in named_arrays(optimizer.state)}
    about = {"format": FORMAT, "version": VERSION, "state": json.dumps(state)}
    save_arrays(path, arrays, about)


def load(
    path: str | os.PathLike[str],
    model: Module,
    optimizer: Optimizer,
    average: WeightAverage | None = None,
) -> dict[str, Any]:
    """Sets weights, optimizer state and average from a file that `save` wrote.

    Args:
        path: Path of the checkpoint.
        model: A network of the same shapes.
        optimizer: An optimizer of the same kind.
        average: A `WeightAverage` if one was saved, else None.

    Returns:
        The state that was saved, by name.

    Raises:
        TrainingError: The file is missing or broken, or belongs to another network or optimizer.
    """
    _checks.path("checkpoint.load", path)
    path = Path(path)

    def fail(what: str) -> NoReturn:
        raise TrainingError(f"{path}: {what}")

    if not path.is_file():
        fail("this path holds no checkpoint to resume from")
    _check("checkpoint.load", path, model, optimizer)
    try:
        arrays, about = load_arrays(path)
    except Exception as error:  # MLX raises several kinds for broken files
        fail(f"not a checkpoint: {error}")
    if about.get("format") != FORMAT or about.get("version") != VERSION:
        fail(
            f"found format {about.get('format')!r} version {about.get('version')!r}, "
            f"expected {FORMAT!r} {VERSION!r}"
        )
    parts: dict[str, dict[str, mx.array]] = {"model": {}, "optimizer": {}, "average": {}}
    for name, value in arrays.items():
        part, _, rest = name.partition(".")
        parts.setdefault(part, {})[rest] = value
    averaged = {} if average is None else average.values
    for part, now in (
        ("model", model.parameters()),
        ("optimizer", optimizer.state),
        ("average", averaged),
    ):
        _compare(dict(named_arrays(now)), parts[part], part, fail)
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


def _check(call: str, path: object, model: object, optimizer: object) -> None:
    from mlx.optimizers import Optimizer

    _checks.path(call, path)
    _checks.model(call, model)
    _checks.instance(call, "optimizer", optimizer, Optimizer, "an optimizer of mlx.optimizers")


def _compare(
    expected: dict[str, mx.array],
    found: dict[str, mx.array],
    part: str,
    fail: Callable[[str], NoReturn],
) -> None:
    for name in sorted(set(expected) | set(found)):
        if name not in found:
            fail(f"{part} lacks {name!r}: it belongs to another network or optimizer")
        if name not in expected:
            fail(f"{part} has the unknown {name!r}: it belongs to another network or optimizer")
        if found[name].shape != expected[name].shape:
            fail(f"{part} {name!r} has shape {found[name].shape}, expected {expected[name].shape}")
