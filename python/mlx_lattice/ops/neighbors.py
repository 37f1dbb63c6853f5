"""Neighbors: the k nearest rows, or all within a radius; docs/ops/neighbors.md."""

from .._ext import (
    build_knn_relation,
    build_radius_relation,
    gather_neighbor_features,
    knn_relation,
    radius_relation,
)

__all__ = [
    "build_knn_relation",
    "build_radius_relation",
    "gather_neighbor_features",
    "knn_relation",
    "radius_relation",
]
