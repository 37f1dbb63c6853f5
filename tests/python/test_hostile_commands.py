"""Commands with hostile input: one line instead of a stack trace, and no run is damaged."""

import itertools
import json
import os
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from hostile import cloud_of, full_disk
from mlx_lattice import cli, io, viewer

rng = np.random.default_rng


def test_commands_onto_their_input(tmp_path, capsys):
    path = tmp_path / "a.ply"
    io.write(path, cloud_of(2000))
    old = path.read_bytes()
    with full_disk(2000):
        assert cli.main(["voxelize", str(path), str(path), "--size", "0.001"]) == 1
    assert path.read_bytes() == old
    assert cli.main(["compress", str(path), str(path), "--voxel", "0.5"]) == 1
    assert path.read_bytes() == old and "never writes over" in capsys.readouterr().err


def small_run(folder, values=(5, 9), clouds=2, dtype=np.int64):
    """Arguments of a training of one second; clouds of two classes."""
    (folder / "s").mkdir(exist_ok=True)
    (folder / "c.json").write_text('{"depth": 14, "width": 4, "stem_kernel_size": 3}')
    for i in range(clouds):
        P = (rng(i).random((1500, 3)) * [8, 8, 3]).astype(np.float32)
        label = np.array(values, dtype)[(P[:, 2] > 1.5).astype(int)]
        io.write(folder / "s" / f"{i}.npz", io.PointCloud(P, {"label": label}))
    return [
        "train",
        str(folder / "s"),
        "--config",
        str(folder / "c.json"),
        "--output",
        str(folder / "r"),
    ]


def test_predicted_labels_keep_their_values(tmp_path):
    train = small_run(tmp_path, (5, 2**40 + 7))
    assert cli.main([*train, "--voxel", "0.4", "--epochs", "1", "--validation", "0"]) == 0
    assert (
        cli.main(
            ["predict", str(tmp_path / "r"), str(tmp_path / "s/0.npz"), str(tmp_path / "p.npz")]
        )
        == 0
    )
    assert set(np.unique(io.read(tmp_path / "p.npz").columns["label"])) <= {5, 2**40 + 7}


def test_resume_compares_what_was_trained(tmp_path, capsys):
    train = small_run(tmp_path)
    assert cli.main([*train, "--voxel", "0.4", "--epochs", "1"]) == 0
    files = {p.name: p.read_bytes() for p in (tmp_path / "r").iterdir()}
    assert cli.main([*train, "--voxel", "0.2", "--epochs", "1", "--resume"]) == 1
    assert "was started with voxel 0.4, found 0.2" in capsys.readouterr().err
    small_run(tmp_path, (7, 9))
    assert cli.main([*train, "--voxel", "0.4", "--epochs", "2", "--resume"]) == 1
    assert "was started with classes" in capsys.readouterr().err
    small_run(tmp_path, clouds=3)
    assert cli.main([*train, "--voxel", "0.4", "--epochs", "2", "--resume"]) == 1
    assert "was started with files" in capsys.readouterr().err
    assert {p.name: p.read_bytes() for p in (tmp_path / "r").iterdir()} == files


def test_unknown_mean_iou_keeps_the_last_network(tmp_path, capsys):
    train = small_run(tmp_path, clouds=3)
    for path in sorted((tmp_path / "s").iterdir())[1:2]:
        cloud = io.read(path)
        io.write(path, io.PointCloud(cloud.points, {"label": np.zeros(len(cloud), np.int64)}))
    options = ["--voxel", "0.4", "--ignore", "0", "--validation", "0.34"]
    seed = next(s for s in range(99) if np.random.default_rng([s, 99]).permutation(3)[0] == 1)
    assert cli.main([*train, *options, "--epochs", "1", "--seed", str(seed)]) == 0
    first = (tmp_path / "r" / "model.safetensors").read_bytes()
    assert "mean IoU unknown" in capsys.readouterr().out
    assert cli.main([*train, *options, "--epochs", "2", "--seed", str(seed), "--resume"]) == 0
    assert (tmp_path / "r" / "model.safetensors").read_bytes() != first
    assert "last epoch 2, on 1 unseen cloud" in capsys.readouterr().out


def test_mistakes_are_one_line(tmp_path, capsys):
    head = (
        "ply\nformat ascii 1.0\nelement vertex 2\nproperty float x\nproperty float y\nproperty"
        " float z\n"
    )
    (tmp_path / "c.ply").write_text(head + "property float color\nend_header\n0 0 0 1\n1 1 1 2\n")
    voxelize = lambda a: cli.main(
        ["voxelize", str(tmp_path / a), str(tmp_path / "o.las"), "--size", "0.1"]
    )
    assert voxelize("c.ply") == 0
    io.write(tmp_path / "w.npy", cloud_of(30, features=np.zeros((30, 8), np.float32)))
    assert voxelize("w.npy") == 1 and "LAS holds 1 to 3" in capsys.readouterr().err
    both = head.replace("float x", "float X\nproperty float x")
    (tmp_path / "x.ply").write_text(both + "end_header\n0 7 7 7\n1 7 7 7\n")
    assert voxelize("x.ply") == 1 and "cannot be named 'X'" in capsys.readouterr().err
    mx.save_safetensors(str(tmp_path / "m.safetensors"), {"a.weight": mx.random.normal((256, 256))})
    (tmp_path / "full.safetensors").symlink_to("/dev/full")
    quantize = [
        "quantize",
        str(tmp_path / "m.safetensors"),
        "--output",
        str(tmp_path / "full.safetensors"),
    ]
    assert cli.main(quantize) == 1
    train = [*small_run(tmp_path), "--voxel", "0.4", "--epochs", "1"]
    (tmp_path / "deep.json").write_text("[" * 100000)
    deep = [str(tmp_path / "deep.json") if a.endswith("c.json") else a for a in train]
    assert cli.main(deep) == 1 and "not JSON" in capsys.readouterr().err
    with full_disk(100_000):
        assert cli.main(train) == 1
    assert not [p for p in (tmp_path / "r").iterdir() if p.name.startswith(".writing")]
    assert cli.main(train) == 0
    path = str(tmp_path / "r" / "checkpoint.safetensors")
    arrays, about = mx.load(path, return_metadata=True)
    about.pop("state")
    mx.save_safetensors(path, arrays, about)
    capsys.readouterr()
    assert cli.main([*train, "--resume"]) == 1 and "no training state" in capsys.readouterr().err


def test_two_trainings_in_one_folder(tmp_path, capsys):
    import fcntl

    train = [*small_run(tmp_path), "--voxel", "0.4", "--epochs", "1"]
    (tmp_path / "r").mkdir()
    handle = os.open(tmp_path / "r", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    assert cli.main(train) == 1 and "another training" in capsys.readouterr().err
    os.close(handle)
    assert cli.main(train) == 0
    assert json.loads((tmp_path / "r" / "model.json").read_text())["model"] == "MinkUNet"
    assert Path(tmp_path / "r" / "pipeline.json").is_file()


def test_a_predicted_cloud_keeps_its_truth(tmp_path, capsys):
    """The second prediction took the first one for the truth and dropped the truth."""
    train = small_run(tmp_path)
    assert cli.main([*train, "--voxel", "0.4", "--epochs", "1", "--validation", "0"]) == 0
    paths, run = [tmp_path / "s/0.npz", tmp_path / "1.npz", tmp_path / "2.npz"], tmp_path / "r"
    truth = io.read(paths[0]).columns["label"]
    told = []
    for before, after in itertools.pairwise(paths):
        capsys.readouterr()
        assert cli.main(["predict", str(run), str(before), str(after)]) == 0
        told.append(capsys.readouterr().out.split("IoU per voxel")[1].split("wrote")[0])
        assert (io.read(after).columns["truth"] == truth).all()
    assert told[0] == told[1]


def test_training_into_the_folder_of_the_clouds(tmp_path, capsys):
    train = small_run(tmp_path)
    train[-1] = str(tmp_path / "s")
    assert cli.main([*train, "--voxel", "0.4", "--epochs", "1"]) == 0
    assert cli.main([*train, "--voxel", "0.4", "--epochs", "2", "--resume"]) == 0
    assert "history.csv: no points, passed over" in capsys.readouterr().out


def test_coordinates_that_cannot_be_drawn(tmp_path, capsys, recwarn):
    """A blank picture, and a message of JSON."""
    far = io.PointCloud(np.array([[1e308, -1e308, 0], [-1e308, 1e308, 1]]))
    for draw in (viewer.page, lambda c: viewer.picture(c, size=(64, 64))):
        with pytest.raises(ValueError, match=r"\[viewer\] panels: found coordinates beyond"):
            draw(far)
        draw(io.PointCloud(np.zeros((2, 3)), {"a": np.array([1e308, -1e308])}))
    io.write(tmp_path / "a.npz", far)
    for command, output in (("voxelize", "b.npz"), ("compress", "b.mlat")):
        paths = [str(tmp_path / "a.npz"), str(tmp_path / output)]
        assert cli.main([command, *paths, "--voxel", "0.1"]) == 1
        assert "than 2^31 voxels" in capsys.readouterr().err
    assert not [w for w in recwarn if issubclass(w.category, RuntimeWarning)]
