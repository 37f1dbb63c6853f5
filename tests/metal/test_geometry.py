"""Geometry on the host: tables of coordinates, relations and neighbors.

The same arrays as on the CPU, in any order of threads.
"""

import contextlib

import mlx.core as mx
import mlx_lattice as ml
import numpy as np
import pytest
from metal.host import MetalHost
from mlx_lattice import ops

pytestmark = pytest.mark.usefixtures("needs_host")

METAL = "unique=metal.hash,lookup=metal.hash,relate=metal.hash,neighbors=metal.brute"
LOW, HIGH = -(2**31), 2**31 - 1
SIZES = [0, 1, 2, 7, 8, 63, 64, 65, 255, 257]


@pytest.fixture
def on_metal(monkeypatch):
    @contextlib.contextmanager
    def block(*host, **more):
        with monkeypatch.context() as patch, MetalHost(*host, **more) as used:
            patch.setenv("LATTICE_ROUTE", METAL)
            yield used

    return block


def rows(n, extent=3, seed=0):
    """n rows, many of them twice; extent 0: the ends of int32."""
    random = np.random.default_rng(seed + n)
    xyz = (
        random.integers(-extent, extent, (n, 3))
        if extent
        else random.choice([LOW, LOW + 1, HIGH - 1, HIGH], (n, 3))
    )
    return mx.array(np.concatenate([random.integers(0, 2, (n, 1)), xyz], axis=1).astype(np.int32))


def distinct(coords):
    return mx.array(np.unique(np.array(coords), axis=0).reshape(-1, 4))


def same(want, found):
    assert len(want) == len(found)
    for a, b in zip(want, found, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.array(b), np.array(a))


def test_the_default_is_the_cpu():
    with MetalHost() as host:
        (decision,) = ml.explain(ops.lookup_coords, rows(9), rows(5)).decisions
    assert (decision.device, decision.route) == ("gpu", "cpu.unified") and not host.launches


def coordinate_operations(a, b):
    return [
        ops.lookup_coords(a, b),
        ops.contains_coords(a, b),
        ops.inverse_map(a, b),
        ops.union_coords(a, b),
        ops.intersection_coords(a, b),
        ops.difference_coords(a, b),
        ops.downsample_coords(a, (2, 3, 1)),
    ]


@pytest.mark.parametrize("extent", [3, 0])
@pytest.mark.parametrize("n", SIZES)
def test_coordinates(n, extent, on_metal):
    a, b = rows(n, extent), rows(n // 2 + 1, extent, seed=1)
    want = coordinate_operations(a, b)
    with on_metal() as host:
        same(want, coordinate_operations(a, b))
    assert host.launches


def views(relation):
    edges, map_ = relation.edges, relation.implicit_gemm
    back = relation.reversed().edges
    return [
        *(edges.in_rows, edges.out_rows, edges.kernel_ids),
        *(back.in_rows, back.out_rows, back.kernel_ids),
        *(map_.out_in_map, map_.row_masks, relation.output_csr.row_offsets, relation.out_coords),
    ]


def relations(coords, target):
    big = {
        "kernel_size": (3, 2, 7),
        "stride": (2, 1, 3),
        "padding": (1, 0, 2),
        "dilation": (1, 2, 1),
    }  # 42 offsets
    return [
        ops.build_kernel_relation(coords, kernel_size=3),
        ops.build_kernel_relation(coords, **big),
        ops.build_submanifold_kernel_relation(coords, kernel_size=3, dilation=2),
        ops.build_target_kernel_relation(coords, target, **big),
        ops.build_transposed_kernel_relation(coords, **big),
        ops.build_generative_relation(coords, kernel_size=2, stride=2),
    ]


@pytest.mark.parametrize("n", [0, 1, 2, 7, 8, 60, 300])
def test_relations(n, on_metal):
    coords, target = distinct(rows(n)), rows(n // 2 + 1, seed=2)
    want = relations(coords, target)
    with on_metal():
        found = relations(coords, target)
    for a, b in zip(want, found, strict=True):
        assert (a.kind, a.n_in, a.n_out, a.edge_count) == (b.kind, b.n_in, b.n_out, b.edge_count)
        same(views(a), views(b))


def test_relations_at_the_ends_of_int32(on_metal):
    coords = distinct(rows(60, extent=0))
    want = ops.build_submanifold_kernel_relation(coords, kernel_size=3)
    with on_metal():
        same(views(want), views(ops.build_submanifold_kernel_relation(coords, kernel_size=3)))
        with pytest.raises(ValueError, match=r"metal\.hash does not fit.*leaves int32"):
            ops.build_transposed_kernel_relation(coords, kernel_size=2, stride=2)
    with pytest.raises(OverflowError, match="build_transposed_kernel_relation"):
        ops.build_transposed_kernel_relation(coords, kernel_size=2, stride=2)


def test_errors_are_those_of_the_cpu(on_metal):
    twice = mx.array([[0, 1, 2, 3], [0, 4, 4, 4], [0, 1, 2, 3]], dtype=mx.int32)
    with on_metal():
        with pytest.raises(ValueError, match=r"rows 0 and 2 are both \(0, 1, 2, 3\)"):
            ops.build_kernel_relation(twice, kernel_size=3)
        with pytest.raises(ValueError, match="odd kernel_size"):
            ops.build_submanifold_kernel_relation(twice, kernel_size=2)
        with pytest.raises(ValueError, match="int64"):
            ops.lookup_coords(twice.astype(mx.int64), twice.astype(mx.int64))
        with pytest.raises(ValueError, match="finite"):
            ops.build_knn_relation(mx.array([[0.0, float("nan"), 0.0]]), k=1)
        with pytest.raises(ValueError, match="both"):
            ops.build_knn_relation(twice, mx.zeros((2, 3)), k=1)


def found_by(relation):
    edges = relation.edges
    return [
        edges.query_rows,
        edges.source_rows,
        edges.neighbor_ids,
        relation.distances.view(mx.int32),
        relation.row_offsets,
    ]


def searches(source, query, radius):
    return [
        ops.build_knn_relation(source, k=1),
        ops.build_knn_relation(source, query, k=5),
        ops.build_knn_relation(source, query, k=200),
        ops.build_radius_relation(source, query, radius=radius),
        ops.build_radius_relation(source, radius=radius, max_neighbors=3),
        ops.build_radius_relation(source, query, radius=0.0),
    ]


@pytest.mark.parametrize("kind", ["points", "near", "far"])
@pytest.mark.parametrize("n", [0, 1, 7, 63, 64, 65, 130])
def test_neighbors(n, kind, on_metal):
    if kind == "points":
        random = np.random.default_rng(n)
        source, query = (
            mx.array(random.uniform(-1, 1, (m, 3)).astype(np.float32)) for m in (n, n + 2)
        )
        radius = 0.5
    else:
        source, query = (rows(m, 3 if kind == "near" else 0) for m in (n, n + 2))
        radius = 2.0 if kind == "near" else 4.5e9
    want = searches(source, query, radius)
    with on_metal():
        found = searches(source, query, radius)
    for a, b in zip(want, found, strict=True):
        assert (a.truncated, a.max_neighbors, a.n_source) == (
            b.truncated,
            b.max_neighbors,
            b.n_source,
        )
        same(found_by(a), found_by(b))


def test_neighbors_of_batches(on_metal):
    random = np.random.default_rng(5)
    place = mx.array(random.uniform(-1, 1, (70, 3)).astype(np.float32))
    batches = mx.array(np.sort(random.integers(0, 3, 70)).astype(np.int32))
    want = ops.build_knn_relation(place, k=4, batch_indices=batches)
    with on_metal():
        same(found_by(want), found_by(ops.build_knn_relation(place, k=4, batch_indices=batches)))


def test_distances_are_rounded_once(on_metal):
    """Exact squared distances around the ties of float32, and beyond 64 bits."""
    source = mx.array([[0, 0, 0, 0], [0, LOW, LOW, LOW], [0, LOW, LOW, 0]], dtype=mx.int32)
    reach = [1, 4095, 4096, 4097, 5793, 8191, 65535, 92682, 2**24 + 1, 2**30 + 1, HIGH - 64, HIGH]
    query = mx.array(
        [[0, a, b, c] for a in reach for b in (0, 1, reach[4], HIGH) for c in (0, 3, HIGH)],
        dtype=mx.int32,
    )
    want = ops.build_knn_relation(source, query, k=3)
    exact = [
        sorted(
            np.float32(sum((int(p) - int(q)) ** 2 for p, q in zip(s, r, strict=True)))
            for s in np.array(source)
        )
        for r in np.array(query)
    ]
    np.testing.assert_array_equal(
        np.array(want.distances).reshape(-1, 3), np.array(exact, np.float32)
    )
    with on_metal():
        same(found_by(want), found_by(ops.build_knn_relation(source, query, k=3)))


@pytest.mark.parametrize("variant", ["check", "asan"])
def test_any_order_of_threads(variant, on_metal):
    """No race, no access outside an array.

    Every second weak compare-exchange fails for no reason.
    """
    coords = rows(150)
    clean = distinct(coords)
    place = mx.array(np.random.default_rng(6).uniform(-1, 1, (70, 3)).astype(np.float32))

    def everything():
        found = coordinate_operations(coords, clean)
        found += views(ops.build_kernel_relation(clean, kernel_size=3, stride=2, padding=1))
        return found + found_by(ops.build_radius_relation(place, radius=0.4, max_neighbors=5))

    want = everything()
    for order in ("forward", "reverse", "random"):
        with on_metal(variant, order, seed=3, fails=2):
            same(want, everything())


def test_a_slot_that_failed_for_no_reason_is_tried_again(on_metal):
    """The mistake that the documentation warns of.

    Taking such a slot for an occupied one gives wrong rows.
    """
    coords = rows(257, seed=4)
    want = np.array(ops.lookup_coords(coords, coords))
    plain, wrong = (
        "if (found < 0) continue;",
        "if (found < 0) { at = (at + 1) & (n_slots - 1); continue; }",
    )
    with on_metal(fails=2, change=lambda text: text.replace(plain, wrong)):
        assert (np.array(ops.lookup_coords(coords, coords)) != want).any()
