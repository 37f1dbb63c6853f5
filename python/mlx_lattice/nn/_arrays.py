"""Arrays by name: of the parameters of a module, and of a safetensors file."""

from __future__ import annotations

import os
from typing import cast

import mlx.core as mx
from mlx.utils import tree_flatten


def named_arrays(tree: object) -> list[tuple[str, mx.array]]:
    """(name, array) of each array of a tree, such as ("layers.0.weight", ...).

    MLX's own `tree_flatten` does the work; its type does not say that a name is a string.
    """
    return cast("list[tuple[str, mx.array]]", tree_flatten(tree))


def load_arrays(path: str | os.PathLike[str]) -> tuple[dict[str, mx.array], dict[str, str]]:
    """The arrays of a safetensors file by name, and the texts of its header."""
    return cast(
        "tuple[dict[str, mx.array], dict[str, str]]",
        mx.load(os.fspath(path), return_metadata=True),
    )


def save_arrays(
    path: str | os.PathLike[str], arrays: dict[str, mx.array], header: dict[str, str] | None = None
) -> None:
    """Writes a safetensors file that is whole or not there; OSError if that fails."""
    from ..io.atomic_files import atomic_path

    with atomic_path(path) as temporary:
        try:
            mx.save_safetensors(str(temporary), arrays, header or {})
        except RuntimeError as error:  # what MLX raises for a full disk
            raise OSError(f"{path}: {error}") from None
