"""Points to voxels with features in C++: the bits of the formulas in NumPy, and the corners."""

import mlx.core as mx
import numpy as np
import pytest
from mlx_lattice import io, ops, samples, training


def oracle(points, voxel, columns=()):
    """(coords, feats, rows) by the text of voxel_features, in NumPy."""
    finite = np.isfinite(points).all(axis=1)
    kept = points[finite].astype(np.float64)
    near = (kept - kept.min(axis=0)).astype(np.float32) if len(kept) else np.zeros((0, 3))
    q = ops.sparse_quantize(mx.array(near.astype(np.float32)), voxel)
    xyz = near.astype(np.float32) / np.float32(voxel)
    low = np.percentile(xyz[:, 2], 2) if len(xyz) else 0
    parts = [xyz - np.floor(xyz) - np.float32(0.5)]
    parts.append(((xyz[:, 2] - np.float32(low)) / 10)[:, None])
    for column in columns:
        scale = {"u1": 255.0, "u2": 65535.0}.get(column.dtype.str[1:], 1.0)
        values = (column / scale)[finite].astype(np.float32)
        parts.append(values[:, None] if values.ndim == 1 else values)
    table = mx.array(np.concatenate(parts, axis=1).astype(np.float32))
    mean = np.array(ops.voxelize_with_quantization(q, table, reduction="mean").feats)
    count = (np.log1p(np.array(q.counts, np.float64)).astype(np.float32) / 2)[:, None]
    ones = np.ones_like(count)
    rows = np.full(len(points), -1)
    rows[finite] = np.array(q.inverse_rows)
    return np.array(q.coords), np.concatenate([ones, mean[:, :4], count, mean[:, 4:]], 1), rows


def clouds():
    rng = np.random.default_rng(3)
    yard = samples.scan()
    yield yard.points.astype(np.float32), 0.2, [yard.columns["intensity"]]
    map_points = rng.normal(size=(5000, 3)) * 4 + [400_000.123, 5_500_000.7, 93.1]
    yield map_points, 0.25, [rng.integers(0, 256, (5000, 3)).astype(np.uint8)]
    holes = rng.normal(size=(777, 3)).astype(np.float32)
    holes[[0, 5, 776]] = [np.nan, np.inf, -np.inf]
    columns = [np.uint16(60000) - np.arange(777).astype(np.uint16), np.arange(777) * 7 - 3]
    yield holes, 0.11, columns
    yield np.full((4, 3), np.nan, np.float32), 1.0, [np.ones(4, np.float16)]
    yield np.zeros((0, 3), np.float32), 1.0, [np.zeros((0, 2), np.float64)]
    yield np.array([[1.0, 2.0, 3.0]]), 0.5, []


@pytest.mark.parametrize("case", range(6))
def test_bits(case):
    points, voxel, columns = list(clouds())[case]
    wide = {np.dtype(np.float64): mx.float64}
    arrays = [mx.array(c, dtype=wide.get(c.dtype)) for c in columns]
    x, rows = ops.voxel_features(mx.array(points, dtype=wide.get(points.dtype)), voxel, arrays)
    coords, feats, expected = oracle(points, voxel, columns)
    assert np.array_equal(np.array(x.coords), coords)
    assert np.array_equal(np.array(x.feats), feats)
    assert np.array_equal(np.array(rows), expected)


def test_pipeline_takes_the_same_way():
    yard = samples.scan()
    pipeline = training.VoxelPipeline(
        0.2, tuple(enumerate(samples.CLASSES)), columns=("intensity",), widths=(1,)
    )
    scan = pipeline.scan(yard)
    _, feats, rows = oracle(yard.points, 0.2, [yard.columns["intensity"]])
    assert np.array_equal(np.array(scan.tensor.feats), feats)
    assert np.array_equal(scan.rows, rows) and scan.rows.dtype == np.int64
    empty = io.PointCloud(np.zeros((0, 3)), {"intensity": np.zeros(0)})
    assert len(pipeline.scan(empty).tensor) == 0


def test_crop_keeps_places():
    points = np.array([[1, 1, 1], [5, 1, 1], [2, 2, 9], [3, 0, 0]], np.float32)
    near = ops.crop_points(points, (0, 0, 0), (4, 4, 4))
    assert np.isfinite(np.array(near)).all(axis=1).tolist() == [True, False, False, True]
    x, rows = ops.voxel_features(near, 1.0)
    assert rows.tolist() == [0, -1, -1, 1] and len(x) == 2
    labels = ops.to_points(mx.array([7, 9]), rows, -1)
    assert labels.tolist() == [7, -1, -1, 9]
    assert ops.to_points(mx.zeros((0, 3)), mx.array([-1, -1]), 0.5).tolist() == [[0.5] * 3] * 2


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: ops.voxel_features(np.zeros((3, 2)), 1.0), r"points must have shape \(N, 3\)"),
        (lambda: ops.voxel_features(np.zeros((3, 3), np.int32), 1.0), "float32 or float64"),
        (lambda: ops.voxel_features(np.zeros((3, 3)), 0.0), "voxel must be finite and > 0"),
        (lambda: ops.voxel_features(np.zeros((3, 3)), np.nan), "voxel must be finite and > 0"),
        (lambda: ops.voxel_features(np.zeros((3, 3)), 1.0, [np.zeros(2)]), "columns must have 3"),
        (lambda: ops.crop_points(np.zeros((3, 3)), 2.0, 1.0), "low must not be above high"),
        (lambda: ops.to_points(np.zeros(2), [2]), "rows"),
    ],
)
def test_messages(call, message):
    with pytest.raises(ValueError, match=message):
        call()
