#!/usr/bin/env python3
"""Attention, graphs of features and point networks beside PyTorch: same weights, one core.

    .venv/bin/python bench/peers/networks.py --peer PYTHON    PYTHON: of an environment with torch
    .venv/bin/python bench/peers/networks.py --peer PYTHON --tasks attention dgcnn

The environment of the other side holds torch, and faiss-cpu for the search; both come from PyPI and
are for this benchmark only. Ours writes inputs, weights and results; the other side must agree with
them before its time counts. Each round starts one process per side, and the best CPU time of all
rounds is printed.

| task | the other side |
|---|---|
| attention_L | torch.nn.functional.scaled_dot_product_attention on equal segments of L rows |
| attention_ragged | one such call per segment |
| train_L | the same, forward and backward |
| knn_graph | the faster of torch.cdist with topk, and of faiss.IndexFlatL2 |
| edge_conv, dgcnn, pointnet2 | the published networks in PyTorch, on dense batches |
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
HEADS, SIZE, K = 8, 64, 20
CLOUDS, POINTS = 4, 1024
TASKS = (
    *("attention_1024", "attention_48", "attention_ragged", "train_1024", "train_48"),
    *("knn_graph", "edge_conv", "dgcnn", "pointnet2"),
)


def lengths_of(task: str) -> list[int]:
    kind = task.split("_")[1]
    if kind == "ragged":
        return np.random.default_rng(3).integers(20, 900, 9).tolist()
    return [int(kind)] * (4096 // int(kind))


def ours(task: str, file: Path) -> Callable[[], Any]:
    """Writes inputs and weights; returns the work."""
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lattice import core, ops, points

    mx.set_default_device(mx.cpu)
    mx.set_cache_limit(4 << 30)
    core.set_thread_count(1)
    random = np.random.default_rng(1)
    if task.startswith(("attention", "train")):
        lengths = lengths_of(task)
        rows = [random.standard_normal((sum(lengths), HEADS, SIZE), np.float32) for _ in range(4)]
        np.savez(file, *rows)
        q, k, v, g = map(mx.array, rows)
        offsets = mx.array(np.cumsum([0, *lengths]), dtype=mx.int32)

        def forward(q: Any, k: Any, v: Any) -> Any:
            return ops.attention(q, k, v, offsets)

        if not task.startswith("train"):
            return lambda: forward(q, k, v)
        return lambda: mx.vjp(forward, [q, k, v], [g])[1][1]

    clouds = random.standard_normal((CLOUDS, POINTS, 3), np.float32)
    clouds /= np.abs(clouds).max()
    sizes = mx.array([POINTS] * CLOUDS)
    wide = random.standard_normal((CLOUDS * POINTS, SIZE), np.float32)
    mx.random.seed(0)
    x, p = mx.array(wide), mx.array(clouds.reshape(-1, 3))
    if task == "knn_graph":
        np.savez(file, x=wide)
        return lambda: points.knn_graph(x, K, sizes)[0]
    model: Any = {
        "edge_conv": lambda: points.EdgeConv(SIZE, SIZE, K),
        "dgcnn": points.DGCNN,
        "pointnet2": points.PointNet2,
    }[task]()
    model.eval()
    weights = {name: np.array(value) for name, value in tree_flatten(model.parameters())}
    np.savez(file, x=wide, clouds=clouds, **weights)
    if task == "edge_conv":
        return lambda: model(x, sizes)
    return lambda: model(p, lengths=sizes)


def theirs(task: str, file: Path, way: str) -> Callable[[], Any]:
    import torch
    import torch_networks

    torch.set_num_threads(1)
    torch.set_grad_enabled(task.startswith("train"))
    loaded = np.load(file)
    data = {name: torch.tensor(loaded[name]) for name in loaded.files}
    if task.startswith(("attention", "train")):
        return torch_networks.attention(data, lengths_of(task), task.startswith("train"))
    networks = torch_networks.Networks(data, way)
    if task == "knn_graph":
        x = data["x"].reshape(CLOUDS, POINTS, SIZE)
        first = (torch.arange(CLOUDS) * POINTS)[:, None, None]
        return lambda: (networks.graph(x) + first).reshape(-1, K)
    if task == "edge_conv":
        x = data["x"].reshape(CLOUDS, POINTS, SIZE)
        return lambda: networks.edge_conv(x, "").reshape(-1, SIZE)
    return lambda: getattr(networks, task)(data["clouds"])


def difference(task: str, a: Any, b: Any) -> float:
    if task == "knn_graph":  # rows of one query as sets: ties may come in another order
        return float((np.sort(a, 1) != np.sort(b, 1)).any(1).mean())
    return float(np.abs(a - b).max() / np.abs(a).max())


def side(which: str, folder: Path, tasks: list[str]) -> None:
    """One process: prints {task: CPU seconds}; results go to or are compared with files."""
    seconds = {}
    for task in tasks:
        data, result = folder / f"{task}.npz", folder / f"{task}.npy"
        work = ours(task, data) if which == "ours" else theirs(task, data, which)

        def value(work: Callable[[], Any] = work) -> Any:
            found = work()
            if which == "ours":
                import mlx.core as mx

                mx.eval(found)
            return found

        first = np.array(value())
        if which == "ours":
            np.save(result, first)
        elif (worst := difference(task, np.load(result), first)) > (
            0.01 if task == "knn_graph" else 1e-3
        ):
            print(f"{which} {task}: differs by {worst:.2g}, not timed", file=sys.stderr)
            continue
        best = float("inf")
        for _ in range(5):
            begin = time.process_time()
            value()
            best = min(best, time.process_time() - begin)
        seconds[task] = best
    print(json.dumps(seconds))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", help="Python of an environment with torch and faiss-cpu")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--side", choices=("ours", "torch", "faiss"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.side:
        side(given.side, given.folder, given.tasks)
        return
    if not given.peer:
        parser.error("--peer PYTHON is missing")
    one = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "LATTICE")}
    best: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(given.rounds):
            for which in ("ours", "torch", "faiss"):
                tasks = [t for t in given.tasks if which != "faiss" or t == "knn_graph"]
                if not tasks:
                    continue
                python = sys.executable if which == "ours" else given.peer
                command = [python, str(HERE / "networks.py"), "--side", which, "--folder", folder]
                done = subprocess.run(
                    [*command, "--tasks", *tasks],
                    env={**os.environ, **one},
                    check=which != "faiss",
                    stdout=subprocess.PIPE,
                    text=True,
                )
                for task, seconds in json.loads(done.stdout or "{}").items():
                    times = best.setdefault(task, {})
                    times[which] = min(seconds, times.get(which, float("inf")))
    print("CPU milliseconds of one thread; how many times as fast as the best other one ours is")
    for task, times in best.items():
        other = min((v for k, v in times.items() if k != "ours"), default=float("nan"))
        told = "  ".join(f"{k} {1e3 * v:8.2f}" for k, v in times.items())
        print(f"{task:<18} {other / times['ours']:5.2f} x   {told}")


if __name__ == "__main__":
    main()
