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
    import torch.nn.functional as F

    torch.set_num_threads(1)
    torch.set_grad_enabled(task.startswith("train"))
    loaded = np.load(file)
    data = {name: torch.tensor(loaded[name]) for name in loaded.files}

    if task.startswith(("attention", "train")):
        lengths = lengths_of(task)
        q, k, v, g = (data[f"arr_{i}"] for i in range(4))
        if task.endswith("ragged"):
            ends = np.cumsum(lengths).tolist()

            def ragged() -> Any:
                parts = [
                    F.scaled_dot_product_attention(
                        *(x[e - n : e].transpose(0, 1)[None] for x in (q, k, v))
                    )[0].transpose(0, 1)
                    for n, e in zip(lengths, ends)
                ]
                return torch.cat(parts)

            return ragged
        shape = (len(lengths), lengths[0], HEADS, SIZE)
        q, k, v, g = (x.reshape(shape).transpose(1, 2).contiguous() for x in (q, k, v, g))

        def rows(x: Any) -> Any:
            return x.transpose(1, 2).reshape(-1, HEADS, SIZE)

        if not task.startswith("train"):
            return lambda: rows(F.scaled_dot_product_attention(q, k, v))
        for x in (q, k, v):
            x.requires_grad_()

        def step() -> Any:
            y = F.scaled_dot_product_attention(q, k, v)
            return rows(torch.autograd.grad(y, (q, k, v), g)[1])

        return step

    def graph(x: Any) -> Any:  # (B, N, C) -> (B, N, K)
        if way == "faiss":
            import faiss

            faiss.omp_set_num_threads(1)
            found = []
            for cloud in x.numpy():
                index = faiss.IndexFlatL2(cloud.shape[1])
                index.add(cloud)
                found.append(torch.from_numpy(index.search(cloud, K)[1]))
            return torch.stack(found)
        return torch.cdist(x, x).topk(K, largest=False)[1]

    def norm(x: Any, name: str) -> Any:
        parts = [data[f"{name}.{part}"] for part in ("running_mean", "running_var")]
        return F.batch_norm(x, *parts, data[f"{name}.weight"], data[f"{name}.bias"])

    def edge_conv(x: Any, name: str) -> Any:  # (B, N, C)
        b, n, c = x.shape
        at = graph(x).reshape(b, n * K, 1).expand(-1, -1, c)
        others = x.gather(1, at).reshape(b, n, K, c)
        own = x[:, :, None].expand(-1, -1, K, -1)
        weight = torch.cat([data[f"{name}own.weight"], data[f"{name}other.weight"]], dim=1)
        edges = F.linear(torch.cat([own, others - own], dim=-1), weight)
        edges = norm(edges.reshape(b * n * K, -1), f"{name}norm")
        return F.leaky_relu(edges, 0.2).reshape(b, n, K, -1).max(dim=2)[0]

    def dgcnn(x: Any) -> Any:
        found = []
        for i in range(4):
            x = edge_conv(x, f"layers.{i}.")
            found.append(x)
        local = F.linear(torch.cat(found, dim=-1), data["mix.weight"])
        y = F.leaky_relu(norm(local.flatten(0, 1), "mix_norm"), 0.2).reshape(local.shape)
        cloud = F.linear(torch.cat([y.max(dim=1)[0], y.mean(dim=1)], dim=-1), data["hidden.weight"])
        return F.linear(
            F.leaky_relu(norm(cloud, "hidden_norm"), 0.2), data["head.weight"], data["head.bias"]
        )

    def shared(x: Any, name: str, layers: int) -> Any:
        shape = x.shape[:-1]
        x = x.reshape(-1, x.shape[-1])
        for i in range(layers):
            x = F.relu(norm(F.linear(x, data[f"{name}.layers.{i}.weight"]), f"{name}.norms.{i}"))
        return x.reshape(*shape, -1)

    def farthest(p: Any, count: int) -> Any:
        b = len(p)
        found = torch.zeros(b, count, dtype=torch.int64)
        least = ((p - p[:, :1]) ** 2).sum(-1)
        for i in range(1, count):
            found[:, i] = least.argmax(1)
            center = p[torch.arange(b), found[:, i]][:, None]
            least = torch.minimum(least, ((p - center) ** 2).sum(-1))
        return found

    def pointnet2(p: Any) -> Any:
        x, batch = None, torch.arange(len(p))[:, None]
        for i, (share, radius) in enumerate(((0.5, 0.2), (0.25, 0.4))):
            centers = p[batch, farthest(p, round(p.shape[1] * share))]
            distance = torch.cdist(centers, p)
            near, at = distance.topk(32, largest=False)
            at = torch.where(near <= radius, at, at[:, :, :1])
            rows = batch[:, :, None]
            inputs = (p[rows, at] - centers[:, :, None]) / radius
            if x is not None:
                inputs = torch.cat([x[rows, at], inputs], dim=-1)
            x = shared(inputs, f"levels.{i}.mlp", 3).max(dim=2)[0]
            p = centers
        cloud = shared(torch.cat([x, p], dim=-1), "whole", 2).max(dim=1)[0]
        y = F.linear(cloud, data["hidden.weight"], data["hidden.bias"])
        return F.linear(F.relu(norm(y, "hidden_norm")), data["head.weight"], data["head.bias"])

    if task == "knn_graph":
        x = data["x"].reshape(CLOUDS, POINTS, SIZE)
        first = (torch.arange(CLOUDS) * POINTS)[:, None, None]
        return lambda: (graph(x) + first).reshape(-1, K)
    if task == "edge_conv":
        x = data["x"].reshape(CLOUDS, POINTS, SIZE)
        return lambda: edge_conv(x, "").reshape(-1, SIZE)
    return lambda: {"dgcnn": dgcnn, "pointnet2": pointnet2}[task](data["clouds"])


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
