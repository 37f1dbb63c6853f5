"""`bench conv`: convolution and its gradients on this machine, as a table."""

from __future__ import annotations

import argparse
from typing import cast

import mlx.core as mx

from ... import SparseTensor, backend_info, ops
from ...core import KernelRelation, set_thread_count, thread_count
from ..options import Commands, check_positive
from .measure import best, gemm_rate, sweep_coords, threads_restored

_PASSES = ("forward", "input grad", "weight grad")


def add_topics(topics: Commands) -> None:
    conv = topics.add_parser("conv", help="3x3x3 submanifold convolution on a LiDAR-like sweep")
    conv.add_argument("--channels", type=int, nargs="+", default=[16, 32, 64, 128], metavar="C")
    conv.add_argument("--dtype", choices=["float32", "float16", "bfloat16"], default="float32")
    conv.add_argument("--voxel", type=float, default=0.1, help="voxel size in meters")
    conv.add_argument(
        "--threads", type=int, nargs="+", default=sorted({1, thread_count()}), metavar="N"
    )
    conv.add_argument("--repeat", type=int, default=5, help="the best of so many runs counts")
    conv.set_defaults(run=bench_conv)


def plain_conv(x: mx.array, w: mx.array, relation: KernelRelation) -> mx.array:
    """The same with gather, matmul and scatter-add of MLX."""
    edges, groups = relation.edges, relation.kernel_csr
    offsets = cast("list[int]", groups.row_offsets.tolist())
    y = mx.zeros((relation.n_out, w.shape[2]), x.dtype)
    for k in range(relation.n_kernels):
        ids = groups.edge_ids[offsets[k] : offsets[k + 1]]
        y = y.at[edges.out_rows[ids]].add(x[edges.in_rows[ids]] @ w[k])
    return y


def bench_conv(arguments: argparse.Namespace) -> None:
    check_positive(arguments, "channels", "threads", "repeat", "voxel")
    dtype = getattr(mx, arguments.dtype)
    coords = sweep_coords(arguments.voxel)
    x = SparseTensor(coords, mx.zeros((len(coords), 1)))
    relation = ops.submanifold_kernel_relation(x)
    info = backend_info()
    gemm = gemm_rate(arguments.repeat)
    print(
        f"{len(coords)} rows, {relation.edge_count} edges, 3x3x3 submanifold, {arguments.dtype}, "
        f"{info['simd']}"
    )
    print(f"dense float32 product of NumPy: {gemm:.1f} GFLOP/s per core")
    print(
        f"\n{'C':>5} {'pass':12} {'threads':>7} {'ms':>9} {'GFLOP/s':>9} {'per core':>9} "
        f"{'/ dense':>8} {'/ plain MLX':>12}"
    )
    with threads_restored():
        for channels in arguments.channels:
            _bench_channels(arguments, x, relation, channels, dtype, gemm)


def _bench_channels(
    arguments: argparse.Namespace,
    x: SparseTensor,
    relation: KernelRelation,
    channels: int,
    dtype: mx.Dtype,
    gemm: float,
) -> None:
    feats = mx.random.normal((x.feats.shape[0], channels)).astype(dtype)
    w = (mx.random.normal((27, channels, channels)) / channels).astype(dtype)
    g = mx.random.normal(feats.shape).astype(dtype)
    mx.eval(feats, w, g)

    def conv(feats: mx.array, w: mx.array) -> list[mx.array]:
        return [ops.subm_conv3d(x.replace(feats=feats), w).feats]

    works = (
        lambda: mx.eval(conv(feats, w)),
        lambda: mx.eval(mx.vjp(lambda f: conv(f, w), [feats], [g])[1]),
        lambda: mx.eval(mx.vjp(lambda v: conv(feats, v), [w], [g])[1]),
    )
    flop = 2 * relation.edge_count * channels**2
    set_thread_count(1)
    plain = best(1, lambda: mx.eval(plain_conv(feats, w, relation)))[0]
    for name, work in zip(_PASSES, works):
        for threads in arguments.threads:
            set_thread_count(threads)
            cpu, wall = best(arguments.repeat, work)
            rate = flop / cpu * 1e-9
            ratio = f"{plain / cpu:12.1f}" if name == "forward" else f"{'':12}"
            print(
                f"{channels:5} {name:12} {threads:7} {wall * 1e3:9.2f} "
                f"{flop / wall * 1e-9:9.1f} {rate:9.1f} "
                f"{rate / gemm:8.2f} {ratio}",
                flush=True,
            )
