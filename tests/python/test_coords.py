"""Coordinate sets against plain Python."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lattice import core, ops
from strategies import DTYPES, coordinate_sets
from threads import run_together, with_threads

I32, I64 = np.iinfo(np.int32), np.iinfo(np.int64)


def rows_of(array):
    return [tuple(row) for row in np.array(array).tolist()]


def first_seen(rows):
    return list(dict.fromkeys(rows))


def first_row(rows, query):
    return rows.index(query) if query in rows else -1


def coords(*rows, dtype=mx.int32):
    return mx.array(np.array(rows, dtype=np.int64).reshape(-1, 4)).astype(dtype)


@st.composite
def repeated_sets(draw, count=1):
    """`count` arrays of one dtype whose rows may repeat, within an array and across."""
    dtype = draw(st.sampled_from(DTYPES))
    pool = draw(coordinate_sets(dtype, min_rows=1))
    picks = st.lists(st.integers(0, len(pool) - 1), max_size=60)
    return [pool[np.array(draw(picks), dtype=np.int64)] for _ in range(count)]


@st.composite
def distinct_pairs(draw):
    dtype = draw(st.sampled_from(DTYPES))
    pool = draw(coordinate_sets(dtype, min_rows=1))
    picks = st.lists(st.integers(0, len(pool) - 1), max_size=40, unique=True)
    return [pool[np.array(draw(picks), dtype=np.int64)] for _ in range(2)]


@given(repeated_sets(2))
def test_set_operations(pair):
    a, b = map(mx.array, pair)
    lhs, rhs = rows_of(a), rows_of(b)
    for name, want in [
        ("union_coords", first_seen(lhs + rhs)),
        ("intersection_coords", [r for r in first_seen(lhs) if r in rhs]),
        ("difference_coords", [r for r in first_seen(lhs) if r not in rhs]),
    ]:
        got = getattr(ops, name)(a, b)
        assert got.dtype == a.dtype and got.shape == (len(want), 4), name
        assert rows_of(got) == want, name


@given(repeated_sets(2))
def test_lookup(pair):
    a, b = map(mx.array, pair)
    rows, queries = rows_of(a), rows_of(b)
    want = [first_row(rows, q) for q in queries]
    found = ops.lookup_coords(a, b)
    assert found.dtype == mx.int32 and found.tolist() == want
    contains = ops.contains_coords(a, b)
    assert contains.dtype == mx.bool_ and contains.tolist() == [w >= 0 for w in want]
    assert ops.inverse_map(a, b).tolist() == want
    kept = core.CoordinateSet(a)
    assert ops.lookup_coords(kept, b).tolist() == want
    assert kept.is_unique == (len(set(rows)) == len(rows)) and len(kept) == len(rows)
    assert kept.coords is kept.coords and kept.dtype == a.dtype


@given(repeated_sets(1), st.tuples(*[st.integers(1, 5)] * 3))
def test_downsample(sets, stride):
    a = mx.array(sets[0])
    want = first_seen(
        (b, x // stride[0], y // stride[1], z // stride[2]) for b, x, y, z in rows_of(a)
    )
    got = ops.downsample_coords(a, stride)
    assert rows_of(got) == want and got.dtype == a.dtype
    assert rows_of(ops.downsample_coords(a)) == rows_of(ops.downsample_coords(a, (2, 2, 2)))


def join_rows(lhs, rhs, join):
    if join == "right":
        return [(first_row(lhs, r), i) for i, r in enumerate(rhs)]
    pairs = [(i, first_row(rhs, r)) for i, r in enumerate(lhs)]
    if join == "inner":
        return [p for p in pairs if p[1] >= 0]
    return pairs + [(-1, i) for i, r in enumerate(rhs) if r not in lhs and join == "outer"]


@given(distinct_pairs(), st.sampled_from(["inner", "left", "right", "outer"]), st.data())
def test_alignment(pair, join, data):
    a, b = map(mx.array, pair)
    n_a, n_b = (data.draw(st.integers(0, len(side))) for side in pair)
    lhs, rhs = rows_of(a)[:n_a], rows_of(b)[:n_b]
    want = join_rows(lhs, rhs, join)
    got = ops.build_sparse_alignment(a, mx.array([n_a]), b, mx.array([n_b]), join=join)
    assert list(zip(got.lhs_rows.tolist(), got.rhs_rows.tolist())) == want
    assert rows_of(got.coords) == [lhs[i] if i >= 0 else rhs[j] for i, j in want]
    assert got.active_rows.tolist() == [len(want)] and got.coords.dtype == a.dtype
    assert got.lhs_rows.dtype == got.rhs_rows.dtype == got.active_rows.dtype == mx.int32


def test_alignment_of_all_rows_and_identity():
    a, b = coords((0, 1, 0, 0), (0, 2, 0, 0)), coords((0, 2, 0, 0), (0, 3, 0, 0))
    outer = ops.build_sparse_alignment(a, None, b, None, join="outer")
    assert outer.lhs_rows.tolist() == [0, 1, -1] and outer.rhs_rows.tolist() == [-1, 0, 1]
    assert outer.coords is outer.coords
    again = core.SparseAlignment(outer.coords, outer.active_rows, outer.lhs_rows, outer.rhs_rows)
    assert again.rhs_rows.tolist() == [-1, 0, 1]


def morton(row, bits):
    batch, *axes = row
    return batch, sum(
        (axes[a] + 2 ** (bits - 1) >> b & 1) << (3 * b + a) for b in range(bits) for a in range(3)
    )


@given(repeated_sets(1))
def test_morton_order(sets):
    a = mx.array(sets[0])
    rows = rows_of(a)
    want = sorted(range(len(rows)), key=lambda r: morton(rows[r], 64))
    assert ops.morton_order(a).tolist() == want
    ordering = ops.morton_sort_coords(a)
    assert ordering.order.tolist() == want and rows_of(ordering.coords) == [rows[r] for r in want]
    assert [want[p] for p in ordering.inverse_rows.tolist()] == list(range(len(rows)))


@given(repeated_sets(1))
def test_hilbert_order(sets):
    a = mx.array(sets[0])
    rows = rows_of(a)
    order = ops.hilbert_order(a).tolist()
    assert sorted(order) == list(range(len(rows)))
    ordered = [rows[r] for r in order]
    assert [r[0] for r in ordered] == sorted(r[0] for r in rows)
    for row in set(rows):  # equal rows are together, by ascending row number
        at = [p for p, other in enumerate(ordered) if other == row]
        assert at == list(range(at[0], at[0] + len(at)))
        assert [order[p] for p in at] == sorted(order[p] for p in at)


def test_hilbert_steps_are_one_long():
    cube = [(0, x, y, z) for x in range(-4, 4) for y in range(-4, 4) for z in range(-4, 4)]
    path = np.array(cube)[np.array(ops.hilbert_order(coords(*cube)))]
    assert (np.abs(np.diff(path, axis=0)).sum(axis=1) == 1).all()


@given(
    st.lists(st.tuples(st.integers(0, 7), *[st.integers(0, 2**20 - 1)] * 3), max_size=30),
    st.sampled_from(DTYPES),
)
def test_morton_codes(rows, dtype):
    codes = ops.morton_codes(mx.array(np.array(rows, dtype=dtype).reshape(-1, 4)))
    want = [
        b << 60
        | sum((v >> i & 1) << (3 * i + a) for a, v in enumerate((x, y, z)) for i in range(20))
        for b, x, y, z in rows
    ]
    assert codes.dtype == mx.int64
    assert [c % 2**64 for c in codes.tolist()] == want


@pytest.mark.parametrize("row", [(8, 0, 0, 0), (0, 2**20, 0, 0), (0, 0, -1, 0), (0, 0, 0, I32.max)])
def test_morton_codes_overflow(row):
    with pytest.raises(OverflowError, match=r"\[morton_codes\]"):
        ops.morton_codes(coords((0, 1, 1, 1), row))


@given(repeated_sets(1))
def test_occupancy(sets):
    a = mx.array(sets[0])
    rows = rows_of(a)
    parents = first_seen((b, x // 2, y // 2, z // 2) for b, x, y, z in rows)
    masks = [0] * len(parents)
    links = []
    for b, x, y, z in rows:
        parent, bit = (
            parents.index((b, x // 2, y // 2, z // 2)),
            (x & 1) + 2 * (y & 1) + 4 * (z & 1),
        )
        masks[parent] |= 1 << bit
        links.append((parent, bit))
    got = ops.occupancy_downsample(a)
    assert (
        rows_of(got.coords) == parents
        and got.occupancy.tolist() == masks
        and got.occupancy.dtype == mx.uint8
    )
    assert list(zip(got.parent_rows.tolist(), got.child_indices.tolist())) == links
    assert got.active_rows.tolist() == [len(parents)]
    assert (
        rows_of(ops.child_coords_from_indices(got.coords, got.parent_rows, got.child_indices))
        == rows
    )

    children = [(p, bit) for p, mask in enumerate(masks) for bit in range(8) if mask >> bit & 1]
    expansion = ops.occupancy_expand(got.coords, got.occupancy)
    assert list(zip(expansion.parent_rows.tolist(), expansion.child_indices.tolist())) == children
    assert rows_of(expansion.coords) == [
        (parents[p][0], *(2 * parents[p][1 + i] + (bit >> i & 1) for i in range(3)))
        for p, bit in children
    ]
    assert expansion.active_rows.tolist() == [len(children)]


def test_expansion_leaves_the_range():
    parent = coords((0, 2**30, 0, 0))
    with pytest.raises(OverflowError, match=r"\[occupancy_expand\] x .*2147483648"):
        ops.occupancy_expand(parent, mx.array([1], dtype=mx.uint8))
    with pytest.raises(OverflowError, match=r"\[child_coords_from_indices\] x"):
        ops.child_coords_from_indices(parent, mx.array([0]), mx.array([0]))
    assert ops.occupancy_expand(parent, mx.array([0], dtype=mx.uint8)).coords.shape == (0, 4)
    assert rows_of(
        ops.occupancy_expand(parent.astype(mx.int64), mx.array([1], dtype=mx.uint8)).coords
    ) == [(0, 2**31, 0, 0)]


@pytest.mark.parametrize("dtype", [mx.int32, mx.int64])
def test_nothing(dtype):
    none, one = mx.zeros((0, 4), dtype), coords((0, 1, 2, 3), dtype=dtype)
    for f in (ops.union_coords, ops.intersection_coords, ops.difference_coords):
        assert f(none, none).shape == (0, 4) and f(none, none).dtype == dtype
    assert (
        rows_of(ops.union_coords(none, one))
        == rows_of(ops.difference_coords(one, none))
        == rows_of(one)
    )
    assert ops.lookup_coords(none, one).tolist() == [-1] and ops.lookup_coords(one, none).shape == (
        0,
    )
    assert ops.contains_coords(one, none).shape == (0,) and ops.inverse_map(one, none).shape == (0,)
    assert ops.downsample_coords(none).shape == (0, 4) and ops.morton_codes(none).shape == (0,)
    assert ops.morton_order(none).shape == ops.hilbert_order(none).shape == (0,)
    assert ops.morton_sort_coords(none).coords.shape == (0, 4)
    assert ops.occupancy_downsample(none).occupancy.shape == (0,)
    assert ops.occupancy_expand(none, mx.zeros((0,), mx.uint8)).coords.shape == (0, 4)
    assert ops.child_coords_from_indices(
        none, mx.zeros((0,), mx.int32), mx.zeros((0,), mx.int32)
    ).shape == (0, 4)
    for join in ("inner", "left", "right", "outer"):
        assert ops.build_sparse_alignment(none, None, none, None, join=join).coords.shape == (0, 4)


def test_strided_and_lazy_arrays():
    base = mx.array(np.arange(48, dtype=np.int32).reshape(6, 8))
    view = base[::2, ::2]
    assert rows_of(ops.union_coords(view, view + 0)) == rows_of(view)
    assert rows_of(
        ops.union_coords(base[:, :4].T.astype(mx.int32)[:, :4], mx.zeros((0, 4), mx.int32))
    ) == rows_of(base[:4, :4].T)


A, B = coords((0, 0, 0, 0), (0, 1, 0, 0)), coords((0, 1, 0, 0))
# ValueErrors by their text, and errors of other kinds.
REFUSED = {
    r"\[union_coords\] lhs must have shape \(N, 4\), got \(5, 3\)": lambda: ops.union_coords(
        mx.zeros((5, 3), mx.int32), A
    ),
    "rhs must have shape": lambda: ops.union_coords(A, mx.zeros((4,), mx.int32)),
    "queries must be int32 or int64, got float32": lambda: ops.lookup_coords(A, mx.zeros((1, 4))),
    "equal dtypes, got int32 and int64": lambda: ops.lookup_coords(A, B.astype(mx.int64)),
    "batch >= 0, got batch -1": lambda: ops.contains_coords(coords((-1, 0, 0, 0)), A),
    "stride must be >= 1": lambda: ops.downsample_coords(A, 0),
    "join must be inner, left, right or outer, got 'cross'": lambda: ops.build_sparse_alignment(
        A, None, B, None, join="cross"
    ),
    "active_rows must be in 0..2, got 3": lambda: ops.build_sparse_alignment(
        A, mx.array([3]), B, None, join="left"
    ),
    "got -1": lambda: ops.build_sparse_alignment(A, mx.array([-1]), B, None, join="left"),
    "active_rows": lambda: ops.build_sparse_alignment(A, mx.array([1, 1]), B, None, join="left"),
    "duplicates": lambda: ops.build_sparse_alignment(
        A, None, mx.concatenate([B, B]), None, join="left"
    ),
    r"occupancy must be uint8 of shape \(2,\)": lambda: ops.occupancy_expand(
        A, mx.zeros((3,), mx.uint8)
    ),
    "got float32": lambda: ops.occupancy_expand(A, mx.zeros((2,))),
    r"parent_rows\[0\] = 2": lambda: ops.child_coords_from_indices(A, mx.array([2]), mx.array([0])),
    r"child_indices\[0\] = 8": lambda: ops.child_coords_from_indices(
        A, mx.array([0]), mx.array([8])
    ),
    "equal lengths, got 1 and 2": lambda: ops.child_coords_from_indices(
        A, mx.array([0]), mx.array([0, 1])
    ),
    "traced": lambda: mx.compile(lambda c: ops.union_coords(c, c))(A),
    r"\[CoordinateSet\] coords must have shape": lambda: core.CoordinateSet(
        mx.zeros((2, 5), mx.int32)
    ),
}
BAD = [(call, ValueError, text) for text, call in REFUSED.items()]
BAD += [
    (lambda: ops.downsample_coords(A, (2, 2)), (ValueError, TypeError), "stride"),
    (lambda: ops.downsample_coords(A, 2.0), TypeError, "stride"),
    (lambda: ops.downsample_coords(A, True), TypeError, "stride"),
    (
        lambda: ops.downsample_coords("coords"),
        TypeError,
        r"\[downsample_coords\] coords: found \w+, expected an mx.array",
    ),
]


@pytest.mark.parametrize("call, error, text", BAD)
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_stream_argument():
    for stream in (mx.cpu, mx.default_stream(mx.cpu), None):
        assert ops.lookup_coords(A, B, stream=stream).tolist() == [1]


def test_threads_of_the_caller_and_of_the_pool():
    rng = np.random.default_rng(1)
    a, b = (mx.array(rng.integers(0, 40, (30000, 4)).astype(np.int32)) for _ in range(2))
    mx.eval(a, b)
    run = lambda: [np.array(f(a, b)) for f in (ops.union_coords, ops.lookup_coords)]
    results = [run() for _ in with_threads(1, 2)]
    for one, two in zip(*results):
        assert (one == two).all()

    shared = core.CoordinateSet(a)

    def work():
        for _ in range(5):
            assert (np.array(ops.lookup_coords(shared, b)) == results[0][1]).all()

    run_together(work, 4)


@pytest.mark.slow
@settings(deadline=None, max_examples=5)
@given(st.integers(0, 1000))
def test_many_rows(seed):
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-30, 30, (50000, 4)).astype(np.int64) * [0, 1, 1, 1] for _ in range(2))
    _, first = np.unique(np.concatenate([a, b]), axis=0, return_index=True)
    want = np.concatenate([a, b])[np.sort(first)]
    assert (np.array(ops.union_coords(mx.array(a), mx.array(b))) == want).all()


def test_writing_to_shown_coordinates_does_not_reach_the_set():
    kept = core.CoordinateSet(mx.array([[0, 0, 0, 0], [0, 1, 0, 0]], mx.int32))
    assert kept.coords is kept.coords
    shown = kept.coords
    shown[0, 1] = 55
    assert rows_of(kept.coords) == [(0, 0, 0, 0), (0, 1, 0, 0)]
    assert rows_of(
        ops.build_sparse_alignment(kept, None, kept.coords, None, join="left").coords
    ) == rows_of(kept.coords)


def test_large_coordinates_are_copied_whole():
    """Copies of more than a MiB are made piece by piece."""
    n = 100_003
    coords = np.zeros((n, 4), np.int32)
    coords[:, 1], coords[:, 2] = np.divmod(np.random.default_rng(0).permutation(n), 317)
    assert ops.lookup_coords(coords, coords).tolist() == list(range(n))
