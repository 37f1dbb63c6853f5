"""info, voxelize and view on files: results, tables, mistakes."""

import os
from pathlib import Path

import numpy as np
import pytest
from mlx_lattice import io
from mlx_lattice.cli.main import main
from mlx_lattice.io import PointCloud
from mlx_lattice.io.downsample import downsample
from threads import with_threads


@pytest.fixture
def scan(tmp_path):
    rng = np.random.default_rng(3)
    n = 3000
    cloud = PointCloud(
        (rng.random((n, 3)) * [4, 3, 1] - 1).astype(np.float32),
        {
            "color": rng.integers(0, 256, (n, 3), dtype=np.uint8),
            "intensity": rng.random(n).astype(np.float32),
            "label": rng.integers(0, 4, n).astype(np.int32),
            "normal": rng.normal(size=(n, 3)).astype(np.float32),
        },
    )
    cloud.points[7] = np.nan
    io.write(tmp_path / "scan.ply", cloud)
    return tmp_path / "scan.ply"


def printed(capsys):
    out = capsys.readouterr().out
    return {
        line[: line.index("  ")]: line[line.index("  ") :].strip()
        for line in out.splitlines()
        if "  " in line
    }


def test_info_of_a_file(scan, capsys):
    assert main(["info", str(scan)]) == 0
    rows = printed(capsys)
    assert (
        rows["format"] == "ply"
        and rows["points"] == "3,000, float32"
        and rows["not finite"] == "1 points"
    )
    assert rows["column label"] == "int32  0 .. 3" and rows["column color"] == "uint8[3]  0 .. 255"
    assert rows["bounds"].startswith("x -0.9991 .. 2.9992  y") and rows["spacing"].startswith(
        "about 0.0"
    )


def test_info_of_a_grid_finds_its_spacing(tmp_path, capsys):
    grid = np.stack(np.meshgrid(*[np.arange(12) * 0.25] * 3), axis=-1).reshape(-1, 3)
    io.write(tmp_path / "g.npy", PointCloud(grid))
    assert main(["info", str(tmp_path / "g.npy")]) == 0
    assert printed(capsys)["spacing"].startswith("about 0.25 ")
    io.write(tmp_path / "e.npy", PointCloud(np.zeros((0, 3))))
    assert main(["info", str(tmp_path / "e.npy")]) == 0
    assert printed(capsys)["bounds"] == "none"


@pytest.mark.slow
def test_view(scan, tmp_path, capsys):
    assert (
        main(
            [
                "view",
                str(scan),
                str(tmp_path / "a.html"),
                "--color",
                "label",
                "--classes",
                "a,b,c,d",
            ]
        )
        == 0
    )
    assert "scan.ply 3,000 points" in capsys.readouterr().out
    assert (tmp_path / "a.html").read_text().startswith("<!DOCTYPE html>")
    pytest.importorskip("PIL")
    assert main(["view", str(scan), str(scan), str(tmp_path / "a.png"), "--color", "height"]) == 0
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"


def reference(cloud, size):
    """voxel -> rows, in first-seen order, in float64."""
    voxels = {}
    for row in np.flatnonzero(np.isfinite(cloud.points).all(axis=1)):
        voxels.setdefault(
            tuple(np.floor(cloud.points[row].astype(np.float64) / size).astype(int)), []
        ).append(row)
    return list(voxels.values())


@pytest.mark.parametrize("size", [0.25, 0.5])
def test_voxelize(scan, tmp_path, capsys, size):
    assert (
        main(["voxelize", str(scan), "--size", str(size), str(tmp_path / "small.ply"), "--counts"])
        == 0
    )
    cloud, small, rows = (
        io.read(scan),
        io.read(tmp_path / "small.ply"),
        reference(io.read(scan), size),
    )
    table = printed(capsys)
    assert (
        table["points"] == "3,000, 1 of them not finite and left out"
        and table["voxels"] == f"{len(rows):,}"
    )
    assert small.columns["count"].tolist() == [len(r) for r in rows]
    for i, r in enumerate(rows):
        assert np.abs(small.points[i] - cloud.points[r].mean(axis=0, dtype=np.float64)).max() < 1e-5
        assert (
            np.abs(small.columns["color"][i] - cloud.columns["color"][r].mean(axis=0)).max() < 0.51
        )
        assert abs(small.columns["intensity"][i] - cloud.columns["intensity"][r].mean()) < 1e-5
        assert small.columns["label"][i] == np.bincount(cloud.columns["label"][r]).argmax()
    assert np.abs(np.linalg.norm(small.columns["normal"], axis=1) - 1).max() < 1e-5


def test_places_of_the_points(scan):
    cloud = io.read(scan)
    rows = reference(cloud, 0.5)
    made = downsample(cloud, 0.5, "center")
    center = made.cloud
    assert made.bad == 1 and made.counts.sum() == 2999
    assert made.first.tolist() == [r[0] for r in rows]
    assert (
        np.abs(
            np.floor(cloud.points[[r[0] for r in rows]] / 0.5) * 0.5 + 0.25 - center.points
        ).max()
        < 1e-6
    )
    first = downsample(cloud, 0.5, "first").cloud
    assert np.abs(first.points - cloud.points[[r[0] for r in rows]]).max() < 1e-6


def test_maps_keep_their_precision_and_wide_columns_their_digits():
    rng = np.random.default_rng(0)
    local = rng.random((500, 3)) * 4
    cloud = PointCloud(
        local + [412345, 5812345, 100],
        {
            "time": 1e9 + rng.random(500),
            "flag": rng.random(500) < 0.5,
            "id": np.arange(500, dtype=np.int64) + 2**40,
        },
    )
    small, counts = downsample(cloud, 1.0)[:2]
    rows = reference(cloud, 1.0)
    assert counts.tolist() == [len(r) for r in rows]
    for i, r in enumerate(rows):
        assert np.abs(small.points[i] - cloud.points[r].mean(axis=0)).max() < 1e-5
        assert abs(small.columns["time"][i] - cloud.columns["time"][r].mean()) < 1e-6
        assert small.columns["id"][i] == cloud.columns["id"][r].min()  # all differ: the smallest
    assert small.columns["flag"].dtype == bool


@pytest.mark.parametrize("far", [1e5, 1e6, 1e8])
@pytest.mark.parametrize("where", ["mean", "center", "first"])
def test_wide_clouds_keep_their_voxels(far, where):
    q = np.random.default_rng(5).random((300, 3)) * 0.5
    both = np.concatenate([q, q + far])
    origin = np.floor(both.min(0) / 0.05) * 0.05
    cells = np.floor((both - origin) / 0.05).astype(np.int64)
    small, counts = downsample(PointCloud(both), 0.05, where)[:2]
    found = np.floor((small.points - origin) / 0.05)
    distinct, sizes = np.unique(cells, axis=0, return_counts=True)
    assert sorted(map(tuple, found.astype(int).tolist())) == sorted(map(tuple, distinct.tolist()))
    assert sorted(counts.tolist()) == sorted(sizes.tolist())


def test_an_empty_cloud():
    empty = PointCloud(
        np.zeros((0, 3)),
        {"label": np.zeros(0, np.int32), "color": np.zeros((0, 3), np.uint8), "time": np.zeros(0)},
    )
    small, counts, bad, _ = downsample(empty, 0.1)
    assert len(small) == len(counts) == bad == 0 and set(small.columns) == {
        "label",
        "color",
        "time",
    }


def test_voxelize_does_not_depend_on_threads(scan):
    results = []
    for _ in with_threads(1, 3):
        small = downsample(io.read(scan), 0.3).cloud
        results.append([small.points.tobytes()] + [v.tobytes() for v in small.columns.values()])
    assert results[0] == results[1]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["info", "none.ply"], "No such file"),
        (["info", "a.doc"], "format 'doc', expected one of ply"),
        (["voxelize", "none.ply", "--size", "1", "b.ply"], "No such file"),
        (
            ["voxelize", "a.ply", "--size", "-1", "b.ply"],
            "--voxel: found -1.0, expected a positive number",
        ),
        (["voxelize", "a.ply", "--size", "nan", "b.ply"], "--voxel: found nan"),
        (["voxelize", "a.ply", "--size", "1", "b.doc"], "format 'doc'"),
        (["view", "none.ply", "b.html"], "No such file"),
        (["view", "none.ply", "b.html", "--point-size", "-2"], "--point-size: found -2.0"),
    ],
)
def test_mistakes_are_one_line(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize("link", [None, "symbolic", "hard"])
@pytest.mark.parametrize("command", ["voxelize", "view", "compress", "decompress"])
def test_no_command_writes_over_its_input(scan, capsys, monkeypatch, command, link):
    monkeypatch.chdir(scan.parent)
    ending = {"view": "html", "compress": "mlat"}.get(command, "ply")
    source, output = scan.name, f"other.{ending}"
    if command == "decompress":
        assert main(["compress", source, "--voxel", "0.1", "a.mlat"]) == 0
        source = "a.mlat"
    if link is None:
        os.rename(source, output)
        source = output
    else:
        (os.symlink if link == "symbolic" else os.link)(source, output)
    before = Path(source).read_bytes()
    options = {"voxelize": ["--voxel", "0.5"], "compress": ["--voxel", "0.5"]}.get(command, [])
    assert main([command, source, *options, output]) == 1
    assert "never writes over its input" in capsys.readouterr().err
    assert Path(source).read_bytes() == before


def test_a_broken_file_is_one_line(tmp_path, capsys):
    (tmp_path / "a.ply").write_bytes(b"ply\nformat ascii 1.0\nelement vertex -5\n")
    assert main(["info", str(tmp_path / "a.ply")]) == 1
    assert "a.ply: not a valid PLY file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["voxelize", "a.ply", "b.ply"],
        ["voxelize", "a.ply", "--size", "big", "b.ply"],
        ["view", "a.ply"],
    ],
)
def test_wrong_usage_is_2(arguments):
    with pytest.raises(SystemExit) as error:
        main(arguments)
    assert error.value.code == 2


@pytest.mark.parametrize(
    "arguments", [["--help"], ["info", "--help"], ["voxelize", "--help"], ["view", "--help"]]
)
def test_help_has_examples(arguments, capsys):
    with pytest.raises(SystemExit) as error:
        main(arguments)
    assert error.value.code == 0 and "examples:\n  mlx-lattice " in capsys.readouterr().out
