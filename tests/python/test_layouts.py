"""Orders, patches, windows and blocks against NumPy; recorded codes and paddings exactly.

goldens/ptv3_serial.npz: the serialization and padding of the official Point Transformer V3 (commit
3229e9b) were run on random inputs. No code of theirs is here.
"""

import itertools
from pathlib import Path

import mlx.core as mx
import mlx_lattice as ml
import numpy as np
import pytest
from mlx_lattice import ops, points

SERIAL = np.load(Path(__file__).with_name("goldens") / "ptv3_serial.npz")
ORDERS = ("z", "z-trans", "hilbert", "hilbert-trans")


def cloud(n=120, seed=0, low=0, high=20):
    rows = np.random.default_rng(seed).integers([0, low, low, low], [2, high, high, high], (n, 4))
    return np.unique(rows, axis=0).astype(np.int32)


@pytest.mark.parametrize("depth", [1, 3, 7, 8, 9, 10, 16])
def test_recorded_codes(depth):
    data = {k: SERIAL[f"serial_d{depth}/{k}"] for k in ("grid_coord", "batch", *ORDERS)}
    coords = np.column_stack([data["batch"], data["grid_coord"]]).astype(np.int32)
    for order in ORDERS:
        assert np.array_equal(ops.curve_codes(coords, order, depth=depth), data[order])


@pytest.mark.parametrize("case", range(7))
def test_recorded_paddings(case):
    sizes, size = SERIAL[f"pad{case}/sizes"], int(SERIAL[f"pad{case}/patch_size"])
    # rows along x are in the order of their codes
    rows = [(b, i, 0, 0) for b, n in enumerate(sizes) for i in range(n)]
    layout = ops.attention_patches(np.array(rows, np.int32), size)
    assert np.array_equal(layout.rows, SERIAL[f"pad{case}/pad"])
    assert np.array_equal(layout.slots, SERIAL[f"pad{case}/unpad"])
    assert np.array_equal(layout.offsets, SERIAL[f"pad{case}/cu_seqlens"])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_sorted_rows(order, dtype):
    coords = cloud(low=-5).astype(dtype)
    codes = np.array(ops.curve_codes(coords, order))
    made = ops.curve_sort_coords(coords, order)
    assert np.array_equal(made.order, np.argsort(codes, kind="stable"))
    assert np.array_equal(made.coords, coords[np.array(made.order)])
    assert np.array_equal(np.array(made.inverse_rows)[np.array(made.order)], np.arange(len(coords)))
    assert (np.diff(np.array(made.coords)[:, 0]) >= 0).all()


def test_windows_hold_neighbors():
    coords = cloud()
    layout = ops.attention_windows(coords, (4, 5, 3), (1, 2, 0))
    window = (coords[:, 1:] + [1, 2, 0]) // [4, 5, 3]
    key = np.column_stack([coords[:, 0], window])
    rows, offsets = np.array(layout.rows), np.array(layout.offsets)
    for a, b in itertools.pairwise(offsets):
        assert len(np.unique(key[rows[a:b]], axis=0)) == 1
    assert len(offsets) - 1 == len(np.unique(key, axis=0))
    low = coords[:, 1:].min(axis=0)
    assert np.array_equal(layout.positions, coords[rows][:, 1:] - low)
    whole = ops.attention_windows(coords, 0)
    assert whole.n_segments == 2 and whole.length == np.bincount(coords[:, 0]).max()


def test_layouts_are_kept_and_told():
    coords = cloud()
    x = ml.SparseTensor(coords, mx.ones((len(coords), 4)))
    assert ops.attention_patches(x, 16, "hilbert") is ops.attention_patches(x, 16, "hilbert")
    assert ops.attention_windows(x, 4, 2) is ops.attention_windows(x, (4, 4, 4), 2)
    assert ops.grid_pooling(x, 2) is ops.grid_pooling(x, 2, "z")
    assert "patches of 16 along z" in repr(ops.attention_patches(x, 16))


def test_pooling_is_the_blocks():
    coords = cloud(300, low=-7)
    feats = np.random.default_rng(1).standard_normal((len(coords), 3)).astype(np.float32)
    x = ml.SparseTensor(coords, feats)
    pooling = ops.grid_pooling(x, 4, "hilbert")
    cluster = np.array(pooling.cluster)
    for mode, reduce in (("max", np.max), ("mean", np.mean), ("sum", np.sum)):
        y = ops.grid_pool(x, pooling, mode)
        for row in range(y.shape[0]):
            mine = cluster == row
            assert np.array_equal(
                coords[mine][:, 1:] // 4, [np.array(y.coords)[row, 1:]] * mine.sum()
            )
            assert np.allclose(y.feats[row], reduce(feats[mine], axis=0), atol=1e-6)
    assert y.stride == (4, 4, 4)
    assert np.array_equal(ops.grid_unpool(y.feats, pooling), np.array(y.feats)[cluster])


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda c: ops.attention_patches(c, 0), "size must be in 1"),
        (lambda c: ops.attention_patches(c, 8, "peano"), "order must be z, z-trans"),
        (lambda c: ops.attention_windows(c, 4, 4), "shift must be at least 0 and below size"),
        (lambda c: ops.attention_windows(c, -1), "0 is the whole axis"),
        (lambda c: ops.curve_codes(c, depth=2), "depth must be at least the"),
        (
            lambda c: ops.grid_pooling(ml.SparseTensor(c, mx.ones((len(c), 1))), 3),
            "stride must be a power of two",
        ),
        (
            lambda c: ops.to_slots(mx.ones((len(c), 4)), ops.attention_patches(c, 8), parts=3),
            "parts must be at least 1 and divide 4 channels",
        ),
    ],
)
def test_wrong_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call(cloud())


@pytest.mark.parametrize("stride", [1, 2, 3, 7])
def test_lexicographic_pooling(stride):
    """Cells of any stride, sorted by batch, x, y and z; np.unique sorts the same way."""
    random = np.random.default_rng(stride)
    coords = np.unique(random.integers(-9, 20, (300, 4)), axis=0).astype(np.int32)
    coords = random.permutation(coords[coords[:, 0] >= 0])
    x = ml.SparseTensor(coords, random.standard_normal((len(coords), 2)).astype(np.float32))
    pooling = ops.grid_pooling(x, stride, "lexicographic")
    cells = np.column_stack([coords[:, 0], coords[:, 1:] // stride])
    expected, cluster = np.unique(cells, axis=0, return_inverse=True)
    y = ops.grid_pool(x, pooling, "mean")
    assert np.array_equal(y.coords, expected) and y.stride == (stride,) * 3
    assert np.array_equal(pooling.cluster, cluster.reshape(-1))
    sums = np.zeros((len(expected), 2))
    np.add.at(sums, cluster.reshape(-1), np.array(x.feats))
    assert np.allclose(y.feats, sums / np.bincount(cluster.reshape(-1))[:, None], atol=1e-6)


def test_depth_of_curves():
    """A deeper Hilbert curve is another curve; patches and poolings take its depth."""
    coords = np.stack(np.meshgrid([0], *[np.arange(4)] * 3, indexing="ij"), -1).reshape(-1, 4)
    x = ml.SparseTensor(coords.astype(np.int32), mx.zeros((64, 1)))
    for depth in (None, 2, 3):
        order = np.array(ops.curve_sort_coords(x.coords, "hilbert", depth=depth).order)
        layout = ops.attention_patches(x, 64, "hilbert", depth=depth)
        assert np.array_equal(layout.rows, order)
        pooling = ops.grid_pooling(x, 2, "hilbert", depth=depth)
        cluster = np.array(pooling.cluster)[order]
        assert (np.diff(cluster) >= 0).all()
    assert not np.array_equal(ops.attention_patches(x, 64, "hilbert", depth=2).rows, order)
    with pytest.raises(ValueError, match="depth must be at least the 2 bits"):
        ops.attention_patches(x, 64, "hilbert", depth=1)


def test_far_coordinates_are_an_overflow():
    with pytest.raises(OverflowError, match="at most 63 in all; move the clouds nearer to 0"):
        ops.attention_patches(np.array([[0, 1 << 22, 0, 0]], np.int32), 4)


def test_batches_of_points_keep_layouts():
    place = mx.array(np.random.default_rng(2).uniform(-2, 2, (50, 3)).astype(np.float32))
    batch = points.PointCloudBatch(place, lengths=[30, 0, 20])
    layout = batch.attention_patches(0.5, 8, "hilbert")
    assert layout is batch.attention_patches(0.5, 8, "hilbert")
    assert layout is not batch.attention_patches(0.25, 8, "hilbert")
    cells = np.floor(np.array(place) / 0.5).astype(np.int32)
    coords = np.column_stack([np.repeat([0, 2], [30, 20]), cells]).astype(np.int32)
    assert np.array_equal(layout.rows, ops.attention_patches(coords, 8, "hilbert").rows)
    assert layout.n_slots == 32 + 24
    assert batch.attention_windows(0.5, 2, 1) is batch.attention_windows(0.5, 2, 1)
    assert batch.attention_windows(0.5, (2, 0, 0)).n_rows == 50
