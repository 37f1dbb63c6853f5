"""Ragged batches: the rows of all clouds one after the other, never padded.

    cloud b of the batch = rows offsets[b] .. offsets[b + 1]

PointCloudBatch is made from lengths (or from the cloud of each row), OffsetPointCloudBatch from
offsets. A cloud may be empty, and a batch may have no clouds. Batches are immutable; their geometry
is evaluated and checked when a batch is made.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import mlx.core as mx

from .. import ops
from ..core import SparseTensor
from ..core._checks import array, flag, listed, positive, told
from .ragged import Ragged, lengths_array, whole_numbers

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.layouts import AttentionLayout
    from ..core.types import ArrayLike, Triple
    from .point_set import PointSet

MOST_CLOUDS = 1 << 22  # an index above it is a mistake, not a batch
# What networks are called with.
Clouds: TypeAlias = "mx.array | PointCloudBatch | OffsetPointCloudBatch"


class PointCloudBatch(Ragged):
    """Clouds given by lengths or by indices; without both, one cloud.

    Lengths made from indices end with the last cloud that has a point: pass lengths to have empty
    clouds at the end.

    Args:
        positions: (T, 3), floats: the points of all clouds one after the other.
        features: (T, C), or None.
        lengths: The points of each cloud, (B,).
        indices: The cloud of each row in ascending order, (T,).

    Raises:
        TypeError: An argument is no array.
        ValueError: A shape does not fit, or lengths do not sum to T.

    Examples:
        >>> import mlx.core as mx
        >>> from mlx_lattice import points
        >>> batch = points.PointCloudBatch(mx.zeros((5, 3)), lengths=[2, 3])
        >>> batch.indices.tolist(), batch.get_points(1).shape
        ([0, 0, 1, 1, 1], (3, 3))
        >>> points.PointCloudBatch.from_list([mx.zeros((2, 3)), mx.zeros((4, 3))])
        PointCloudBatch(2 clouds, 6 points, no features)
    """

    def __init__(
        self,
        positions: ArrayLike,
        features: ArrayLike | None = None,
        lengths: ArrayLike | None = None,
        indices: ArrayLike | None = None,
    ) -> None:
        self._build(type(self).__name__, positions, features, lengths, indices)

    @classmethod
    def _named(
        cls, name: str, positions: ArrayLike, features: ArrayLike | None, lengths: ArrayLike | None
    ) -> PointCloudBatch:
        """The batch of what `name` was called with; errors have that name."""
        batch = cls.__new__(cls)
        batch._build(name, positions, features, lengths, None)
        return batch

    def _build(
        self,
        name: str,
        positions: ArrayLike,
        features: ArrayLike | None,
        lengths: ArrayLike | None,
        indices: ArrayLike | None,
    ) -> None:
        positions = self._check_positions(name, positions)
        rows = positions.shape[0]
        features = self._check_features(name, features, rows)
        cloud = None if indices is None else _checked_indices(name, indices, rows)
        if lengths is not None:
            counts = whole_numbers(name, "lengths", lengths)
        elif cloud is not None:
            clouds = cloud[-1] + 1 if cloud else 0
            if clouds > MOST_CLOUDS:
                raise ValueError(
                    f"[{name}] indices must be below {MOST_CLOUDS}, found {cloud[-1]}; number the"
                    " clouds 0, 1, 2, ..."
                )
            counts = [0] * clouds
            for c in cloud:
                counts[c] += 1
        else:
            counts = [rows]
        if any(n < 0 for n in counts) or sum(counts) != rows:
            raise ValueError(
                f"[{name}] lengths must be >= 0 and sum to {rows} points, found sum {sum(counts)}"
            )
        given = counts if lengths is None else lengths
        super().__init__(positions, features, lengths_array(given, counts))
        if cloud is not None and cloud != self._indices.tolist():
            raise ValueError(f"[{name}] indices must agree with lengths, found other counts")

    @classmethod
    def from_list(cls, clouds: Sequence[mx.array | tuple[mx.array, mx.array]]) -> PointCloudBatch:
        """From arrays (n, 3), or from pairs (positions, features); list and clouds may be empty."""
        listed("PointCloudBatch.from_list", "clouds", clouds, "a list of clouds")
        pairs = [c if isinstance(c, (tuple, list)) else (c, None) for c in clouds]
        if len({features is None for _, features in pairs}) > 1:
            raise ValueError(
                "[PointCloudBatch.from_list] either all clouds or none must have features"
            )
        positions = [cls._check_positions(cls.__name__, p) for p, _ in pairs]
        features = [
            cls._check_features(cls.__name__, f, p.shape[0]) for p, (_, f) in zip(positions, pairs)
        ]
        given = [f is not None for f in features]
        return cls(
            mx.concatenate(positions) if pairs else mx.zeros((0, 3)),
            mx.concatenate([f for f in features if f is not None]) if any(given) else None,
            lengths=[p.shape[0] for p in positions],
        )

    @classmethod
    def from_dense(
        cls,
        positions: ArrayLike,
        lengths: ArrayLike | None = None,
        features: ArrayLike | None = None,
        mask: ArrayLike | None = None,
    ) -> PointCloudBatch:
        """From padded planes (B, L, 3) and (B, L, C).

        Keeps the first lengths[b] rows of plane b, or the rows where mask is True.
        """
        name = f"{cls.__name__}.from_dense"
        dense = array(name, "positions", positions, "B", "L", 3)
        b, size, _ = dense.shape
        if (lengths is None) == (mask is None):
            raise ValueError(f"[{name}] give either lengths or mask")
        if lengths is not None:
            counts = whole_numbers(name, "lengths", lengths)
            if len(counts) != b or not all(0 <= n <= size for n in counts):
                raise ValueError(
                    f"[{name}] lengths must be {b} numbers in 0..{size}, found {counts[:8]}"
                )
            keep = [[True] * n + [False] * (size - n) for n in counts]
        else:
            flags_of = array(name, "mask", mask, b, size).astype(mx.bool_)
            keep = cast("list[list[bool]]", flags_of.tolist())
        rows = [
            plane * size + i
            for plane, flags in enumerate(keep)
            for i, flag in enumerate(flags)
            if flag
        ]
        pick = mx.array(rows, dtype=mx.int32)

        def flat(a: mx.array) -> mx.array:
            a = a.reshape(b * size, a.shape[2])
            return a[pick] if rows else a[:0]

        return cls(
            flat(dense),
            None if features is None else flat(array(name, "features", features, b, size, "C")),
            lengths=[sum(flags) for flags in keep],
        )

    @classmethod
    def concat(cls, batches: Sequence[PointCloudBatch | OffsetPointCloudBatch]) -> PointCloudBatch:
        """The clouds of all batches, in order."""
        if not isinstance(batches, (list, tuple)) or not all(
            isinstance(b, Ragged) for b in batches
        ):
            raise TypeError(
                f"[{cls.__name__}.concat] batches must be a list of batches, found {told(batches)}"
            )
        return cls.from_list([cloud for batch in batches for cloud in batch.unbatch()])

    def to_offsets(self) -> OffsetPointCloudBatch:
        """The same clouds with offsets."""
        return OffsetPointCloudBatch(self._positions, self._features, self._offsets)

    def point_set(self, grid: float) -> PointSet:
        """The PointSet of these positions at a grid size.

        The batch keeps the set with its rulebooks, so that a second epoch searches nothing.
        """
        from .point_set import PointSet

        grid = positive("point_set", "grid", grid)
        if grid not in self._sets:
            self._sets[grid] = PointSet(self._positions, self._lengths, grid=grid)
        return cast("PointSet", self._sets[grid])

    def attention_patches(
        self, grid: float, size: int, order: str = "z", shrink: bool = False
    ) -> AttentionLayout:
        """Patches of `size` points along a curve through the cells of a grid.

        The AttentionLayout of `ops.attention_patches` on the cells floor(position / grid); several
        points may share a cell. The batch keeps it.
        """
        shrink = flag("attention_patches", "shrink", shrink)
        return self._layout(grid, ops.attention_patches, size, order, shrink=shrink)

    def attention_windows(self, grid: float, size: Triple, shift: Triple = 0) -> AttentionLayout:
        """Windows of `size` cells of a grid; the AttentionLayout of `ops.attention_windows`."""
        return self._layout(grid, ops.attention_windows, size, shift)

    def _layout(
        self, grid: float, make: Callable[..., AttentionLayout], *args: Any, **kwargs: Any
    ) -> AttentionLayout:
        grid = positive(make.__name__, "grid", grid)
        key = (make, grid, repr(args), tuple(kwargs.items()))
        if key not in self._sets:
            cells = mx.floor(self._positions.astype(mx.float32) / grid).astype(mx.int32)
            coords = mx.concatenate([self._indices[:, None], cells], axis=1)
            self._sets[key] = make(coords, *args, **kwargs)
        return cast("AttentionLayout", self._sets[key])


class OffsetPointCloudBatch(Ragged):
    """Clouds given by B + 1 offsets from 0 to T; without offsets, one cloud.

    positions (T, 3) and features (T, C) are as in `PointCloudBatch`. Offsets that fall, or do not
    end at T, are a ValueError.
    """

    def __init__(
        self,
        positions: ArrayLike,
        features: ArrayLike | None = None,
        offsets: ArrayLike | None = None,
    ) -> None:
        name = type(self).__name__
        positions = self._check_positions(name, positions)
        rows = positions.shape[0]
        features = self._check_features(name, features, rows)
        borders = [0, rows] if offsets is None else whole_numbers(name, "offsets", offsets)
        if (
            not borders
            or borders[0] != 0
            or borders[-1] != rows
            or any(a > b for a, b in itertools.pairwise(borders))
        ):
            raise ValueError(
                f"[{name}] offsets must start at 0, never fall and end at {rows}, "
                f"found {borders[:8]}"
            )
        counts = [b - a for a, b in itertools.pairwise(borders)]
        super().__init__(positions, features, mx.array(counts, dtype=mx.int32))

    def as_lengths(self) -> mx.array:
        """The points of each cloud, (B,) int32."""
        return self._lengths

    def to_lengths(self) -> PointCloudBatch:
        """The same clouds with lengths."""
        return PointCloudBatch(self._positions, self._features, self._lengths)


def as_batch(
    positions: Clouds,
    features: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    who: str = "PointCloudBatch",
) -> PointCloudBatch:
    """The batch that networks are called with: a batch as it is, or one made of arrays.

    who: the network, for messages.
    """
    if isinstance(positions, PointCloudBatch):
        return positions
    if isinstance(positions, OffsetPointCloudBatch):
        return positions.to_lengths()
    if isinstance(positions, SparseTensor):
        raise TypeError(
            f"[{who}] positions must be a PointCloudBatch or an array (T, 3), found a SparseTensor;"
            " networks on voxels are in mlx_lattice.models"
        )
    return PointCloudBatch._named(who, positions, features, lengths)


def _checked_indices(name: str, indices: ArrayLike, rows: int) -> list[int]:
    """The cloud of each row as plain ints."""
    cloud = whole_numbers(name, "indices", indices)
    if (
        len(cloud) != rows
        or any(a > b for a, b in itertools.pairwise(cloud))
        or (cloud and cloud[0] < 0)
    ):
        raise ValueError(f"[{name}] indices must be {rows} ascending numbers >= 0")
    return cloud
