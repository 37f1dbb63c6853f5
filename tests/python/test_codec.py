"""The codec from Python: what goes in comes out in Morton order."""

import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx_lattice import io, ops
from mlx_lattice.cli.main import main
from mlx_lattice.samples import streets


def cloud(n, seed=0):
    random = np.random.default_rng(seed)
    coords = np.unique(
        random.integers(-30, 30, (n, 4)).astype(np.int32) * np.array([0, 1, 1, 1], np.int32), axis=0
    )
    random.shuffle(coords)
    return mx.array(coords), random


@pytest.mark.parametrize("n", [0, 1, 2000])
def test_round_trip(n):
    coords, random = cloud(n)
    rows = len(coords)
    attributes = {
        "color": mx.array(random.integers(0, 256, (rows, 3)).astype(np.uint8)),
        "intensity": mx.array(random.random(rows).astype(np.float32)),
    }
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


def sweep(voxel=0.05):
    """The voxels of a generated street; the scanner stands in voxel 0."""
    points = streets.sweep(3) - [0, 0, streets.HEIGHT]
    cells = np.unique(np.floor(points / voxel).astype(np.int32), axis=0)
    return mx.array(np.concatenate([np.zeros((len(cells), 1), np.int32), cells], 1))


def test_models_give_the_same_voxels():
    coords = sweep()
    color = {"color": mx.arange(len(coords)).astype(mx.uint8)}
    sizes = {}
    for model, fast in (("octree", False), ("lidar", False), ("lidar", True), ("auto", False)):
        data = ops.encode_points(coords, color, voxel_size=0.05, model=model, fast=fast)
        back = ops.decode_points(data)
        order = ops.morton_order(coords)
        assert back.coords.tolist() == coords[order].tolist()
        assert back.attributes["color"].tolist() == color["color"][order].tolist()
        sizes[model, fast] = len(data)
        assert data[4] == (1 if model == "octree" else 2)
    assert sizes["lidar", False] < 0.97 * sizes["octree", False]
    assert sizes["lidar", False] < sizes["lidar", True]
    assert sizes["auto", False] == sizes["lidar", False]


def test_auto_is_never_larger():
    few = mx.array([[0, 1, 2, 3], [0, 9, 9, 9]])
    dense = mx.array(np.argwhere(np.ones((1, 9, 9, 9))).astype(np.int32))
    for coords in (few, dense, few[:0]):
        octree, auto = (ops.encode_points(coords, model=m) for m in ("octree", "auto"))
        assert len(auto) <= len(octree)
        assert ops.decode_points(auto).coords.tolist() == ops.decode_points(octree).coords.tolist()


def test_the_sensor_is_in_the_units_of_the_points():
    coords = sweep()
    here = ops.encode_points(coords, model="lidar", voxel_size=0.05)
    moved = mx.array([0, 500, -40, 7]) + coords
    shift = -0.05 * np.array([500, -40, 7])
    there = ops.encode_points(moved, model="lidar", voxel_size=0.05, origin=shift)
    far = ops.encode_points(coords, model="lidar", voxel_size=0.05, sensor=(40, 0, 9))
    assert abs(len(there) - len(here)) < 0.01 * len(here) < len(far) - len(here)
    with pytest.raises(ValueError, match="sensor must be finite"):
        ops.encode_points(coords, model="lidar", sensor=(0, 0, float("nan")))


def test_models_by_name():
    coords, _ = cloud(10)
    with pytest.raises(ValueError, match="'octree', 'lidar' or 'auto', got 'zip'"):
        ops.encode_points(coords, model="zip")
    with pytest.raises(ValueError, match="fast needs the model 'lidar'"):
        ops.encode_points(coords, fast=True)
    data = bytearray(ops.encode_points(coords, model="lidar"))
    # The identity of the model lies behind GRID, the head of COOR and the coder.
    at = 8 + 16 + 32 + 16 + 1
    data[at] ^= 1
    begin = at - 17
    length = int.from_bytes(data[begin + 4 : begin + 12], "little")
    content = bytes(data[at - 1 : at - 1 + length])
    data[begin + 12 : begin + 16] = crc32c(bytes(data[begin : begin + 12]) + content)
    with pytest.raises(ValueError, match=r"needs the model 'lidar' with the identity \w{16};"):
        ops.decode_points(bytes(data))


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return (crc ^ 0xFFFFFFFF).to_bytes(4, "little")


def test_the_recipe_of_the_network_repeats(tmp_path):
    root = Path(__file__).parents[2]
    near = streets.sweep(5)[::4].astype(np.float32)
    np.savez(tmp_path / "sweeps.npz", a=near)
    command = [sys.executable, str(root / "scripts/train_lidar_codec.py"), tmp_path / "sweeps.npz"]
    files = []
    for name in "ab":
        output = tmp_path / f"{name}.mlnt"
        options = ["--steps", "3", "--fall", "1", "--points", "4000", "--output", output]
        subprocess.run([*command, *options], check=True, capture_output=True)
        files.append(output.read_bytes())
    assert files[0] == files[1]
    assert len(files[0]) == (root / "lattice/kernels/cpu/coding/lidar.mlnt").stat().st_size


def test_commands_with_a_model(tmp_path, capsys):
    (tmp_path / "sweeps" / "b").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    points = streets.sweep(4)[:9000].astype(np.float32)
    for name in ("a.pcd", "b/c.npy"):
        io.write(str(tmp_path / "sweeps" / name), io.PointCloud(points))
    source, alone = str(tmp_path / "sweeps"), str(tmp_path / "alone.mlat")
    first = str(tmp_path / "sweeps" / "a.pcd")
    for options in (["lidar"], ["lidar", "--fast"], ["auto", "--sensor", "0", "0", "1.8"]):
        assert main(["compress", first, alone, "--voxel", "0.05", "--model", *options]) == 0
        assert "model lidar" in capsys.readouterr().out
        cells = np.unique(np.floor((points - points.min(0)) / np.float64(0.05)), axis=0)
        assert len(io.read(alone)) == len(cells)
    call = ["compress", source, str(tmp_path / "out"), "--voxel", "0.05", "--model", "lidar"]
    assert main(call) == 0
    assert "2 files" in capsys.readouterr().out
    one, two = (io.read(str(tmp_path / "out" / name)) for name in ("a.mlat", "b/c.mlat"))
    assert np.array_equal(one.points, two.points)
    assert main([*call[:2], str(tmp_path / "none"), *call[3:]]) == 1
    assert "mkdir -p" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main(["compress", str(tmp_path / "empty"), *call[2:]]) == 1
    assert "holds no point clouds" in capsys.readouterr().err


def test_commands(tmp_path, capsys):
    points = np.random.default_rng(1).random((3000, 3)) * 4 + [500000.0, 0.0, -3.0]
    points[7] = np.nan
    columns = {
        "color": np.random.default_rng(2).integers(0, 256, (3000, 3)).astype(np.uint8),
        "intensity": np.linspace(0, 1, 3000).astype(np.float32),
        "label": np.arange(3000, dtype=np.int64) % 5,
    }
    source, packed, back = (str(tmp_path / name) for name in ("in.npz", "out.mlat", "back.npz"))
    io.write(source, io.PointCloud(points, columns))
    assert main(["compress", source, packed, "--voxel", "0.1"]) == 0
    printed = capsys.readouterr().out
    for words in ("3,000 points, 1 not finite", "bits per voxel", "ratio"):
        assert words in printed
    assert main(["decompress", packed, back]) == 0
    cloud = io.read(back)
    good = np.isfinite(points).all(1)
    cells = np.floor((points[good] - points[good].min(0)) / 0.1).astype(int)
    known = {}
    for row, cell in zip(np.flatnonzero(good), cells):
        known.setdefault(tuple(cell), []).append(row)
    assert len(cloud) == len(known)
    got = np.floor((cloud.points - points[good].min(0)) / 0.1).astype(int)
    for i, cell in enumerate(got):
        rows = known.pop(tuple(cell))
        assert (
            cloud.columns["color"][i].tolist() == np.rint(columns["color"][rows].mean(0)).tolist()
        )
        assert cloud.columns["intensity"][i] == pytest.approx(
            columns["intensity"][rows].mean(), abs=1e-6
        )
        assert cloud.columns["label"][i] == columns["label"][rows[0]]


def test_commands_refuse(tmp_path, capsys):
    (tmp_path / "bad.mlat").write_bytes(b"MLAT" + bytes(40))
    assert main(["decompress", str(tmp_path / "bad.mlat"), str(tmp_path / "x.ply")]) == 1
    assert "[decode_points] data" in capsys.readouterr().err
    io.write(str(tmp_path / "a.npz"), io.PointCloud(np.zeros((1, 3))))
    for voxel in ("0", "-1", "nan"):
        assert (
            main(["compress", str(tmp_path / "a.npz"), str(tmp_path / "a.mlat"), "--voxel", voxel])
            == 1
        )
    assert "--voxel: found nan, expected a positive number" in capsys.readouterr().err


def test_bench(capsys):
    assert main(["bench", "entropy", "--symbols", "20000", "--repeat", "1"]) == 0
    assert main(["bench", "codec", "--voxel", "2"]) == 0
    printed = capsys.readouterr().out
    assert "rANS" in printed and "inflate" in printed and "mlx_lattice" in printed
