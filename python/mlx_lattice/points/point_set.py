"""Point sets that cache the rulebooks and subsets made from them.

Layers with equal arguments then share one search. The key of a rulebook is source, target, kernel,
radius and shape. A target is named by a number that no other set of the process has, because an
address could come back. What a source set remembers lives as long as the set.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, TypeVar, cast

import mlx.core as mx

from .._ext import PointSet as _PointSet
from ..core._checks import array, number, told
from ..ops.rulebook import (
    build_full_cover_rulebook,
    build_generative_rulebook,
    build_partition_rulebook,
    build_rulebook,
    build_subdivision_rulebook,
    grid_downsample,
    radius_scaler,
    radius_search,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._ext import Rulebook
    from ..core.types import ArrayLike

_serial = itertools.count()


T = TypeVar("T")


class PointSet(_PointSet):
    """Points of clouds that follow each other, with the size of a kernel cell. Immutable.

    A set remembers what was made from it, so that layers with equal arguments share one search.

    Args:
        positions: (N, 3), floats.
        lengths: The points of each cloud, (B,); by default one cloud.
        grid: The side of a kernel cell, in units of the positions.

    Raises:
        ValueError: An array has another shape, or lengths do not sum to N.

    Examples:
        >>> from mlx_lattice import points
        >>> cloud = points.PointSet([[0.0, 0, 0], [0.1, 0, 0], [0.9, 0, 0]], grid=0.2)
        >>> coarse, rows = cloud.downsample(2)  # one point per cell of 0.4
        >>> len(cloud), len(coarse)
        (3, 2)
    """

    def __init__(
        self, positions: ArrayLike, lengths: ArrayLike | None = None, *, grid: float = 1.0
    ) -> None:
        super().__init__(positions, lengths, grid=grid)
        self._id = next(_serial)
        self._made: dict[tuple[object, ...], object] = {}

    @classmethod
    def of(cls, points: _PointSet) -> PointSet:
        """The set itself, or one that remembers made from one that does not."""
        if not all(hasattr(points, name) for name in ("positions", "lengths", "grid")):
            raise TypeError(
                f"[PointSet] points must be a PointSet, found {told(points)}; make one:"
                " PointSet(positions, grid=...)"
            )
        return (
            points
            if isinstance(points, cls)
            else cls(points.positions, points.lengths, grid=points.grid)
        )

    def downsample(self, stride: float) -> tuple[PointSet, mx.array]:
        """(PointSet, rows): the point nearest the center of each cell of stride * grid.

        The rows are those of this set that were kept.
        """

        def make() -> tuple[PointSet, mx.array]:
            coarse, rows, _ = grid_downsample(self, self.grid * stride)
            return PointSet.of(coarse), rows

        stride = number("PointSet.downsample", "stride", stride)
        return self._once(("downsample", stride), make)

    def partition(self, stride: int, kernel_size: int) -> tuple[PointSet, Rulebook]:
        """(PointSet, Rulebook): centers of the cells of stride * grid; each point has one edge."""

        def make() -> tuple[PointSet, Rulebook]:
            book, coarse = build_partition_rulebook(self, stride, kernel_size)
            return PointSet.of(coarse), book

        key = number("PointSet.partition", "stride", stride)
        return self._once(("partition", key, kernel_size), make)

    def full_cover(
        self, stride: int, kernel_size: int, margin: float = 0.01
    ) -> tuple[PointSet, Rulebook]:
        """(PointSet, Rulebook): points of this set that cover all its points.

        Every point lies within sqrt(3) / 2 * stride * grid of a chosen one.
        """

        def make() -> tuple[PointSet, Rulebook]:
            book, coarse, _, _ = build_full_cover_rulebook(self, stride, kernel_size, margin)
            return PointSet.of(coarse), book

        name = "PointSet.full_cover"
        key = (number(name, "stride", stride), kernel_size, number(name, "margin", margin))
        return self._once(("full_cover", *key), make)

    def generate(
        self, kernel_size: int = 3, expansion: float = 1.0, stencil: ArrayLike | None = None
    ) -> tuple[PointSet, Rulebook]:
        """(PointSet, Rulebook): the voxels of grid / expansion around the voxel of each point.

        stencil: offsets (K, 3), by default the whole cube.
        """

        def make() -> tuple[PointSet, Rulebook]:
            book, made = build_generative_rulebook(self, kernel_size, expansion, stencil=stencil)
            return PointSet.of(made), book

        name = "PointSet.generate"
        taps = None if stencil is None else repr(array(name, "stencil", stencil).tolist())
        key = (kernel_size, number(name, "expansion", expansion), taps)
        return self._once(("generate", *key), make)

    def subdivide(self, expansion: int = 2) -> tuple[PointSet, Rulebook]:
        """(PointSet, Rulebook): the expansion^3 parts of the voxel of each point."""

        def make() -> tuple[PointSet, Rulebook]:
            book, made = build_subdivision_rulebook(self, expansion)
            return PointSet.of(made), book

        return self._once(("subdivide", expansion), make)

    def rulebook(
        self,
        target: PointSet | None = None,
        kernel_size: int = 3,
        *,
        rfs: float = 1.0,
        shape: str = "ball",
        radius: float | None = None,
        allow_empty: bool = False,
    ) -> Rulebook:
        """The Rulebook from this set to a target, by default itself; see `build_rulebook`."""
        target = self if target is None else PointSet.of(target)
        options: dict[str, Any] = {
            "rfs": rfs,
            "shape": shape,
            "radius": radius,
            "allow_empty": allow_empty,
        }
        key = ("rulebook", target._id, kernel_size, *options.values())
        return self._once(key, lambda: build_rulebook(self, target, kernel_size, **options))

    def near(
        self, target: PointSet, kernel_size: int = 3, *, rfs: float = 1.0, shape: str = "ball"
    ) -> tuple[mx.array, mx.array]:
        """(rows, counts): the points that a kernel at each target sees, in the order of targets."""
        target = PointSet.of(target)

        def make() -> tuple[mx.array, mx.array]:
            radius = self.grid * radius_scaler(kernel_size, rfs, shape)
            found = radius_search(
                self.positions, target.positions, radius, self.lengths, target.lengths, shape=shape
            )
            return found[:2]

        return self._once(("near", target._id, kernel_size, rfs, shape), make)

    def _once(self, key: tuple[object, ...], make: Callable[[], T]) -> T:
        """The result of make(), which runs at the first call with this key."""
        try:
            hash(key)
        except TypeError:
            raise TypeError(
                f"[PointSet] arguments of {key[0]} must be plain numbers and names, found {key[1:]}"
            ) from None
        if key not in self._made:
            self._made[key] = make()
        return cast("T", self._made[key])
