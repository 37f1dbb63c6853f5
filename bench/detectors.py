"""Detectors on one thread of the CPU, beside a large product of NumPy's BLAS in the same run.

    detectors.py <detect_sweep.npz> [--network]

The file is a recorded sweep of 91,399 voxels with the weights of the published backbone of SECOND
and what spconv 2.3.8 made of it; values are compared before anything is timed. --network adds the
layers seen from above and the head, with random weights. For AVX2 set LATTICE_SIMD=avx2 and
OPENBLAS_CORETYPE=Haswell.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["LATTICE_NUM_THREADS"] = "1"

import sys
import time
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
from mlx_lattice import SparseTensor
from mlx_lattice.models import detection
from mlx_lattice.models.detection.backbones import VoxelBackbone

if TYPE_CHECKING:
    from collections.abc import Callable

SPCONV = 0.92 * 73.5e9  # CPU seconds of spconv times the sgemm of the same minutes
WIDTHS = (16, 32, 64, 64, 128)


def best(work: Callable[[], object], repeats: int = 5) -> float:
    """The least CPU seconds."""
    least = 1e30
    for _ in range(repeats):
        begin = time.process_time()
        work()
        least = min(least, time.process_time() - begin)
    return least


def sgemm(size: int = 2048) -> float:
    """FLOP per CPU second."""
    a = np.ones((size, size), np.float32)
    return 2 * size**3 / best(lambda: a @ a, 3)


def read(path: str) -> tuple[dict[str, np.ndarray], VoxelBackbone]:
    data = dict(np.load(path))
    net = VoxelBackbone(5, WIDTHS, residual=False)
    state = []
    for key, value in data.items():
        kind, _, name = key.partition("/")
        if kind == "param":
            state.append((name, mx.array(value)))
        elif kind == "param_int8":
            weight = value.astype(np.float32) * data[f"param_scale/{name}"]
            state.append((name, mx.array(weight)))
    net.load_weights(state)
    net.eval()
    for module in net.modules():
        if hasattr(module, "pack"):
            module.pack()
    return data, net


def arrays_of(data: dict[str, np.ndarray]) -> tuple[mx.array, mx.array]:
    """Coordinates and features of the sweep."""
    cells = np.insert(data["indices_zyx"].astype(np.int32), 0, 0, axis=1)
    return mx.array(cells), mx.array(data["features_times_8"].astype(np.float32) / 8)


def fresh(data: dict[str, np.ndarray], arrays: tuple[mx.array, mx.array]) -> SparseTensor:
    """The sweep with a manager of its own, so that relations are built again."""
    shape = tuple(int(n) for n in data["sparse_shape"])
    return SparseTensor(*arrays).with_bounds(((0, 0, 0), shape))


def compare(data: dict[str, np.ndarray], stages: dict[str, SparseTensor]) -> None:
    for name, found in stages.items():
        rows = data[f"{name}/sample_indices"]
        places = {tuple(row): i for i, row in enumerate(np.array(found.coords).tolist())}
        feats = np.array(found.feats)[[places[tuple(row)] for row in rows.tolist()]]
        expected = data[f"{name}/sample_features"]
        error = np.abs(feats - expected).max() / np.abs(expected).max()
        if len(found) != data[f"{name}/rows"] or error > 1e-5:
            raise SystemExit(f"{name}: {len(found)} rows, relative error {error}")


def backbone_flop() -> float:
    """Twice the multiply-adds of all edges of the backbone on the sweep."""
    total = 0.0
    channels = [(5, 16), (16, 16), (16, 32), (32, 32), (32, 32), (32, 64), (64, 64), (64, 64)]
    channels += [(64, 64), (64, 64), (64, 64), (64, 128)]
    edges = [581_647] * 2 + [330_695] + [1_384_608] * 2 + [298_534] + [539_793] * 2
    edges += [112_090] + [186_777] * 2 + [15_867]
    for (a, b), n in zip(channels, edges):
        total += 2.0 * a * b * n
    return total


def backbone(data: dict[str, np.ndarray], net: VoxelBackbone, rate: float) -> None:
    def run(x: SparseTensor) -> None:
        mx.eval([stage.feats for stage in net(x).values()])

    arrays = arrays_of(data)
    compare(data, net(fresh(data, arrays)))
    whole = best(lambda: run(fresh(data, arrays)), 9)
    kept = fresh(data, arrays)
    run(kept)
    products = best(lambda: run(kept), 9)
    flop = backbone_flop()
    print(f"backbone          {whole * 1e3:7.1f} ms, {SPCONV / rate / whole:.2f} times spconv")
    print(f"  products        {products * 1e3:7.1f} ms, {flop / products / rate:.2f} of sgemm")
    print(f"  index building  {(whole - products) * 1e3:7.1f} ms")


def network(data: dict[str, np.ndarray], rate: float) -> None:
    config = detection.read_settings("second_kitti").as_dict()
    config |= {"point_cloud_range": [-54, -54, -5, 54, 54, 3], "voxel_size": [0.075, 0.075, 0.2]}
    net = detection.Detector(config, in_channels=5).eval()
    cells, mean = arrays_of(data)
    nothing = mx.zeros((3,), mx.int32)
    voxels = detection.Voxels(mean[:, None], mean, cells, mx.ones(len(cells)), (nothing,))
    levels = ((180, 256, 128), (90, 128, 256))
    maps = sum(n * n * 9.0 * (c_in * c + 5 * c * c) for n, c_in, c in levels)
    maps += 180 * 180 * 256.0 * (128 + 256) + 180 * 180 * 512.0 * 72
    flop = backbone_flop() + 2 * maps

    def run() -> None:
        mx.eval(net.stages(voxels)["dense_head"])

    run()
    seconds = best(run, 3)
    print(f"SECOND            {seconds * 1e3:7.1f} ms, {flop / seconds / rate:.2f} of sgemm")
    made = net.stages(voxels)
    bev = made["bev"]
    mx.eval(bev)

    def seen() -> None:
        mx.eval(net.dense_head(net.backbone_2d(bev)))

    seen()
    seconds = best(seen, 3)
    print(f"  seen from above {seconds * 1e3:7.1f} ms, {2 * maps / seconds / rate:.2f} of sgemm")


if __name__ == "__main__":
    rate = sgemm()
    print(f"sgemm 2048 {rate / 1e9:.1f} GFLOP/s, LATTICE_SIMD {os.environ.get('LATTICE_SIMD')}")
    data, net = read(sys.argv[1])
    backbone(data, net, rate)
    if "--network" in sys.argv:
        network(data, rate)
    print(f"sgemm 2048 {sgemm() / 1e9:.1f} GFLOP/s")
