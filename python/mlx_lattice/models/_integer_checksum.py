"""One number that is the same on every machine: a whole network in integers, by checksum.

Weights, coordinates and features come from a counter and integer arithmetic, so that nothing
depends on how a machine computes floats.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np

from .. import _ext
from ..core import SparseTensor
from ..nn._arrays import named_arrays
from .integer import IntegerNetwork
from .minkunet import MinkUNet

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ._integer_layers import Form

#: What `checksum()` returns on every machine.
EXPECTED = "692ab105"


def _numbers(count: int, seed: int) -> NDArray[np.uint64]:
    """splitmix64, Steele, Lea and Flood, OOPSLA 2014."""
    with np.errstate(over="ignore"):
        z = (np.arange(1, count + 1, dtype=np.uint64) + np.uint64(seed << 32)) * np.uint64(
            0x9E3779B97F4A7C15
        )
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def _between(shape: tuple[int, ...], low: int, high: int, seed: int) -> NDArray[np.int64]:
    count = int(np.prod(shape))
    span = np.uint64(high - low + 1)
    return (_numbers(count, seed) % span).astype(np.int64).reshape(shape) + low


def _forms(net: MinkUNet) -> dict[str, Form]:
    """Formats of all layers, as `quantize` chooses them for this network."""
    from ._integer_layers import is_layer

    forms: dict[str, Form] = {}
    for name, module in net.named_modules():
        if name.endswith(".norm"):
            forms[name] = {"kind": "nothing"}
        if not is_layer(module):
            continue
        form: Form = {"kind": "conv", "input": "uint8", "output": "uint8"}
        if name == "encoder.stem.conv":
            form |= {"input": "int16", "rounds": True}
        if ".project." in name:
            form["output"] = "int16"
        if name == "head":
            form["output"] = "float32"
        if name.endswith("layers.1.conv"):
            projected = f"{name[: -len('layers.1.conv')]}project.conv"
            form["residual"] = "int16" if projected in dict(net.named_modules()) else "uint8"
        forms[name] = form
    return forms


def network() -> IntegerNetwork:
    """A MinkUNet-14 in integers whose weights use all of what the lane rule allows."""
    net = MinkUNet(4, 7, depth=14, width=16)
    made = IntegerNetwork("MinkUNet", net.config, _forms(net))
    arrays = {}
    for seed, (name, value) in enumerate(named_arrays(made.parameters())):
        key = name.rsplit(".", 1)[-1]
        shape = value.shape
        if key == "weight":
            found = _between(shape, -16, 16, seed).astype(np.int8)
        elif key == "bias":
            found = _between(shape, -4000, 4000, seed).astype(np.int32)
        elif key == "factor":
            found = _between(shape, 1, 50, seed).astype(np.int32)
        elif key == "inverse":
            found = np.full(shape, 16, np.float32)
        else:  # a scale: no power of two, so that products round
            found = (_between(shape, 90, 160, seed) / np.float32(65536)).astype(np.float32)
        arrays[name] = mx.array(found)
    made.load_weights(list(arrays.items()))
    made.eval()
    return made


def tensor() -> SparseTensor:
    """About 4,000 voxels in the order of the counter, which is no order of space."""
    cells = _between((6000, 3), 0, 23, 1000)
    _, first = np.unique(cells, axis=0, return_index=True)
    cells = cells[np.sort(first)]
    coords = np.concatenate([np.zeros((len(cells), 1), np.int64), cells], axis=1).astype(np.int32)
    feats = _between((len(cells), 4), -2000, 2000, 1001) / np.float32(16)
    return SparseTensor(mx.array(coords), mx.array(feats.astype(np.float32)))


def checksum(made: IntegerNetwork | None = None) -> str:
    """CRC-32 of the logits of `network()` on `tensor()`, as eight hexadecimal digits."""
    logits = (made or network())(tensor()).feats
    return f"{zlib.crc32(np.array(logits).astype('<f4').tobytes()):08x}"


def checksums() -> dict[str, str]:
    """The checksum by each route of integer_conv that this machine has."""
    made, found = network(), {}
    before = os.environ.get("LATTICE_ROUTE")
    try:
        for row in _ext.routes():
            if row.operation != "integer_conv" or row.device != "cpu":
                continue
            os.environ["LATTICE_ROUTE"] = f"integer_conv={row.name}"
            with contextlib.suppress(ValueError):  # this machine does not have it
                found[row.name] = checksum(made)
    finally:
        if before is None:
            os.environ.pop("LATTICE_ROUTE", None)
        else:
            os.environ["LATTICE_ROUTE"] = before
    return found
