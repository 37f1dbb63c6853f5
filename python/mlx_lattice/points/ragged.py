"""What both kinds of batches are: rows of all clouds one after the other, and their borders.

cloud b of the batch = rows offsets[b] .. offsets[b + 1]
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from ..nn._checks import integer, integers, told
from .segments import segment_reduce

if TYPE_CHECKING:
    from typing_extensions import Self

    from .._types import ArrayLike

FLOATS = (mx.float32, mx.float16, mx.bfloat16)


class Ragged:
    """What both batches are: positions, features, and the borders of the clouds."""

    def __init__(self, positions: mx.array, features: mx.array | None, offsets: list[int]) -> None:
        self._positions, self._features = positions, features
        self._borders = offsets  # B + 1 plain ints
        self._sets: dict[Any, Any] = {}
        self._offsets = mx.array(offsets, dtype=mx.int32)
        self._lengths = self._offsets[1:] - self._offsets[:-1]
        self._indices = _cloud_of_rows(self._offsets, positions.shape[0])
        mx.eval(self._offsets, self._lengths, self._indices)

    positions = property(
        lambda self: self._positions, doc="(T, 3), all clouds one after the other."
    )
    features = property(lambda self: self._features, doc="(T, C) or None.")
    lengths = property(lambda self: self._lengths, doc="(B,) int32: points of each cloud.")
    offsets = property(
        lambda self: self._offsets, doc="(B + 1,) int32: where the clouds begin, and T."
    )
    indices = property(lambda self: self._indices, doc="(T,) int32: the cloud of each row.")
    batch_size = property(lambda self: len(self._borders) - 1)
    total_points = property(lambda self: self._borders[-1])

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
        size = max([b - a for a, b in itertools.pairwise(self._borders)], default=0)
        size = size if max_len is None else integer(self, "max_len", max_len, least=0)
        count = self.batch_size * size
        rank = mx.arange(self.total_points, dtype=mx.int32) - self._offsets[self._indices]
        place = mx.where(
            rank < size, self._indices * size + rank, count
        )  # one row more, for what is dropped
        dense = mx.broadcast_to(mx.array(fill, dtype=values.dtype), (count + 1, *values.shape[1:]))
        if self.total_points:
            dense[place] = values
        dense = dense[:count].reshape(self.batch_size, size, *values.shape[1:])
        if not return_mask:
            return dense
        return dense, mx.arange(size)[None] < self._lengths[:, None]

    def gather_by_index(self, idx: ArrayLike, values: ArrayLike | None = None) -> mx.array:
        """values[idx] for rows of the whole batch, any shape of idx; `values` as in to_dense."""
        values = self._values("gather_by_index", values)
        idx = mx.array(idx)
        if not mx.issubdtype(idx.dtype, mx.integer):
            raise TypeError(f"[gather_by_index] idx must hold integers, got {idx.dtype}")
        low, high = integers(mx.stack([idx.min(), idx.max()])) if idx.size else (0, -1)
        if low < 0 or high >= self.total_points:
            raise ValueError(
                f"[gather_by_index] idx must be in 0..{self.total_points - 1}, found {low}..{high}"
            )
        return (
            values[idx]
            if idx.size
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
        values = mx.array(values)
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
        positions = _array(name, "positions", positions)
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
        features = _array(name, "features", features)
        if features.ndim != 2 or features.shape[0] != rows:
            raise ValueError(
                f"[{name}] features must have shape ({rows}, C), got {tuple(features.shape)}"
            )
        return features


def _cloud_of_rows(offsets: mx.array, rows: int) -> mx.array:
    inner = offsets[1:-1]  # a cloud begins at each; several at one row where clouds are empty
    steps = mx.zeros((rows + 1,), dtype=mx.int32)
    if inner.size:
        steps = steps.at[inner].add(1)
    return mx.cumsum(steps)[:rows]


def _array(name: str, what: str, values: ArrayLike) -> mx.array:
    try:
        return mx.array(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"[{name}] {what} must be an array, found {told(values)}: {error}"
        ) from None


def whole_numbers(name: str, what: str, values: ArrayLike) -> list[int]:
    """The integers of a 1-D array."""
    array = _array(name, what, values)
    if array.size == 0 and array.ndim == 1:
        return []
    if array.ndim != 1 or not mx.issubdtype(array.dtype, mx.integer):
        raise ValueError(
            f"[{name}] {what} must be integers of one axis, got {array.dtype} {tuple(array.shape)}"
        )
    return integers(array)
