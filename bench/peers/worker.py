"""One library of `bench/peers/run.py`, in a process of its own: reads tasks, answers with times.

A task is one line of JSON: {"task": ..., "data": FILE.npz, "result": FILE.npy or null}. The answer
is one line of JSON: {"seconds": CPU seconds of the operation} or {"missing": why}. Data are read
and relations are built before the clock runs, except where the task is a search, whose tree counts.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import unet

Work = Callable[[], Any]  # runs the operation; its value becomes an array by np.asarray


def offsets() -> np.ndarray:
    return np.stack(np.meshgrid(*[[-1, 0, 1]] * 3, indexing="ij"), -1).reshape(-1, 3)


def ours(data: dict[str, np.ndarray], task: str) -> Work:
    import mlx.core as mx
    import mlx_lattice as ml

    mx.set_default_device(mx.cpu)
    mx.set_cache_limit(4 << 30)
    ml.core.set_thread_count(1)

    def run(value: Callable[[], Any]) -> Work:
        def work() -> Any:
            result = value()
            mx.eval(result)
            return result

        return work

    if task == "knn":
        points = mx.array(data["points"])
        mx.eval(points)
        return run(lambda: ml.core.NeighborIndex(points).knn(k=int(data["k"])).edges.source_rows)
    x = ml.SparseTensor(mx.array(data["coords"]), mx.array(data["feats"]))
    if task.startswith("net"):
        return run(ours_net(data, task, x))
    weight = mx.array(data["weight"])
    if task == "conv":
        return run(lambda: ml.ops.subm_conv3d(x, weight).feats)
    loss = mx.value_and_grad(
        lambda f, w: (ml.ops.subm_conv3d(x.with_feats(f), w).feats * x.feats).sum(), argnums=(0, 1)
    )

    def step() -> Any:  # the gradient of the weight first; MLX computes what is evaluated
        value, (input_gradient, weight_gradient) = loss(x.feats, weight)
        return weight_gradient, input_gradient, value

    return run(step)


def ours_net(data: dict[str, np.ndarray], task: str, x: Any) -> Callable[[], Any]:
    import mlx.core as mx
    import mlx.nn
    import mlx_lattice as ml

    net = ml.models.MinkUNet(data["feats"].shape[1], len(data["p/head.bias"]), depth=18)
    net.load_weights([(k[2:], mx.array(v)) for k, v in data.items() if k.startswith("p/")])
    if task == "net":
        net.eval()
        return lambda: net(x).feats
    net.train()
    step = mlx.nn.value_and_grad(net, lambda m: mx.mean(m(x).feats ** 2))

    def backward() -> Any:
        gradients = step(net)[1]
        return gradients["head"]["weight"], gradients

    return backward


def torch_plain(data: dict[str, np.ndarray], task: str) -> Work:
    """Gather, mm and index_add per offset: what a user of PyTorch writes first."""
    import torch

    torch.set_num_threads(1)
    coords = data["coords"][:, 1:].astype(np.int64)
    if task.startswith("net"):
        return unet.work(data, task, unet.Plain(coords), torch.tensor(data["feats"]))
    rows = {tuple(c): i for i, c in enumerate(coords.tolist())}
    pairs = []
    for offset in offsets():
        found = [
            (rows[moved], o)
            for o, moved in enumerate(map(tuple, (coords + offset).tolist()))
            if moved in rows
        ]
        pairs.append(torch.tensor(found, dtype=torch.int64).reshape(-1, 2).T.contiguous())
    weight = torch.tensor(data["weight"])
    c_out, c_in = weight.shape[0], weight.shape[-1]
    w = weight.reshape(c_out, 27, c_in).permute(1, 2, 0).contiguous()
    x = torch.tensor(data["feats"])

    def conv(f: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = torch.zeros(len(coords), c_out)
        for k, (i, o) in enumerate(pairs):
            y = y.index_add(0, o, f[i] @ w[k])
        return y

    if task == "conv":

        def forward() -> Any:
            with torch.no_grad():
                return conv(x, w)

        return forward

    def step() -> Any:
        f, v = x.clone().requires_grad_(), w.clone().requires_grad_()
        (conv(f, v) * x).sum().backward()
        return v.grad.permute(2, 0, 1).reshape(weight.shape)

    return step


def spconv(data: dict[str, np.ndarray], task: str) -> Work:
    import spconv.pytorch as sp
    import torch

    torch.set_num_threads(1)
    if task.startswith("net"):
        made = unet.Spconv(data["coords"][:, 1:])
        return unet.work(data, task, made, torch.tensor(data["feats"]))
    weight = torch.tensor(data["weight"])
    coords = data["coords"].copy()
    coords[:, 1:] -= coords[:, 1:].min(0)
    shape = (coords[:, 1:].max(0) + 1).tolist()
    layer = sp.SubMConv3d(weight.shape[-1], weight.shape[0], 3, bias=False, indice_key="k")
    with torch.no_grad():
        layer.weight.copy_(weight.reshape(layer.weight.shape))
    feats, indices = torch.tensor(data["feats"]), torch.tensor(coords)
    x = sp.SparseConvTensor(feats, indices, shape, 1)
    warm = layer(x)  # builds the pairs, which the tensor keeps by their key

    def fresh(f: torch.Tensor) -> Any:
        t = sp.SparseConvTensor(f, indices, shape, 1)
        t.indice_dict = warm.indice_dict
        return layer(t).features

    if task == "conv":

        def forward() -> Any:
            with torch.no_grad():
                return fresh(feats)

        return forward

    def step() -> Any:
        layer.weight.grad = None
        (fresh(feats.clone().requires_grad_()) * feats).sum().backward()
        return layer.weight.grad.reshape(weight.shape)

    return step


def pykdtree(data: dict[str, np.ndarray], task: str) -> Work:
    from pykdtree.kdtree import KDTree

    p = data["points"]
    return lambda: KDTree(p).query(p, k=int(data["k"]))[1]


def open3d(data: dict[str, np.ndarray], task: str) -> Work:
    import open3d.core as o3c

    p = o3c.Tensor(data["points"])

    def work() -> Any:
        search = o3c.nns.NearestNeighborSearch(p)
        search.knn_index()
        return search.knn_search(p, int(data["k"]))[0].numpy()

    return work


def nanoflann(data: dict[str, np.ndarray], task: str) -> Work:
    """Compiled by run.py with -O3 -march=native from the installed header."""
    import ctypes

    library = ctypes.CDLL(os.environ["PEERS_NANOFLANN"])
    p = np.ascontiguousarray(data["points"], np.float32)
    k = int(data["k"])
    rows = np.empty((len(p), k), np.uint32)
    distances = np.empty((len(p), k), np.float32)

    def pointer(a: np.ndarray) -> ctypes.c_void_p:
        return ctypes.c_void_p(a.ctypes.data)

    def work() -> Any:
        library.knn(
            pointer(p),
            ctypes.c_size_t(len(p)),
            ctypes.c_size_t(k),
            pointer(rows),
            pointer(distances),
        )
        return rows

    return work


def sgemm(data: dict[str, np.ndarray], task: str) -> Work:
    a = np.ones((1024, 1024), np.float32)
    return lambda: a @ a


LIBRARIES: dict[str, Callable[[dict[str, np.ndarray], str], Work]] = {
    f.__name__: f for f in (ours, torch_plain, spconv, pykdtree, open3d, nanoflann, sgemm)
}


def main() -> None:
    library = LIBRARIES[sys.argv[1]]
    # Libraries may print; answers have a stream of their own.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    @functools.lru_cache(maxsize=1)
    def prepared(task: str, file: str) -> Work:
        return library(dict(np.load(file)), task)

    for line in sys.stdin:
        asked = json.loads(line)
        try:
            work = prepared(asked["task"], asked["data"])
            begin = time.process_time()
            value = work()
            answer: dict[str, Any] = {"seconds": time.process_time() - begin}
            if asked["result"]:
                value = value[0] if isinstance(value, tuple) else value
                np.save(asked["result"], np.asarray(value))
        except Exception as error:
            answer = {"missing": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


main()
