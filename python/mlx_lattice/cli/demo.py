"""mlx-lattice demo: a network learns to label street scans that it has not seen before.

1. One turn of a 64-beam LiDAR scans streets with boxes, trees, cars, poles and people (ray casting
   in NumPy).
2. A MinkUNet learns from some streets. The others give the intersection over union per class.
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

from .. import backend_info, core, explain, models
from ..training.progress import progress
from .device import add_device

SIZES = {"depth": 14, "width": 16, "stem_kernel_size": 3}
RATE = 4e-3


def add_command(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser(
        "demo",
        help="trains a network on synthetic street scans and shows what it predicts",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Makes street scans with labels, trains a small MinkUNet for some minutes,\n"
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

    from .. import io, viewer
    from ..training import scans
    from ..training.trainer import Trainer, adamw
    from . import demo_scene

    if not arguments.output.lower().endswith((".html", ".htm", ".png")):
        raise ValueError(
            f"--output: found {arguments.output}, expected a name that ends in .html or .png"
        )
    mx.set_cache_limit(
        4 << 30
    )  # MLX keeps 32 MB by default; larger arrays are then new memory in every step
    info = backend_info()
    print(f"{info['simd']}, {core.thread_count()} threads, MLX {info['mlx']['running']}")

    recipe = scans.VoxelPipeline(voxel, tuple(enumerate(demo_scene.CLASSES)))
    seeds = [arguments.seed * 1000 + i for i in range(scenes + unseen)]
    clouds = []
    for seed in progress(seeds, "scanning streets"):
        points, labels = demo_scene.street(seed)
        clouds.append(io.PointCloud(points, {"label": labels}))
    made = [recipe.scan(cloud, f"street {seed}") for seed, cloud in zip(seeds, clouds)]
    train, test = made[:scenes], made[scenes:]
    rows = [len(s.tensor.coords) for s in made]
    print(
        f"{scenes} streets to learn from, {unseen} unseen; voxels of {voxel:g} m, "
        f"{min(rows):,} to {max(rows):,} per scan"
    )

    mx.random.seed(arguments.seed)
    model = models.MinkUNet(recipe.channels, len(recipe.classes), **SIZES)
    loss = scans.segmentation_loss(scans.class_weights(train, len(recipe.classes)))
    trainer = Trainer(model, adamw(RATE, scenes * epochs), loss, seed=arguments.seed)
    begin = time.perf_counter()
    history = trainer.fit(
        train,
        epochs,
        on_epoch=lambda row: print(
            f"epoch {row['epoch']:3}  loss {row['loss']:.4f}  {row['seconds']:.1f} s", flush=True
        ),
    )
    print(
        f"trained in {time.perf_counter() - begin:.0f} s; "
        f"the loss fell from {history[0]['loss']:.3f} to {history[-1]['loss']:.3f}\n"
    )

    print("streets that were never seen:")
    print(scans.evaluate(model, test, recipe.names))
    scan, layer = (
        recipe.scan(clouds[scenes]),
        model.decoders[-1][0].layers[0].conv,
    )  # voxels anew: no relation is there yet
    print("\nwhy the first convolution of the last level runs as it does:")
    print(
        explain(
            layer,
            scan.tensor.replace(feats=mx.zeros((len(scan.tensor.coords), layer.weight.shape[-1]))),
        )
    )
    times = []
    for _ in range(4):
        begin = time.perf_counter()
        classes = scans.predict(model, scan)
        times.append(time.perf_counter() - begin)
    print(
        f"\none scan of {len(classes):,} voxels: {times[0] * 1e3:.0f} ms, "
        f"{min(times) * 1e3:.0f} ms once its relations exist"
    )

    truth, guess = clouds[scenes].columns["label"], recipe.point_labels(scan, classes)
    viewer.write(
        arguments.output,
        viewer.compare(clouds[scenes].points, truth.astype(np.int32), guess.astype(np.int32)),
        classes=recipe.names,
        title="A street that the network has not seen before",
        **({} if arguments.output.lower().endswith(".png") else {"unit": "m"}),
    )
    show(arguments.output, arguments.open)
    print("next: mlx-lattice scans yard, then train a network on your own files")
