"""Voxels and their values as compressed bytes; docs/ops/codec.md, file format docs/codec.md."""

from .._ext import VoxelCloud, decode_points, encode_points

__all__ = ["VoxelCloud", "decode_points", "encode_points"]
