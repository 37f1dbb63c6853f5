"""Names and arguments of the older package with this import name, for programs that use them.

Geometry here has exactly the rows it needs, so a capacity is a number of rows. The older package
gives `active_rows` beside padded arrays; here `active_rows` names the prefix of rows that is kept.
The attributes of the older package, such as `KernelRelation.n_in_capacity`, are in the classes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeVar, cast

import mlx.core as mx

from ._ext import EdgeCsr, Edges, ImplicitGemm, KernelSpec, SortedImplicitGemm

if TYPE_CHECKING:
    from .core.types import ArrayLike

    OneInteger = int | mx.array | list[int] | tuple[int]

__all__ = [
    "QuantizedWeightLayout",
    "RelationCSRView",
    "RelationEdges",
    "RelationImplicitGemmView",
    "RelationKind",
    "RelationSortedImplicitGemmView",
    "RelationView",
    "SparseRelationContract",
    "Triple",
    "triple",
]

Triple = tuple[int, int, int]
RelationEdges = Edges
RelationCSRView = EdgeCsr
RelationImplicitGemmView = ImplicitGemm
RelationSortedImplicitGemmView = SortedImplicitGemm
RelationView = EdgeCsr | ImplicitGemm | SortedImplicitGemm


class RelationKind(str, Enum):
    """The values of `KernelRelation.kind`."""

    FORWARD = "forward"
    TARGET = "target"
    SUBMANIFOLD = "submanifold"
    TRANSPOSED = "transposed"
    GENERATIVE = "generative"
    TARGET_TRANSPOSED = "target_transposed"
    CUSTOM = "custom"


class QuantizedWeightLayout(str, Enum):
    """The values of `QuantizedWeight.layout`."""

    LINEAR = "linear"
    KERNEL_MAJOR = "kernel_major"
    DENSE_5D = "dense_5d"


@dataclass(frozen=True)
class SparseRelationContract:
    """The sizes of a relation, as `KernelRelation.contract` gives them."""

    kind: RelationKind
    n_in_capacity: int
    n_out_capacity: int
    n_kernels: int
    edge_capacity: int


def triple(value: int | Triple) -> Triple:
    """One integer, repeated, or three integers."""
    return KernelSpec(1, 1, value).padding


Given = TypeVar("Given", bound="ArrayLike | None")


def active(
    rows: Given, active_rows: OneInteger | None, operation: str, argument: str = "active_rows"
) -> Given:
    """The first `active_rows` rows of an array: an array (1,), an int, or None for all.

    Raises TypeError for anything but an integer, ValueError for a number outside 0..N; the message
    names `operation` and `argument`.
    """
    if active_rows is None or rows is None:
        return rows
    try:
        count = mx.array(active_rows)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(
            f"[{operation}] {argument} must be one integer, found {active_rows!r}"
        ) from None
    shape = getattr(rows, "shape", None)
    if not (shape and hasattr(rows, "__getitem__")) and not (isinstance(rows, list) and rows):
        raise TypeError(
            f"[{operation}] rows must be an array with rows, found a {type(rows).__name__}"
        )
    if count.size != 1 or not mx.issubdtype(count.dtype, mx.integer):
        raise TypeError(
            f"[{operation}] {argument} must be one integer or an array of shape (1,), "
            f"found {count.dtype} of shape {tuple(count.shape)}"
        )
    n, most = int(count), shape[0] if shape else len(cast("list[object]", rows))
    if not 0 <= n <= most:
        raise ValueError(f"[{operation}] {argument} must be in 0..{most}, found {n}")
    return cast("Given", cast("mx.array", rows)[:n])


Build = TypeVar("Build", bound=Callable[..., object])


def active_rows_second(build: Build) -> Build:
    """A builder `build(coords, ..., active_rows=)` that also takes active_rows after coords.

    The older package has `build(coords, active_rows, kernel_size)`. There active_rows is None or an
    array (1,), which cannot be the size of a kernel.
    """

    @functools.wraps(build)
    def run(*given: object, **options: object) -> object:
        if len(given) > 1 and _is_active_rows(given[1]):
            options["active_rows"] = given[1]
            given = (given[0], *given[2:])
        return build(*given, **options)

    return cast("Build", run)


def _is_active_rows(value: object) -> bool:
    return value is None or (isinstance(value, mx.array) and value.shape == (1,))
