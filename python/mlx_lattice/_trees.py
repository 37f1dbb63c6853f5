"""Trees of arrays, as `mlx.nn.Module.parameters` gives them, with types that MLX does not say."""

from __future__ import annotations

import os
from typing import Any, cast

import mlx.core as mx
from mlx.utils import tree_flatten


def leaves(tree: Any) -> list[tuple[str, mx.array]]:
    """(name, array) of each array, such as ("layers.0.weight", ...)."""
    return cast("list[tuple[str, mx.array]]", tree_flatten(tree))


def load_arrays(path: str | os.PathLike[str]) -> tuple[dict[str, mx.array], dict[str, str]]:
    """The arrays of a safetensors file by name, and what its header says."""
    return cast(
        "tuple[dict[str, mx.array], dict[str, str]]",
        mx.load(os.fspath(path), return_metadata=True),
    )
