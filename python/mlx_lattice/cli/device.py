"""The option --device of commands that compute on features."""

from __future__ import annotations

import argparse
import contextlib
from typing import Any

import mlx.core as mx

from .._ext import backend_info
from ..devices import on

HELP = "where features are computed (default: MLX's default device)"


def add_device(parser: argparse.ArgumentParser, default: Any = None, text: str = HELP) -> None:
    """Adds --device to the parser of a command."""
    parser.add_argument("--device", choices=("cpu", "gpu"), default=default, help=text)


def on_device(name: str | None) -> contextlib.AbstractContextManager[Any]:
    """A scope of this device; None: of the default one. Without such a GPU ValueError."""
    if name is None:
        return contextlib.nullcontext()
    if name == "gpu" and not mx.is_available(mx.gpu):
        kernels = backend_info()["capabilities"]
        if kernels["metal"] or kernels["cuda"]:  # tests emulate a GPU: arrays stay on the CPU
            return contextlib.nullcontext()
        raise ValueError(
            "found no GPU that MLX can use, expected one; without it give --device cpu"
        )
    return on(mx.gpu if name == "gpu" else mx.cpu)
