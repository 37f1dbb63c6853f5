"""Rules that hold for every input: one meaning of a radius, map coordinates, derivatives, memory.

`fuzz.py` calls `rules` once per case. Each rule is one that was broken once and that comparing an
operation with its oracle near the origin does not see.
"""

import gc
import os
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_lattice import SparseTensor, clear_cache, core, io, ops, points, transforms
from mlx_lattice.datasets.base import DatasetError, inside
from mlx_lattice.io.downsample import downsample
from mlx_lattice.training import inference, losses

OFFSETS = (0.0, 1e3, 5e5, 5e6)


def rules(rng) -> None:
    for rule in (radius, on_a_map, windows, second_derivatives, views, settings, paths):
        rule(rng)
    if rng.random() < 0.02:
        memory()


def check(holds, what) -> None:
    if not holds:
        raise AssertionError(what)


def radius(rng):
    """Every search finds the same points within the root of an integer."""
    lattice = np.unique(rng.integers(-3, 4, (int(rng.integers(1, 60)), 3)), axis=0)
    squared = int(rng.integers(0, 12))
    p, r = mx.array(lattice.astype(np.float32)), squared**0.5
    d2 = ((lattice[:, None] - lattice[None]) ** 2).sum(-1)
    want = (d2 <= squared).sum(1).tolist()
    check(ops.build_radius_relation(p, radius=r).query_counts.tolist() == want, "radius relation")
    check(core.NeighborIndex(p).radius(p, radius=r).query_counts.tolist() == want, "index")
    if squared:
        check(points.radius_search(p, p, r)[1].tolist() == want, f"radius_search {squared}")


def on_a_map(rng):
    """Answers do not depend on how far away a cloud lies: 2^-8 is exact at all offsets."""
    offset = float(rng.choice(OFFSETS))
    p = rng.integers(0, 1024, (int(rng.choice([2, 40, 200])), 3)) / 256
    for find in (
        lambda q: points.radius_inliers(q, 0.75, 2),
        lambda q: points.statistical_inliers(q, 1, 1.0),
    ):
        check(np.array_equal(find(p + offset), find(p)), f"inliers at {offset}")
    near, far = (
        ops.sparse_quantize(q, 0.25, origin=o) for q, o in ((p, 0.0), (p + offset, offset))
    )
    check(mx.array_equal(near.coords, far.coords), f"voxels at {offset}")
    wide = np.concatenate([p, p + float(rng.choice([1e5, 1e6]))])
    cells = np.floor((wide - np.floor(wide.min(0) / 0.05) * 0.05) / 0.05)
    found = len(downsample(io.PointCloud(wide), 0.05)[0])
    check(found == len(np.unique(cells, axis=0)), "voxels of a wide cloud")
    if len(p) == 200:
        shift = rng.uniform(-0.02, 0.02, 3)
        p[:, :] = rng.uniform(0, 10, p.shape)
        p[np.arange(200), np.arange(200) % 3] = 0
        normals = np.eye(3)[np.arange(200) % 3]
        found = points.icp(p + offset - shift, p + offset, normals=normals).pose
        moved = found[:3, :3] @ np.full(3, offset) + found[:3, 3] - offset
        check(np.abs(moved - shift).max() < 1e-4, f"icp at {offset}")


def windows(rng):
    """Every finite point is in a window; a stray one costs nothing."""
    p = rng.uniform(0, 20, (int(rng.choice([1, 30])), 3))
    p[0, :2] = float(rng.choice([0.0, 1e3, 1e6, 1e9]))
    rows = list(inference.windows(io.PointCloud(p), 5.0, float(rng.choice([0.0, 0.5]))))
    check(set(np.concatenate(rows).tolist()) == set(range(len(p))), "points without a window")
    check(len(rows) < 2000, f"{len(rows)} windows")


def second_derivatives(rng):
    """Of the losses: against MLX's own derivative of the formula."""
    n, c = int(rng.choice([0, 1, 9])), int(rng.integers(2, 6))
    x, d = (mx.array(rng.standard_normal((n, c)).astype(np.float32)) for _ in range(2))
    y = mx.array(rng.integers(0, c, n).astype(np.int32))

    def formula(z):
        own = mx.take_along_axis(z, y[:, None], axis=1)[:, 0]
        return (mx.log(mx.exp(z).sum(axis=1)) - own).sum() / n

    def second(loss):
        return mx.grad(lambda z: (mx.grad(loss)(z) * d).sum())(x)

    if n:
        found = second(lambda z: losses.classification_loss(z, y))
        check(mx.abs(found - second(formula)).max().item() < 1e-5, "second derivative")
    for make in (losses.cross_entropy, losses.focal, losses.dice, losses.lovasz):
        check(np.isfinite(make()(x, y).item()), make.__name__)
    check(np.isfinite(losses.cross_entropy(None, 0.1)(x, y).item()), "smoothed")


def views(rng):
    """A weight written through a NumPy view is read as it is; zero channels give zeros."""
    c = np.unique(rng.integers(0, 4, (30, 3)), axis=0)
    rows = mx.array(np.concatenate([np.zeros((len(c), 1)), c], 1).astype(np.int32))
    x = SparseTensor(rows, mx.array(rng.standard_normal((len(c), 3)).astype(np.float32)))
    w = mx.array(rng.standard_normal((4, 3, 3, 3, 3)).astype(np.float32))
    mx.eval(ops.subm_conv3d(x, w).feats)
    np.array(w, copy=False).reshape(-1)[int(rng.integers(300))] = 50.0
    again = ops.subm_conv3d(x, mx.array(np.array(w))).feats
    check(mx.array_equal(ops.subm_conv3d(x, w).feats, again), "an old weight")
    none = SparseTensor(rows, x.feats[:, :0])
    for f in (ops.subm_conv3d, ops.normalized_subm_conv3d):
        check(not mx.abs(f(none, w[..., :0]).feats).sum().item(), "zero channels")
    bias = ops.PositionBias(mx.zeros((2, 5)), rng.integers(-9, 9, 4).tolist(), bounds=2)
    check(bias.q_positions.shape == bias.k_positions.shape == (4, 1), "positions of a bias")


def settings(rng):
    """Transforms refuse settings that are not finite."""
    wrong = float(rng.choice([np.nan, np.inf]))
    for make in (
        lambda: transforms.Translate((1.0, wrong, 1.0)),
        lambda: transforms.Scale(1.0, wrong),
        lambda: transforms.Rotate("z", 0.0, wrong),
        lambda: transforms.Jitter(wrong),
    ):
        try:
            made = make()
        except ValueError:
            continue
        raise AssertionError(f"{made} was accepted")


def paths(rng):
    """A path that data names lies inside its folder, or is an error."""
    parts = ["..", ".", "a", "b.bin", "", "/", "c/../..", "/etc", "\0"]
    chosen = [parts[i] for i in rng.integers(0, len(parts), int(rng.integers(1, 5)))]
    try:
        found = inside(Path("/folder"), *chosen)
    except DatasetError:
        return
    check(os.path.normpath(found).startswith("/folder"), f"{chosen} leads to {found}")


def memory():
    """What results took comes back."""
    gc.collect()
    clear_cache()
    before = mx.get_active_memory()
    rows = np.stack(np.meshgrid([0], *[np.arange(20)] * 3, indexing="ij"), -1).reshape(-1, 4)
    x = SparseTensor(mx.array(rows.astype(np.int32)), mx.ones((8000, 32)))
    many = [ops.subm_conv3d(x, mx.ones((32, 3, 3, 3, 32)) * i).feats for i in range(8)]
    mx.eval(many)
    del many, x
    gc.collect()
    clear_cache()
    check(mx.get_active_memory() - before < 1 << 20, "memory that never comes back")
