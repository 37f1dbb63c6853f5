"""Callbacks for `Trainer.fit(on_epoch=...)`: TensorBoard, Weights & Biases; and history.csv.

A callback is a function of the row of an epoch, a dict of numbers by name with the key `epoch`.
Rank 0 calls it.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable

from ..io.atomic_files import write_bytes

HISTORY = "history.csv"


def write_history(path: str | os.PathLike[str], history: list[dict[str, float]]) -> None:
    """All rows as CSV, replaced whole. The columns are the names of all rows, in the order seen."""
    names = list(dict.fromkeys(name for row in history for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(history)
    write_bytes(path, text.getvalue().encode())


class TensorBoard:
    """Writes every number of a row as a scalar. Needs the package tensorboard."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        try:
            from tensorboard.summary import Writer
        except ImportError:
            raise ImportError(
                "[TensorBoard] the package tensorboard is missing: pip install tensorboard"
            ) from None
        self._writer = Writer(str(directory))

    def __call__(self, row: dict[str, float]) -> None:
        for name, value in _numbers(row):
            self._writer.add_scalar(name, value, row["epoch"])
        self._writer.flush()


class WeightsAndBiases:
    """Logs every number of a row. Needs the package wandb, which knows its own account."""

    def __init__(
        self, project: str, config: dict[str, object] | None = None, **options: object
    ) -> None:
        try:
            import wandb
        except ImportError:
            raise ImportError(
                "[WeightsAndBiases] the package wandb is missing: pip install wandb"
            ) from None
        self._run = wandb.init(project=project, config=config, **options)

    def __call__(self, row: dict[str, float]) -> None:
        self._run.log(dict(_numbers(row)), step=row["epoch"])


def _numbers(row: dict[str, float]) -> Iterable[tuple[str, float]]:
    return ((k, float(v)) for k, v in row.items() if k != "epoch" and isinstance(v, int | float))
