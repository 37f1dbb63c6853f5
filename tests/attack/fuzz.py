"""A differential fuzz: random geometry and layers through the Python surface against float64 NumPy.

    python tests/attack/fuzz.py --cases 200
    python tests/attack/fuzz.py --seed 3 --first 17 --cases 1

Each case takes a dtype. At random it takes mx.compile, another number of threads, or four threads
at once. It may also take a manager with a tiny budget, a pickled copy, a deep copy or a fork.
`fuzz_more.py` holds the second half of the checks, `fuzz_rules.py` rules that hold for all inputs.
"""

import argparse
import copy
import faulthandler
import os
import pickle
import select
import signal
import sys
from itertools import product

import mlx.core as mx
import numpy as np
from fuzz_more import more
from fuzz_rules import rules
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


def by_offset(weight: mx.array) -> mx.array:
    """A weight (C_out, Kx, Ky, Kz, C_in) as (K, C_in, C_out)."""
    return weight.reshape(weight.shape[0], -1, weight.shape[-1]).transpose(1, 2, 0)


def case(seed: int, number: int) -> None:
    rng = np.random.default_rng([seed, number])
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
    w64 = np.array(by_offset(weight.astype(mx.float32)), np.float64)

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
    close(by_offset(grads[1]), to_w, dtype, "gradient of the weight")
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
    transposed(rows, size, stride, padding, dilation)
    points(rng, dtype)
    coding(rng)
    more(rng, dtype, close)
    rules(rng)
    if rng.random() < 0.1:
        forked(forward, feats, weight, y)


def transposed(rows, size, stride, padding, dilation):
    """Edges of the transposed relation: out = in * s + o_k - p, one per (row, offset)."""
    found = ops.build_transposed_kernel_relation(mx.array(rows), size, stride, padding, dilation)
    at: dict[tuple, int] = {}
    edges = set()
    for i, (b, *xyz) in enumerate(rows.tolist()):
        for k, index in enumerate(product(*map(range, size))):
            parts = zip(xyz, stride, index, dilation, padding)
            place = (v * s + j * d - p for v, s, j, d, p in parts)
            edges.add((i, at.setdefault((b, *place), len(at)), k))
    e = found.edges
    if found.out_coords.tolist() != [list(r) for r in at] or edges != set(
        zip(e.in_rows.tolist(), e.out_rows.tolist(), e.kernel_ids.tolist())
    ):
        raise AssertionError("other coordinates or edges of the transposed relation")


def points(rng, dtype):
    """Voxels of points, nearest and radius neighbors, against loops in float64."""
    n, channels = int(rng.choice([0, 1, 40, 200])), int(rng.integers(1, 9))
    # Multiples of 1/8: squares of distances are exact, so that ties are ties on both sides.
    p = rng.integers(-24, 24, (n, 3)) / 8
    values = mx.array(rng.standard_normal((n, channels)).astype(np.float32)).astype(dtype)
    v64 = np.array(values.astype(mx.float32), np.float64)
    cells: dict[tuple, list[int]] = {}
    for i, cell in enumerate(np.floor(p / 0.5).astype(int).tolist()):
        cells.setdefault((0, *cell), []).append(i)
    for reduction, pick in (("sum", np.sum), ("mean", np.mean), ("max", np.max)):
        made = ops.voxelize(mx.array(p.astype(np.float32)), values, 0.5, reduction=reduction)
        if made.coords.tolist() != [list(c) for c in cells]:
            raise AssertionError("other voxels")
        want = np.array([pick(v64[i], axis=0) for i in cells.values()]).reshape(-1, channels)
        close(made.feats, want, dtype, f"voxelize {reduction}")
    if not n:
        return
    squares = ((p[:, None] - p[None]) ** 2).sum(2)
    order = [sorted(range(n), key=lambda j, q=q: (squares[q, j], j)) for q in range(n)]
    cloud, k, radius = mx.array(p.astype(np.float32)), int(rng.integers(1, 6)), 0.75
    near = ops.build_knn_relation(cloud, k=k)
    want = [j for q in range(n) for j in order[q][:k]]
    inside = [j for q in range(n) for j in order[q] if squares[q, j] <= radius**2]
    if near.edges.source_rows.tolist() != want:
        raise AssertionError("other nearest neighbors")
    if ops.build_radius_relation(cloud, radius=radius).edges.source_rows.tolist() != inside:
        raise AssertionError("other neighbors inside the radius")


def coding(rng):
    """Symbols through both entropy coders and back."""
    n, symbols = int(rng.choice([0, 1, 7, 300])), int(rng.integers(2, 40))
    prob = rng.random((n, symbols)).astype(np.float32) + 1e-3
    table = mx.array(prob / prob.sum(axis=1, keepdims=True)) if n else mx.zeros((0, symbols))
    given = rng.integers(0, symbols, n).astype(np.int32)
    for encode, decode in (
        (ops.range_encode_from_prob, ops.range_decode_from_prob),
        (ops.rans_encode_from_prob, ops.rans_decode_from_prob),
    ):
        back = decode(table, encode(table, mx.array(given)))
        if back.tolist() != given.tolist():
            raise AssertionError(f"{encode.__name__}: other symbols")


def forked(forward, feats, weight, y):
    """A forked child builds a relation, and its parent goes on with the same bits.

    Worker threads do not survive a fork: the child must not wait for them.
    """
    mx.eval(y)
    want, reader, writer = np.array(y.astype(mx.float32)), *os.pipe()
    child = os.fork()
    if child == 0:
        try:
            found = ops.build_kernel_relation(mx.array([[0, 0, 0, 0], [0, 1, 0, 0]]), 3)
            os.write(writer, b"%d" % found.edge_count)
        finally:
            os._exit(0)
    os.close(writer)
    ready, _, _ = select.select([reader], [], [], 60)
    if not ready:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    text = os.read(reader, 16) if ready else b"nothing"
    os.close(reader)
    again = np.array(forward(feats, weight).astype(mx.float32))
    if text != b"4" or not np.array_equal(again, want):
        raise AssertionError(f"a forked child gave {text!r}")


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
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    wrong = 0
    for number in range(a.first, a.first + a.cases):
        # A case takes less than a second: one that hangs ends the run and shows where it stands.
        faulthandler.dump_traceback_later(120, exit=True)
        try:
            case(a.seed, number)
        except Exception as error:
            wrong += 1
            told = f"{type(error).__name__}: {error}"
            print(f"FINDING --seed {a.seed} --first {number} --cases 1: {told}", flush=True)
    print(f"{a.cases} cases, {wrong} findings")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
