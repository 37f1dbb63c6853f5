"""Arguments of hostile calls: what an argument of that name may be, and what it must not be."""

import os
import random
import tempfile
from functools import lru_cache

import mlx.core as mx
import mlx.nn
import mlx.optimizers
import mlx_lattice as ml
import mlx_lattice.models.detection
import mlx_lattice.training.detection
import numpy as np
from mlx_lattice import core, io, models, points, training, transforms

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
    p = np.array(cloud(r, n)) + r.choice([0, 0, 0, 5e6])
    if n and r.random() < 0.1:
        p[0] = r.choice([1e5, 1e9])  # a stray point
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


N = 8  # rows of every usual array


def row_numbers(r: random.Random, top: int = N) -> mx.array:
    return mx.array([r.randrange(top) for _ in range(N)])


def chances(r: random.Random) -> mx.array:
    return mx.softmax(floats(r, N, 4), axis=1)


def boxes(r: random.Random):
    """(N, 7): boxes of some meters with any heading."""
    rows = np.array(floats(r, N, 7))
    rows[:, 3:6] = np.abs(rows[:, 3:6]) + 0.1
    return rows


def frame(r: random.Random):
    """Points with boxes and labels, as detectors learn from."""
    points = np.concatenate([np.array(cloud(r)), np.zeros((0, 3), np.float32)])
    points = np.concatenate([points * 3, np.ones((len(points), 1), np.float32)], axis=1)
    count = r.choice([0, 1, N])
    return io.BoxFrame(
        points, boxes(r)[:count], np.array([r.choice([1, 2]) for _ in range(count)], np.int32)
    )


def objects(r: random.Random, score=True):
    """The columns of KITTI objects."""
    n = r.choice([0, 1, N])
    rows = boxes(r)[:n]
    columns = {
        "name": np.array([r.choice(["Car", "Pedestrian", "Van"]) for _ in range(n)], dtype=str),
        "truncated": np.zeros(n),
        "occluded": np.zeros(n),
        "alpha": np.zeros(n),
        "bbox": np.tile([10.0, 10, 60, 60], (n, 1)),
        "dimensions": rows[:, 3:6],
        "location": rows[:, :3],
        "rotation_y": rows[:, 6],
        "frame": np.zeros(n, np.int64),
    }
    return columns | {"score": np.linspace(0, 1, n)} if score else columns


@lru_cache(maxsize=1)
def detection_config():
    return training.detection.street_config(half=6.4, width=4)


@lru_cache(maxsize=1)
def detector():
    return models.detection.Detector(detection_config()).eval()


@lru_cache(maxsize=1)
def unet():
    return models.MinkUNet(4, 3, depth=14, width=4, stem_kernel_size=3).eval()


@lru_cache(maxsize=1)
def integer_network():
    return models.quantize(unet(), [ml.samples.tensor()])


@lru_cache(maxsize=1)
def program_file():
    """The path of a program; the working directory may go, the file stays."""
    path = os.path.join(tempfile.mkdtemp(), "net.lattice.safetensors")
    unet().export(path, example=ml.samples.tensor())
    return path


# What a user would give, by the names of arguments.
USUAL = {
    "x": lambda r: r.choice([tensor(r), floats(r, N, 4)]),
    "lhs rhs source target": lambda r: r.choice([tensor(r), coords(r)]),
    "tensors": lambda r: [tensor(r), tensor(r)],
    "coords target_coords source_coords query_coords voxel_coords queries": coords,
    "feats features array values": lambda r: floats(r, N, 4),
    "weight": lambda r: floats(r, *r.choice([(4, 3, 3, 3, 4), (27, 4, 4), (4, 4), (27, 1, 4, 4)]))[
        ..., : r.choice([4, 4, 4, 0])
    ],
    "bias": lambda r: floats(r, 4),
    "points": lambda r: r.choice([cloud(r, N), points.PointSet(cloud(r, N), grid=0.5)]),
    "positions": lambda r: cloud(r, N),
    "lengths": lambda r: mx.array(r.choice([[N], [N], [5, 0, 3], [0, N, 0]])),
    "table": lambda r: floats(r, 2, 5),
    "q_positions k_positions": lambda r: row_numbers(r),
    "bounds": lambda r: 2,
    "window": lambda r: r.choice([None, 4.0]),
    "overlap": lambda r: r.choice([0.0, 0.5]),
    "category": lambda r: 0,
    "parts": lambda r: [(0, 1), (2, 3)],
    "lhs_coords rhs_coords parent_coords": lambda r: r.choice([tensor(r), coords(r)]),
    "scale var mean": lambda r: mx.abs(floats(r, 4)) + 0.1,
    "input": lambda r: tensor(r),
    "point_voxel_map": lambda r: ml.ops.build_point_voxel_map(cloud(r, N), coords(r, rows=N)),
    "batch_indices": lambda r: mx.zeros((N,), dtype=mx.int32),
    "rows idx ids indices in_rows out_rows kernel_ids labels": row_numbers,
    "symbols": lambda r: row_numbers(r, 4),
    "prob": chances,
    "cdf": lambda r: ml.ops.normalized_cdf(chances(r)),
    "relation": lambda r: ml.ops.build_kernel_relation(coords(r, rows=N)),
    "mask": lambda r: mx.array([r.random() < 0.5 for _ in range(N)]),
    "a b": lambda r: floats(r, N, 3),
    "kernel_size": lambda r: r.choice([1, 2, 3, (3, 1, 2)]),
    "stride": lambda r: r.choice([1, 2, (2, 1, 3)]),
    "padding": lambda r: r.choice([0, 1, -1]),
    "dilation groups blocks layers": lambda r: r.choice([1, 2]),
    "k": lambda r: r.choice([1, 3]),
    "radius": lambda r: 1.5,
    "voxel_size grid": lambda r: 0.5,
    "mode": lambda r: r.choice(["sum", "avg", "max"]),
    "operation reduction": lambda r: r.choice(["sum", "mean", "max"]),
    "join": lambda r: r.choice(["inner", "outer", "left", "right"]),
    "op": lambda r: r.choice(["add", "mul"]),
    "kind": lambda r: r.choice(["relu", "gelu"]),
    "norm": lambda r: r.choice(["batch", "row", "none"]),
    "data": lambda r: bytes(r.randrange(256) for _ in range(r.randrange(64))),
    "key": lambda r: core.CoordinateManager().insert_coords(coords(r)),
    "depth": lambda r: r.choice([14, 18]),
    "cloud panels panel": scan,
    "rng": lambda r: np.random.default_rng(r.randrange(99)),
    "draw": lambda r: lambda rng: scan(r),
    "path": lambda r: r.choice(FILES),
    "root": lambda r: ".",
    "directory": lambda r: r.choice([".", "out"]),
    "split": lambda r: r.choice(["train", "valid", "all"]),
    "dataset": lambda r: [scan(r), scan(r)],
    "truth": lambda r: r.choice([np.zeros(N, np.int32), objects(r, score=False)]),
    "prediction": lambda r: np.zeros(N, np.int32),
    "classes": lambda r: r.choice([2, ("low", "high"), ((0, "low"), (1, "high"))]),
    "model network": lambda r: mlx.nn.Linear(4, 4),
    "net module": lambda r: r.choice([unet, integer_network, detector])(),
    "loaded": lambda r: ml.Program.load(program_file())._loaded,
    "example": lambda r: r.choice([tensor(r), ml.samples.tensor()]),
    "boxes": boxes,
    "scores": lambda r: np.array(floats(r, N)),
    "frame": frame,
    "frames": lambda r: [frame(r), frame(r)],
    "objects": lambda r: objects(r, score=False),
    "calibration": lambda r: io.KittiCalibration(np.eye(4), np.eye(3, 4)),
    "rect_velo": lambda r: np.eye(4),
    "p2": lambda r: np.eye(3, 4),
    "config": lambda r: r.choice([detection_config(), "second_kitti"]),
    "settings": lambda r: models.detection.read_settings(detection_config()),
    "levels": lambda r: [tensor(r), tensor(r)],
    "shape": lambda r: r.choice([(6, 6), None]),
    "dense": lambda r: floats(r, 1, 4, 6, 4),
    "support": lambda r: r.choice(["same", "reached"]),
    "bits": lambda r: r.choice([4, 8]),
    "group_size": lambda r: 32,
    "q k v": lambda r: floats(r, N, 2, 4),
    "heads": lambda r: 2,
    "scans": lambda r: [tensor(r), tensor(r)],
    "low": lambda r: (-3.0, -3.0, -3.0),
    "high": lambda r: (3.0, 3.0, 3.0),
    "found": lambda r: r.choice([(boxes(r), np.ones(N), np.ones(N)), objects(r)]),
    "threshold": lambda r: 0.5,
    "seed": lambda r: r.randrange(9),
    "folder": lambda r: r.choice([".", "out"]),
    "viewpoint": lambda r: (0.0, 0.0, 0.0),
    "max_points max_voxels": lambda r: r.choice([1, 5, 100]),
    "make": lambda r: ml.nn.BatchNorm,
    "conditions": lambda r: ("a", "b"),
    "backbone": lambda r: {},
    "loss": lambda r: lambda model, item: mx.array(0.0),
    "prepare": lambda r: lambda cloud, name: cloud,
    "optimizer": lambda r: mlx.optimizers.SGD(0.1),
    "pipeline": lambda r: training.VoxelPipeline(0.5, ((0, "low"), (1, "high"))),
    "transform": lambda r: transforms.Flip(),
    "transforms": lambda r: [transforms.Flip(), transforms.Jitter()],
    "logits": lambda r: floats(r, N, 9),
    "weights": lambda r: mx.ones((9,)),
    "rate": lambda r: 0.1,
    "steps": lambda r: r.choice([10, (transforms.GridSample(0.5),)]),
    "step": lambda r: mx.array(3),
    "samples": lambda r: 20,
    "quantization": lambda r: ml.ops.sparse_quantize(cloud(r, N)),
}
BY_NAME = {name: make for names, make in USUAL.items() for name in names.split()}


def usual(name: str, r: random.Random):
    """A value that a user would give to an argument of this name."""
    if name in BY_NAME:
        return BY_NAME[name](r)
    if "channel" in name or name.endswith(("dims", "features", "classes", "width", "hidden")):
        return r.choice([4, 8])
    return r.choice([1, 2, 0.5, "sum", True, None, floats(r, N, 4), row_numbers(r), (1, 2, 3)])


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
            lambda: floats(r, 5, n)[:0].T,
            lambda: mx.zeros((2,) * r.choice([0, 1, 5, 9])),
            lambda: coords(r, np.int64),
            lambda: tensor(r, channels=r.choice([0, 1, 4])),
            lambda: floats(r, n, 5)[:, :0],
            lambda: np.full((n, 3), r.choice([5e6, 1e30, -1e300])),
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
