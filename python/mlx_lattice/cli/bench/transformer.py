"""`bench transformer`: inference of Point Transformer V3 on a LiDAR-like sweep, part by part.

Times are compared with dense products: FLOP are those of linear layers, convolutions and attention
(4 pairs C), and nothing else.
"""

import contextlib
import time
from typing import Any

import mlx.core as mx

from ... import SparseTensor, backend_info, models, nn
from ...core import set_thread_count, thread_count
from ...nn._attention import _Attention
from .model import _relation, _scan


def add_topics(topics: Any) -> Any:
    parser = topics.add_parser(
        "transformer", help="Point Transformer V3 as published on a LiDAR-like sweep"
    )
    parser.add_argument("--voxel", type=float, default=0.1, help="voxel size in meters")
    parser.add_argument("--threads", type=int, default=1, metavar="N")
    parser.add_argument("--repeat", type=int, default=3, help="the best of so many runs counts")
    parser.add_argument("--rpe", action="store_true", help="with relative position bias")
    parser.set_defaults(run=bench_transformer)


@contextlib.contextmanager
def _watched(kinds: Any, watch: Any) -> Any:
    """Inside the `with` block `watch(module, call, x)` replaces the calls of the kinds."""
    before = {kind: kind.__call__ for kind in kinds}

    def watched(kind: Any) -> Any:
        def call(module: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
            return watch(module, lambda: before[kind](module, x, *args, **kwargs), x)

        return call

    for kind in kinds:
        kind.__call__ = watched(kind)
    try:
        yield
    finally:
        for kind, call in before.items():
            kind.__call__ = call


def _count(model: Any, x: Any) -> Any:
    """(FLOP of one inference, FLOP by kind)."""
    total = {"linear": 0, "convolution": 0, "attention": 0}

    def watch(module: Any, call: Any, x: Any) -> Any:
        rows = x.shape[0]
        if isinstance(module, nn.Linear):
            total["linear"] += 2 * rows * module.weight.size
        elif isinstance(module, nn.SubmConv3d):
            c_out, c_in = module.weight.shape[0], module.weight.shape[-1]
            total["convolution"] += 2 * _relation(module, x, None).edge_count * c_in * c_out
        else:
            offsets = module.layout(x).offsets
            pairs = ((offsets[1:] - offsets[:-1]).astype(mx.float32) ** 2).sum().item()
            total["attention"] += int(4 * pairs * x.channels)
        return call()

    with _watched((nn.Linear, nn.SubmConv3d, nn.SerializedAttention), watch):
        model(x)
    return sum(total.values()), total


def _parts(model: Any, x: Any) -> Any:
    """CPU seconds by kind of module, each evaluated by itself."""
    kinds: dict[type, str] = {
        nn.Linear: "linear",
        nn.SubmConv3d: "convolution",
        nn.LayerNorm: "layer norm",
        nn.BatchNorm: "batch norm",
        nn.GELU: "GELU",
    }
    spent = dict.fromkeys([*kinds.values(), "attention and slots", "whole"], 0.0)

    def timed(name: Any, call: Any) -> Any:
        begin = time.process_time()
        y = call()
        mx.eval(y.feats if isinstance(y, SparseTensor) else y)
        spent[name] += time.process_time() - begin
        return y

    def watch(module: Any, call: Any, x: Any) -> Any:
        mx.eval(x.feats if isinstance(x, SparseTensor) else x)
        return timed(kinds[type(module)], call)

    attend = _Attention._between

    def between(module: Any, qkv: Any, layout: Any, bias: Any) -> Any:
        mx.eval(qkv)
        return timed("attention and slots", lambda: attend(module, qkv, layout, bias))

    _Attention._between = between  # type: ignore[method-assign, assignment]
    begin = time.process_time()
    try:
        with _watched(kinds, watch):
            mx.eval(model(x).feats)
    finally:
        _Attention._between = attend  # type: ignore[method-assign]
    spent["whole"] = time.process_time() - begin
    return spent


def bench_transformer(arguments: Any) -> Any:
    from .measure import best, gemm_rate

    if arguments.threads < 1 or arguments.repeat < 1 or not arguments.voxel > 0:
        raise ValueError("threads, repeat and voxel must be positive")
    mx.set_cache_limit(4 << 30)
    options: dict[str, Any] = {"enable_rpe": True, "enable_flash": False} if arguments.rpe else {}
    model: Any = models.PointTransformerV3(6, **options)
    model.eval()
    coords, feats = _scan(arguments.voxel, 6, mx.float32)
    mx.eval(model.parameters(), feats)
    x = SparseTensor(coords, feats)
    flop, kinds = _count(model, x)
    gemm = gemm_rate(arguments.repeat)
    print(f"Point Transformer V3, {x.active_count:,} voxels, {backend_info()['simd']}")
    print(", ".join(f"{name} {value * 1e-9:.1f}" for name, value in kinds.items()), "GFLOP")
    print(f"dense float32 product of NumPy: {gemm:.1f} GFLOP/s per core")
    before = thread_count()
    set_thread_count(arguments.threads)
    try:
        cold = best(1, lambda: mx.eval(model(SparseTensor(coords, feats)).feats))[0]
        cpu, wall = best(arguments.repeat, lambda: mx.eval(model(x).feats))
        spent = _parts(model, x)
    finally:
        set_thread_count(before)
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
