"""Relations of all kinds against the oracle, their views, and the manager's cache."""

import mlx.core as mx
import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from mlx_lattice import SparseTensor, core, ops
from strategies import relation_cases
from threads import run_together

BUILD = {
    "forward": ops.build_kernel_relation,
    "target": ops.build_target_kernel_relation,
    "submanifold": ops.build_submanifold_kernel_relation,
    "transposed": ops.build_transposed_kernel_relation,
    "generative": ops.build_generative_relation,
    "target_transposed": ops.build_target_transposed_relation,
}


def build(case):
    arrays = [mx.array(case.coords)] + ([] if case.target is None else [mx.array(case.target)])
    kernel = {
        "kernel_size": case.size,
        "stride": case.stride,
        "padding": case.padding,
        "dilation": case.dilation,
    }
    if case.kind == "submanifold":
        del kernel["stride"], kernel["padding"]
    if case.kind == "generative":
        del kernel["padding"], kernel["dilation"]
    return BUILD[case.kind](*arrays, **kernel)


def edges(relation):
    e = relation.edges
    assert e.in_rows.dtype == e.out_rows.dtype == e.kernel_ids.dtype == mx.int32
    return list(zip(e.in_rows.tolist(), e.out_rows.tolist(), e.kernel_ids.tolist()))


def line(*xs, dtype=mx.int32):
    return mx.array([[0, x, 0, 0] for x in xs], dtype=dtype).reshape(-1, 4)


def check_views(relation):
    found = edges(relation)
    for name, column, groups in (
        ("output_csr", 1, relation.n_out),
        ("input_csr", 0, relation.n_in),
        ("kernel_csr", 2, relation.n_kernels),
    ):
        csr = getattr(relation, name)
        offsets, ids = csr.row_offsets.tolist(), csr.edge_ids.tolist()
        assert len(offsets) == groups + 1 and offsets[0] == 0 and offsets[-1] == len(found)
        for g in range(groups):
            assert ids[offsets[g] : offsets[g + 1]] == [
                e for e, edge in enumerate(found) if edge[column] == g
            ]
    coverage = relation.coverage()
    assert coverage.unused_inputs == relation.n_in - len({i for i, _, _ in found})
    assert coverage.empty_outputs == relation.n_out - len({o for _, o, _ in found})
    return found


def check_maps(relation, found):
    n, k_count = relation.n_out, relation.n_kernels
    expected = np.full((n, k_count), -1, np.int32)
    for i, o, k in found:
        expected[o, k] = i
    words = np.zeros((n, -(-k_count // 32)), np.uint32)
    for k in range(k_count):
        words[:, k // 32] |= (expected[:, k] >= 0).astype(np.uint32) << np.uint32(k % 32)
    view = relation.implicit_gemm
    np.testing.assert_array_equal(np.array(view.out_in_map), expected)
    np.testing.assert_array_equal(np.array(view.row_masks), words)
    if k_count > 32:
        with pytest.raises(ValueError, match="sorted_implicit_gemm"):
            relation.sorted_implicit_gemm  # noqa: B018
        return
    view = relation.sorted_implicit_gemm
    order = np.argsort(words[:, 0], kind="stable")
    np.testing.assert_array_equal(np.array(view.reorder_rows), order)
    np.testing.assert_array_equal(np.array(view.sorted_out_in_map), expected[order])
    np.testing.assert_array_equal(np.array(view.sorted_kv_out_in_map), expected[order].T)
    tiles = np.zeros(-(-n // 64) * 64, np.uint32)
    tiles[:n] = words[order, 0]
    np.testing.assert_array_equal(
        np.array(view.tile_masks), np.bitwise_or.reduce(tiles.reshape(-1, 16), axis=1)
    )


@settings(max_examples=400, deadline=None)
@given(relation_cases())
def test_every_kind_is_the_oracle(case):
    try:
        out, expected = oracle.relate(**case.oracle_arguments())
    except OverflowError:
        with pytest.raises(OverflowError, match="leaves the range of int"):
            build(case)
        return
    relation = build(case)
    assert relation.kind == case.kind
    assert [tuple(row) for row in relation.out_coords.tolist()] == out
    assert relation.out_coords.dtype == mx.array(case.coords).dtype
    assert edges(relation) == expected
    assert relation.counts.tolist() == [len(expected), len(out)]
    assert (relation.edge_count, relation.out_count) == (len(expected), len(out))
    assert relation.n_in == len(case.coords) and relation.n_out == len(out)
    centered = case.kind in ("forward", "target", "submanifold")
    assert list(relation.kernel_offsets) == oracle.kernel_offsets(
        case.size, case.dilation, centered
    )
    check_maps(relation, check_views(relation))

    back = relation.reversed()
    assert back.reversed() is relation
    assert sorted((o, i, k) for i, o, k in edges(back)) == sorted(expected)
    assert [(o, k, i) for i, o, k in edges(back)] == sorted((o, k, i) for i, o, k in edges(back))
    check_views(back)


def test_small_cases_of_the_contract():
    r = ops.build_kernel_relation(line(0, 1, 2), (3, 1, 1))
    assert edges(r) == [(0, 0, 1), (1, 0, 2), (0, 1, 0), (1, 1, 1), (2, 1, 2), (1, 2, 0), (2, 2, 1)]
    r = ops.build_kernel_relation(line(0, 1, 2), (2, 1, 1), (2, 1, 1), (1, 0, 0))
    assert r.out_coords.tolist() == line(0, 1).tolist() and edges(r) == [
        (0, 0, 1),
        (1, 1, 0),
        (2, 1, 1),
    ]
    r = ops.build_transposed_kernel_relation(line(0, 1), (3, 1, 1), (2, 1, 1))
    assert r.out_coords.tolist() == line(0, 1, 2, 3, 4).tolist()
    assert edges(r) == [(0, 0, 0), (0, 1, 1), (1, 2, 0), (0, 2, 2), (1, 3, 1), (1, 4, 2)]
    r = ops.build_transposed_kernel_relation(line(0, 1), (3, 1, 1), (2, 1, 1), (1, 0, 0))
    assert r.out_coords.tolist() == line(-1, 0, 1, 2, 3).tolist()
    assert ops.kernel_offsets((2, 3, 1), (2, 2, 1)) == (
        (0, -2, 0),
        (0, 0, 0),
        (0, 2, 0),
        (2, -2, 0),
        (2, 0, 0),
        (2, 2, 0),
    )


@pytest.mark.parametrize("dtype", [mx.int32, mx.int64])
def test_ends_of_the_range(dtype):
    limits = np.iinfo(np.int32 if dtype == mx.int32 else np.int64)
    coords = mx.array(
        np.array([[0, limits.min, limits.max, 0], [0, limits.max, limits.min, 0]], limits.dtype)
    )
    assert edges(ops.build_submanifold_kernel_relation(coords)) == [(0, 0, 13), (1, 1, 13)]
    assert ops.build_kernel_relation(coords, 2, 2).out_coords.tolist() == [
        [0, limits.min // 2, limits.max // 2, 0],
        [0, limits.max // 2, limits.min // 2, 0],
    ]
    with pytest.raises(OverflowError, match=r"\[build_generative_relation\].* [xy] = -?\d+"):
        ops.build_generative_relation(coords)


@pytest.mark.parametrize("kind", oracle.KINDS)
@pytest.mark.parametrize("dtype", [mx.int32, mx.int64])
def test_no_rows(kind, dtype):
    none = mx.zeros((0, 4), dtype)
    target = [none] if kind.startswith("target") else []
    r = BUILD[kind](none, *target)
    assert r.counts.tolist() == [0, 0] and edges(r) == [] and r.out_coords.shape == (0, 4)
    check_maps(r, check_views(r))
    check_views(r.reversed())


def test_relation_from_edges():
    r = core.KernelRelation(
        mx.array([1, 0, 1]), mx.array([1, 0, 0]), mx.array([0, 1, 0]), n_in=2, n_out=3, n_kernels=2
    )
    assert (
        edges(r) == [(1, 1, 0), (0, 0, 1), (1, 0, 0)]
        and r.kind == "custom"
        and r.out_coords is None
    )
    check_maps(r, check_views(r))
    assert edges(r.reversed()) == [(0, 0, 1), (0, 1, 0), (1, 1, 0)]
    check_views(r.reversed())
    assert r.coverage().empty_outputs == 1 and r.kernel_offsets == ()


def test_objects_and_immutability():
    r = ops.build_kernel_relation(line(0, 1))
    assert r.out_coords is r.out_coords and r.edges is r.edges
    r.edges.in_rows[0] = 77
    shown = r.out_coords
    shown[0] = 77
    assert r.edges.in_rows.tolist()[0] != 77 and r.out_coords.tolist() == line(0, 1).tolist()
    with pytest.raises(AttributeError):
        r.n_in = 5
    assert "forward" in repr(r) and "\n" not in repr(r)


# ---- tensors and the manager ----


def tensor(*xs, stride=1):
    return SparseTensor(line(*xs), mx.ones((len(xs), 2)), stride)


def test_equal_arguments_give_the_same_object():
    x = tensor(0, 1, 2, 5, stride=2)
    for build_it in (
        lambda: ops.kernel_relation(x, kernel_size=2, stride=2),
        lambda: ops.kernel_relation(x, kernel_size=(3, 3, 3)),
        lambda: ops.submanifold_kernel_relation(x),
        lambda: ops.transposed_kernel_relation(x),
        lambda: ops.generative_kernel_relation(x),
        lambda: ops.target_kernel_relation(x, x),
    ):
        assert build_it() is build_it()
    m, key = x.coord_manager, x.coord_key
    assert ops.kernel_relation(x, 2, 2) is m.kernel_relation(key, core.KernelSpec(2, 2))
    assert m.kernel_relation(key, 2, 2) is m.kernel_relation(key, kernel_size=(2, 2, 2), stride=2)
    assert m.stats()["hits"] > 0 and m.stats()["misses"] == m.stats()["relations"]


def test_output_keys_and_strides():
    x = tensor(0, 1, 2, 5, stride=2)
    m = x.coord_manager
    down = ops.kernel_relation(x, 2, 2)
    assert (
        down.out_key.stride == (4, 4, 4)
        and m.owns(down.out_key)
        and m.coords(down.out_key) is down.out_coords
    )
    assert ops.transposed_kernel_relation(x).out_key.stride == (1, 1, 1)
    assert ops.submanifold_kernel_relation(x).out_key == x.coord_key
    assert ops.submanifold_kernel_relation(x).out_coords is x.coords
    same_rows = ops.kernel_relation(x, 3)
    assert same_rows.out_key != x.coord_key and same_rows.out_coords is x.coords
    low = SparseTensor(down.out_coords, mx.ones((3, 1)), 4, coord_key=down.out_key, coord_manager=m)
    up = ops.target_transposed_kernel_relation(low, x)
    assert up.out_key == x.coord_key and up is ops.target_transposed_kernel_relation(
        low, x.coord_key
    )


def test_tiny_budget_evicts_but_keeps_keys():
    m = core.CoordinateManager(budget=1)
    key = m.insert_coords(line(3, 0, 1, 2), 2)
    first = m.kernel_relation(key, 2, 2)
    m.submanifold_kernel_relation(key)
    again = m.kernel_relation(key, 2, 2)
    assert (
        again is not first
        and again.out_key == first.out_key
        and again.out_coords is first.out_coords
    )
    assert edges(again) == edges(first) and again.kind == "forward"
    stats = m.stats()
    assert stats["evictions"] == 2 and stats["relations"] == 1 and stats["budget"] == 1
    m.clear()
    assert m.stats()["relations"] == 0 and m.stats()["bytes"] == 0 and m.owns(key)
    m.set_budget(1 << 30)
    assert m.kernel_relation(key, 2, 2) is m.kernel_relation(key, 2, 2)


def test_manager_keys():
    m = core.CoordinateManager()
    c = line(0, 1, 2)
    key = m.insert_coords(c)
    assert m.insert_coords(c, stride=(1, 1, 1)) == key and m.insert_coords(c, 2) != key
    assert m.insert_coords(mx.array(c)) != key  # equal values in another array
    assert m.coords(key) is m.coords(key) and m.active_rows(key).tolist() == [3]
    short = m.insert_coords(c, active_rows=mx.array([2], mx.int32))
    assert m.coords(short).tolist() == line(0, 1).tolist() and m.active_rows(short).tolist() == [2]
    assert not core.CoordinateManager().owns(key)
    assert key == core.CoordinateMapKey(key.id, 1, m.id) and hash(key) == hash(
        core.CoordinateMapKey(key.id, 1, m.id)
    )
    with pytest.raises(AttributeError):
        key.id = 3
    fine, coarse = m.insert_coords(line(-1, 0, 1, 9)), m.insert_coords(line(0, -1), 2)
    assert m.inverse_map(coarse, fine).tolist() == [1, 0, 0, -1]


def test_python_threads_share_one_relation():
    rng = np.random.default_rng(2)
    coords = np.unique(rng.integers(0, 40, (20000, 4)) % [1, 99, 99, 99], axis=0).astype(np.int32)
    x = SparseTensor(mx.array(coords), mx.zeros((len(coords), 1)))
    found = []

    def work():
        for _ in range(20):
            r = ops.submanifold_kernel_relation(x)
            found.append((r, r.edges, r.reversed(), r.out_coords, r.input_csr))
            ops.kernel_relation(x, 2, 2).coverage()

    run_together(work, 6)
    assert all(a is b for row in found for a, b in zip(row, found[0]))
    assert x.coord_manager.stats()["misses"] == 2
