"""Samples, normals and graphs of points; docs/ops/surface.md."""

from .._ext import estimate_normals, farthest_point_sample, knn_rows

__all__ = ["estimate_normals", "farthest_point_sample", "knn_rows"]
