"""Attention over ragged segments: a float64 oracle, recorded cases, derivatives, hostile input.

goldens/attention.npz: torch 2.13's scaled_dot_product_attention per segment on random inputs,
outputs and gradients evaluated in float64. Inputs are stored times 64; of large arrays every tenth
row is kept, of the gradients with a table every fifteenth.
"""

from pathlib import Path

import mlx.core as mx
import mlx_lattice as ml
import numpy as np
import pytest
from mlx_lattice import ops

GOLDEN = np.load(Path(__file__).with_name("goldens") / "attention.npz")


def relative(got, expected):
    got, expected = np.array(got, np.float64), np.array(expected, np.float64)
    assert got.shape == expected.shape
    return np.abs(got - expected).max(initial=0) / max(np.abs(expected).max(initial=0), 1e-30)


def gradients(loss, *arrays):
    return mx.grad(loss, argnums=list(range(len(arrays))))(*arrays)


def golden(prefix, name):
    return mx.array(GOLDEN[prefix + name].astype(np.float32) / 64)


def test_positions_of_a_bias_can_be_read_at_once():
    bias = ops.PositionBias(mx.zeros((2, 5)), [0, 1, 5], [3, 4], bounds=2)
    assert bias.q_positions.tolist() == [[0], [1], [5]] and bias.k_positions.tolist() == [[3], [4]]


def test_recorded_segments():
    q, k, v, g = (golden("", name) for name in ("q", "k", "v", "cotangent"))
    offsets = mx.array(GOLDEN["offsets"])
    scale = float(GOLDEN["scale"])
    assert relative(ops.attention(q, k, v, offsets)[::10], GOLDEN["out_rows"]) < 2e-6
    found = gradients(
        lambda *x: (ops.attention(*x, offsets, scale=scale) * g).sum(),
        q, k, v,
    )  # fmt: skip
    for name, got in zip(("dq", "dk", "dv"), found):
        assert relative(got[::10], GOLDEN[f"{name}_rows"]) < 5e-6, name


def test_recorded_bias():
    q, k, v, g = (golden("bias/", name) for name in ("q", "k", "v", "cotangent"))
    offsets = mx.array(GOLDEN["bias/offsets"])
    bias = [
        golden("bias/", f"bias{i}") if f"bias/bias{i}" in GOLDEN else mx.zeros((2, 0, 0))
        for i in range(6)
    ]
    assert relative(ops.attention(q, k, v, offsets, bias=bias), GOLDEN["bias/out"]) < 2e-6
    found = gradients(
        lambda q, k, v, *bias: (ops.attention(q, k, v, offsets, bias=list(bias)) * g).sum(),
        q, k, v, *bias,
    )  # fmt: skip
    for name, got in zip(("dq", "dk", "dv"), found):
        assert relative(got, GOLDEN[f"bias/{name}"]) < 5e-6, name
    for i, got in enumerate(found[3:]):
        if f"bias/dbias{i}" in GOLDEN:
            got = got[:, ::5] if i == 4 else got
            assert relative(got, GOLDEN[f"bias/dbias{i}"]) < 5e-6, i


def test_recorded_table():
    offsets = mx.array(GOLDEN["table/offsets"])
    rows = int(GOLDEN["table/offsets"][-1])
    q, k, v, g = (golden("", name)[:rows] for name in ("q", "k", "v", "cotangent"))
    table = mx.array(GOLDEN["table/table"])
    place = -mx.arange(rows)  # the recorded table is by key minus query

    def run(q, k, v, table):
        bias = ops.PositionBias(table, place, bounds=64)
        return ops.attention(q, k, v, offsets, bias=bias)

    assert relative(run(q, k, v, table)[::15], GOLDEN["table/out_rows"]) < 1e-5
    found = gradients(lambda *x: (run(*x) * g).sum(), q, k, v, table)
    for name, got in zip(("dq", "dk", "dv"), found):
        assert relative(got[::15], GOLDEN[f"table/{name}_rows"]) < 1e-5, name
    assert relative(found[3], GOLDEN["table/dtable"]) < 5e-5


def oracle(q, k, v, offsets, k_offsets, scale, bias=None, mask=None):
    """out in float64; bias and mask are lists per segment."""
    q, k, v = (np.array(x.astype(mx.float32), np.float64) for x in (q, k, v))
    out = np.zeros(q.shape)
    groups = q.shape[1] // k.shape[1]
    for s in range(len(offsets) - 1):
        rows, keys = slice(*offsets[s : s + 2]), slice(*k_offsets[s : s + 2])
        for h in range(q.shape[1]):
            logits = scale * q[rows, h] @ k[keys, h // groups].T
            if bias is not None:
                logits = logits + np.array(bias[s], np.float64)[h]
            if mask is not None:
                logits = np.where(np.array(mask[s]), logits, -np.inf)
            if logits.size == 0:
                continue
            top = logits.max(1, keepdims=True)
            e = np.exp(logits - np.where(np.isfinite(top), top, 0))
            total = e.sum(1, keepdims=True)
            out[rows, h] = np.divide(e, np.where(total == 0, 1, total)) @ v[keys, h // groups]
    return out


def problem(seed, lengths, k_lengths, heads=4, kv_heads=2, size=16, dtype=mx.float32):
    keys = mx.random.split(mx.random.key(seed), 4)
    t, s = sum(lengths), sum(k_lengths)
    q = mx.random.normal((t, heads, size), key=keys[0]).astype(dtype)
    k = mx.random.normal((s, kv_heads, size), key=keys[1]).astype(dtype)
    v = mx.random.normal((s, kv_heads, size), key=keys[2]).astype(dtype)
    offsets = np.cumsum([0, *lengths])
    k_offsets = np.cumsum([0, *k_lengths])
    return q, k, v, offsets, k_offsets


# Lengths around the edges of tiles: 6, 48 queries and 16, 32, 64, 128 keys.
LENGTHS = [0, 1, 5, 6, 7, 15, 16, 17, 31, 33, 47, 48, 49, 63, 65, 127, 128, 129, 97, 193, 257]


@pytest.mark.parametrize("size", [1, 3, 8, 17, 64, 100, 255, 256])
def test_oracle_sizes(size):
    q, k, v, offsets, k_offsets = problem(size, LENGTHS, LENGTHS[::-1], 2, 1, size)
    got = ops.attention(q, k, v, mx.array(offsets), k_offsets=mx.array(k_offsets))
    expected = oracle(q, k, v, offsets, k_offsets, size**-0.5)
    assert relative(got, expected) < 2e-6


@pytest.mark.parametrize("dtype, tolerance", [(mx.float16, 1e-3), (mx.bfloat16, 8e-3)])
def test_half_dtypes(dtype, tolerance):
    q, k, v, offsets, k_offsets = problem(3, [40, 0, 90], [70, 3, 1], dtype=dtype)
    got = ops.attention(q, k, v, offsets, k_offsets=k_offsets)
    assert got.dtype == dtype
    expected = oracle(q, k, v, offsets, k_offsets, 0.25)
    assert relative(got.astype(mx.float32), expected) < tolerance
    wide = [x.astype(mx.float32) for x in (q, k, v)]

    def loss(*x):
        return ops.attention(*x, offsets, k_offsets=k_offsets).astype(mx.float32).square().sum()

    for a, b in zip(gradients(loss, q, k, v), gradients(loss, *wide)):
        assert a.dtype == dtype
        assert relative(a.astype(mx.float32), b) < 4 * tolerance


def masks(kind, lengths, k_lengths):
    if kind == "causal":
        return "causal", [
            np.arange(m)[None] <= np.arange(n)[:, None] + m - n for n, m in zip(lengths, k_lengths)
        ]
    random = np.random.default_rng(1)
    made = [random.random((n, m)) < 0.6 for n, m in zip(lengths, k_lengths)]
    made[-1][3] = False  # a query that sees nothing
    return [mx.array(x) for x in made], made


@pytest.mark.parametrize("kind", ["causal", "booleans"])
def test_masks(kind):
    lengths, k_lengths = [60, 5, 0, 9], [130, 3, 4, 9]
    q, k, v, offsets, k_offsets = problem(5, lengths, k_lengths)
    given, exact = masks(kind, lengths, k_lengths)
    got = ops.attention(q, k, v, offsets, k_offsets=k_offsets, mask=given)
    expected = oracle(q, k, v, offsets, k_offsets, 0.25, mask=exact)
    assert relative(got, expected) < 2e-6
    if kind == "booleans":
        flat = mx.concatenate([m.reshape(-1) for m in given])
        same = ops.attention(q, k, v, offsets, k_offsets=k_offsets, mask=flat)
        assert mx.array_equal(got, same)
        assert mx.array_equal(
            got, ops.attention(q, k, v, offsets, k_offsets=k_offsets, mask=exact)
        )  # NumPy arrays
        assert mx.array_equal(got[68], mx.zeros((4, 16)))


def test_nothing_seen_is_zero_with_zero_gradients():
    q, k, v, offsets, _ = problem(6, [3, 2], [3, 2])
    bias = mx.full((4 * 13,), -mx.inf)  # 4 heads, 9 + 4 pairs
    for options in ({"bias": bias}, {"mask": mx.zeros((13,), mx.bool_)}):
        out = ops.attention(q, k, v, offsets, **options)
        assert mx.array_equal(out, mx.zeros_like(out))
        for g in gradients(lambda *x: ops.attention(*x, offsets, **options).sum(), q, k, v):
            assert mx.array_equal(g, mx.zeros_like(g))
    none = ops.attention(q, k[:0], v[:0], offsets, k_offsets=[0, 0, 0])
    assert mx.array_equal(none, mx.zeros_like(q))


def test_large_logits_nan_and_infinity():
    q, k, v, offsets, _ = problem(7, [70, 4], [70, 4])
    got = ops.attention(q, k, v, offsets, scale=1e4)  # exp of a difference of 1e5 is 0
    assert relative(got, oracle(q, k, v, offsets, offsets, 1e4)) < 1e-4
    for bad in (mx.nan, mx.inf):  # a logit that is no number: its whole row, nothing else
        broken = mx.array(np.array(q))
        broken[2, 1, 0] = bad
        out = ops.attention(broken, k, v, offsets)
        wrong = np.isnan(np.array(out)).any(2)
        assert wrong[2, 1] and wrong.sum() == 1
        keep = np.ones(74, bool)
        keep[2] = False
        clean = ops.attention(q, k, v, offsets)
        assert np.array_equal(np.array(out)[keep], np.array(clean)[keep])


def test_position_tables():
    random = np.random.default_rng(2)
    lengths, k_lengths = [30, 7], [12, 40]
    q, k, v, offsets, k_offsets = problem(8, lengths, k_lengths)
    places = [random.integers(-4, 5, (n, 3)) for n in (37, 52)]
    bounds = (3, 0, 2)
    for joint in (False, True):
        table = random.standard_normal((4, 7 * 1 * 5 if joint else 7 + 1 + 5)).astype(np.float32)
        away = np.clip(places[0][:, None] - places[1][None], -np.array(bounds), bounds) + bounds
        entry = (away[..., 0] * 1 + away[..., 1]) * 5 + away[..., 2]
        axes = table[:, away[..., 0]] + table[:, 7 + away[..., 1]] if not joint else None
        full = table[:, entry] if joint else axes + table[:, 8 + away[..., 2]]
        cut = [full[:, slice(*offsets[s : s + 2]), slice(*k_offsets[s : s + 2])] for s in range(2)]
        options = {"bounds": bounds, "joint": joint}

        def by_table(q, k, v, table, options=options):
            bias = ops.PositionBias(table, places[0], places[1], **options)
            return ops.attention(q, k, v, offsets, k_offsets=k_offsets, bias=bias)

        got = by_table(q, k, v, mx.array(table))
        assert relative(got, oracle(q, k, v, offsets, k_offsets, 0.25, cut)) < 2e-6
        bias = [mx.array(np.ascontiguousarray(c)) for c in cut]
        found = gradients(lambda *x: by_table(*x).square().sum(), q, k, v, mx.array(table))
        *same, d0, d1 = gradients(
            lambda q, k, v, *bias: (
                ops.attention(q, k, v, offsets, k_offsets=k_offsets, bias=list(bias)).square().sum()
            ),
            q, k, v, *bias,
        )  # fmt: skip
        for a, b in zip(found, same):
            assert relative(a, b) < 1e-5
        expected = np.zeros(table.shape)
        for s, d in enumerate((d0, d1)):
            part = away[slice(*offsets[s : s + 2]), slice(*k_offsets[s : s + 2])]
            for h in range(4):
                if joint:
                    at = (part[..., 0] + part[..., 1]) * 5 + part[..., 2]
                    np.add.at(expected[h], at, np.array(d, np.float64)[h])
                    continue
                for axis, first in enumerate((0, 7, 8)):
                    np.add.at(expected[h], first + part[..., axis], np.array(d, np.float64)[h])
        assert relative(found[3], expected) < 1e-5


@pytest.mark.parametrize("options", ["plain", "bias", "table", "causal"])
def test_derivatives_of_any_order(options):
    lengths, k_lengths = [5, 0, 7], [4, 3, 7]
    q, k, v, offsets, k_offsets = problem(9, lengths, k_lengths, 2, 1, 3)
    places = [mx.arange(12) // 2, mx.arange(14) // 3]
    extra = {"bias": mx.random.normal((2 * 69,)), "table": mx.random.normal((2, 5))}.get(options)
    inputs = [q, k, v] + ([extra] if extra is not None else [])

    def run(q, k, v, extra=None):
        bias = extra
        if options == "table":
            bias = ops.PositionBias(extra, *places, bounds=2)
        mask = "causal" if options == "causal" else None
        return ops.attention(q, k, v, offsets, k_offsets=k_offsets, bias=bias, mask=mask)

    keys = mx.random.split(mx.random.key(1), 9)
    direction = [mx.random.normal(x.shape, key=key) for x, key in zip(inputs, keys)]
    g = mx.random.normal(q.shape, key=keys[8])
    (out,), (tangent,) = mx.jvp(run, inputs, direction)
    (_,), pulled = mx.vjp(run, inputs, [g])
    assert mx.array_equal(out, run(*inputs))
    forward = (tangent * g).sum().item()
    assert abs(forward - sum((a * b).sum().item() for a, b in zip(pulled, direction))) < 1e-4

    def slope(*x):  # gradient along the direction
        found = mx.grad(lambda *y: (run(*y) * g).sum(), argnums=list(range(len(x))))(*x)
        return sum((a * b).sum() for a, b in zip(found, direction))

    def moved(t):
        return [x + t * d for x, d in zip(inputs, direction)]

    h = 1e-2
    numeric = [(run(*moved(h)) * g).sum().item(), (run(*moved(-h)) * g).sum().item()]
    assert abs((numeric[0] - numeric[1]) / (2 * h) - forward) < 2e-2 * (1 + abs(forward))
    second = gradients(slope, *inputs)
    bend = sum((a * b).sum().item() for a, b in zip(second, direction))
    steps = (slope(*moved(h)).item() - slope(*moved(-h)).item()) / (2 * h)
    assert abs(bend - steps) < 3e-2 * (1 + abs(steps))
    (_,), (along,) = mx.jvp(slope, inputs, direction)
    assert abs(along.item() - bend) < 1e-3 * (1 + abs(bend))


def test_threads_and_views_do_not_matter():
    q, k, v, offsets, _ = problem(10, [300, 7, 150], [300, 7, 150])
    given = mx.array(offsets)
    results = []
    threads = ml.core.thread_count()
    for n in (1, 2, 3):
        ml.core.set_thread_count(n)

        def loss(*x):
            return ops.attention(*x, given).square().sum()

        results.append([ops.attention(q, k, v, given), *gradients(loss, q, k, v)])
        mx.eval(results[-1])
    ml.core.set_thread_count(threads)
    for other in results[1:]:
        for a, b in zip(results[0], other):
            assert mx.array_equal(a, b)
    later = ops.attention(q, k, v, given)
    np.array(given, copy=False)[:] = 10**6
    assert mx.array_equal(later, results[0][0])


def test_compiled_and_strided():
    q, k, v, offsets, _ = problem(11, [20, 13], [20, 13], 4, 4)
    packed = mx.stack([q, k, v], axis=1)  # (T, 3, H, D): slices have gaps
    expected = ops.attention(q, k, v, offsets)
    given = mx.array(offsets)

    def run(x):
        return ops.attention(x[:, 0], x[:, 1], x[:, 2], given)

    assert mx.array_equal(run(packed), expected)
    assert mx.array_equal(mx.compile(run)(packed), expected)
    grad = mx.grad(lambda x: run(x).square().sum())
    assert mx.allclose(mx.compile(grad)(packed), grad(packed))


BAD = [
    ({"offsets": [0, 4, 3, 10]}, "offsets must ascend, got 3 after 4"),
    ({"offsets": [1, 10]}, "offsets must start with 0 and end with 10, got 1 and 10"),
    ({"offsets": [0, 2**40]}, "offsets must start with 0 and end with 10"),
    ({"offsets": [0, 2**40, 10]}, "offsets must ascend"),
    ({"offsets": []}, "offsets"),
    ({"offsets": [0.0, 10.0]}, "offsets must hold integers, got float32"),
    ({"k_offsets": [0, 10]}, "k_offsets must have as many entries as offsets, 3, got 2"),
    ({"k_offsets": [0, -5, 10]}, "k_offsets must ascend, got -5 after 0"),
    ({"q": mx.zeros((10, 8))}, r"q must have shape \(rows, heads, D\), got \(10, 8\)"),
    ({"q": mx.zeros((10, 3, 8))}, "heads of q must be a multiple .* got 3 and 2"),
    ({"q": mx.zeros((10, 4, 8), mx.float16)}, "one dtype, got float16 and float32"),
    ({"q": mx.zeros((10, 4, 8), mx.int32)}, "found int32, expected float32"),
    ({"k": mx.zeros((9, 2, 8))}, "k and v must have one shape"),
    ({"k": mx.zeros((9, 2, 8)), "v": mx.zeros((9, 2, 8))}, "give k_offsets"),
    ({"scale": float("nan")}, "scale must be finite"),
    ({"mask": "casual"}, "mask must be \"causal\" or hold booleans, got 'casual'"),
    ({"mask": mx.zeros((52,))}, "mask must hold booleans, got float32; add numbers"),
    ({"mask": mx.zeros((51,), mx.bool_)}, r"mask must be a list .* flat, \(52,\), got \(51,\)"),
    ({"bias": mx.zeros((4, 10, 10))}, r"bias must be a list of arrays \(4, L_q, L_k\)"),
    ({"bias": [mx.zeros((4, 4, 4))]}, "bias must have one array for each of 2 segments, got 1"),
    (
        {"bias": [mx.zeros((4, 4, 4)), mx.zeros((4, 4, 4))]},
        r"bias\[1\] must have shape \(4, 6, 6\), got \(4, 4, 4\)",
    ),
    (
        {"bias": ops.PositionBias(mx.zeros((3, 5)), mx.arange(10), bounds=2)},
        "one row for each of 4 heads",
    ),
    (
        {"bias": ops.PositionBias(mx.zeros((4, 5)), mx.arange(9), bounds=2)},
        "positions of 10 queries and 10 keys, got 9 and 9",
    ),
]


@pytest.mark.parametrize("change, message", BAD)
def test_bad_arguments(change, message):
    given = {
        "q": mx.zeros((10, 4, 8)),
        "k": mx.zeros((10, 2, 8)),
        "v": mx.zeros((10, 2, 8)),
        "offsets": [0, 4, 10],
        **change,
    }
    with pytest.raises(ValueError, match=message):
        ops.attention(given.pop("q"), given.pop("k"), given.pop("v"), given.pop("offsets"), **given)


@pytest.mark.parametrize(
    "table, places, options, message",
    [
        (mx.zeros((2, 4)), mx.arange(3), {"bounds": 2}, r"table must have shape \(H, 5\)"),
        (mx.zeros((2, 5)), mx.zeros((3, 2), mx.int32), {"bounds": 2}, r"shape \(rows, 1\)"),
        (mx.zeros((2, 5)), mx.zeros((3,)), {"bounds": 2}, "must hold integers, got float32"),
        (mx.zeros((2, 5)), mx.arange(3), {"bounds": -1}, r"bounds must be in 0\.\.2\^30, got -1"),
        (mx.zeros((2, 5)), mx.arange(3), {"bounds": (1, 1, 1, 1)}, "1 to 3 entries, got 4"),
        (mx.zeros((2, 5)), mx.array([2**31 - 1]), {"bounds": 2}, "is outside"),
        (
            mx.zeros((2, 5)),
            mx.zeros((3, 3), mx.int32),
            {"bounds": (2**29,) * 3, "joint": True},
            "more than 2",
        ),
    ],
)
def test_bad_tables(table, places, options, message):
    with pytest.raises(ValueError, match=message):
        ops.PositionBias(table, places, **options)
