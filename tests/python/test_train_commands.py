"""`mlx-lattice train` and `predict`: a run, its files, resume, and a user's mistakes."""

import json
import shutil

import numpy as np
import pytest
from mlx_lattice import io
from mlx_lattice.cli.main import main

CONFIG = {"depth": 14, "width": 4}


def write_clouds(folder, count=4, n=3000):
    for i in range(count):
        rng = np.random.default_rng(i)
        points = rng.uniform(0, [12, 12, 4], (n, 3)).astype(np.float32)
        label = np.where(points[:, 2] > 2, 9, 4).astype(np.int32)
        label[:5] = 0
        io.write(
            folder / f"{i}.ply",
            io.PointCloud(points, {"label": label, "intensity": rng.random(n).astype(np.float32)}),
        )
    (folder / "notes.txt").write_text("no cloud")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Arguments of a small run and its folder."""
    folder = tmp_path_factory.mktemp("train")
    (folder / "data").mkdir()
    write_clouds(folder / "data")
    (folder / "sizes.json").write_text(json.dumps(CONFIG))
    return [
        str(folder / "data"),
        "--voxel",
        "0.5",
        "--config",
        str(folder / "sizes.json"),
        "--columns",
        "intensity",
        "--ignore",
        "0",
        "--classes",
        "low,high",
        "--validation",
        "0.25",
    ], folder


@pytest.fixture(scope="module")
def trained(run):
    arguments, folder = run
    output = folder / "run"
    assert main(["train", *arguments, "--epochs", "6", "--output", str(output)]) == 0
    return output, folder


@pytest.mark.parametrize(
    "model, sizes",
    [
        (
            "ptv3",
            {
                "stride": [2],
                "enc_depths": [1, 1],
                "enc_channels": [8, 16],
                "enc_num_head": [1, 2],
                "enc_patch_size": [64, 64],
                "dec_depths": [1],
                "dec_channels": [8],
                "dec_num_head": [1],
                "dec_patch_size": [64],
            },
        ),
        ("window-unet", {"channels": [16], "depths": [1]}),
    ],
)
def test_other_networks(run, model, sizes, capsys):
    arguments, folder = run
    config, output = folder / f"{model}.json", folder / model
    config.write_text(json.dumps(sizes))
    arguments = [*arguments, "--config", str(config), "--model", model, "--epochs", "2"]
    assert main(["train", *arguments, "--output", str(output)]) == 0
    cloud, labeled = folder / "data" / "0.ply", output / "labeled.ply"
    assert main(["predict", str(output), str(cloud), str(labeled)]) == 0
    config.write_text(json.dumps({"depth": 14}))
    assert main(["train", *arguments, "--output", str(folder / "other")]) != 0
    assert "expected an object with keys of" in capsys.readouterr().err


def test_files_of_a_run(trained, capsys):
    output, _ = trained
    assert sorted(p.name for p in output.iterdir()) == [
        "checkpoint.safetensors",
        "history.csv",
        "model.json",
        "model.safetensors",
        "pipeline.json",
    ]
    pipeline = json.loads((output / "pipeline.json").read_text())
    assert (
        pipeline["classes"] == [[4, "low"], [9, "high"]]
        and pipeline["columns"] == ["intensity"]
        and pipeline["ignored"] == [0]
    )


def test_predict_labels_every_point(trained, tmp_path, capsys):
    output, folder = trained
    cloud = folder / "data" / "0.ply"
    assert main(["predict", str(output), str(cloud), str(tmp_path / "out.ply")]) == 0
    text = capsys.readouterr().out
    assert "3,000 points" in text and "high" in text and "IoU" in text
    labeled = io.read(tmp_path / "out.ply")
    truth = io.read(cloud).columns["label"]
    np.testing.assert_array_equal(labeled.columns["truth"], truth)
    assert set(np.unique(labeled.columns["label"])) <= {4, 9}
    counted = truth > 0
    assert (labeled.columns["label"] == truth)[counted].mean() > 0.8


def test_predict_draws_a_page(trained, tmp_path):
    output, folder = trained
    assert (
        main(
            [
                "predict",
                str(output / "model.safetensors"),
                str(folder / "data" / "1.ply"),
                str(tmp_path / "look.html"),
            ]
        )
        == 0
    )
    page = (tmp_path / "look.html").read_text()
    assert "prediction" in page and "truth" in page and '"low"' in page


def test_evaluate_measures_on_the_same_clouds(trained, capsys):
    """A folder of plain `train` has no recipe: the clouds of --data are a data set of their own."""
    output, folder = trained
    assert main(["evaluate", str(output), "--data", str(folder / "data")]) == 0
    text = capsys.readouterr().out
    assert "11,980" in text and "mean IoU 0." in text  # 4 clouds without 5 ignored points each


def test_quantize_takes_the_folder(trained, tmp_path, capsys):
    output, folder = trained
    packed, cloud = tmp_path / "packed.safetensors", folder / "data" / "0.ply"
    assert main(["quantize", str(output), "--bits", "8", "--output", str(packed)]) == 0
    assert main(["predict", str(packed), str(cloud), str(tmp_path / "p.npz")]) == 0


def test_a_folder_of_an_older_version(trained, tmp_path, capsys):
    """pipeline.json was called recipe.json."""
    output, folder = trained
    old = tmp_path / "old"
    shutil.copytree(output, old)
    (old / "pipeline.json").rename(old / "recipe.json")
    cloud = folder / "data" / "0.ply"
    assert main(["predict", str(old), str(cloud), str(tmp_path / "p.npz")]) == 0
    assert main(["evaluate", str(old), "--data", str(folder / "data")]) == 0
    assert not (old / "pipeline.json").exists()


def test_resume_goes_on(run, tmp_path, capsys):
    arguments, _ = run
    begin = ["train", *arguments, "--output", str(tmp_path / "r"), "--epochs"]
    assert main([*begin, "1"]) == 0
    assert main([*begin, "2"]) == 1
    assert "--resume goes on" in capsys.readouterr().err
    assert main([*begin, "2", "--resume"]) == 0
    out = capsys.readouterr().out
    assert "resumed after epoch 1" in out and "epoch   2" in out
    assert main([*begin, "2", "--resume"]) == 0
    assert "nothing to do" in capsys.readouterr().out


@pytest.mark.parametrize(
    "change, message",
    [
        (["--voxel", "0"], "--voxel: found 0.0"),
        (["--epochs", "0"], "--epochs: found 0"),
        (["--validation", "1"], "--validation: found 1.0"),
        (["--label", "kind"], "no column 'kind'"),
        (["--label", "intensity"], "expected whole numbers"),
        (["--columns", "color"], "no column 'color'"),
        (["--classes", "a,b,c"], "found 3 names of classes, expected 2"),
        (["--config", "nowhere.json"], "nowhere.json"),
        (["--resume"], "no checkpoint"),
        (["--voxel", "2"], "0.ply: all its voxels fall into one cell of 16"),
    ],
)
def test_mistakes_have_no_stack_trace(run, tmp_path, capsys, change, message):
    arguments, _ = run
    assert main(["train", *arguments, "--output", str(tmp_path / "x"), *change]) == 1
    assert message in capsys.readouterr().err


def test_more_mistakes(run, trained, tmp_path, capsys):
    arguments, folder = run
    output, _ = trained
    (tmp_path / "bad.json").write_text('{"depht": 14}')
    for wrong, message in [
        (
            ["train", str(tmp_path / "none"), "--voxel", "1", "--output", str(tmp_path / "x")],
            "no file or folder",
        ),
        (
            ["train", str(tmp_path), "--voxel", "1", "--output", str(tmp_path / "x")],
            "no point-cloud file inside",
        ),
        (
            [
                "train",
                *arguments,
                "--output",
                str(tmp_path / "x"),
                "--config",
                str(tmp_path / "bad.json"),
            ],
            "depht",
        ),
        (
            ["predict", str(tmp_path), str(folder / "data" / "0.ply"), "x.ply"],
            "pipeline.json is missing",
        ),
        (["predict", str(output), str(folder / "data" / "0.ply"), "x.foo"], "x.foo"),
        (["predict", str(output), str(tmp_path / "none.ply"), str(tmp_path / "x.ply")], "none.ply"),
    ]:
        assert main(wrong) == 1, wrong
        error = capsys.readouterr().err
        assert message in error and "Traceback" not in error
    with pytest.raises(SystemExit) as leave:
        main(["train", "data"])
    assert leave.value.code == 2


def test_format_of_ambiguous_files(tmp_path, capsys):
    """20 points of KITTI could be 16 of nuScenes: the message names --format, which train has."""
    np.zeros((20, 4), "<f4").tofile(tmp_path / "a.bin")
    start = ["train", str(tmp_path / "a.bin"), "--voxel", "1", "--output", str(tmp_path / "o")]
    assert main(start) == 1 and "--format kitti or --format nuscenes" in capsys.readouterr().err
    assert main([*start, "--format", "kitti"]) == 1
    assert "no column 'label'" in capsys.readouterr().err
