"""More cases of the differential fuzz: layers, far coordinates, joins, threads, packed weights.

`fuzz.py` calls `more` once per case. Every check is against dictionaries and loops in float64, or
against another way to the same bits.
"""

import threading
from itertools import product

import mlx.core as mx
import numpy as np
from mlx_lattice import SparseTensor, core, ops

JOINS = ("inner", "left", "right", "outer")
OPERATIONS = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
ATTRIBUTES = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.float32)


def floats(rng, dtype, *shape):
    """(MLX array, its exact values as float64)"""
    a = mx.array(rng.standard_normal(shape).astype(np.float32)).astype(dtype)
    return a, np.array(a.astype(mx.float32), np.float64)


def distinct(rng, n, low, high):
    rows = np.concatenate([rng.integers(0, 2, (n, 1)), rng.integers(low, high, (n, 3))], 1)
    rows = np.unique(rows, axis=0).astype(np.int32)
    rng.shuffle(rows)
    return rows


def more(rng, dtype, close):
    far(rng)
    on_targets(rng, dtype, close)
    joins(rng, dtype, close)
    between(rng, dtype, close)
    attributes(rng)
    packed(rng, dtype, close)


def far(rng):
    """Geometry at the ends of the integers has the edges of geometry around 0."""
    rows = distinct(rng, int(rng.choice([1, 5, 80])), -5, 5)
    kind = rng.choice([np.int32, np.int64])
    step, size = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    ends = np.iinfo(kind)
    high = int(rng.integers(2))
    ends = ends.max - 8 if high else ends.min + 8
    shift = ends - ends % step  # a multiple of the stride moves every output with its input
    moved = rows.astype(object)
    moved[:, 1:] += shift
    near = ops.build_kernel_relation(mx.array(rows), size, step)
    found = ops.build_kernel_relation(mx.array(moved.astype(kind)), size, step)
    for name in ("in_rows", "out_rows", "kernel_ids"):
        if getattr(near.edges, name).tolist() != getattr(found.edges, name).tolist():
            raise AssertionError(f"other {name} at {shift}")
    out = np.array(found.out_coords).astype(object)
    out[:, 1:] -= shift // step
    if out.tolist() != near.out_coords.tolist():
        raise AssertionError(f"other outputs at {shift}")


def on_targets(rng, dtype, close):
    """Target, transposed and generative convolution, groups, and threads on one manager."""
    rows, target = (distinct(rng, int(rng.choice([1, 4, 60])), -4, 4) for _ in range(2))
    size, step = (tuple(int(v) for v in rng.integers(1, m, 3)) for m in (4, 3))
    groups = int(rng.choice([1, 2, 3]))
    c_in, c_out = (groups * int(v) for v in rng.integers(1, 6, 2))
    manager = core.CoordinateManager(budget=int(rng.choice([1, 1 << 30])))
    feats, f64 = floats(rng, dtype, len(rows), c_in)
    weight, w64 = floats(rng, dtype, c_out, *size, c_in // groups)
    w64 = w64.reshape(groups, c_out // groups, -1, c_in // groups)

    def product_of(i, k):
        parts = f64[i].reshape(groups, -1)
        return np.concatenate([w64[g, :, k] @ parts[g] for g in range(groups)])

    places = list(enumerate(product(*map(range, size))))
    x = SparseTensor(mx.array(rows), feats, coord_manager=manager)
    at = {tuple(r): i for i, r in enumerate(rows.tolist())}
    low = [-(k // 2) if k % 2 else 0 for k in size]
    want = np.zeros((len(target), c_out))
    for o, (b, *xyz) in enumerate(target.tolist()):
        for k, index in places:
            key = (b, *(v * s + lo + j for v, s, lo, j in zip(xyz, step, low, index)))
            if key in at:
                want[o] += product_of(at[key], k)
    options = {"kernel_size": size, "stride": step, "groups": groups}

    def forward():
        y = ops.conv3d(x, weight, coordinates=mx.array(target), **options).feats
        mx.eval(y)
        return y

    y = forward()
    close(y, want, dtype, "conv3d on a target")
    if rng.random() < 0.1:
        in_threads(forward, y)
    coarse = SparseTensor(mx.array(rows), feats, stride=step, coord_manager=manager)
    made: dict[tuple, np.ndarray] = {}
    for i, (b, *xyz) in enumerate(rows.tolist()):
        for k, index in places:
            key = (b, *(v * s + j for v, s, j in zip(xyz, step, index)))
            made[key] = made.get(key, np.zeros(c_out)) + product_of(i, k)
    z = ops.generative_conv_transpose3d(coarse, weight, **options)
    if z.coords.tolist() != [list(key) for key in made]:
        raise AssertionError("other places of a generative convolution")
    close(z.feats, np.array(list(made.values())).reshape(-1, c_out), dtype, "generative")
    z = ops.conv_transpose3d(coarse, weight, coordinates=mx.array(target), **options)
    want = np.array([made.get(tuple(r), np.zeros(c_out)) for r in target.tolist()])
    close(z.feats, want.reshape(-1, c_out), dtype, "transposed on a target")


def in_threads(forward, want):
    """Four threads at once give the bits that one gave."""
    found: list = [None] * 4

    def work(number):
        found[number] = np.array(forward().astype(mx.float32))

    workers = [threading.Thread(target=work, args=(i,)) for i in range(len(found))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    want = np.array(want.astype(mx.float32))
    if not all(f is not None and np.array_equal(f, want) for f in found):
        raise AssertionError("threads gave other bits")


def joins(rng, dtype, close):
    """Every operation under every join, with values for rows without a partner."""
    a, b = (distinct(rng, int(rng.choice([0, 3, 50])), -3, 3) for _ in range(2))
    channels = int(rng.integers(1, 5))
    (f, f64), (g, g64) = (floats(rng, dtype, len(r), channels) for r in (a, b))
    join, name = rng.choice(JOINS), rng.choice(list(OPERATIONS))
    left = {tuple(r): f64[i] for i, r in enumerate(a.tolist())}
    right = {tuple(r): g64[i] for i, r in enumerate(b.tolist())}
    keys = {
        "inner": [k for k in left if k in right],
        "left": list(left),
        "right": list(right),
        "outer": [*left, *(k for k in right if k not in left)],
    }[join]
    fills = [float(v) for v in rng.integers(-2, 3, 2)]
    y = ops.sparse_binary_op(
        SparseTensor(mx.array(a), f),
        SparseTensor(mx.array(b), g),
        str(name),
        join=str(join),
        lhs_fill=fills[0],
        rhs_fill=fills[1],
    )
    if y.coords.tolist() != [list(k) for k in keys]:
        raise AssertionError(f"other rows of a join {join}")
    sides = [
        np.array([side.get(k, np.full(channels, v)) for k in keys]).reshape(-1, channels)
        for side, v in zip((left, right), fills)
    ]
    close(y.feats, OPERATIONS[name](*sides), dtype, f"{name} joined {join}")


def between(rng, dtype, close):
    """Linear interpolation of voxels at points, and its gradient."""
    rows = distinct(rng, int(rng.choice([1, 20, 100])), -3, 3)
    feats, f64 = floats(rng, dtype, len(rows), 3)
    n = int(rng.choice([0, 1, 50]))
    p, batch = rng.integers(-28, 28, (n, 3)) / 8, rng.integers(0, 2, n).astype(np.int32)
    at = {tuple(r): i for i, r in enumerate(rows.tolist())}
    table = np.zeros((n, len(rows)))
    for i in range(n):
        floor = np.floor(p[i]).astype(int)
        for corner in product((0, 1), repeat=3):
            row = at.get((int(batch[i]), *(floor + corner).tolist()))
            if row is not None:
                part = p[i] - floor
                table[i, row] += np.prod(np.where(corner, part, 1 - part))
    x = SparseTensor(mx.array(rows), feats)

    def run(f):
        cloud = mx.array(p.astype(np.float32))
        return ops.devoxelize(cloud, x.replace(feats=f), batch_indices=mx.array(batch))

    close(run(feats), table @ f64, dtype, "devoxelize")
    cotangent, c64 = floats(rng, dtype, n, 3)
    close(mx.vjp(run, [feats], [cotangent])[1][0], table.T @ c64, dtype, "its gradient")


def attributes(rng):
    """Attributes of every dtype come back from the codec bit by bit."""
    rows = distinct(rng, int(rng.choice([0, 1, 40])), -30, 30)
    n = len(rows)
    given = {"row": np.arange(n, dtype=np.int32)}
    for kind in ATTRIBUTES:
        bits = rng.integers(0, 256, n * np.dtype(kind).itemsize).astype(np.uint8)
        values = np.frombuffer(bits.tobytes(), kind)
        given[np.dtype(kind).name] = np.nan_to_num(values) if kind == np.float32 else values
    coded = ops.encode_points(mx.array(rows), {k: mx.array(v) for k, v in given.items()})
    back = ops.decode_points(coded)
    order = np.array(back.attributes["row"])
    for name, values in given.items():
        found = np.array(back.attributes[name])
        if found.dtype != values.dtype or found.tobytes() != values[order].tobytes():
            raise AssertionError(f"another attribute of {name}")


def packed(rng, dtype, close):
    """A convolution with packed weights is that with the weights they stand for."""
    rows = distinct(rng, int(rng.choice([1, 50])), -3, 3)
    c_in, c_out = int(rng.choice([5, 32, 70])), int(rng.integers(1, 9))
    feats, _ = floats(rng, dtype, len(rows), c_in)
    weight, _ = floats(rng, mx.float32, c_out, 3, 3, 3, c_in)
    q = core.quantize_weight(weight, bits=int(rng.choice([4, 8])))
    x = SparseTensor(mx.array(rows), feats)
    dense = core.dequantize_weight(q).astype(mx.float32)
    exact = ops.subm_conv3d(x.astype(mx.float32), dense).feats
    close(ops.subm_conv3d(x, q).feats, np.array(exact, np.float64), dtype, "packed weights")
