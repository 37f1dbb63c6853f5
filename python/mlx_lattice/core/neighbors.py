"""Neighbor relations and the index that finds them."""

from .._ext import NeighborEdges, NeighborIndex, NeighborRelation

__all__ = ["NeighborEdges", "NeighborIndex", "NeighborRelation"]
