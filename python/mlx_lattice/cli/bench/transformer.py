"""`bench transformer`: inference of Point Transformer V3 on a LiDAR-like sweep, part by part.

Times are compared with dense products: FLOP are those of linear layers, convolutions and attention
(4 pairs C), and nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import mlx.core as mx

from ... import SparseTensor, backend_info, models, nn
from ...core import AttentionLayout, set_thread_count
from ...nn._attention import _Attention
from ...ops import PositionBias
from ..options import Commands, check_positive
from .measure import best, gemm_rate, sweep_coords, threads_restored
from .model import edge_count

if TYPE_CHECKING:
    from mlx.nn import Module

Rows: TypeAlias = SparseTensor | mx.array
Watch: TypeAlias = "Callable[[Module, Callable[[], Rows], Rows], Rows]"


def add_topics(topics: Commands) -> None:
    parser = topics.add_parser(
        "transformer", help="Point Transformer V3 as published on a LiDAR-like sweep"
    )
    parser.add_argument("--voxel", type=float, default=0.1, help="voxel size in meters")
    parser.add_argument("--threads", type=int, default=1, metavar="N")
    parser.add_argument("--repeat", type=int, default=3, help="the best of so many runs counts")
    parser.add_argument("--rpe", action="store_true", help="with relative position bias")
    parser.set_defaults(run=bench_transformer)


def _rows(x: Rows) -> mx.array:
    return x.feats if isinstance(x, SparseTensor) else x


@contextlib.contextmanager
def _watched(kinds: Iterable[type[Module]], watch: Watch) -> Iterator[None]:
    """Inside the `with` block `watch(module, call, x)` replaces the calls of the kinds."""
    before = {kind: kind.__call__ for kind in kinds}

    def watched(kind: type[Module]) -> Callable[..., Rows]:
        def call(module: Module, x: Rows, *args: object, **kwargs: object) -> Rows:
            return watch(module, lambda: before[kind](module, x, *args, **kwargs), x)

        return call

    for kind in kinds:
        kind.__call__ = watched(kind)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for kind, call in before.items():
            kind.__call__ = call  # type: ignore[method-assign]


def _count(model: Module, x: SparseTensor) -> tuple[int, dict[str, int]]:
    """(FLOP of one inference, FLOP by kind)."""
    total = {"linear": 0, "convolution": 0, "attention": 0}

    def watch(module: Module, call: Callable[[], Rows], x: Rows) -> Rows:
        rows, channels = x.shape
        if isinstance(module, nn.Linear):
            total["linear"] += 2 * rows * module.weight.size
        elif isinstance(module, nn.SubmConv3d) and isinstance(x, SparseTensor):
            c_out, c_in = module.weight.shape[0], module.weight.shape[-1]
            total["convolution"] += 2 * edge_count(module, x) * c_in * c_out
        else:
            offsets = module.layout(x).offsets
            pairs = ((offsets[1:] - offsets[:-1]).astype(mx.float32) ** 2).sum().item()
            total["attention"] += int(4 * pairs * channels)
        return call()

    with _watched((nn.Linear, nn.SubmConv3d, nn.SerializedAttention), watch):
        model(x)
    return sum(total.values()), total


def _parts(model: Module, x: SparseTensor) -> dict[str, float]:
    """CPU seconds by kind of module, each evaluated by itself."""
    kinds: dict[type, str] = {
        nn.Linear: "linear",
        nn.SubmConv3d: "convolution",
        nn.LayerNorm: "layer norm",
        nn.BatchNorm: "batch norm",
        nn.GELU: "GELU",
    }
    spent = dict.fromkeys([*kinds.values(), "attention and slots", "whole"], 0.0)

    def timed(name: str, call: Callable[[], Rows]) -> Rows:
        begin = time.process_time()
        y = call()
        mx.eval(_rows(y))
        spent[name] += time.process_time() - begin
        return y

    def watch(module: Module, call: Callable[[], Rows], x: Rows) -> Rows:
        mx.eval(_rows(x))
        return timed(kinds[type(module)], call)

    attend = _Attention._between

    def between(
        module: _Attention, qkv: mx.array, layout: AttentionLayout, bias: PositionBias | None
    ) -> Rows:
        mx.eval(qkv)
        return timed("attention and slots", lambda: attend(module, qkv, layout, bias))

    _Attention._between = between  # type: ignore[method-assign, assignment]
    begin = time.process_time()
    try:
        with _watched(kinds, watch):
            mx.eval(_rows(model(x)))
    finally:
        _Attention._between = attend  # type: ignore[method-assign]
    spent["whole"] = time.process_time() - begin
    return spent


def bench_transformer(arguments: argparse.Namespace) -> None:
    check_positive(arguments, "threads", "repeat", "voxel")
    rpe = bool(arguments.rpe)
    model = models.PointTransformerV3(6, enable_rpe=rpe, enable_flash=not rpe)
    model.eval()
    coords = sweep_coords(arguments.voxel)
    feats = mx.random.normal((len(coords), 6))
    mx.eval(model.parameters(), feats)
    x = SparseTensor(coords, feats)
    flop, kinds = _count(model, x)
    gemm = gemm_rate(arguments.repeat)
    print(f"Point Transformer V3, {x.active_count:,} voxels, {backend_info()['simd']}")
    print(", ".join(f"{name} {value * 1e-9:.1f}" for name, value in kinds.items()), "GFLOP")
    print(f"dense float32 product of NumPy: {gemm:.1f} GFLOP/s per core")
    with threads_restored():
        set_thread_count(arguments.threads)
        cold = best(1, lambda: mx.eval(_rows(model(SparseTensor(coords, feats)))))[0]
        cpu, wall = best(arguments.repeat, lambda: mx.eval(_rows(model(x))))
        spent = _parts(model, x)
    print(f"inference with geometry: {cold:.2f} CPU s")
    print(
        f"inference: {cpu:.2f} CPU s, {wall:.2f} s on {arguments.threads} threads; "
        f"{flop / cpu * 1e-9:.1f} GFLOP/s, {flop / cpu * 1e-9 / gemm:.2f} of the dense product"
    )
    rest = spent["whole"] - sum(v for name, v in spent.items() if name != "whole")
    for name, value in {**spent, "sums, pooling, the rest": rest}.items():
        rate = kinds.get(name.partition(" ")[0])
        told = f"{rate / value * 1e-9 / gemm:8.2f} of dense" if rate and value else ""
        print(f"  {name:24} {value:8.3f} CPU s {told}")
