"""A differential fuzz: random geometry and layers through the Python surface against float64 NumPy.

    python tests/attack/fuzz.py --cases 200
    python tests/attack/fuzz.py --first 17 --cases 1

Each case takes a dtype, and at random mx.compile, another number of threads, a manager with a tiny
budget, a pickled and a deep copy.
"""

import argparse
import copy
import pickle
import sys
from itertools import product

import mlx.core as mx
import numpy as np
from mlx_lattice import SparseTensor, core, ops

TOLERANCES = {mx.float32: 2e-5, mx.float16: 4e-3, mx.bfloat16: 3e-2}


def geometry(rng):
    n = int(rng.choice([0, 1, 2, 30, 300]))
    rows = np.concatenate([rng.integers(0, 3, (n, 1)), rng.integers(-5, 5, (n, 3))], 1)
    rows = np.unique(rows, axis=0)
    rng.shuffle(rows)
    return rows.astype(rng.choice([np.int32, np.int64]))


def edges_of(rows, size, stride, padding, dilation):
    """[(input row, output row, offset)] and the output rows, by dictionary."""
    same = stride == (1, 1, 1) and padding == (0, 0, 0)
    low = [-(k // 2) * d if k % 2 else 0 for k, d in zip(size, dilation)]
    floor = [(b, *(v // s for v, s in zip(xyz, stride))) for b, *xyz in rows.tolist()]
    out = [tuple(r) for r in rows.tolist()] if same else list(dict.fromkeys(floor))
    at = {tuple(r): i for i, r in enumerate(rows.tolist())}
    found = []
    for o, (b, *xyz) in enumerate(out):
        for k, index in enumerate(product(*map(range, size))):
            place = (
                v * s + lo + i * d - p
                for v, s, lo, i, d, p in zip(xyz, stride, low, index, dilation, padding)
            )
            i = at.get((b, *place))
            if i is not None:
                found.append((i, o, k))
    return found, out


def close(got, want, dtype, what):
    got = np.array(got.astype(mx.float32), np.float64)
    scale = max(1.0, np.abs(want).max(initial=0))
    error = np.abs(got - want).max(initial=0) / scale
    if got.shape != want.shape or not error <= TOLERANCES[dtype]:
        raise AssertionError(f"{what}: shape {got.shape} for {want.shape}, error {error:.2g}")


def case(number: int) -> None:
    rng = np.random.default_rng(number)
    rows = geometry(rng)
    dtype = list(TOLERANCES)[int(rng.integers(3))]
    c_in, c_out = int(rng.integers(1, 20)), int(rng.integers(1, 20))
    size, stride, dilation = (tuple(int(v) for v in rng.integers(1, m, 3)) for m in (4, 3, 3))
    padding = tuple(int(v) for v in rng.integers(-2, 3, 3)) if rng.random() < 0.5 else (0, 0, 0)
    core.set_thread_count(int(rng.integers(1, 5)))
    manager = core.CoordinateManager(budget=int(rng.choice([1, 1 << 30])))
    feats = mx.array(rng.standard_normal((len(rows), c_in)).astype(np.float32)).astype(dtype)
    weight = mx.array(rng.standard_normal((c_out, *size, c_in)).astype(np.float32)).astype(dtype)
    x = SparseTensor(mx.array(rows), feats, coord_manager=manager)
    if rng.random() < 0.3:
        x = pickle.loads(pickle.dumps(x))
    if rng.random() < 0.3:
        x = copy.deepcopy(x)
    edges, out = edges_of(rows, size, stride, padding, dilation)
    options = {"kernel_size": size, "stride": stride, "padding": padding, "dilation": dilation}
    f64 = np.array(feats.astype(mx.float32), np.float64)
    w64 = (
        np.array(weight.astype(mx.float32), np.float64).reshape(c_out, -1, c_in).transpose(1, 2, 0)
    )

    def forward(f, w):
        return ops.conv3d(x.replace(feats=f), w, **options).feats

    run = mx.compile(forward) if rng.random() < 0.3 else forward
    want, cotangent = np.zeros((len(out), c_out)), rng.standard_normal((len(out), c_out))
    to_f, to_w, counts = np.zeros_like(f64), np.zeros_like(w64), np.zeros(len(out))
    total, best = np.zeros((len(out), c_in)), np.full((len(out), c_in), -np.inf)
    for i, o, k in edges:
        want[o] += f64[i] @ w64[k]
        to_f[i] += w64[k] @ cotangent[o]
        to_w[k] += np.outer(f64[i], cotangent[o])
        counts[o] += 1
        total[o] += f64[i]
        best[o] = np.maximum(best[o], f64[i])
    y = run(feats, weight)
    close(y, want, dtype, "conv3d")
    g = mx.array(cotangent.astype(np.float32)).astype(dtype)
    grads = mx.vjp(forward, [feats, weight], [g])[1]
    close(grads[0], to_f, dtype, "gradient of the features")
    close(
        grads[1].reshape(c_out, -1, c_in).transpose(1, 2, 0), to_w, dtype, "gradient of the weight"
    )
    found = ops.kernel_relation(x, **options)
    if found.out_coords.tolist() != [list(r) for r in out] or found.edge_count != len(edges):
        raise AssertionError("other coordinates or edges")
    for mode, value in (
        ("sum", total),
        ("avg", total / np.maximum(counts, 1)[:, None]),
        ("max", np.where(counts[:, None] > 0, best, 0)),
    ):
        close(ops.pool3d(x, mode=mode, **options).feats, value, dtype, f"{mode} pool")
    algebra(rng, x, rows, f64, dtype)


def algebra(rng, x, rows, f64, dtype):
    other = rows[rng.permutation(len(rows))[: len(rows) // 2]]
    values = mx.array(rng.standard_normal((len(other), x.channels)).astype(np.float32)).astype(
        dtype
    )
    y = SparseTensor(mx.array(other), values)
    g64 = np.array(values.astype(mx.float32), np.float64)
    at = {tuple(r): i for i, r in enumerate(other.tolist())}
    want = np.array(
        [f64[i] + (g64[at[tuple(r)]] if tuple(r) in at else 0) for i, r in enumerate(rows.tolist())]
    )
    close((x + y).feats, want.reshape(f64.shape), dtype, "x + y")
    where = [i for i, r in enumerate(rows.tolist()) if tuple(r) in at]
    want = np.array([f64[i] * g64[at[tuple(rows[i].tolist())]] for i in where]).reshape(
        -1, x.channels
    )
    close((x * y).feats, want, dtype, "x * y")
    coded = ops.encode_points(
        mx.array(rows.astype(np.int32)), {"v": mx.array(np.arange(len(rows), dtype=np.int32))}
    )
    back = ops.decode_points(coded)
    order = np.array(back.attributes["v"])
    if not np.array_equal(np.array(back.coords), rows[order]):
        raise AssertionError("decoded points differ")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    a = parser.parse_args()
    wrong = 0
    for number in range(a.first, a.first + a.cases):
        try:
            case(number)
        except Exception as error:
            wrong += 1
            print(f"FINDING --first {number} --cases 1: {type(error).__name__}: {error}")
    print(f"{a.cases} cases, {wrong} findings")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
