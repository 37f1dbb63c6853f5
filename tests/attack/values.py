"""Arguments of hostile calls: what an argument of that name may be, and what it must not be."""

import random

import mlx.core as mx
import mlx.nn
import mlx.optimizers
import mlx_lattice as ml
import numpy as np
from mlx_lattice import core, io, points, training, transforms

FILES = ["a.ply", "a.npz", "a.bin", "a.pcd", "a.npy", "a.csv", "a.label", "a.off", "new.npz"]


def coords(r: random.Random, dtype=np.int32, rows=None):
    n = r.choice([0, 1, 2, 7, 40]) if rows is None else rows
    c = np.array([[r.randrange(2), *(r.randrange(-6, 6) for _ in range(3))] for _ in range(n)])
    return mx.array(np.unique(c.reshape(-1, 4), axis=0).astype(dtype))


def floats(r: random.Random, *shape):
    state = np.random.default_rng(r.randrange(1 << 30))
    return mx.array(state.standard_normal(shape).astype(np.float32))


def tensor(r: random.Random, channels=4, **options):
    c = coords(r)
    return ml.SparseTensor(c, floats(r, c.shape[0], channels), **options)


def cloud(r: random.Random, n=None):
    return floats(r, r.choice([0, 1, 5, 30]) if n is None else n, 3)


def scan(r: random.Random):
    """A labeled cloud with colors."""
    n = r.choice([0, 1, 30])
    p = np.array(cloud(r, n))
    return io.PointCloud(p, {"label": np.zeros(n, np.int32), "color": np.zeros((n, 3), np.uint8)})


def prepare_files() -> None:
    """FILES in the working directory, all but the last."""
    r = random.Random(0)
    for name in FILES[:-1]:
        if name == "a.label":
            np.zeros(30, "<u4").tofile(name)
        elif name == "a.off":
            with open(name, "w") as file:
                file.write("OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n")
        else:
            options = {"format": "kitti"} if name == "a.bin" else {}
            io.write(name, io.PointCloud(np.array(cloud(r, 30))), **options)


def usual(name: str, r: random.Random):
    """A value that a user would give to an argument of this name."""
    n = 8
    rows = mx.array([r.randrange(n) for _ in range(n)])
    table = {
        "x": lambda: r.choice([tensor(r), floats(r, n, 4)]),
        "lhs": lambda: r.choice([tensor(r), coords(r)]),
        "rhs": lambda: r.choice([tensor(r), coords(r)]),
        "source": lambda: r.choice([tensor(r), coords(r)]),
        "target": lambda: r.choice([tensor(r), coords(r)]),
        "tensors": lambda: [tensor(r), tensor(r)],
        "coords": lambda: coords(r),
        "target_coords": lambda: coords(r),
        "source_coords": lambda: coords(r),
        "query_coords": lambda: coords(r),
        "voxel_coords": lambda: coords(r),
        "queries": lambda: coords(r),
        "feats": lambda: floats(r, n, 4),
        "features": lambda: floats(r, n, 4),
        "array": lambda: floats(r, n, 4),
        "values": lambda: floats(r, n, 4),
        "weight": lambda: r.choice(
            [floats(r, 4, 3, 3, 3, 4), floats(r, 27, 4, 4), floats(r, 4, 4), floats(r, 27, 1, 4, 4)]
        ),
        "bias": lambda: floats(r, 4),
        "points": lambda: r.choice([cloud(r, n), points.PointSet(cloud(r, n), grid=0.5)]),
        "positions": lambda: cloud(r, n),
        "lengths": lambda: mx.array([n]),
        "batch_indices": lambda: mx.zeros((n,), dtype=mx.int32),
        "rows": lambda: rows,
        "idx": lambda: rows,
        "ids": lambda: rows,
        "indices": lambda: rows,
        "in_rows": lambda: rows,
        "out_rows": lambda: rows,
        "kernel_ids": lambda: rows,
        "labels": lambda: rows,
        "symbols": lambda: mx.array([r.randrange(4) for _ in range(n)]),
        "prob": lambda: mx.softmax(floats(r, n, 4), axis=1),
        "cdf": lambda: ml.ops.normalized_cdf(mx.softmax(floats(r, n, 4), axis=1)),
        "relation": lambda: ml.ops.build_kernel_relation(coords(r, rows=n)),
        "mask": lambda: mx.array([r.random() < 0.5 for _ in range(n)]),
        "a": lambda: floats(r, n, 3),
        "b": lambda: floats(r, n, 3),
        "kernel_size": lambda: r.choice([1, 2, 3, (3, 1, 2)]),
        "stride": lambda: r.choice([1, 2, (2, 1, 3)]),
        "padding": lambda: r.choice([0, 1, -1]),
        "dilation": lambda: r.choice([1, 2]),
        "k": lambda: r.choice([1, 3]),
        "radius": lambda: 1.5,
        "voxel_size": lambda: 0.5,
        "grid": lambda: 0.5,
        "mode": lambda: r.choice(["sum", "avg", "max"]),
        "operation": lambda: r.choice(["sum", "mean", "max"]),
        "reduction": lambda: r.choice(["sum", "mean", "max"]),
        "join": lambda: r.choice(["inner", "outer", "left", "right"]),
        "op": lambda: r.choice(["add", "mul"]),
        "kind": lambda: r.choice(["relu", "gelu"]),
        "norm": lambda: r.choice(["batch", "row", "none"]),
        "data": lambda: bytes(r.randrange(256) for _ in range(r.randrange(64))),
        "key": lambda: core.CoordinateManager().insert_coords(coords(r)),
        "groups": lambda: r.choice([1, 2]),
        "depth": lambda: r.choice([14, 18]),
        "cloud": lambda: scan(r),
        "rng": lambda: np.random.default_rng(r.randrange(99)),
        "draw": lambda: lambda rng: scan(r),
        "path": lambda: r.choice(FILES),
        "root": lambda: ".",
        "directory": lambda: r.choice([".", "out"]),
        "split": lambda: r.choice(["train", "valid", "all"]),
        "dataset": lambda: [scan(r), scan(r)],
        "panels": lambda: scan(r),
        "panel": lambda: scan(r),
        "truth": lambda: np.zeros(n, np.int32),
        "prediction": lambda: np.zeros(n, np.int32),
        "classes": lambda: r.choice([2, ("low", "high"), ((0, "low"), (1, "high"))]),
        "model": lambda: mlx.nn.Linear(4, 4),
        "network": lambda: mlx.nn.Linear(4, 4),
        "loss": lambda: lambda model, item: mx.array(0.0),
        "prepare": lambda: lambda cloud, name: cloud,
        "optimizer": lambda: mlx.optimizers.SGD(0.1),
        "pipeline": lambda: training.VoxelPipeline(0.5, ((0, "low"), (1, "high"))),
        "transform": lambda: transforms.Flip(),
        "transforms": lambda: [transforms.Flip(), transforms.Jitter()],
        "logits": lambda: floats(r, n, 9),
        "weights": lambda: mx.ones((9,)),
        "rate": lambda: 0.1,
        "steps": lambda: 10,
        "step": lambda: mx.array(3),
        "samples": lambda: 20,
        "blocks": lambda: r.choice([1, 2]),
        "layers": lambda: r.choice([1, 2]),
        "quantization": lambda: ml.ops.sparse_quantize(cloud(r, n)),
    }
    if name in table:
        return table[name]()
    if "channel" in name or name.endswith(("dims", "features", "classes", "width", "hidden")):
        return r.choice([4, 8])
    return r.choice([1, 2, 0.5, "sum", True, None, floats(r, n, 4), rows, (1, 2, 3)])


def hostile(r: random.Random):
    """A value that hardly any argument may be."""
    n = r.choice([0, 1, 3, 8])
    return r.choice(
        [
            lambda: None,
            lambda: r.choice([0, -1, 2**31 - 1, -(2**31), 2**31, 2**40, 2**63, -(2**63), 2**64]),
            lambda: r.choice([0.0, -0.5, 1e-30, 1e30, float("nan"), float("inf"), -float("inf")]),
            lambda: r.choice(
                [True, False, "", "sum", "\0", "x" * 1000, b"", b"MLAT", object(), {}]
            ),
            lambda: r.choice([(), (1,), (0, 0, 0), (1, 2), (-1, 2**40, 3), [1.5] * 3, {1, 2}]),
            lambda: np.zeros((n, 4)),
            lambda: np.ones((n, 4), r.choice([">f4", ">i4", ">i8", "f2", "u8", "c8", "U1"])),
            lambda: np.arange(4.0 * n).reshape(n, 4)[::-1, ::-1],
            lambda: mx.zeros((n, r.choice([0, 1, 3, 4, 5])), dtype=r.choice(DTYPES)),
            lambda: mx.full((n,), r.choice([-1, 2**30, 2**31 - 1, -(2**31)]), dtype=mx.int32),
            lambda: mx.full((n, 4), r.choice([-1, 2**30, 2**31 - 1, -(2**31)]), dtype=mx.int32),
            lambda: mx.full((n, 3), r.choice([np.nan, np.inf, 1e38]), dtype=mx.float32),
            lambda: mx.array(r.choice([0, 1, -1, 2**31 - 1])),
            lambda: floats(r, n, 4).astype(r.choice([mx.float16, mx.bfloat16])),
            lambda: floats(r, 4, n).T,
            lambda: mx.zeros((2,) * r.choice([0, 1, 5, 9])),
            lambda: coords(r, np.int64),
            lambda: tensor(r, channels=r.choice([0, 1, 4])),
            lambda: mx.array([[0, 1, 1, 1]] * n if n else np.zeros((0, 4), np.int32)),
        ]
    )()


DTYPES = [
    mx.float32, mx.float16, mx.bfloat16, mx.int32, mx.int64,
    mx.uint8, mx.uint32, mx.bool_, mx.int8, mx.complex64,
]  # fmt: skip


def told(value, depth=0) -> str:
    """A short text of a value, for the record."""
    if isinstance(value, mx.array):
        text = f"mx.array({value.dtype}, {tuple(value.shape)}"
        return text + (f", {value.tolist()})" if 0 < value.size <= 4 else ")")
    if isinstance(value, np.ndarray):
        return f"np.ndarray({value.dtype}, {value.shape})"
    if isinstance(value, (list, tuple)) and depth < 2:
        return f"{type(value).__name__}({', '.join(told(v, depth + 1) for v in value[:4])})"
    text = (
        repr(value)
        if isinstance(value, (int, float, str, bytes, bool, type(None)))
        else str(type(value))
    )
    return text if len(text) < 120 else text[:117] + "..."
