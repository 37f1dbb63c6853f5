"""`predict --memory`: the labels of the whole run, from files, after a kill, and in parts."""

import errno
import json
import re
import shutil
import signal
import subprocess
import sys
import time

import mlx.core as mx
import numpy as np
import pytest
from mlx_lattice import io, models, training
from mlx_lattice.cli.main import main
from mlx_lattice.io.downsample import downsample
from mlx_lattice.streams import tiles
from mlx_lattice.streams.cells import Smallest, ground_of
from test_tiled import random_statistics

laspy = pytest.importorskip("laspy")
CLASSES = tuple((i, f"c{i}") for i in range(5))


@pytest.fixture(scope="module")
def yard(tmp_path_factory):
    """A folder with a network, and a hilly cloud at map coordinates in several formats."""
    folder = tmp_path_factory.mktemp("streams")
    run = folder / "run"
    run.mkdir()
    mx.random.seed(3)
    pipeline = training.VoxelPipeline(0.2, CLASSES, columns=("intensity",), widths=(1,))
    net = random_statistics(models.MinkUNet(pipeline.channels, 5, depth=14, width=8))
    net.save(run / "model.safetensors")
    pipeline.save(run / "pipeline.json")
    rng = np.random.default_rng(4)
    xy = rng.uniform(0, (110, 70), (60000, 2))
    points = np.c_[xy, 2 * np.sin(xy[:, 0] / 9) + rng.normal(0, 0.1, len(xy))]
    points = np.round(points, 3) + [450000, 5400000, 120]
    columns = {
        "intensity": rng.integers(1, 65535, len(points)).astype(np.uint16),
        "label": rng.integers(0, 5, len(points)).astype(np.uint8),
        "gps_time": rng.uniform(0, 1, len(points)),
    }
    cloud = io.PointCloud(points, columns)
    for ending in ("las", "laz"):
        io.write(folder / f"yard.{ending}", cloud)
    cloud = io.read(folder / "yard.las")
    for ending in ("ply", "npy", "pcd"):
        io.write(folder / f"yard.{ending}", cloud)
    tiles = folder / "tiles"
    tiles.mkdir()
    west = cloud.points[:, 0] < 450050
    io.write(tiles / "a.laz", cloud[west])
    io.write(tiles / "b.laz", cloud[~west])
    return folder


def whole(yard, path):
    """Labels and scores of the run in memory."""
    pipeline = training.VoxelPipeline.load(yard / "run" / "pipeline.json")
    net = models.load(yard / "run" / "model.safetensors")
    p = training.probabilities(net, pipeline, io.read(path))
    return p.argmax(axis=1), p.max(axis=1)


def predict(yard, *words):
    return main(["predict", str(yard / "run"), *map(str, words), "--memory", "1GB"])


@pytest.mark.parametrize(
    ("given", "written"),
    [("las", "las"), ("laz", "laz"), ("ply", "ply"), ("npy", "npy"), ("pcd", "ply")],
)
def test_labels_and_scores_are_those_of_the_whole_run(yard, tmp_path, given, written):
    source, output = yard / f"yard.{given}", tmp_path / f"out.{written}"
    assert predict(yard, source, output, "--tile", "192") == 0
    before, after = io.read(source), io.read(output)
    labels, scores = whole(yard, source)
    assert np.array_equal(after.columns["label"], labels)
    assert np.array_equal(after.columns["score"], scores)
    assert np.array_equal(after.points, before.points)
    assert np.array_equal(after.columns["truth"], before.columns["label"])
    for name in ("intensity", "gps_time"):
        assert np.array_equal(after.columns[name], before.columns[name])
    assert not (tmp_path / f"out.{written}.tiles").exists()


def test_tiles_are_as_large_as_a_measured_one_allows(yard, tmp_path, monkeypatch):
    measured, measure = [], tiles.TilePass.row_bytes

    def row_bytes(runner, low, high):
        measured.append(measure(runner, low, high))
        return measured[-1]

    monkeypatch.setattr(tiles.TilePass, "row_bytes", row_bytes)
    monkeypatch.setattr(tiles, "FEW", 1)
    words = ["predict", yard / "run", yard / "yard.las", tmp_path / "out.las"]
    assert main(list(map(str, [*words, "--memory", "450MB"]))) == 0
    assert len(measured) == 1 and 200 < measured[0] < 20_000
    labels, scores = whole(yard, yard / "yard.las")
    after = io.read(tmp_path / "out.las")
    assert np.array_equal(after.columns["label"], labels)
    assert np.array_equal(after.columns["score"], scores)


def test_a_folder_is_one_cloud(yard, tmp_path):
    assert predict(yard, yard / "tiles", tmp_path / "out.las", "--tile", "192") == 0
    both = [io.read(yard / "tiles" / name) for name in ("a.laz", "b.laz")]
    joined = io.PointCloud(
        np.concatenate([c.points for c in both]),
        {"intensity": np.concatenate([c.columns["intensity"] for c in both])},
    )
    io.write(tmp_path / "joined.ply", joined)
    labels, _ = whole(yard, tmp_path / "joined.ply")
    assert np.array_equal(io.read(tmp_path / "out.las").columns["label"], labels)


def test_columns_that_are_divided_by_their_size_in_the_whole_cloud(yard, tmp_path):
    run = shutil.copytree(yard / "run", tmp_path / "run")
    columns = ("intensity", "gps_time")
    pipeline = training.VoxelPipeline(
        0.2, CLASSES, columns=columns, widths=(1, 1), normalized=columns
    )
    pipeline.save(run / "pipeline.json")
    mx.random.seed(4)
    net = random_statistics(models.MinkUNet(pipeline.channels, 5, depth=14, width=8))
    net.save(run / "model.safetensors")
    words = [run, yard / "yard.las", tmp_path / "out.las", "--memory", "1GB", "--tile", "192"]
    assert main(["predict", *map(str, words)]) == 0
    p = training.probabilities(net, pipeline, io.read(yard / "yard.las"))
    after = io.read(tmp_path / "out.las")
    assert np.array_equal(after.columns["label"], p.argmax(axis=1))
    assert np.array_equal(after.columns["score"], p.max(axis=1))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_size_of_a_column_from_its_largest_values(kind):
    rng = np.random.default_rng(6)
    for n in (1, 2, 99, 100, 101, 5000):
        sizes = np.abs(rng.normal(size=n)).astype(kind)
        largest = np.sort(sizes)[-(n // 100 + 2) :]
        whole = training.voxel_pipeline.typical_size(sizes, n)
        assert training.voxel_pipeline.typical_size(largest, n) == whole
        assert whole == pytest.approx(np.percentile(sizes.astype(float), 99), rel=1e-12)


def test_points_that_are_not_finite_get_no_label(yard, tmp_path):
    cloud = io.read(yard / "yard.ply")
    points = cloud.points.copy()
    points[[5, 40000]] = np.nan
    io.write(tmp_path / "holes.ply", io.PointCloud(points, cloud.columns))
    assert predict(yard, tmp_path / "holes.ply", tmp_path / "out.ply") == 0
    after = io.read(tmp_path / "out.ply")
    labels, scores = whole(yard, tmp_path / "holes.ply")
    labels[[5, 40000]] = -1
    assert np.array_equal(after.columns["label"], labels)
    assert np.array_equal(after.columns["score"], scores)


def test_parts_of_a_job_array(yard, tmp_path, capsys):
    output = tmp_path / "out.las"
    for k in range(3):
        assert not output.exists()
        words = ("--tile", "128", "--part", f"{k}/3")
        assert predict(yard, yard / "yard.las", output, *words) == 0
    assert "tiles of other parts are not yet" in capsys.readouterr().out
    labels, _ = whole(yard, yard / "yard.las")
    assert np.array_equal(io.read(output).columns["label"], labels)


def test_workers_of_dask(yard, tmp_path):
    pytest.importorskip("distributed")
    output = tmp_path / "out.las"
    words = [sys.executable, "-m", "mlx_lattice", "predict", yard / "run", yard / "yard.las"]
    words += [output, "--memory", "1GB", "--tile", "128", "--workers", "2"]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "dashboard" in done.stdout
    labels, _ = whole(yard, yard / "yard.las")
    assert np.array_equal(io.read(output).columns["label"], labels)


def test_a_killed_run_goes_on(yard, tmp_path, capsys):
    output, work = tmp_path / "out.las", tmp_path / "out.las.tiles"
    words = [sys.executable, "-m", "mlx_lattice", "predict", yard / "run", yard / "yard.las"]
    words += [output, "--memory", "1GB", "--tile", "64"]
    process = subprocess.Popen(list(map(str, words)), stdout=subprocess.DEVNULL)
    end = time.monotonic() + 120
    while len(list(work.glob("tile_*.npy"))) < 2 and time.monotonic() < end:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not output.exists()
    kept = {p: p.stat().st_mtime_ns for p in work.glob("tile_*.npy")}
    assert len(kept) >= 2
    # A first pass that did not end begins again.
    begun = shutil.copytree(work, tmp_path / "begun.las.tiles")
    asked = json.loads((begun / "manifest.json").read_text())["asked"]
    (begun / "manifest.json").write_text(json.dumps({"asked": asked}))
    for name in ("out", "begun"):
        result = tmp_path / f"{name}.las"
        assert predict(yard, yard / "yard.las", result, "--tile", "64") == 0
        labels, _ = whole(yard, yard / "yard.las")
        assert np.array_equal(io.read(result).columns["label"], labels)


@pytest.mark.parametrize("changed", ["input", "weights", "setting"])
def test_what_changed_is_told(yard, tmp_path, capsys, changed):
    run = shutil.copytree(yard / "run", tmp_path / "run")
    source = shutil.copy(yard / "yard.las", tmp_path / "yard.las")
    output, tile = tmp_path / "out.las", "128"
    words = ["predict", run, source, output, "--memory", "1GB", "--part", "0/2", "--tile"]
    assert main(list(map(str, [*words, tile]))) == 0
    if changed == "input":
        with open(source, "r+b") as file:
            file.seek(-1, 2)
            file.write(b"\x01")
    elif changed == "weights":
        other = models.MinkUNet(7, 5, depth=14, width=8)
        other.save(run / "model.safetensors")
    else:
        tile = "256"
    assert main(list(map(str, [*words, tile]))) == 1
    told = capsys.readouterr().err
    named = {"input": str(source), "weights": "the weights", "setting": "the setting tile"}
    assert named[changed] in told and "changed" in told and "rm -r" in told


def mistakes(yard, folder):
    cloud = io.read(yard / "yard.las")
    far = cloud.points.copy()
    far[7, 0] += 1e6
    io.write(folder / "far.ply", io.PointCloud(far, cloud.columns))
    data = (yard / "yard.laz").read_bytes()
    (folder / "cut.laz").write_bytes(data[: len(data) // 2])
    many = folder / "many"
    many.mkdir()
    shutil.copy(yard / "tiles" / "a.laz", many)
    (many / "empty.laz").write_bytes(b"")
    return folder


@pytest.mark.parametrize(
    ("cloud", "output", "more", "told"),
    [
        ("cut.laz", "out.las", (), "cut.laz"),
        ("far.ply", "out.ply", (), "points span .* drop far points"),
        ("many", "out.las", (), "empty.laz"),
        ("far.ply", "out.las", (), "only from LAS"),
        ("far.ply", "out.pcd", (), "las, .laz, .ply or .npy"),
        ("far.ply", "out.ply", ("--part", "3/2"), "--part.*K/N"),
        ("none.ply", "out.ply", (), "No such file"),
    ],
)
def test_bad_input_is_named_before_the_work(yard, tmp_path, capsys, cloud, output, more, told):
    mistakes(yard, tmp_path)
    assert predict(yard, tmp_path / cloud, tmp_path / output, *more) == 1
    assert re.search(told, capsys.readouterr().err)
    assert not (tmp_path / output).exists()


def test_classes_that_las_cannot_hold(yard, tmp_path, capsys):
    run = shutil.copytree(yard / "run", tmp_path / "run")
    values = (0, 1, 2, 3, 40)
    pipeline = training.VoxelPipeline(
        0.2, tuple((v, f"c{v}") for v in values), columns=("intensity",), widths=(1,)
    )
    pipeline.save(run / "pipeline.json")
    header = laspy.LasHeader(version="1.2", point_format=1)
    header.scales = [0.01] * 3
    with laspy.open(tmp_path / "old.las", "w", header=header) as writer:
        record = laspy.ScaleAwarePointRecord.zeros(3, header=header)
        record.x = np.arange(3.0)
        writer.write_points(record)
    words = ["predict", run, tmp_path / "old.las", tmp_path / "out.las", "--memory", "1GB"]
    assert main(list(map(str, words))) == 1
    assert "holds classes 0..31, and the network knows 0..40" in capsys.readouterr().err


def test_a_full_disk_is_found_before_the_work(yard, tmp_path, capsys, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert predict(yard, yard / "yard.las", tmp_path / "out.las") == 1
    assert "the disk has 0.0 GB" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_disk_that_gets_full_on_the_way(yard, tmp_path, capsys, monkeypatch):
    def full(path):
        raise OSError(errno.ENOSPC, "No space left on device")

    words = (yard / "yard.las", tmp_path / "out.las", "--tile", "128")
    with monkeypatch.context() as patch:
        patch.setattr(tiles, "atomic_file", full)
        assert predict(yard, *words) == 1
    assert re.search("disk is full; .*out.las.tiles keeps what is done", capsys.readouterr().err)
    assert predict(yard, *words) == 0


def test_folders_of_others_are_left_alone(yard, tmp_path, capsys):
    home = tmp_path / "home"
    home.mkdir()
    (home / "letter.txt").write_text("dear")
    assert predict(yard, yard / "yard.las", tmp_path / "out.las", "--work", home) == 1
    assert "letter.txt, which is no file of a run" in capsys.readouterr().err
    work = tmp_path / "work"
    work.mkdir()
    assert predict(yard, yard / "yard.las", work / "out.las", "--work", work) == 0
    assert [p.name for p in work.iterdir()] == ["out.las"]
    inside = yard / "tiles" / "out.las"
    assert predict(yard, yard / "tiles", inside) == 1
    assert "inside of the input" in capsys.readouterr().err


@pytest.mark.parametrize("written", ["las", "ply", "npy"])
@pytest.mark.parametrize("points", ["mean", "first"])
def test_voxelize_as_in_memory(yard, tmp_path, written, points):
    words = ["voxelize", yard / "yard.las", "--voxel", 0.5, "--points", points, "--counts"]
    made = [tmp_path / f"{name}.{written}" for name in ("whole", "cells")]
    for path, more in zip(made, ([], ["--memory", "1GB"])):
        assert main(list(map(str, [*words, path, *more]))) == 0
    if written == "npy":  # whose header may be padded
        assert np.array_equal(*map(np.load, made))
    else:
        assert made[0].read_bytes() == made[1].read_bytes()
    assert sorted(tmp_path.iterdir()) == sorted(made)


def test_voxelize_a_folder_in_little_memory(yard, tmp_path, capsys):
    out, folder = tmp_path / "out.ply", yard / "tiles"
    words = ["voxelize", folder, out, "--voxel", "0.5", "--memory"]
    assert main(list(map(str, [*words, "305MB"]))) == 0
    assert len(io.read(out)) == len(downsample(io.read(yard / "yard.las"), 0.5).cloud)
    assert main(list(map(str, [*words, "100MB"]))) == 1
    assert "--memory: found 100 MiB, expected more than" in capsys.readouterr().err


def test_compress_as_in_memory(yard, tmp_path, capsys):
    folder, whole = tmp_path / "city", tmp_path / "city.mlat"
    words = ["compress", yard / "yard.las", "--voxel", "0.2"]
    assert main(list(map(str, [*words, folder, "--memory", "1GB"]))) == 1
    assert "mkdir -p" in capsys.readouterr().err
    folder.mkdir()
    assert main(list(map(str, [*words, whole]))) == 0
    assert main(list(map(str, [*words, folder, "--memory", "1GB"]))) == 0
    a, parts = io.read(whole), [io.read(path) for path in sorted(folder.iterdir())]
    assert len(parts) > 3
    order = np.lexsort(a.points.T)
    points = np.concatenate([part.points for part in parts])
    cells = np.lexsort(points.T)
    assert np.array_equal(points[cells], a.points[order])
    for name, values in a.columns.items():
        found = np.concatenate([part.columns[name] for part in parts])
        assert np.array_equal(found[cells], values[order]), name
    (folder / "letter.txt").write_text("dear")
    assert main(list(map(str, [*words, folder, "--memory", "1GB"]))) == 1
    assert "letter.txt" in capsys.readouterr().err


def test_evaluate_counts_as_in_memory(yard, capsys):
    words = ["evaluate", str(yard / "run"), "--data", str(yard / "tiles" / "a.laz")]
    assert main([*words, "--memory", "1GB"]) == 0
    tiled = capsys.readouterr().out
    cloud = io.read(yard / "tiles" / "a.laz")
    pipeline = training.VoxelPipeline.load(yard / "run" / "pipeline.json")
    net = models.load(yard / "run" / "model.safetensors")
    confusion = training.Confusion(pipeline.names, unit="points")
    confusion.add(cloud.columns["label"], training.predict_points(net, pipeline, cloud))
    assert str(confusion) in tiled
    assert main([*words, "--memory", "1GB", "--views", "2"]) == 1
    assert "--views" in capsys.readouterr().err


def test_options_need_memory(yard, tmp_path, capsys):
    words = ["predict", yard / "run", yard / "yard.las", tmp_path / "out.las", "--part", "0/2"]
    assert main(list(map(str, words))) == 1
    assert "--memory" in capsys.readouterr().err


def test_the_second_percentile_of_a_stream():
    rng = np.random.default_rng(5)
    for n in (1, 2, 49, 50, 51, 1000, 99999):
        z = rng.normal(size=n).astype(np.float32)
        seen = Smallest(int(n * 0.02) + 2)
        for part in np.array_split(z, 7):
            seen.add(part)
        expected = np.percentile((z / np.float32(0.2)).astype(np.float64), 2)
        assert ground_of(seen.sorted(), n, 0.2) == pytest.approx(expected, abs=1e-5)
