"""`bench model`: geometry, inference and a training step of a MinkUNet on a LiDAR-like sweep.

Each time is compared with dense products and with plain MLX operations.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import mlx.core as mx
import mlx.nn

from ... import SparseTensor, backend_info, models, nn, ops
from ...core import KernelRelation, set_thread_count, thread_count
from ...models._blocks import ConvNorm
from ..options import Commands, check_positive
from .conv import plain_conv
from .measure import best, gemm_rate, sweep_coords, threads_restored

if TYPE_CHECKING:
    from mlx.nn import Module


@dataclass(frozen=True)
class LayerCall:
    """One call of a convolution with norm on x; y is the lazy convolution."""

    layer: ConvNorm
    x: SparseTensor
    y: SparseTensor
    coordinates: SparseTensor | None
    residual: SparseTensor | None

    def conv(self) -> SparseTensor:
        """The convolution again."""
        conv, x, coordinates = self.layer.conv, self.x, self.coordinates
        return conv(x) if coordinates is None else conv(x, coordinates)

    def after(self) -> SparseTensor:
        """The norm, residual and ReLU that follow the convolution."""
        return self.layer.norm(self.y, self.residual, self.layer._relu)

    def edges(self) -> int:
        return edge_count(self.layer.conv, self.x, self.coordinates)


Run: TypeAlias = Callable[[LayerCall], mx.array]  # the features of a layer


def add_topics(topics: Commands) -> None:
    model = topics.add_parser(
        "model", help="MinkUNet on a LiDAR-like sweep: plan, inference, training step"
    )
    model.add_argument("--depth", type=int, default=18, help="14, 18, 34, 50 or 101")
    model.add_argument("--width", type=int, default=32, help="channels of the stem")
    model.add_argument("--classes", type=int, default=20)
    model.add_argument("--dtype", choices=["float32", "float16", "bfloat16"], default="float32")
    model.add_argument("--voxel", type=float, default=0.1, help="voxel size in meters")
    model.add_argument(
        "--threads", type=int, nargs="+", default=sorted({1, thread_count()}), metavar="N"
    )
    model.add_argument("--repeat", type=int, default=3, help="the best of so many runs counts")
    model.add_argument(
        "--layers",
        action="store_true",
        help="also a line for each layer, one thread; its last column is the gain by more threads",
    )
    model.add_argument(
        "--no-plain", action="store_true", help="leave out the comparison with plain MLX operations"
    )
    model.set_defaults(run=bench_model)


def relation_of(
    conv: Module, x: SparseTensor, coordinates: SparseTensor | None
) -> KernelRelation | None:
    """The relation that a convolution module reads on x; None where it is a matrix product."""
    s, manager = conv.spec, x.coord_manager
    if s.is_pointwise:
        return None
    if isinstance(conv, nn.SubmConv3d):
        return manager.submanifold_kernel_relation(x.coord_key, s.size)
    if isinstance(conv, nn.ConvTranspose3d) and coordinates is not None:
        return manager.target_transposed_relation(
            x.coord_key, coordinates.coord_key, s.size, s.stride
        )
    return manager.kernel_relation(x.coord_key, s.size, s.stride)


def edge_count(conv: Module, x: SparseTensor, coordinates: SparseTensor | None = None) -> int:
    """Products of a row and a matrix that a convolution module computes on x."""
    relation = relation_of(conv, x, coordinates)
    return x.active_count if relation is None else relation.edge_count


@contextlib.contextmanager
def _layers_as(run: Run) -> Iterator[None]:
    """Inside the `with` block the features of every layer are what `run` returns."""
    before = ConvNorm.__call__

    def call(
        layer: ConvNorm,
        x: SparseTensor | list[SparseTensor],
        coordinates: SparseTensor | None = None,
        residual: SparseTensor | None = None,
    ) -> SparseTensor:
        x = ops.cat(x) if isinstance(x, list) else x
        y = layer.conv(x) if coordinates is None else layer.conv(x, coordinates)
        return y.with_feats(run(LayerCall(layer, x, y, coordinates, residual)))

    ConvNorm.__call__ = call  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        ConvNorm.__call__ = before  # type: ignore[method-assign]


def _count(model: models.MinkUNet, x: SparseTensor) -> int:
    """FLOP of all convolutions."""
    total = [2 * x.active_count * model.head.weight.size]

    def run(call: LayerCall) -> mx.array:
        total.append(2 * call.edges() * call.x.channels * call.y.channels)
        return call.y.feats

    with _layers_as(run):
        model(x)
    return sum(total)


def _plain(call: LayerCall) -> mx.array:
    """Gather, matmul, scatter-add and batch norm of MLX."""
    layer, x, residual = call.layer, call.x, call.residual
    w, norm = layer.conv.weight, layer.norm
    w = w.reshape(w.shape[0], -1, w.shape[-1]).transpose(1, 2, 0)
    relation = relation_of(layer.conv, x, call.coordinates)
    f = x.feats @ w[0] if relation is None else plain_conv(x.feats, w, relation)
    f = (f - norm.running_mean) * (mx.rsqrt(norm.running_var + 1e-5) * norm.weight) + norm.bias
    f = f if residual is None else f + residual.feats
    return mx.maximum(f, 0) if layer._relu else f


def bench_model(arguments: argparse.Namespace) -> None:
    check_positive(arguments, "threads", "repeat", "voxel")
    model = models.MinkUNet(4, arguments.classes, depth=arguments.depth, width=arguments.width)
    dtype = getattr(mx, arguments.dtype)
    coords = sweep_coords(arguments.voxel)
    feats = mx.random.normal((len(coords), 4)).astype(dtype)
    model.set_dtype(dtype)
    model.eval()
    mx.eval(model.parameters(), feats)
    x = SparseTensor(coords, feats)
    plan = model.plan(x)
    flop = _count(model, x)
    gemm = gemm_rate(arguments.repeat)
    print(
        f"MinkUNet-{arguments.depth}, width {arguments.width}, {x.active_count} voxels, "
        f"{arguments.dtype}, {backend_info()['simd']}"
    )
    print(
        f"convolutions: {flop * 1e-9:.1f} GFLOP per inference; "
        f"relations: {len(plan.relations)}, {plan.nbytes / 2**20:.0f} MiB"
    )
    print(f"dense float32 product of NumPy: {gemm:.1f} GFLOP/s per core")
    plain = None if arguments.no_plain else _time_plain(model, x)
    print(
        f"\n{'what':28} {'threads':>7} {'ms':>9} {'CPU ms':>9} {'GFLOP/s per core':>17} "
        f"{'/ dense':>8} {'/ plain MLX':>12}"
    )
    with threads_restored():
        for threads in arguments.threads:
            set_thread_count(threads)
            _bench_threads(arguments.repeat, model, x, flop, gemm, plain, threads)
        if arguments.layers:
            most = max(arguments.threads)
            _print_layers(_time_layers(model, x, arguments.repeat, most), gemm, most)


def _time_plain(model: models.MinkUNet, x: SparseTensor) -> float:
    """CPU seconds of one inference with plain MLX operations, whose result is compared first."""
    with _layers_as(_plain):
        expected = model(x).feats
        seconds = best(1, lambda: mx.eval(model(x).feats))[0]
    got = model(x).feats.astype(mx.float32)
    worst = float(mx.max(mx.abs(got - expected.astype(mx.float32))))
    largest = float(mx.max(mx.abs(got)))
    limit = 1e-4 if x.dtype == mx.float32 else 0.1
    if not worst <= limit * max(1.0, largest):
        raise ValueError(f"inference differs from plain MLX operations by {worst}")
    return seconds


def _bench_threads(
    repeat: int,
    model: models.MinkUNet,
    x: SparseTensor,
    flop: int,
    gemm: float,
    plain: float | None,
    threads: int,
) -> None:
    def line(
        what: str,
        work: Callable[[], object],
        flop: int | None = None,
        ratio: float | None = None,
    ) -> None:
        cpu, wall = best(repeat, work)
        rate = f"{flop / cpu * 1e-9:17.1f} {flop / cpu * 1e-9 / gemm:8.2f}" if flop else f"{'':26}"
        times = f"{ratio / cpu:12.1f}" if ratio else ""
        print(
            f"{what:28} {threads:7} {wall * 1e3:9.1f} {cpu * 1e3:9.1f} {rate} {times}", flush=True
        )

    def training() -> None:
        step = mlx.nn.value_and_grad(model, lambda m: mx.mean(m(x).feats.astype(mx.float32) ** 2))
        model.train()
        mx.eval(step(model))
        model.eval()

    line("plan from coordinates", lambda: model.plan(SparseTensor(x.coords, x.feats)))
    line("inference, warm plan", lambda: mx.eval(model(x).feats), flop, plain)
    with _layers_as(lambda call: call.y.feats):
        line("its convolutions alone", lambda: mx.eval(model(x).feats), flop)
    line("forward and backward", training, 3 * flop)


def _time_layers(
    model: models.MinkUNet, x: SparseTensor, repeat: int, threads: int
) -> list[tuple[float, ...]]:
    """One tuple per layer: stride, kernel, C_in, C_out, rows, edges, two CPU times and a gain.

    The times in seconds are those of the convolution, and of norm, residual and ReLU, with one
    thread. The gain is the elapsed time of the convolution over that with `threads` threads.
    """
    lines: list[tuple[float, ...]] = []

    def run(call: LayerCall) -> mx.array:
        x, y = call.x, call.y
        mx.eval(x.feats, y.feats)
        set_thread_count(threads)
        shared = best(repeat, lambda: mx.eval(call.conv().feats))[1]
        set_thread_count(1)
        conv, alone = best(repeat, lambda: mx.eval(call.conv().feats))
        after = best(repeat, lambda: mx.eval(call.after().feats))[0]
        sizes = (x.channels, y.channels, y.active_count, call.edges())
        kernel = call.layer.conv.spec.size[0]
        lines.append((y.stride[0], kernel, *sizes, conv, after, alone / shared))
        return call.after().feats

    with _layers_as(run):
        model(x)
    return lines


def _print_layers(lines: list[tuple[float, ...]], gemm: float, threads: int) -> None:
    print(
        f"\n{'stride':>6} {'kernel':>6} {'C_in':>5} {'C_out':>5} {'rows':>7} {'edges':>8} "
        f"{'GFLOP':>7} {'CPU ms':>8} {'/ dense':>8} {'norm ms':>8} {f'x {threads} threads':>11}"
    )
    for stride, size, c_in, c_out, rows, edges, conv, after, gain in lines:
        flop = 2 * edges * c_in * c_out
        print(
            f"{stride:6} {size:6} {c_in:5} {c_out:5} {rows:7} {edges:8} {flop * 1e-9:7.2f} "
            f"{conv * 1e3:8.2f} {flop / conv * 1e-9 / gemm:8.2f} {after * 1e3:8.2f} {gain:11.2f}"
        )
    print(
        f"convolutions {sum(v[6] for v in lines) * 1e3:.0f} ms, "
        f"norm and ReLU {sum(v[7] for v in lines) * 1e3:.0f} ms"
    )
