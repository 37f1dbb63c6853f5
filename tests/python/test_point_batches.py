"""Ragged batches: construction, empty clouds everywhere, dense planes, access, errors."""

import itertools

import mlx.core as mx
import numpy as np
import pytest
from mlx_lattice import points
from mlx_lattice.points import OffsetPointCloudBatch, PointCloudBatch

LENGTHS = [[3, 1, 4], [0, 3, 0, 0, 2, 0], [1], [0], [0, 0], []]


def batch(lengths, channels=2, seed=0):
    rng = np.random.default_rng(seed)
    n = sum(lengths)
    return PointCloudBatch(
        mx.array(rng.normal(size=(n, 3)).astype(np.float32).reshape(n, 3)),
        mx.array(rng.normal(size=(n, channels)).astype(np.float32).reshape(n, channels)),
        lengths=lengths,
    )


def same(a, b):
    assert a.lengths.tolist() == b.lengths.tolist() and mx.array_equal(a.positions, b.positions)
    assert (a.features is None) == (b.features is None) and (
        a.features is None or mx.array_equal(a.features, b.features)
    )


@pytest.mark.parametrize("lengths", LENGTHS)
def test_both_forms(lengths):
    a = batch(lengths)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    assert a.batch_size == len(a) == len(lengths) and a.total_points == sum(lengths)
    assert a.lengths.dtype == a.offsets.dtype == a.indices.dtype == mx.int32
    assert a.lengths.tolist() == lengths and a.offsets.tolist() == [
        0,
        *itertools.accumulate(lengths),
    ]
    assert a.indices.tolist() == rows.tolist()
    o = a.to_offsets()
    assert isinstance(o, OffsetPointCloudBatch) and o.as_lengths().tolist() == lengths
    same(o.to_lengths(), a)
    if lengths:  # an empty list knows nothing of features
        same(PointCloudBatch.from_list(a.unbatch()), a)
    same(PointCloudBatch(a.positions, a.features, lengths=lengths, indices=a.indices), a)
    same(PointCloudBatch.concat([a, a]), PointCloudBatch.from_list(a.unbatch() * 2))
    for b in range(-len(lengths), len(lengths)):
        span = slice(o.offsets.tolist()[b % len(lengths)], o.offsets.tolist()[b % len(lengths) + 1])
        assert mx.array_equal(o.get_points(b), a.positions[span]) and mx.array_equal(
            a.get_features(b), a.features[span]
        )
    for b in (len(lengths), -len(lengths) - 1):
        with pytest.raises(IndexError):
            o.get_points(b)


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("max_len", [None, 0, 2, 7])
def test_dense(lengths, max_len):
    a = batch(lengths)
    size = max(lengths, default=0) if max_len is None else max_len
    expected = np.full((len(lengths), size, 2), -1, dtype=np.float32)
    mask = np.zeros((len(lengths), size), dtype=bool)
    for b, (_, f) in enumerate(a.unbatch()):
        n = min(size, f.shape[0])
        expected[b, :n], mask[b, :n] = np.array(f)[:n], True
    dense, found = a.to_dense(max_len, fill=-1.0, return_mask=True)
    assert (
        dense.shape == expected.shape
        and np.array_equal(np.array(dense), expected)
        and np.array_equal(np.array(found), mask)
    )
    assert a.to_dense(values=a.positions.astype(mx.float16)).dtype == mx.float16
    weights = mx.random.normal(dense.shape)
    grad = mx.grad(lambda v: (a.to_dense(max_len, values=v) * weights).sum())(a.features)
    for b, span in enumerate(itertools.pairwise(a.offsets.tolist())):
        n = min(size, span[1] - span[0])
        assert np.array_equal(np.array(grad)[span[0] : span[0] + n], np.array(weights)[b, :n])
        assert not np.array(grad)[span[0] + n : span[1]].any()


@pytest.mark.parametrize("lengths", [[3, 0, 2], [0], []])
def test_from_dense(lengths):
    a = batch(lengths)
    positions = a.to_dense(4, values=a.positions)
    features, mask = a.to_dense(4, return_mask=True)
    same(PointCloudBatch.from_dense(positions, lengths, features), a)
    same(PointCloudBatch.from_dense(positions, features=features, mask=mask), a)


def test_values():
    a = batch([2, 0, 3])
    assert mx.allclose(
        a.segment_reduce(operation="sum"), points.segment_reduce(a.features, a.lengths)
    )
    assert a.segment_reduce(mx.ones(5), "mean").tolist() == [1, 0, 1]
    idx = mx.array([[4, 0], [1, 1]])
    assert mx.array_equal(a.gather_by_index(idx), a.features[idx])
    assert mx.array_equal(a.gather_by_index(idx, a.positions), a.positions[idx])
    assert a.gather_by_index(mx.zeros((0, 3), dtype=mx.int32)).shape == (0, 3, 2)
    b = a.with_features(None)
    assert b.features is None and mx.array_equal(b.gather_by_index(mx.array([1])), a.positions[1:2])
    same(
        PointCloudBatch(a.positions, a.features, indices=mx.array([0, 0, 2, 2, 2], dtype=mx.int64)),
        a,
    )
    assert (
        PointCloudBatch(a.positions).lengths.tolist()
        == OffsetPointCloudBatch(a.positions).as_lengths().tolist()
        == [5]
    )
    assert "3 clouds, 5 points" in repr(a)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda p: PointCloudBatch(p, lengths=[3]), "sum to 4 points, found sum 3"),
        (lambda p: PointCloudBatch(p, lengths=[5, -1]), ">= 0"),
        (lambda p: PointCloudBatch(p, lengths=mx.array([4.0])), "integers"),
        (lambda p: PointCloudBatch(p, mx.zeros((3, 1))), r"features must have shape \(4, C\)"),
        (lambda p: PointCloudBatch(p[:, :2]), r"shape \(T, 3\)"),
        (lambda p: PointCloudBatch(p.astype(mx.int32)), "floats"),
        (lambda p: PointCloudBatch(p, indices=[0, 1, 0, 1]), "ascending"),
        (lambda p: PointCloudBatch(p, indices=[-1, 0, 0, 1]), "ascending"),
        (lambda p: PointCloudBatch(p, indices=[0, 0, 1]), "4 ascending"),
        (lambda p: PointCloudBatch(p, lengths=[1, 3], indices=[0, 0, 1, 1]), "agree"),
        (lambda p: PointCloudBatch.from_list([p, (p, p)]), "either all"),
        (lambda p: PointCloudBatch.from_dense(p[None], lengths=[5]), "in 0..4"),
        (lambda p: PointCloudBatch.from_dense(p[None]), "either lengths or mask"),
        (lambda p: OffsetPointCloudBatch(p, offsets=[0, 3]), "end at 4"),
        (lambda p: OffsetPointCloudBatch(p, offsets=[1, 4]), "start at 0"),
        (lambda p: OffsetPointCloudBatch(p, offsets=[0, 3, 2, 4]), "never fall"),
        (lambda p: OffsetPointCloudBatch(p, offsets=[]), "start at 0"),
        (lambda p: PointCloudBatch(p).gather_by_index(mx.array([4])), "in 0..3"),
        (lambda p: PointCloudBatch(p).gather_by_index(mx.array([-1])), "in 0..3"),
        (lambda p: PointCloudBatch(p).to_dense(-1), "max_len must be >= 0"),
        (lambda p: PointCloudBatch(p).to_dense(values=mx.zeros(3)), "must have 4 rows"),
        (lambda p: PointCloudBatch(p).segment_reduce(operation="median"), "sum, mean, max or min"),
    ],
)
def test_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make(mx.zeros((4, 3)))
