"""`bench train`: one training step of the demo's MinkUNet, part by part, against dense products.

The relations are built before. need = FLOP of all convolutions (forward, input gradient, weight
gradient; linear layers are 1x1x1) / rate of a large sgemm. Product and step are timed in turns.
Each part is timed alone, the best of some runs, in CPU seconds. "rest" is the step less the sum of
the parts: concatenation, sums of gradients, loss, optimizer.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import TypeAlias

import mlx.core as mx
import mlx.nn

from ... import core, explain, io, models, nn
from ...core import set_thread_count, thread_count
from ...samples import streets
from ...training import Scan, Trainer, VoxelPipeline, adamw, segmentation_loss
from ...training.progress import progress
from ...training.recipes import load_recipe
from ..networks import RECIPES
from ..options import Commands, check_positive
from .measure import best, gemm_rate, threads_restored

Timed: TypeAlias = nn.SubmConv3d | nn.Conv3d | nn.ConvTranspose3d | nn.Linear | nn.BatchNorm
Call: TypeAlias = tuple[Timed, tuple[core.SparseTensor, ...]]  # a module and its inputs

_TIMED: dict[type[Timed], str] = {
    nn.SubmConv3d: "convolution",
    nn.Conv3d: "convolution",
    nn.ConvTranspose3d: "convolution",
    nn.Linear: "convolution",
    nn.BatchNorm: "norm",
}

NORM_BACK = "norm input gradient"


def add_topics(topics: Commands) -> None:
    train = topics.add_parser(
        "train",
        help="one training step of the demo's network, part by part, against dense products",
    )
    train.add_argument("--voxel", type=float, default=0.1, help="voxel size in meters")
    train.add_argument("--width", type=int, help="of the network; default: the demo's")
    train.add_argument(
        "--threads", type=int, nargs="+", default=sorted({1, thread_count()}), metavar="N"
    )
    train.add_argument("--repeat", type=int, default=5, help="the best of so many runs counts")
    train.set_defaults(run=bench_train)


def bench_train(arguments: argparse.Namespace) -> None:
    check_positive(arguments, "threads", "repeat", "voxel")
    points, labels = streets.street(2)
    pipeline = VoxelPipeline(arguments.voxel, tuple(enumerate(streets.CLASSES)))
    scan = pipeline.scan(io.PointCloud(points, {"label": labels}))
    mx.random.seed(0)
    demo = load_recipe(RECIPES["minkunet"])
    sizes = dict(demo["network"]["options"])
    if arguments.width:
        sizes["width"] = arguments.width
    model = models.MinkUNet(pipeline.channels, len(pipeline.classes), **sizes)
    loss = segmentation_loss()
    trainer = Trainer(model, adamw(demo["train"]["rate"], 1000), loss, quiet=True)
    decisions = explain(mlx.nn.value_and_grad(model, lambda: loss(model, scan))).decisions
    flop = sum(d.flop for d in decisions if d.operation in ("conv", "outer", "linear"))
    trainer.step([scan])  # builds the relations
    calls = _calls(model, scan.tensor)
    print(f"MinkUNet {sizes}, {len(scan.tensor.coords):,} voxels, {flop * 1e-9:.1f} GFLOP per step")
    with threads_restored():
        for threads in arguments.threads:
            set_thread_count(threads)
            cpu = _time_step(trainer, scan, flop, threads, arguments.repeat)
            _print_parts(_time_parts(calls, arguments.repeat), cpu)


def _time_step(trainer: Trainer, scan: Scan, flop: float, threads: int, repeat: int) -> float:
    """Prints the times of a step beside a dense product, and returns its CPU seconds."""
    rounds = [(gemm_rate(1), *best(1, lambda: trainer.step([scan]))) for _ in range(repeat)]
    gemm = max(r[0] for r in rounds)
    cpu, wall = min(r[1] for r in rounds), min(r[2] for r in rounds)
    need = flop * 1e-9 / gemm
    print(
        f"\n{threads} threads: sgemm {gemm:.1f} GFLOP/s per core, "
        f"the convolutions need {need * 1e3:.0f} ms; the step takes "
        f"{cpu * 1e3:.0f} ms of CPU time, {cpu / need:.2f} times that "
        f"({wall * 1e3:.0f} ms elapsed)"
    )
    return cpu


def _time_parts(calls: list[Call], repeat: int) -> dict[str, float]:
    """CPU seconds by part of a step."""
    parts: dict[str, float] = {}
    for module, inputs in progress(calls, "measuring", unit="layers"):
        alone = {name: best(repeat, work, quiet=True)[0] for name, work in _works(module, inputs)}
        if NORM_BACK in alone:
            # The gradient needs the results of the forward pass, which exist already during a step.
            alone[NORM_BACK] = max(alone[NORM_BACK] - alone["norm forward"], 0)
        for name, seconds in alone.items():
            parts[name] = parts.get(name, 0) + seconds
    return parts


def _print_parts(parts: dict[str, float], cpu: float) -> None:
    for name, seconds in {**parts, "rest": cpu - sum(parts.values())}.items():
        print(f"  {name:28} {seconds * 1e3:8.1f} ms  {100 * seconds / cpu:5.1f} %")


def _calls(model: models.MinkUNet, x: core.SparseTensor) -> list[Call]:
    """(module, inputs) of every convolution, linear layer and norm, in the order of their calls."""
    found: list[Call] = []
    originals: dict[type[Timed], Callable[..., core.SparseTensor]] = {
        kind: kind.__call__ for kind in _TIMED
    }

    def recording(kind: type[Timed]) -> Callable[..., core.SparseTensor]:
        def call(
            self: Timed, *inputs: core.SparseTensor, **options: core.SparseTensor
        ) -> core.SparseTensor:
            found.append((self, (*inputs, *options.values())))
            return originals[kind](self, *inputs, **options)

        return call

    try:
        for kind in _TIMED:
            kind.__call__ = recording(kind)  # type: ignore[method-assign]
        model.train()
        mx.eval(model(x).feats)
    finally:
        for kind, original in originals.items():
            kind.__call__ = original  # type: ignore[method-assign]
    return found


def _works(
    module: Timed, inputs: tuple[core.SparseTensor, ...]
) -> Iterator[tuple[str, Callable[[], object]]]:
    """(part, function) that runs one module: forward and its gradients, each alone."""
    x, *others = inputs
    call: Callable[..., core.SparseTensor] = module
    mx.eval(x.feats, [o.feats for o in others if isinstance(o, core.SparseTensor)])
    y = call(*inputs).feats
    g = mx.random.normal(y.shape)
    mx.eval(g)

    def forward(feats: mx.array) -> list[mx.array]:
        return [call(x.replace(feats=feats), *others).feats]

    def weighted(weight: mx.array) -> list[mx.array]:
        module.weight = weight
        return [call(*inputs).feats]

    def back(
        function: Callable[[mx.array], list[mx.array]], value: mx.array
    ) -> Callable[[], object]:
        return lambda: mx.eval(mx.vjp(function, [value], [g])[1])

    name = _TIMED[type(module)]
    yield f"{name} forward", lambda: mx.eval(forward(x.feats))
    yield f"{name} input gradient", back(forward, x.feats)
    if name == "convolution":
        kept = module.weight
        yield f"{name} weight gradient", back(weighted, kept)
        module.weight = kept
