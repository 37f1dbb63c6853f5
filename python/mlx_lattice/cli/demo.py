"""mlx-lattice demo: a network learns to label street scans that it has not seen before.

1. One turn of a 64-beam LiDAR scans streets with boxes, trees, cars, poles and people (ray casting
   in NumPy).
2. A MinkUNet learns from some streets by the recipe streets-minkunet14, as `train --recipe` does,
   or with --model ptv3 a transformer by streets-ptv3. The other streets give the intersection over
   union per class.
3. The demo prints explain() of one convolution and the time of a scan. It writes an offline page
   that shows prediction beside truth.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import time
import webbrowser
from collections.abc import Iterable
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np

from .. import backend_info, core, explain, models, viewer
from ..datasets import Dataset, LabelTable
from ..io import PointCloud
from ..samples import streets
from ..training import Ranks, VoxelPipeline, evaluate_voxels, predict_voxels
from ..training.progress import progress
from ..training.recipes import Recipe, load_recipe
from . import training_run
from .networks import NETWORKS, RECIPES
from .options import Commands, add_device, add_parser, check_positive

if TYPE_CHECKING:
    from mlx.nn import Module

    from ..training import Scan

PAGES = (".html", ".htm", ".png")


class Streets(Dataset):
    """Streets of the given seeds, in memory."""

    split = "train"

    def __init__(self, seeds: Iterable[int]) -> None:
        ids = range(len(streets.CLASSES))
        self.table = LabelTable(streets.CLASSES, {i: i for i in ids}, tuple(ids))
        self._names, self._clouds = [], []
        for seed in seeds:
            points, labels = streets.street(seed)
            self._names.append(f"street {seed}")
            self._clouds.append(PointCloud(points, {"label": labels}))

    def _read(self, i: int) -> PointCloud:
        return self._clouds[i]


def add_command(commands: Commands) -> None:
    parser = add_parser(
        commands,
        "demo",
        "trains a network on synthetic street scans and shows what it predicts",
        "Makes street scans with labels, trains a small network for some minutes,\n"
        "prints the mean IoU on unseen scans, and writes a page with prediction beside truth.",
        "examples:\n"
        "  mlx-lattice demo\n"
        "  mlx-lattice demo --quick --output quick.html   takes seconds, to see that all works\n"
        "  mlx-lattice demo --epochs 20 --scenes 40       better, slower",
    )
    add = parser.add_argument
    add("--scenes", type=int, metavar="N", help="scans to learn from; default 24")
    add("--epochs", type=int, metavar="N", help="times each is seen; default 12")
    add("--voxel", type=float, default=0.2, metavar="METERS", help="default %(default)s")
    kind = "kind of the network; default %(default)s"
    add("--model", choices=sorted(NETWORKS), default="minkunet", help=kind)
    add("--seed", type=int, default=1, help="which streets; default %(default)s")
    quick = "two scans of coarse voxels and three epochs; no good accuracy"
    add("--quick", action="store_true", help=quick)
    page = "page to write, or a .png; default %(default)s"
    add("--output", default="demo.html", metavar="HTML", help=page)
    shown = "opens the page in a browser where there is a display"
    add("--open", action="store_true", help=shown)
    add_device(parser)
    parser.set_defaults(run=_demo)


def _demo(arguments: argparse.Namespace) -> None:
    unseen = _complete(arguments)
    info = backend_info()
    print(f"{info['simd']}, {core.thread_count()} threads, MLX {info['mlx']['running']}")
    seeds = [arguments.seed * 1000 + i for i in range(arguments.scenes + unseen)]
    train = Streets(progress(seeds[: arguments.scenes], "scanning streets"))
    test = Streets(seeds[arguments.scenes :])
    model, pipeline = _learn(_recipe(arguments), train)

    print(f"{unseen} streets that were never seen, voxels of {arguments.voxel:g} m:")
    made = [pipeline.scan(test[i], test.name(i)) for i in range(unseen)]
    print(evaluate_voxels(model, made, pipeline.names))
    scan = pipeline.scan(test[0])  # voxels anew: no relation is there yet
    if isinstance(model, models.MinkUNet):
        _explain(model, scan)
    classes = _time(model, scan)
    cloud, guess = test[0], pipeline.point_labels(scan, classes).astype(np.int32)
    viewer.write(
        arguments.output,
        viewer.compare(cloud.points, cloud.columns["label"], guess),
        classes=pipeline.names,
        title="A street that the network has not seen before",
        **({} if arguments.output.lower().endswith(".png") else {"unit": "m"}),
    )
    _show(arguments.output, arguments.open)
    print("next: mlx-lattice scans yard, then train a network on your own files")


def _complete(arguments: argparse.Namespace) -> int:
    """Sets what depends on --quick, checks the numbers; returns the number of unseen streets."""
    quick = arguments.quick
    arguments.scenes = arguments.scenes or (2 if quick else 24)
    arguments.epochs = arguments.epochs or (3 if quick else 12)
    check_positive(arguments, "scenes", "epochs", "voxel")
    if arguments.seed < 0:
        raise ValueError(f"--seed: found {arguments.seed}, expected 0 or more")
    if quick:
        arguments.voxel = max(arguments.voxel, 0.5)
    if not arguments.output.lower().endswith(PAGES):
        raise ValueError(
            f"--output: found {arguments.output}, expected a name that ends in .html or .png"
        )
    return 1 if quick else 6


def _recipe(arguments: argparse.Namespace) -> Recipe:
    recipe = load_recipe(RECIPES.get(arguments.model, RECIPES["minkunet"]))
    if arguments.model not in RECIPES:
        network, sizes = NETWORKS[arguments.model]
        recipe = recipe.changed(network={"name": network.__name__, "options": sizes})
    return recipe.changed(voxel=arguments.voxel, epochs=arguments.epochs, seed=arguments.seed)


def _learn(recipe: Recipe, train: Dataset) -> tuple[Module, VoxelPipeline]:
    """The network after its training, with averaged weights, and its pipeline."""
    begin = time.perf_counter()
    run = training_run.run_by_recipe(recipe, train, None, Ranks())
    run.fit(recipe["train"]["epochs"])
    trainer = run.trainer
    if trainer.average is not None:
        trainer.model.update(trainer.average.values)
    first, last = trainer.history[0]["loss"], trainer.history[-1]["loss"]
    print(
        f"trained in {time.perf_counter() - begin:.0f} s; "
        f"the loss fell from {first:.3f} to {last:.3f}\n"
    )
    return trainer.model, run.pipeline


def _explain(model: models.MinkUNet, scan: Scan) -> None:
    layer = model.decoders[-1][0].layers[0].conv
    feats = mx.zeros((len(scan.tensor.coords), layer.weight.shape[-1]))
    print("\nwhy the first convolution of the last level runs as it does:")
    print(explain(layer, scan.tensor.replace(feats=feats)))


def _time(model: Module, scan: Scan) -> np.ndarray:
    """Prints the time of a prediction, and returns it."""
    times = []
    for _ in range(4):
        begin = time.perf_counter()
        classes = predict_voxels(model, scan)
        times.append(time.perf_counter() - begin)
    print(
        f"\none scan of {len(classes):,} voxels: {times[0] * 1e3:.0f} ms, "
        f"{min(times) * 1e3:.0f} ms once its relations exist"
    )
    return classes


def _show(path: str, in_browser: bool) -> None:
    """Prints the address of a file; opens the file when asked and when there is a display."""
    address = pathlib.Path(path).resolve().as_uri()
    print(f"page: {address}", flush=True)
    display = (
        sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
    if in_browser and display:
        webbrowser.open(address)
