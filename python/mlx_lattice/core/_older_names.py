"""Names and arguments of the older package with this import name: aliases that cost nothing.

Geometry here has exactly the rows it needs, so a capacity is a number of rows. The older package
gives `active_rows` beside padded arrays; here `active_rows` names the prefix of rows that is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import wraps
from typing import Any

import mlx.core as mx

from .._ext import (
    CoordinateManager,
    CoordinateOrdering,
    CoordinateSet,
    EdgeCsr,
    Edges,
    ImplicitGemm,
    KernelRelation,
    KernelSpec,
    NeighborRelation,
    OccupancyExpansion,
    PointVoxelMap,
    SortedImplicitGemm,
    SparseAlignment,
    SparseOccupancy,
    SparseQuantization,
)

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


def triple(value: Any) -> Triple:
    """One integer, repeated, or three integers."""
    return KernelSpec(1, 1, value).padding


def active(rows: Any, active_rows: Any, operation: str, argument: str = "active_rows") -> Any:
    """The first `active_rows` rows of an array: a (1,) array, an int, or None for all."""
    if active_rows is None or rows is None:
        return rows
    try:
        count = mx.array(active_rows)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(
            f"[{operation}] {argument} must be one integer, found {active_rows!r}"
        ) from None
    if not getattr(rows, "shape", None):
        raise TypeError(
            f"[{operation}] rows must be an array of rows, found a {type(rows).__name__} "
            "without rows"
        )
    if count.size != 1 or not mx.issubdtype(count.dtype, mx.integer):
        raise TypeError(
            f"[{operation}] {argument} must be one integer or an array of shape (1,), "
            f"found {count.dtype} of shape {tuple(count.shape)}"
        )
    n = int(count)
    if not 0 <= n <= rows.shape[0]:
        raise ValueError(f"[{operation}] {argument} must be in 0..{rows.shape[0]}, found {n}")
    return rows[:n]


def is_active_rows(value: Any) -> bool:
    """Whether a positional argument is `active_rows`: None or an array of shape (1,)."""
    return value is None or (isinstance(value, mx.array) and value.shape == (1,))


def with_active_rows(build: Any) -> Any:
    """A builder of a relation that also takes `active_rows`, by name or behind `coords`."""
    name = build.__name__

    @wraps(build)
    def run(coords: Any, *arguments: Any, active_rows: Any = None, **options: Any) -> Any:
        if arguments and is_active_rows(arguments[0]):
            active_rows, arguments = arguments[0], arguments[1:]
        return build(active(coords, active_rows, name), *arguments, **options)

    return run


def _contract(r: KernelRelation) -> SparseRelationContract:
    return SparseRelationContract(RelationKind(r.kind), r.n_in, r.n_out, r.n_kernels, r.edge_count)


def _add(kind: type, **names: Any) -> None:
    for name, value in names.items():
        setattr(kind, name, value)


def _rows_of(
    r: CoordinateOrdering
    | OccupancyExpansion
    | SparseAlignment
    | SparseOccupancy
    | SparseQuantization,
) -> int:
    if r.coords.ndim == 0:
        raise ValueError(f"[{type(r).__name__}] coords must have rows, found a single number")
    return int(r.coords.shape[0])


def _active_of(r: Any) -> int:
    """`active_rows` as a number: that of the rows, unless a user made the object."""
    rows, given = _rows_of(r), getattr(r, "active_rows", None)
    return rows if given is None else len(active(r.coords, given, type(r).__name__))


_add(
    KernelRelation,
    row_offsets=property(lambda r: r.output_csr.row_offsets),
    in_row_offsets=property(lambda r: r.input_csr.row_offsets),
    in_edge_ids=property(lambda r: r.input_csr.edge_ids),
    kernel_row_offsets=property(lambda r: r.kernel_csr.row_offsets),
    kernel_edge_ids=property(lambda r: r.kernel_csr.edge_ids),
    contract=property(_contract),
    n_in_capacity=property(lambda r: r.n_in),
    n_out_capacity=property(lambda r: r.n_out),
    edge_capacity=property(lambda r: r.edge_count),
    out_view=property(lambda r: r.output_csr),
    in_view=property(lambda r: r.input_csr),
    kernel_view=property(lambda r: r.kernel_csr),
    require_implicit_gemm=lambda r: r.implicit_gemm,
    require_sorted_implicit_gemm=lambda r: r.sorted_implicit_gemm,
)
_add(
    NeighborRelation,
    query_count=property(lambda r: r.n_query),
    n_query_capacity=property(lambda r: r.n_query),
    n_source_capacity=property(lambda r: r.n_source),
    edge_capacity=property(lambda r: r.edge_count),
)
for _kind in (
    CoordinateOrdering,
    OccupancyExpansion,
    SparseAlignment,
    SparseOccupancy,
    SparseQuantization,
):
    _add(_kind, capacity=property(_rows_of), active_count=property(_active_of))
_add(
    CoordinateSet,
    __reduce__=lambda r: (CoordinateSet, (r.coords,)),
    __deepcopy__=lambda r, _: CoordinateSet(r.coords),  # else that of the array is taken
)
_add(PointVoxelMap, point_count=property(lambda m: m.rows.shape[0]))
_add(CoordinateManager, target_transposed_view=CoordinateManager.target_transposed_relation)
