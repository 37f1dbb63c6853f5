#!/usr/bin/env python3
"""Other libraries and ours in one run: parity first, then times in turns, all on one core.

    bench/peers/run.py                         everything; makes build/peers/venv on the first run
    bench/peers/run.py --tasks conv --channels 32 64 --repeat 5 --svg docs/figures/peers.svg

The environment holds torch, spconv, Open3D and pykdtree from PyPI, which are several gigabytes. So
no test runs this file. The script compiles nanoflann from the system's header (Debian:
libnanoflann-dev). A library that is not there, or does not load, has an empty column and a note.
Ours runs in the project's .venv. Every library is a process of its own; the processes take turns on
the same core, and the best CPU time of `--repeat` turns counts. "of sgemm" is the share of a 1024^3
product of NumPy in the same turns.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "peers"
PACKAGES = ["numpy", "torch", "spconv", "open3d", "pykdtree"]
CONVOLUTIONS = ["spconv", "torch_plain"]
SEARCHES = ["nanoflann", "pykdtree", "open3d"]


def make_environment(given: str | None) -> Path:
    """The Python that has the other libraries."""
    if given:
        return Path(given)
    python = WORK / "venv" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(WORK / "venv")], check=True)
        for package in PACKAGES:  # one by one: a package without a wheel must not stop the others
            subprocess.run([str(python), "-m", "pip", "install", "-q", package], check=False)
    return python


def compile_nanoflann() -> str:
    library = WORK / "libnanoflann.so"
    source = Path(__file__).with_name("nanoflann.cpp")
    command = ["g++", "-std=c++17", "-O3", "-march=native", "-shared", "-fPIC", str(source)]
    subprocess.run([*command, "-o", str(library)], check=False, stderr=subprocess.DEVNULL)
    return str(library)


class Library:
    """A worker process that is pinned to one core."""

    def __init__(self, name: str, python: Path, core: int, environment: dict[str, str]) -> None:
        self.name, self.why = name, ""
        self.process = subprocess.Popen(
            [str(python), str(Path(__file__).with_name("worker.py")), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )

    def run(self, task: str, data: Path, result: Path | None = None) -> float | None:
        assert self.process.stdin and self.process.stdout
        asked = {"task": task, "data": str(data), "result": str(result) if result else None}
        try:
            self.process.stdin.write(json.dumps(asked) + "\n")
            self.process.stdin.flush()
            answer: dict[str, Any] = json.loads(self.process.stdout.readline() or "{}")
        except BrokenPipeError:
            answer = {}
        self.why = answer.get("missing", "" if "seconds" in answer else "the process ended")
        return answer.get("seconds")

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


def room(seed: int = 0) -> Any:
    """Floors, walls and boxes of some rooms as 4 cm voxels, in no order."""
    import numpy as np

    random = np.random.default_rng(seed)
    sheets = []
    for _ in range(30):
        size = random.integers(40, 120, 2)
        sheet = np.stack(np.meshgrid(*map(np.arange, size), indexing="ij"), -1).reshape(-1, 2)
        axis, at = random.integers(3), random.integers(0, 240, 3)
        bump = (sheet.sum(1) // 24) % 2
        sheets.append(np.insert(sheet, axis, bump, axis=1) + at)
    cells = np.unique(np.concatenate(sheets).astype(np.int32), axis=0)
    random.shuffle(cells)
    return cells


def lidar() -> Any:
    import numpy as np
    from mlx_lattice.samples.streets import sweep

    cells = np.unique(np.floor(sweep(1) / 0.1).astype(np.int32), axis=0)
    np.random.default_rng(0).shuffle(cells)
    return cells


NET = {"net": "inference", "netstep": "step"}


def coarser() -> Any:
    """The same sweep with voxels of 0.17 m: 35,609 rows."""
    import numpy as np
    from mlx_lattice.samples.streets import sweep

    cells = np.unique(np.floor(sweep(1) / 0.17).astype(np.int32), axis=0)
    np.random.default_rng(0).shuffle(cells)
    return cells


def network(cells: Any, path: Path) -> tuple[Path, float]:
    """Parameters of a MinkUNet-18 with features for the cells, and the GFLOP of an inference."""
    import mlx.core as mx
    import mlx.utils
    import numpy as np
    from mlx_lattice import SparseTensor, models
    from mlx_lattice.cli.bench.model import _count

    mx.random.seed(0)
    random = np.random.default_rng(2)
    net = models.MinkUNet(4, 20, depth=18).eval()
    values = {f"p/{k}": np.array(v) for k, v in mlx.utils.tree_flatten(net.parameters())}
    coords = np.insert(cells, 0, 0, axis=1)
    feats = random.standard_normal((len(cells), 4), np.float32)
    np.savez(path, coords=coords, feats=feats, **values)
    return path, _count(net, SparseTensor(mx.array(coords), mx.array(feats))) * 1e-9


def edge_count(cells: Any) -> int:
    import numpy as np

    base = cells - cells.min(0) + 1
    width = base.max(0) + 2

    def keys(c: Any) -> Any:
        return (c[:, 0].astype(np.int64) * width[1] + c[:, 1]) * width[2] + c[:, 2]

    own = np.sort(keys(base))
    steps = np.stack(np.meshgrid(*[[-1, 0, 1]] * 3, indexing="ij"), -1).reshape(-1, 3)
    return int(sum(np.isin(keys(base + s), own, assume_unique=True).sum() for s in steps))


def differ(task: str, mine: Path, other: Path) -> float:
    """Largest difference relative to the largest value; for searches the share of other rows."""
    import numpy as np

    a, b = np.load(mine), np.load(other)
    if task == "knn":
        # Ties may come in another order: rows of one query are compared as sets.
        a, b = np.sort(a.reshape(b.shape), 1), np.sort(b.astype(a.dtype), 1)
        return float((a != b).any(1).mean())
    return float(np.abs(a - b).max() / np.abs(a).max())


def measure(
    libraries: dict[str, Library], names: list[str], task: str, data: Path, repeat: int
) -> dict[str, float]:
    """Best seconds of each library whose result agrees with ours."""
    results = {name: WORK / f"{name}.npy" for name in names}
    times: dict[str, float] = {}
    for name in names:
        if libraries[name].run(task, data, results[name]) is None:
            print(f"  {name}: {libraries[name].why}", flush=True)
            continue
        worst = differ(task, results["ours"], results[name]) if name != "ours" else 0.0
        if worst > {"knn": 0.01, "net": 1e-3, "netstep": 1e-2}.get(task, 1e-4):
            print(f"  {name}: results differ by {worst:.2g}, not timed", flush=True)
            continue
        times[name] = float("inf")
    for _ in range(repeat):
        for name in [*times, "sgemm"]:
            seconds = libraries[name].run(task, data)
            if seconds is not None:
                times[name] = min(times.get(name, float("inf")), seconds)
    return times


def chart(rows: list[tuple[str, dict[str, float]]], path: Path) -> None:
    """Bars: how many times as fast as the best other library ours is."""
    bars = [
        (title, min(v for n, v in times.items() if n not in ("ours", "sgemm")) / times["ours"])
        for title, times in rows
        if "ours" in times and len(set(times) - {"ours", "sgemm"}) > 0
    ]
    most = max([ratio for _, ratio in bars], default=1.0)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="720" height="{30 + 24 * len(bars)}" '
        'font-family="sans-serif" font-size="13">',
        '<text x="8" y="18">times as fast as the best other library, one core</text>',
    ]
    for i, (title, ratio) in enumerate(bars):
        y = 30 + 24 * i
        lines += [
            f'<text x="8" y="{y + 14}">{title}</text>',
            f'<rect x="300" y="{y}" width="{360 * ratio / most:.0f}" height="18" fill="#4477aa"/>',
            f'<text x="{306 + 360 * ratio / most:.0f}" y="{y + 14}">{ratio:.1f}</text>',
        ]
    path.write_text("\n".join([*lines, "</svg>"]) + "\n", encoding="utf-8")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tasks",
        nargs="+",
        choices=["conv", "train", "net", "knn"],
        default=["conv", "train", "net", "knn"],
    )
    parser.add_argument("--scenes", nargs="+", choices=["lidar", "room"], default=["lidar", "room"])
    parser.add_argument("--channels", nargs="+", type=int, default=[16, 32, 64, 128])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--python", help="a Python that has the other libraries already")
    parser.add_argument("--svg", type=Path, default=WORK / "peers.svg")
    return parser.parse_args()


def tell(title: str, times: dict[str, float], gflop: float) -> None:
    gemm = 2 * 1024**3 * 1e-9 / times["sgemm"]
    parts = []
    for name in sorted(set(times) - {"sgemm"}, key=lambda n: times[n]):
        share = f" ({gflop / times[name] / gemm:.2f} of sgemm)" if gflop else ""
        ratio = "" if name == "ours" else f", {times[name] / times['ours']:.2f} x ours"
        parts.append(f"{name} {times[name] * 1e3:.1f} ms{share}{ratio}")
    print(f"{title}: " + "; ".join(parts), flush=True)


def main() -> None:
    arguments = parse_arguments()

    import numpy as np

    WORK.mkdir(parents=True, exist_ok=True)
    python = make_environment(arguments.python)
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    environment = {**os.environ, **threads, "PEERS_NANOFLANN": compile_nanoflann()}
    libraries = {
        name: Library(name, Path(sys.executable), arguments.core, environment)
        for name in ("ours", "sgemm")
    }
    for name in (*CONVOLUTIONS, *SEARCHES):
        libraries[name] = Library(name, python, arguments.core, environment)
    random = np.random.default_rng(1)
    rows: list[tuple[str, dict[str, float]]] = []

    def report(title: str, times: dict[str, float], gflop: float) -> None:
        rows.append((title, times))
        tell(title, times, gflop)

    try:
        for scene in arguments.scenes:
            cells = {"lidar": lidar, "room": room}[scene]()
            edges = edge_count(cells)
            print(f"{scene}: {len(cells)} rows, {edges} edges", flush=True)
            for c in arguments.channels:
                data = WORK / f"{scene}{c}.npz"
                np.savez(
                    data,
                    coords=np.insert(cells, 0, 0, axis=1),
                    feats=random.standard_normal((len(cells), c), np.float32),
                    weight=random.standard_normal((c, 3, 3, 3, c), np.float32) / c,
                )
                gflop = 2 * edges * c * c * 1e-9
                for task, times in (("conv", 1), ("train", 3)):
                    if task in arguments.tasks:
                        names = ["ours", *CONVOLUTIONS]
                        found = measure(libraries, names, task, data, arguments.repeat)
                        report(f"{task} 3x3x3, {scene}, C = {c}", found, times * gflop)
            if "net" in arguments.tasks:
                cells = coarser() if scene == "lidar" else cells
                data, gflop = network(cells, WORK / f"{scene}_net.npz")
                for task, times in (("net", 1), ("netstep", 3)):
                    names = ["ours", *CONVOLUTIONS]
                    found = measure(libraries, names, task, data, arguments.repeat)
                    report(f"MinkUNet-18 {NET[task]}, {scene}", found, times * gflop)
        if "knn" in arguments.tasks:
            points = (lidar() + random.random((len(lidar()), 3))).astype(np.float32) * 0.1
            data = WORK / "points.npz"
            np.savez(data, points=points.astype(np.float32), k=16)
            found = measure(libraries, ["ours", *SEARCHES], "knn", data, arguments.repeat)
            report(f"kNN, k = 16, {len(points)} points", found, 0)
    finally:
        for library in libraries.values():
            library.close()
    (WORK / "peers.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    chart(rows, arguments.svg)


if __name__ == "__main__":
    main()
