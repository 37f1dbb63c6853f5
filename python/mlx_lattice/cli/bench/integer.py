"""`bench integer`: a whole MinkUNet in exact integers beside the same network in float32.

Weights are random: the time does not depend on them. Relations exist before the clock starts.
"""

from __future__ import annotations

import argparse

import mlx.core as mx
import numpy as np

from ... import SparseTensor, backend_info, models
from ...core import set_thread_count
from ...models._integer_ranges import observe
from ..options import Commands, check_positive
from .measure import best, sweep_coords, threads_restored


def add_topics(topics: Commands) -> None:
    parser = topics.add_parser(
        "integer", help="MinkUNet in exact integers beside float32: time and memory"
    )
    add = parser.add_argument
    add("--depth", type=int, default=18, help="14, 18, 34, 50 or 101")
    add("--width", type=int, default=32, help="channels of the stem")
    add("--classes", type=int, default=20)
    scenes = "sweep: voxels of 0.1 m of a LiDAR; room: surfaces of two rooms in voxels of 0.04 m"
    add("--scene", choices=["sweep", "room"], default="sweep", help=scenes)
    add("--threads", type=int, nargs="+", default=[1], metavar="N")
    add("--repeat", type=int, default=3, help="the best of so many runs counts")
    parser.set_defaults(run=bench_integer)


def room_coords() -> mx.array:
    """Voxels (N, 4) of floors, walls and furniture of two rooms, in random order."""
    random = np.random.default_rng(7)
    cells = []

    def box(low: np.ndarray, size: np.ndarray, sides: tuple[int, ...] = (0, 1, 2)) -> None:
        for axis in sides:
            for end in (0, 1):
                count = int(np.prod(np.delete(size, axis)) * 4000)
                points = low + random.uniform(size=(count, 3)) * size
                points[:, axis] = low[axis] + end * size[axis]
                cells.append(np.floor((points + random.normal(0, 0.01, points.shape)) / 0.04))

    for room in (0.0, 4.9):
        box(np.array([room, 0.0, 0.0]), np.array([4.5, 3.4, 2.5]))
        for _ in range(9):
            size = random.uniform([0.5, 0.4, 0.4], [1.8, 0.9, 1.4])
            box(np.append([room, 0.0] + random.uniform(size=2) * ([4.5, 3.4] - size[:2]), 0), size)
    found = np.unique(np.concatenate(cells).astype(np.int32), axis=0)
    random.shuffle(found)
    return mx.array(np.concatenate([np.zeros((len(found), 1), np.int32), found], 1))


def bench_integer(arguments: argparse.Namespace) -> None:
    check_positive(arguments, "depth", "width", "classes", "threads", "repeat")
    coords = sweep_coords(0.1) if arguments.scene == "sweep" else room_coords()
    mx.random.seed(0)
    x = SparseTensor(coords, mx.random.normal((coords.shape[0], 4)))
    floats = models.MinkUNet(4, arguments.classes, arguments.depth, arguments.width)
    floats.eval()
    integers = models.quantize(floats, [x])
    kept: dict[str, mx.array] = {}
    observe(floats, [x], values=kept)
    info = backend_info()
    print(f"{coords.shape[0]:,} voxels ({arguments.scene}), {info['simd']}; milliseconds")
    print(f"{'threads':>7} {'float32':>9} {'integers':>9} {'times':>6}")
    with threads_restored():
        for threads in arguments.threads:
            set_thread_count(threads)
            both = [_seconds(net, x, arguments.repeat) for net in (floats, integers)]
            one, two = (1e3 * t for t in both)
            print(f"{threads:7} {one:9.1f} {two:9.1f} {one / two:6.2f}")
    before = sum(a.nbytes for a in kept.values())
    after = sum(_bytes(integers, name, a) for name, a in kept.items())
    one, two = before / 2**20, after / 2**20
    print(f"activations {one:.1f} MiB in float32, {two:.1f} in integers: {two / one:.2f} of it")


def _seconds(net: models.Model, x: SparseTensor, repeat: int) -> float:
    return best(repeat, lambda: mx.eval(net(x).feats), quiet=True)[1]


def _bytes(net: models.IntegerNetwork, name: str, floats: mx.array) -> int:
    form = net.integer_layers()[name]._form["output"]
    return floats.size * {"uint8": 1, "int8": 1, "int16": 2, "float32": 4}[form]
