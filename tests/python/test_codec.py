"""The codec from Python: what goes in comes out in Morton order."""

import mlx.core as mx
import numpy as np
import pytest

from mlx_lattice import ops


def cloud(n, seed=0):
    random = np.random.default_rng(seed)
    coords = np.unique(random.integers(-30, 30, (n, 4)).astype(np.int32) * np.array([0, 1, 1, 1], np.int32), axis=0)
    random.shuffle(coords)
    return mx.array(coords), random


@pytest.mark.parametrize("n", [0, 1, 2000])
def test_round_trip(n):
    coords, random = cloud(n)
    rows = len(coords)
    attributes = {"color": mx.array(random.integers(0, 256, (rows, 3)).astype(np.uint8)),
                  "intensity": mx.array(random.random(rows).astype(np.float32))}
    data = ops.encode_points(coords, attributes, voxel_size=0.05, origin=(1, 2, 3))
    back = ops.decode_points(data)
    order = ops.morton_order(coords)
    assert back.coords.dtype == mx.int32 and back.coords.tolist() == coords[order].tolist()
    assert back.voxel_size == 0.05 and tuple(back.origin) == (1, 2, 3)
    assert list(back.attributes) == ["color", "intensity"]
    for name, values in attributes.items():
        assert back.attributes[name].dtype == values.dtype
        assert back.attributes[name].tolist() == values[order].tolist()


def test_bad_arguments():
    coords, _ = cloud(10)
    with pytest.raises(ValueError, match=r"\[encode_points\].*shape \(N, 4\)"):
        ops.encode_points(mx.zeros((3, 3), mx.int32))
    with pytest.raises(ValueError, match="twice"):
        ops.encode_points(mx.zeros((2, 4), mx.int32))
    with pytest.raises(ValueError, match="attribute 'a'"):
        ops.encode_points(coords, {"a": mx.zeros((3,))})
    with pytest.raises(ValueError, match="voxel_size"):
        ops.encode_points(coords, voxel_size=float("nan"))
    for data in (b"", b"MLAT", ops.encode_points(coords) + b"\0"):
        with pytest.raises(ValueError, match=r"^\[decode_points\] data"):
            ops.decode_points(data)
    with pytest.raises(TypeError):
        ops.decode_points("MLAT")
