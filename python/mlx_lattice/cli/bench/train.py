"""`bench train`: one training step of the demo's MinkUNet, part by part, against dense products.

The relations are built before. need = FLOP of all convolutions (forward, input gradient, weight
gradient; linear layers are 1x1x1) / rate of a large sgemm. Product and step are timed in turns.
Each part is timed alone, the best of some runs, in CPU seconds. "rest" is the step less the sum of
the parts: concatenation, sums of gradients, loss, optimizer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn

from ... import core, explain, models, nn
from ...core import set_thread_count, thread_count

if TYPE_CHECKING:
    import argparse

    from mlx.nn import Module

_TIMED = {
    nn.SubmConv3d: "convolution",
    nn.Conv3d: "convolution",
    nn.ConvTranspose3d: "convolution",
    nn.Linear: "convolution",
    nn.BatchNorm: "norm",
}

NORM_BACK = "norm input gradient"


def add_topics(topics: argparse._SubParsersAction[Any]) -> None:
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
    from .measure import best, gemm_rate

    if min(arguments.threads) < 1 or arguments.repeat < 1 or not arguments.voxel > 0:
        raise ValueError("threads, repeat and voxel must be positive")
    try:
        from ... import io
        from ...training import scans
        from ...training.recipes import load_recipe
        from ...training.trainer import Trainer, adamw
        from .. import demo_scene
        from ..demo import RECIPES
    except ImportError as error:
        raise ValueError(str(error)) from None
    mx.set_cache_limit(4 << 30)
    points, labels = demo_scene.street(2)
    recipe = scans.VoxelPipeline(arguments.voxel, tuple(enumerate(demo_scene.CLASSES)))
    scan = recipe.scan(io.PointCloud(points, {"label": labels}))
    mx.random.seed(0)
    demo = load_recipe(RECIPES["minkunet"])
    sizes = {
        **demo["network"]["options"],
        **({"width": arguments.width} if arguments.width else {}),
    }
    model = models.MinkUNet(recipe.channels, len(recipe.classes), **sizes)
    loss = scans.segmentation_loss()
    trainer = Trainer(model, adamw(demo["train"]["rate"], 1000), loss, quiet=True)
    decisions = explain(mlx.nn.value_and_grad(model, lambda: loss(model, scan))).decisions
    flop = sum(d.flop for d in decisions if d.operation in ("conv", "outer", "linear"))
    trainer.step([scan])  # builds the relations
    calls = _calls(model, scan.tensor)
    print(f"MinkUNet {sizes}, {len(scan.tensor.coords):,} voxels, {flop * 1e-9:.1f} GFLOP per step")
    before = thread_count()
    try:
        for threads in arguments.threads:
            set_thread_count(threads)
            rounds = [
                (gemm_rate(1), *best(1, lambda: trainer.step([scan])))
                for _ in range(arguments.repeat)
            ]
            gemm, cpu, wall = (
                max(r[0] for r in rounds),
                min(r[1] for r in rounds),
                min(r[2] for r in rounds),
            )
            need = flop * 1e-9 / gemm
            print(
                f"\n{threads} threads: sgemm {gemm:.1f} GFLOP/s per core, "
                f"the convolutions need {need * 1e3:.0f} ms; the step takes "
                f"{cpu * 1e3:.0f} ms of CPU time, {cpu / need:.2f} times that "
                f"({wall * 1e3:.0f} ms elapsed)"
            )
            parts: dict[str, float] = {}
            for module, inputs in calls:
                alone = {
                    name: best(arguments.repeat, work)[0] for name, work in _works(module, inputs)
                }
                if (
                    NORM_BACK in alone
                ):  # its gradient needs what the forward pass makes, which a step has already
                    alone[NORM_BACK] = max(alone[NORM_BACK] - alone["norm forward"], 0)
                for name, seconds in alone.items():
                    parts[name] = parts.get(name, 0) + seconds
            parts["rest"] = cpu - sum(parts.values())
            for name, seconds in parts.items():
                print(f"  {name:28} {seconds * 1e3:8.1f} ms  {100 * seconds / cpu:5.1f} %")
    finally:
        set_thread_count(before)


def _calls(model: Module, x: Any) -> Any:
    """(module, inputs) of every convolution, linear layer and norm, in the order of their calls."""
    found, originals = [], {kind: kind.__call__ for kind in _TIMED}

    def recording(kind: Any) -> Any:
        def call(self: Any, *inputs: Any, **options: Any) -> Any:
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


def _works(module: Module, inputs: Any) -> Iterator[Any]:
    """(part, function) that runs one module: forward and its gradients, each alone."""
    x, *others = inputs
    mx.eval(x.feats, [o.feats for o in others if isinstance(o, core.SparseTensor)])
    y = module(*inputs).feats
    g = mx.random.normal(y.shape)
    mx.eval(g)

    def forward(feats: Any) -> Any:
        return [module(x.replace(feats=feats), *others).feats]

    def weighted(weight: Any) -> Any:
        module.weight = weight
        return [module(*inputs).feats]

    def back(function: Callable[..., Any], value: Any) -> Any:
        return lambda: mx.eval(mx.vjp(function, [value], [g])[1])

    name = _TIMED[type(module)]
    yield f"{name} forward", lambda: mx.eval(forward(x.feats))
    yield f"{name} input gradient", back(forward, x.feats)
    if name == "convolution":
        kept = module.weight
        yield f"{name} weight gradient", back(weighted, kept)
        module.weight = kept
