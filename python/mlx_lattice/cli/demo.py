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
from typing import Any

import mlx.core as mx

from .. import backend_info, core, explain
from ..training.progress import progress
from .device import add_device
from .networks import NETWORKS

RECIPES = {"minkunet": "streets-minkunet14", "ptv3": "streets-ptv3"}


def add_command(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser(
        "demo",
        help="trains a network on synthetic street scans and shows what it predicts",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Makes street scans with labels, trains a small network for some minutes,\n"
        "prints the mean IoU on unseen scans, and writes a page with prediction beside truth.",
        epilog="examples:\n"
        "  mlx-lattice demo\n"
        "  mlx-lattice demo --quick --output quick.html   takes seconds, to see that all works\n"
        "  mlx-lattice demo --epochs 20 --scenes 40       better, slower",
    )
    parser.add_argument("--scenes", type=int, metavar="N", help="scans to learn from; default 24")
    parser.add_argument("--epochs", type=int, metavar="N", help="times each is seen; default 12")
    parser.add_argument(
        "--voxel", type=float, default=0.2, metavar="METERS", help="default %(default)s"
    )
    parser.add_argument(
        "--model",
        choices=sorted(NETWORKS),
        default="minkunet",
        help="kind of the network; default %(default)s",
    )
    parser.add_argument("--seed", type=int, default=1, help="which streets; default %(default)s")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="two scans of coarse voxels and three epochs; no good accuracy",
    )
    parser.add_argument(
        "--output",
        default="demo.html",
        metavar="HTML",
        help="page to write, or a .png; default %(default)s",
    )
    parser.add_argument(
        "--open", action="store_true", help="opens the page in a browser where there is a display"
    )
    add_device(parser)
    parser.set_defaults(run=run)


def show(path: str, in_browser: bool) -> None:
    """Prints the address of a file; opens the file when asked and when there is a display."""
    address = pathlib.Path(path).resolve().as_uri()
    print(f"page: {address}", flush=True)
    display = (
        sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
    if in_browser and display:
        webbrowser.open(address)


def run(arguments: argparse.Namespace) -> None:
    scenes, epochs, unseen, voxel = (
        arguments.scenes or 24,
        arguments.epochs or 12,
        6,
        arguments.voxel,
    )
    if arguments.quick:
        scenes, epochs, unseen = arguments.scenes or 2, arguments.epochs or 3, 1
        voxel = max(voxel, 0.5) if voxel > 0 else voxel
    for name, value in (
        ("--scenes", scenes),
        ("--epochs", epochs),
        ("--voxel", voxel),
        ("--seed", arguments.seed + 1),
    ):
        if not 0 < value < float("inf"):
            raise ValueError(
                f"{name}: found {value if name != '--seed' else value - 1}, "
                "expected a positive number"
            )
    import numpy as np

    from .. import viewer
    from ..training import scans
    from ..training.distributed import Ranks
    from ..training.recipes import load_recipe
    from . import demo_scene
    from .recipe import fit

    if not arguments.output.lower().endswith((".html", ".htm", ".png")):
        raise ValueError(
            f"--output: found {arguments.output}, expected a name that ends in .html or .png"
        )
    mx.set_cache_limit(
        4 << 30
    )  # MLX keeps 32 MB by default; larger arrays are then new memory in every step
    info = backend_info()
    print(f"{info['simd']}, {core.thread_count()} threads, MLX {info['mlx']['running']}")

    recipe = load_recipe(RECIPES.get(arguments.model, RECIPES["minkunet"]))
    if arguments.model not in RECIPES:
        network, sizes = NETWORKS[arguments.model]
        recipe = recipe.changed(network={"name": network.__name__, "options": sizes})
    recipe = recipe.changed(voxel=voxel, epochs=epochs, seed=arguments.seed)
    seeds = [arguments.seed * 1000 + i for i in range(scenes + unseen)]
    train = demo_scene.Streets(progress(seeds[:scenes], "scanning streets"))
    test = demo_scene.Streets(seeds[scenes:])
    begin = time.perf_counter()
    model, pipeline, trainer = fit(recipe, train, None, None, Ranks())
    if trainer.average is not None:
        model.update(trainer.average.values)
    first, last = trainer.history[0]["loss"], trainer.history[-1]["loss"]
    print(
        f"trained in {time.perf_counter() - begin:.0f} s; "
        f"the loss fell from {first:.3f} to {last:.3f}\n"
    )

    print(f"{unseen} streets that were never seen, voxels of {voxel:g} m:")
    made = [pipeline.scan(test[i], test.name(i)) for i in range(unseen)]
    print(scans.evaluate(model, made, pipeline.names))
    scan = pipeline.scan(test[0])  # voxels anew: no relation is there yet
    if arguments.model == "minkunet":
        layer = model.decoders[-1][0].layers[0].conv
        feats = mx.zeros((len(scan.tensor.coords), layer.weight.shape[-1]))
        print("\nwhy the first convolution of the last level runs as it does:")
        print(explain(layer, scan.tensor.replace(feats=feats)))
    times = []
    for _ in range(4):
        begin = time.perf_counter()
        classes = scans.predict(model, scan)
        times.append(time.perf_counter() - begin)
    print(
        f"\none scan of {len(classes):,} voxels: {times[0] * 1e3:.0f} ms, "
        f"{min(times) * 1e3:.0f} ms once its relations exist"
    )

    cloud, guess = test[0], pipeline.point_labels(scan, classes)
    viewer.write(
        arguments.output,
        viewer.compare(cloud.points, cloud.columns["label"], guess.astype(np.int32)),
        classes=pipeline.names,
        title="A street that the network has not seen before",
        **({} if arguments.output.lower().endswith(".png") else {"unit": "m"}),
    )
    show(arguments.output, arguments.open)
    print("next: mlx-lattice scans yard, then train a network on your own files")
