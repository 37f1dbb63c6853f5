"""`bench program`: a MinkUNet as a program beside the same network called from Python.

First memory over many frames of different sizes, while MLX keeps as much as in a C++ program. Then
frames of both sides take turns; the medians are compared. A frame is a tensor with new coordinates,
so that relations are not kept. Last, four threads with a session each.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx

from ... import Program, SparseTensor, models
from ...programs.export import same_bits
from ..options import Commands
from .measure import sweep_coords

CPP_CACHE = 32 << 20  # bytes that MLX keeps by default; the command line lets it keep 4 GiB


def add_topics(topics: Commands) -> None:
    topic = topics.add_parser("program", help="a MinkUNet as a program, beside Python")
    topic.add_argument("--depth", type=int, default=18, help="14, 18, 34, 50 or 101")
    topic.add_argument("--width", type=int, default=32, help="channels of the stem")
    topic.add_argument("--voxel", type=float, default=0.3, help="voxel size in meters")
    topic.add_argument("--repeat", type=int, default=9, help="frames of each side")
    topic.add_argument("--frames", type=int, default=100, help="frames of the test of memory")
    topic.set_defaults(run=bench_program)


def bench_program(arguments: argparse.Namespace) -> None:
    """Prints the table."""
    mx.random.seed(0)
    coords = sweep_coords(arguments.voxel)
    feats = mx.random.normal((coords.shape[0], 4))
    mx.eval(feats)
    net = models.MinkUNet(4, 20, depth=arguments.depth, width=arguments.width).eval()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.lattice.safetensors"
        net.export(path, example=SparseTensor(coords[:200], feats[:200]))
        begin = time.perf_counter()
        program = Program.load(path)
        print(f"load      {time.perf_counter() - begin:.3f} s, {path.stat().st_size / 1e6:.0f} MB")
    _memory(program, coords, feats, arguments.frames)
    print(f"frame     {coords.shape[0]:,} voxels")
    session = program.session()

    def by_python() -> None:
        mx.eval(net(SparseTensor(coords, feats)).feats)

    def by_program() -> None:
        session.run({"x": SparseTensor(coords, feats)})

    first = _seconds(by_program)
    python, frames = [], []
    by_python()
    for _ in range(arguments.repeat):
        python.append(_seconds(by_python))
        frames.append(_seconds(by_program))
    a, b = statistics.median(python), statistics.median(frames)
    print(f"python    {a * 1e3:.1f} ms")
    print(f"program   {b * 1e3:.1f} ms, {b / a:.3f} of Python; first frame {first * 1e3:.1f} ms")
    stats = session.stats
    print(f"          geometry {stats['geometry']:.1f} ms, features {stats['features']:.1f} ms")
    _threads(program, coords[:4000], feats[:4000])


def _seconds(work: Callable[[], None]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _memory(program: Program, coords: mx.array, feats: mx.array, frames: int) -> None:
    """The memory of the process after a tenth of the frames and after all, and the most."""
    kept = mx.set_cache_limit(CPP_CACHE)
    session, found = program.session(), []
    for i in range(frames):
        rows = 200 + (i * 7919) % 2000
        session.run({"x": SparseTensor(coords[:rows], feats[:rows])})
        found.append(_resident())
    mx.set_cache_limit(kept)
    if not found:
        return
    tenth = max(frames // 10, 1)
    print(f"memory    {found[tenth - 1]:.0f} MiB after {tenth} frames of different sizes,")
    print(f"          {found[-1]:.0f} MiB after {frames:,}, at most {max(found):.0f} MiB")


def _resident() -> float:
    """MiB that the process holds now; where the system does not tell, the most so far."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return pages * resource.getpagesize() / 2**20


def _threads(program: Program, coords: mx.array, feats: mx.array) -> None:
    mx.eval(coords, feats)
    expected = program(SparseTensor(coords, feats))
    found: list[bool] = []

    def work() -> None:
        made = program.session().run({"x": SparseTensor(coords, feats)})["output"]
        found.append(same_bits(made, expected))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(f"threads   4 sessions, equal bits: {'yes' if found == [True] * 4 else 'NO'}")
