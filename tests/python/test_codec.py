"""The codec from Python: what goes in comes out in Morton order."""

import mlx.core as mx
import numpy as np
import pytest
from mlx_lattice import io, ops
from mlx_lattice.cli.main import main


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
