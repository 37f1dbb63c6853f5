"""What is refused, with which error, and that the process lives on and inputs stay as they were."""

import mlx.core as mx
import numpy as np
import pytest
from mlx_lattice import SparseTensor, core, ops

C = mx.array([[0, 0, 0, 0], [0, 1, 0, 0]], mx.int32)
F = mx.ones((2, 3))
MANAGER = core.CoordinateManager()
KEY = MANAGER.insert_coords(C)
FOREIGN = core.CoordinateManager().insert_coords(C)
BUILDERS = [
    ops.build_kernel_relation,
    ops.build_submanifold_kernel_relation,
    ops.build_transposed_kernel_relation,
    ops.build_generative_relation,
    lambda c, **k: ops.build_target_kernel_relation(c, C, **k),
    lambda c, **k: ops.build_target_transposed_relation(c, C, **k),
]


@pytest.mark.parametrize(
    "build",
    [*BUILDERS, lambda c: SparseTensor(c, F), lambda c: core.CoordinateManager().insert_coords(c)],
)
@pytest.mark.parametrize(
    "coords, text",
    [
        (mx.zeros((5, 3), mx.int32), r"coords must have shape \(N, 4\), got \(5, 3\)"),
        (mx.zeros((4,), mx.int32), r"coords must have shape \(N, 4\), got \(4,\)"),
        (mx.zeros((1, 2, 4), mx.int32), r"got \(1, 2, 4\)"),
        (mx.zeros((2, 4)), "coords must be int32 or int64, got float32"),
        (mx.zeros((2, 4), mx.uint32), "got uint32"),
        (mx.full((2, 4), float("nan")), "got float32"),
        (mx.array([[-3, 0, 0, 0], [0, 0, 0, 0]], mx.int32), "batch >= 0, got batch -3"),
    ],
)
def test_bad_coordinates(build, coords, text):
    with pytest.raises(ValueError, match=rf"^\[.*{text}"):
        build(coords)


@pytest.mark.parametrize("build", BUILDERS)
def test_duplicates_name_coordinate_rows_and_cure(build):
    coords = mx.array([[0, 7, 8, 9], [0, 0, 0, 0], [0, 7, 8, 9]], mx.int32)
    with pytest.raises(
        ValueError, match=r"rows 0 and 2 are both \(0, 7, 8, 9\).*duplicate_reduction"
    ):
        build(coords)
    assert coords.tolist() == [[0, 7, 8, 9], [0, 0, 0, 0], [0, 7, 8, 9]]


@pytest.mark.parametrize("argument", ["kernel_size", "stride", "padding", "dilation"])
@pytest.mark.parametrize(
    "value, error",
    [
        (2.0, TypeError),
        (True, TypeError),
        ("3", TypeError),
        ((1, 2.5, 1), TypeError),
        (mx.array(2.0), TypeError),
        (np.float32(1), TypeError),
        (np.bool_(True), TypeError),
        (mx.array(True), TypeError),
        ((1, True, 1), TypeError),
        ({1, 2, 3}, TypeError),
        ((1, 2), ValueError),
        ([1, 1, 1, 1], ValueError),
        ((), ValueError),
        (-(2**40), ValueError),
        (2**70, ValueError),
        (2**40, ValueError),
        (np.array([1, 2]), ValueError),
    ],
)
def test_bad_triples_name_the_argument(argument, value, error):
    if argument == "padding" and isinstance(value, int) and value == -1:
        value = -(2**31)  # a negative padding is a shift; only its range is limited
    with pytest.raises(error, match=argument):
        ops.build_kernel_relation(C, **{argument: value})


def test_padding_may_be_negative():
    """PyTorch's padding p of a kernel K is ours p - (K - 1) / 2: input = out * stride + tap - p."""
    c = mx.array([[0, i, 0, 0] for i in range(6)])
    got = ops.build_kernel_relation(c, (3, 1, 1), (2, 1, 1), (-1, 0, 0)).edges
    found = set(zip(got.in_rows.tolist(), got.out_rows.tolist(), got.kernel_ids.tolist()))
    assert found == {(2 * o + t, o, t) for o in range(3) for t in range(3) if 2 * o + t < 6}


@pytest.mark.parametrize("value", [0, -1, (1, 0, 1)])
def test_zero_is_no_size(value):
    for argument in ("kernel_size", "stride", "dilation"):
        with pytest.raises(ValueError, match=argument):
            ops.build_kernel_relation(C, **{argument: value})


def test_huge_kernels():
    with pytest.raises(ValueError, match="offsets"):
        ops.build_kernel_relation(C, 2**31 - 1)
    with pytest.raises(ValueError, match="offsets"):
        core.KernelSpec((2**20, 2, 1))
    r = ops.build_kernel_relation(C, (2**16 + 1, 1, 1))  # large and legal
    assert r.counts.tolist() == [4, 2]
    far = ops.build_kernel_relation(C, 3, dilation=2**31 - 1)
    assert far.counts.tolist() == [2, 2]


def test_overflow_names_axis_and_value():
    end = mx.array([[0, 2**31 - 1, 0, 0]], mx.int32)
    for build in (ops.build_transposed_kernel_relation, ops.build_generative_relation):
        with pytest.raises(OverflowError, match=r"x = 429496729\d"):
            build(end)
    last = mx.array(np.array([[0, 0, 0, 2**63 - 1]], np.int64))
    with pytest.raises(OverflowError, match=r"z = 1844674407370955161\d"):
        ops.build_generative_relation(last)
    with pytest.raises(OverflowError, match="stride"):
        m = core.CoordinateManager()
        m.kernel_relation(m.insert_coords(C, 2**62), 2, 4)


def test_kinds_refuse_what_they_cannot_do():
    with pytest.raises(ValueError, match="odd kernel_size"):
        ops.build_submanifold_kernel_relation(C, 2)
    with pytest.raises(ValueError, match="equal dtypes, got int32 and int64"):
        ops.build_target_kernel_relation(C, mx.array(C, mx.int64))
    with pytest.raises(ValueError, match="must divide"):
        ops.transposed_kernel_relation(SparseTensor(C, F, 3))
    with pytest.raises(ValueError, match="padding 0 and dilation 1"):
        MANAGER.generative_relation(KEY, 2, 1, 1)


@pytest.mark.parametrize("argument", [None, 3, "coords", {1}])
def test_no_arrays(argument):
    with pytest.raises(TypeError):
        ops.build_kernel_relation(argument)
    with pytest.raises(TypeError):
        ops.kernel_relation(argument)
    with pytest.raises(TypeError):
        SparseTensor(C, argument)


@pytest.mark.parametrize(
    "arguments, text",
    [
        ({"feats": mx.ones((3, 3))}, r"feats must have shape \(2, C\).*got \(3, 3\)"),
        ({"feats": mx.ones((2,))}, r"got \(2,\)"),
        ({"feats": mx.ones((2, 1, 1))}, r"got \(2, 1, 1\)"),
        ({"stride": 0}, "stride must be >= 1"),
        ({"coord_key": KEY}, "coord_key needs its coord_manager"),
        ({"coord_key": FOREIGN, "coord_manager": MANAGER}, "does not belong"),
        (
            {"coord_key": KEY, "coord_manager": MANAGER, "stride": 2},
            r"stride must be the key's \(1, 1, 1\)",
        ),
        (
            {"coords": mx.array(C), "coord_key": KEY, "coord_manager": MANAGER},
            "manager's own array",
        ),
        ({"batch_counts": [1]}, "sum to 2"),
        ({"batch_counts": [3, -1]}, "negative"),
        ({"batch_counts": [1, 1]}, "batch column"),
        ({"active_rows": mx.array([3], mx.int32)}, r"active_rows must be in 0\.\.2, got 3"),
        ({"active_rows": mx.array([-1], mx.int32)}, "got -1"),
        ({"active_rows": mx.array([1])[0]}, r"shape \(1,\)"),
        ({"active_rows": mx.array([1.0])}, "int32"),
    ],
)
def test_bad_tensors(arguments, text):
    with pytest.raises(ValueError, match=rf"^\[SparseTensor\].*{text}"):
        SparseTensor(**{"coords": C, "feats": F, **arguments})


@pytest.mark.parametrize(
    "counts, error",
    [([1.0, 1.0], TypeError), (2, TypeError), ("2", TypeError), ([True, 1], TypeError)],
)
def test_bad_batch_counts(counts, error):
    with pytest.raises(error, match="batch_counts"):
        SparseTensor(C, F, batch_counts=counts)


def test_bad_targets():
    x = SparseTensor(C, F, 2)
    with pytest.raises(ValueError, match=r"target must have stride \(4, 4, 4\), got \(2, 2, 2\)"):
        ops.target_kernel_relation(x, x, 2, 2)
    with pytest.raises(ValueError, match="does not belong"):
        ops.target_kernel_relation(x, FOREIGN)
    with pytest.raises(ValueError, match=r"got \(2, 3\)"):
        ops.target_kernel_relation(x, mx.zeros((2, 3), mx.int32))
    with pytest.raises(TypeError):
        ops.target_kernel_relation(x, "there")


def test_foreign_keys():
    for call in (
        MANAGER.coords,
        MANAGER.active_rows,
        MANAGER.kernel_relation,
        MANAGER.submanifold_kernel_relation,
    ):
        with pytest.raises(ValueError, match="does not belong to manager"):
            call(FOREIGN)
    with pytest.raises(ValueError, match="does not belong"):
        MANAGER.inverse_map(KEY, FOREIGN)
    assert not MANAGER.owns(core.CoordinateMapKey(999, 1, MANAGER.id))


@pytest.mark.parametrize(
    "rows, text",
    [
        (([0, 1], [0], [0]), "same row count"),
        (([2], [0], [0]), r"in_rows\[0\] = 2"),
        (([0], [-1], [0]), r"out_rows\[0\] = -1"),
        (([0], [0], [1]), r"kernel_ids\[0\] = 1"),
    ],
)
def test_bad_edges(rows, text):
    with pytest.raises(ValueError, match=text):
        core.KernelRelation(*(mx.array(r) for r in rows), n_in=2, n_out=2, n_kernels=1)


def test_bad_edge_arrays():
    one = mx.array([0])
    with pytest.raises(ValueError, match="integers"):
        core.KernelRelation(mx.array([0.0]), one, one, n_in=1, n_out=1, n_kernels=1)
    with pytest.raises(ValueError, match="in_rows must have shape"):
        core.KernelRelation(mx.array([[0]]), one, one, n_in=1, n_out=1, n_kernels=1)
    with pytest.raises(ValueError, match="n_kernels"):
        core.KernelRelation(one, one, one, n_in=1, n_out=1, n_kernels=0)
    with pytest.raises(TypeError, match="n_in"):
        core.KernelRelation(one, one, one, n_in=1.5, n_out=1, n_kernels=1)
    big = np.array([2**40])
    with pytest.raises(ValueError, match=r"in_rows\[0\] = 1099511627776"):
        core.KernelRelation(mx.array(big), one, one, n_in=1, n_out=1, n_kernels=1)
    twice = core.KernelRelation(
        mx.array([0, 1]), mx.array([0, 0]), mx.array([0, 0]), n_in=2, n_out=1, n_kernels=1
    )
    with pytest.raises(ValueError, match="two edges"):
        twice.implicit_gemm  # noqa: B018


@pytest.mark.parametrize("build", [*BUILDERS, lambda c: SparseTensor(c, F)])
@pytest.mark.parametrize("transform", [mx.compile, mx.vmap])
def test_traced_coordinates(build, transform):
    def run(c):
        build(c)
        return c

    coords = C if transform is mx.compile else mx.stack([C, C])
    with pytest.raises(ValueError, match=r"traced by mx.compile or vmap"):
        transform(run)(coords)
    build(C)  # and works again outside


def test_captured_coordinates_work_inside_compile():
    x = SparseTensor(C, F)

    @mx.compile
    def run(f):
        return x.with_feats(f).feats * ops.submanifold_kernel_relation(x).edge_count

    assert run(F)[0, 0].item() == 4


def test_bad_dense():
    x = SparseTensor(mx.array([[0, -1, 0, 0]]), mx.ones((1, 1)))
    with pytest.raises(ValueError, match=r"\(0, -1, 0, 0\) lies outside.*min_coord="):
        x.to_dense()
    with pytest.raises(ValueError, match="3 to 5 sizes"):
        x.to_dense((1, 2))
    with pytest.raises(TypeError, match="shape"):
        x.to_dense(3)
    with pytest.raises(ValueError, match="cells"):
        x.to_dense((2**20, 2**20, 2**20), min_coord=-1)
    with pytest.raises(ValueError, match=r"\(B, X, Y, Z, C\), got"):
        SparseTensor.from_dense(mx.zeros((2, 2)))
    with pytest.raises(TypeError, match="min_coord"):
        x.to_dense(min_coord=0.5)


def test_bad_settings():
    with pytest.raises(ValueError, match="thread"):
        core.set_thread_count(0)
    with pytest.raises(TypeError):
        core.CoordinateManager(budget=-1)
