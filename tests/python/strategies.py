"""Hypothesis strategies.

Coordinate sets and relation cases, the ends of the integer range included.
"""

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st
from oracle import KINDS

DTYPES = (np.int32, np.int64)


def triples(values):
    return st.tuples(values, values, values)


@st.composite
def coordinate_sets(draw, dtype=np.int32, max_rows=40, extent=4, ends=True, min_rows=0):
    """Distinct rows (batch, x, y, z) of `dtype`, (N, 4), in any order, around one or two places."""
    limits = np.iinfo(dtype)
    places = [0, 0, 0, limits.min, limits.max] if ends else [0]
    centers = draw(st.lists(triples(st.sampled_from(places)), min_size=1, max_size=2))
    rows = st.tuples(
        st.integers(0, 2), st.sampled_from(centers), triples(st.integers(-extent, extent))
    ).map(lambda r: (r[0], *(min(max(c + d, limits.min), limits.max) for c, d in zip(r[1], r[2]))))
    drawn = draw(st.lists(rows, unique=True, min_size=min_rows, max_size=max_rows))
    return np.array(drawn, dtype=dtype).reshape(-1, 4)


@dataclass
class RelationCase:
    kind: str
    coords: np.ndarray
    size: tuple
    stride: tuple = (1, 1, 1)
    padding: tuple = (0, 0, 0)
    dilation: tuple = (1, 1, 1)
    target: np.ndarray = field(default=None)

    def oracle_arguments(self):
        return {
            "kind": self.kind,
            "coords": self.coords,
            "size": self.size,
            "stride": self.stride,
            "padding": self.padding,
            "dilation": self.dilation,
            "target": self.target,
            "dtype": self.coords.dtype,
        }


@st.composite
def relation_cases(draw, kinds=KINDS, dtypes=DTYPES, max_rows=40, ends=True, min_rows=0):
    """A kind, its input set, a kernel that is legal for the kind and, where needed, a target."""
    kind = draw(st.sampled_from(kinds))
    dtype = draw(st.sampled_from(dtypes))
    coords = draw(coordinate_sets(dtype, max_rows, ends=ends, min_rows=min_rows))
    case = RelationCase(
        kind,
        coords,
        draw(triples(st.sampled_from([1, 3] if kind == "submanifold" else [1, 2, 3, 4]))),
    )
    if kind != "submanifold":
        case.stride = draw(triples(st.integers(1, 3)))
    if kind not in ("submanifold", "generative"):
        case.padding = draw(triples(st.integers(0, 2)))
    if kind != "generative":
        case.dilation = draw(triples(st.integers(1, 2)))
    if kind in ("target", "target_transposed"):
        case.target = draw(coordinate_sets(dtype, max_rows, ends=ends))
    return case


def features(rows, channels, dtype=np.float32):
    """Values in [-1, 1] with few bits, (rows, channels); exact in float16 and bfloat16."""
    return st.integers(0, 2**32 - 1).map(
        lambda seed: (np.random.default_rng(seed).integers(-64, 65, (rows, channels)) / 64).astype(
            dtype
        )
    )
