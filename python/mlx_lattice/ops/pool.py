"""Pooling over kernels and batch items, upsampling, and broadcasting back; docs/ops/pool.md."""

from .._ext import (
    avg_pool3d,
    broadcast_add,
    broadcast_cat,
    broadcast_mul,
    global_avg_pool,
    global_max_pool,
    global_pool,
    global_sum_pool,
    max_pool3d,
    pool3d,
    pool_transpose3d,
    sum_pool3d,
    trilinear_upsample3d,
)

__all__ = [
    "avg_pool3d",
    "broadcast_add",
    "broadcast_cat",
    "broadcast_mul",
    "global_avg_pool",
    "global_max_pool",
    "global_pool",
    "global_sum_pool",
    "max_pool3d",
    "pool3d",
    "pool_transpose3d",
    "sum_pool3d",
    "trilinear_upsample3d",
]
