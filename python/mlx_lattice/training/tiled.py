"""Predictions of clouds that are larger than memory, with the bits of the whole run."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .. import _ext
from ..core import SparseTensor, _checks
from ..nn import pack
from ..programs.tiles import tile_program

if TYPE_CHECKING:
    from mlx.nn import Module


UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def bytes_of(who: str, name: str, text: str | int) -> int:
    """A number of bytes from an integer or a text such as "2 GB", "512MiB"."""
    if isinstance(text, int) and not isinstance(text, bool) and text > 0:
        return text
    found = re.fullmatch(r"\s*([0-9.]+)\s*([KMGT]?)(i?B)?\s*", str(text), re.IGNORECASE)
    try:
        size = int(float(found[1]) * UNITS[found[2].upper()]) if found else 0
    except ValueError:
        size = 0
    if size <= 0:
        _checks.wrong_value(who, name, text, 'bytes, such as "2 GB" or 2147483648')
    return size


def predict_tiled(
    model: Module,
    x: SparseTensor,
    *,
    tile: int | tuple[int, int, int] = 512,
    memory: str | int | None = None,
    origin: tuple[int, int, int] = (0, 0, 0),
    progress: Callable[[int, int], object] | None = None,
) -> SparseTensor:
    """`model(x)` tile by tile: the same rows in the same order with the same bits.

    Only one tile at a time takes the memory of the network. A tile is run with the rows around it
    that its own rows depend on, and each stage of the network is cut to what is still needed.

    Args:
        model: A network of one sparse tensor; it is set to evaluation mode.
        x: The input.
        tile: The side of a tile in steps of x, along x and y; three numbers also cut z; 0 leaves an
            axis whole. It is rounded up to a multiple of the alignment.
        memory: What a tile may take, in bytes or as "2 GB"; fuller tiles are split.
        origin: The low corner of some tile.
        progress: Called with the rows that are done and all rows.

    Returns:
        The output of the whole run.

    Raises:
        ValueError: Some operation of the network is not local, such as global pooling or
            attention; the message names it. Or the memory is too small.

    Examples:
        >>> import mlx.core as mx
        >>> from mlx_lattice import models, samples, training
        >>> net, x = models.MinkUNet(4, 3, depth=14, width=4).eval(), samples.tensor()
        >>> y = training.predict_tiled(net, x, tile=16)
        >>> bool(mx.array_equal(y.feats, net(x).feats))
        True
    """
    who = "predict_tiled"
    pack(_checks.model(who, model).eval())
    _checks.instance(who, "x", x, SparseTensor, "a SparseTensor")
    sides = _sides(who, tile)
    corner = _three(who, "origin", origin, -(1 << 30))
    if progress is not None:
        _checks.function(who, "progress", progress)
    limit = 0 if memory is None else bytes_of(who, "memory", memory)
    program = tile_program(model, x.channels, x.dtype, x.stride)
    return _ext.run_tiled(program, x, sides, corner, limit, progress)


def _sides(who: str, tile: int | tuple[int, int, int]) -> tuple[int, int, int]:
    if isinstance(tile, (tuple, list)):
        return _three(who, "tile", tile, 0)
    side = _checks.integer(who, "tile", tile, 0)
    return (side, side, 0)


def _three(who: str, name: str, values: Sequence[int], least: int) -> tuple[int, int, int]:
    found = _checks.listed(who, name, values, "three integers")
    if len(found) != 3:
        _checks.wrong_value(who, name, values, "three integers")
    x, y, z = (_checks.integer(who, name, n, least, 1 << 30) for n in found)
    return (x, y, z)
