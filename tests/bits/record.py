"""Hashes of the results of every public operation, to compare two builds bit by bit.

    python tests/bits/record.py before.json             with the package of one build
    python tests/bits/record.py after.json before.json  with another one, then compared

Inputs are made by NumPy from fixed seeds, so that both builds get the same bits. Every case runs
with one thread and with two; a case whose hashes differ between the two is an error. The report
names functions of `ops` and `points` that no case calls.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

import mlx.core as mx
import numpy as np
from convolution_cases import convolutions, features, modules, pools, relations
from geometry_cases import coding, coordinates, neighbors
from mlx_lattice import core, ops, points
from point_cases import point_geometry, point_layers, point_sums

CALLED: set[str] = set()


def watch(module: Any) -> None:
    """Notes the name of every function of the module that is called."""
    for name in module.__all__:
        function = getattr(module, name)
        if isinstance(function, type) or not callable(function):
            continue

        def watched(*args: Any, _f: Any = function, _n: str = name, **options: Any) -> Any:
            CALLED.add(_n)
            return _f(*args, **options)

        setattr(module, name, watched)


def put(digest: Any, value: Any) -> None:
    """Adds a result to the digest: arrays, tensors, relations, plain values and lists of them."""
    if isinstance(value, mx.array):
        digest.update(f"{value.dtype}{value.shape}".encode())
        wide = value.view(mx.uint16) if value.dtype == mx.bfloat16 and value.size else value
        digest.update(np.ascontiguousarray(np.array(wide, copy=False)).tobytes())
    elif isinstance(value, (list, tuple)):
        for part in value:
            put(digest, part)
    elif isinstance(value, dict):
        for key in sorted(value):
            put(digest, value[key])
    elif isinstance(value, (bytes, bytearray)):
        digest.update(value)
    elif value is None or isinstance(value, (bool, int, float, str)):
        digest.update(repr(value).encode())
    else:
        put_object(digest, value)


SEEN = (  # what is read of values of the library, in this order
    *("coords", "feats", "positions", "lengths", "lhs_rows", "rhs_rows", "row_offsets", "in_rows"),
    *("out_rows", "kernel_ids", "source_rows", "query_rows", "query_counts", "distances", "order"),
    *("codes", "occupancy", "parent_rows", "indices", "inverse_rows", "counts", "rows", "weights"),
    *("scales", "biases", "attributes", "origin", "voxel_size", "edge_ids"),
)


def put_object(digest: Any, value: Any) -> None:
    """Relations by their edges, rulebooks by their triplets, other values by what SEEN names."""
    if hasattr(value, "triplets"):
        put(digest, value.triplets())
        return
    if hasattr(value, "edges"):
        put(digest, getattr(value, "distances", None))
        value = value.edges
    found = [getattr(value, name) for name in SEEN if hasattr(value, name)]
    assert found, f"nothing to read of {type(value)}"
    put(digest, [part() if callable(part) else part for part in found])


ROOMS = (
    *(convolutions, relations, pools, features, modules),
    *(coordinates, neighbors, coding),
    *(point_geometry, point_sums, point_layers),
)


def record() -> dict[str, str]:
    hashes: dict[str, str] = {}
    for threads in (1, 2):
        core.set_thread_count(threads)
        for room in ROOMS:
            for name, run in room():
                try:
                    digest = hashlib.sha256()
                    put(digest, run())
                    text = digest.hexdigest()[:16]
                except Exception as error:
                    text = f"error {type(error).__name__}: {error}"[:200]
                if hashes.setdefault(name, text) != text:
                    print(f"threads change {name}")
                    hashes[name] = "threads"
    return hashes


def main() -> None:
    mx.set_default_device(mx.cpu)
    watch(ops)
    watch(points)
    hashes = record()
    with open(sys.argv[1], "w") as file:
        json.dump(hashes, file, indent=1, sort_keys=True)
    names = [n for module in (ops, points) for n in module.__all__]
    plain = [n for n in names if n not in CALLED and n[0].islower()]
    print(len(hashes), "cases;", "not called:", ", ".join(sorted(set(plain))))
    for name, text in hashes.items():
        if text.startswith("error"):
            print(name, text)
    if len(sys.argv) > 2:
        with open(sys.argv[2]) as file:
            before = json.load(file)
        other = [n for n in hashes if before.get(n) != hashes[n]]
        print(len(hashes) - len(other), "equal;", len(other), "different:", *sorted(other))


if __name__ == "__main__":
    main()
