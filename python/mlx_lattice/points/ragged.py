"""The base of both kinds of batches: rows of all clouds one after the other, and their borders.

cloud b of the batch = rows offsets[b] .. offsets[b + 1]
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from ..core._checks import array, flag, integer, integers, number, told
from ..ops.segments import segment_indices, segment_offsets, segment_reduce

if TYPE_CHECKING:
    from typing_extensions import Self

    from ..core.types import ArrayLike

FLOATS = (mx.float32, mx.float16, mx.bfloat16)


class Ragged:
    """The base of both batches: positions, features, and the borders of the clouds."""

    def __init__(self, positions: mx.array, features: mx.array | None, lengths: mx.array) -> None:
        self._positions, self._features = positions, features
        self._sets: dict[object, object] = {}
        self._lengths = lengths
        self._offsets = segment_offsets(lengths)
        self._indices = segment_indices(lengths)
        self._borders = integers(self._offsets)  # B + 1 plain ints

    @property
    def positions(self) -> mx.array:
        """(T, 3), all clouds one after the other."""
        return self._positions

    @property
    def features(self) -> mx.array | None:
        """(T, C) or None."""
        return self._features

    @property
    def lengths(self) -> mx.array:
        """(B,) int32: points of each cloud."""
        return self._lengths

    @property
    def offsets(self) -> mx.array:
        """(B + 1,) int32: where the clouds begin, and T."""
        return self._offsets

    @property
    def indices(self) -> mx.array:
        """(T,) int32: the cloud of each row."""
        return self._indices

    @property
    def batch_size(self) -> int:
        """The number of clouds B."""
        return len(self._borders) - 1

    @property
    def total_points(self) -> int:
        """The number of points T of all clouds."""
        return self._borders[-1]

    def __len__(self) -> int:
        return self.batch_size

    def __getstate__(self) -> dict[str, Any]:
        """Without the searched neighbors: a copy searches them again."""
        return {**self.__dict__, "_sets": {}}

    def __repr__(self) -> str:
        channels = (
            "no features" if self._features is None else f"{self._features.shape[1]} channels"
        )
        name, clouds, rows = type(self).__name__, self.batch_size, self.total_points
        return f"{name}({clouds} clouds, {rows} points, {channels})"

    def get_points(self, b: int) -> mx.array:
        """Positions of cloud b; a negative b counts from the end."""
        return self._positions[self._rows(b)]

    def get_features(self, b: int) -> mx.array | None:
        """Features of cloud b, or None."""
        rows = self._rows(b)
        return None if self._features is None else self._features[rows]

    def unbatch(self) -> list[Any]:
        """The clouds as `from_list` takes them: positions, or pairs (positions, features)."""
        clouds = range(self.batch_size)
        if self._features is None:
            return [self.get_points(b) for b in clouds]
        return [(self.get_points(b), self.get_features(b)) for b in clouds]

    def with_features(self, features: mx.array | None) -> Self:
        """The same clouds with other features, or none."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._features = self._check_features(type(self).__name__, features, self.total_points)
        return other

    def to_dense(
        self,
        max_len: int | None = None,
        values: ArrayLike | None = None,
        fill: float = 0.0,
        return_mask: bool = False,
    ) -> mx.array | tuple[mx.array, mx.array]:
        """(B, max_len, C): plane b holds cloud b, then `fill`; rows beyond max_len are dropped.

        `values` (T, ...) are by default the features, without features the positions. max_len is
        by default the longest cloud. The mask (B, max_len) is True where there is a point. The
        result is differentiable in values.
        """
        values = self._values("to_dense", values)
        fill = number("to_dense", "fill", fill)
        size = max([b - a for a, b in itertools.pairwise(self._borders)], default=0)
        size = size if max_len is None else integer(self, "max_len", max_len, least=0)
        count = self.batch_size * size
        rank = mx.arange(self.total_points, dtype=mx.int32) - self._offsets[self._indices]
        place = mx.where(
            rank < size, self._indices * size + rank, count
        )  # one row more, for what is dropped
        dense = mx.broadcast_to(mx.array(fill, dtype=values.dtype), (count + 1, *values.shape[1:]))
        if values.size:
            dense[place] = values
        dense = dense[:count].reshape(self.batch_size, size, *values.shape[1:])
        if not flag("to_dense", "return_mask", return_mask):
            return dense
        return dense, mx.arange(size)[None] < self._lengths[:, None]

    def gather_by_index(self, idx: ArrayLike, values: ArrayLike | None = None) -> mx.array:
        """values[idx] for rows of the whole batch, any shape of idx; `values` as in to_dense."""
        values = self._values("gather_by_index", values)
        idx = array("gather_by_index", "idx", idx)
        if not mx.issubdtype(idx.dtype, mx.integer):
            raise TypeError(f"[gather_by_index] idx must hold integers, found {idx.dtype}")
        low, high = integers(mx.stack([idx.min(), idx.max()])) if idx.size else (0, -1)
        if low < 0 or high >= self.total_points:
            raise ValueError(
                f"[gather_by_index] idx must be in 0..{self.total_points - 1}, found {low}..{high}"
            )
        return (
            values[idx]
            if idx.size and values.size
            else mx.zeros((*idx.shape, *values.shape[1:]), dtype=values.dtype)
        )

    def segment_reduce(
        self, values: ArrayLike | None = None, operation: str = "sum", **options: Any
    ) -> mx.array:
        """sum, mean, max or min of each cloud: (B, ...)."""
        return segment_reduce(
            self._values("segment_reduce", values), self._lengths, operation, **options
        )

    def _values(self, operation: str, values: ArrayLike | None) -> mx.array:
        if values is None:
            return self._positions if self._features is None else self._features
        values = array(operation, "values", values)
        if values.ndim == 0 or values.shape[0] != self.total_points:
            raise ValueError(
                f"[{operation}] values must have {self.total_points} rows, "
                f"got shape {tuple(values.shape)}"
            )
        return values

    def _rows(self, b: int) -> slice:
        index = integer(self, "b", b, least=-(2**31))
        if not -self.batch_size <= index < self.batch_size:
            raise IndexError(f"[{type(self).__name__}] cloud {index} of {self.batch_size}")
        index %= self.batch_size
        return slice(self._borders[index], self._borders[index + 1])

    @staticmethod
    def _check_positions(name: str, positions: ArrayLike) -> mx.array:
        positions = array(name, "positions", positions)
        if positions.ndim != 2 or positions.shape[1] != 3 or positions.dtype not in FLOATS:
            raise ValueError(
                f"[{name}] positions must be floats of shape (T, 3), "
                f"got {positions.dtype} {tuple(positions.shape)}"
            )
        return positions

    @staticmethod
    def _check_features(name: str, features: ArrayLike | None, rows: int) -> mx.array | None:
        if features is None:
            return None
        features = array(name, "features", features)
        if features.ndim != 2 or features.shape[0] != rows:
            raise ValueError(
                f"[{name}] features must have shape ({rows}, C), got {tuple(features.shape)}"
            )
        return features


def lengths_array(lengths: ArrayLike, counts: list[int]) -> mx.array:
    """Lengths that were checked, (B,) int32: the array itself where it is one."""
    if isinstance(lengths, mx.array) and lengths.dtype == mx.int32:
        return lengths
    return mx.array(counts, dtype=mx.int32)


def whole_numbers(name: str, what: str, values: ArrayLike) -> list[int]:
    """The integers of a 1-D array."""
    made = array(name, what, values)
    if made.size == 0 and made.ndim == 1:
        return []
    if made.ndim != 1 or not mx.issubdtype(made.dtype, mx.integer):
        raise ValueError(f"[{name}] {what} must be integers of one axis, found {told(made)}")
    return integers(made)
