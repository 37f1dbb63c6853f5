"""Recipes and the commands on data sets.

Validation, a run on a small SemanticKITTI tree, submissions.
"""

import csv
import os
import signal
import subprocess
import sys
import time

import mlx.core as mx
import numpy as np
import pytest
import trees
from mlx_lattice import datasets as ds
from mlx_lattice.cli.main import main
from mlx_lattice.training import Confusion, PartIoU
from mlx_lattice.training.recipes import load_recipe, parse_recipe, recipe_names

SMALL = """
[data]
name = "semantickitti"
options = {{ sequences = [{sequences}] }}
workers = 2
[voxels]
size = 0.8
columns = ["intensity"]
[network]
options = {{ depth = 14, width = 4, stem_kernel_size = 3 }}
[train]
epochs = {epochs}
rate = 0.01
average = 0.9
batch = 2
[[loss]]
name = "cross_entropy"
[[loss]]
name = "lovasz"
factor = 0.5
[[augment]]
name = "Flip"
[[augment]]
name = "LaserMix"
low = -60
high = 60
chance = 0.5
"""


def test_recipes_of_the_package_are_valid():
    assert "semantickitti-minkunet34" in recipe_names() and len(recipe_names()) >= 6
    for name in recipe_names():
        recipe = load_recipe(name)
        assert recipe["train"]["epochs"] > 0 and recipe.loss(19, np.ones((1, 19)))


@pytest.mark.parametrize(
    "change, message",
    [
        (("rate = 0.01", "rtae = 0.01"), r"train\.rtae: unknown key; did you mean train\.rate\?"),
        (("rate = 0.01", ""), r"train\.rate: is missing"),
        (("rate = 0.01", "rate = 'fast'"), r"train\.rate: found 'fast', expected a number"),
        (("rate = 0.01", "rate = 0"), r"train\.rate: found 0, expected more than 0"),
        (("batch = 2", "batch = 0"), r"train\.batch: found 0, expected at least 1"),
        (("batch = 2", "batch = true"), r"train\.batch: found True, expected a whole number"),
        (("[voxels]", "[voxel]"), r"x\.toml: voxel: unknown key; did you mean voxels\?"),
        (
            ('"semantickitti"', '"kitti"'),
            r"data\.name: found 'kitti', expected one of semantickitti",
        ),
        (('"lovasz"', '"lovas"'), r"loss\[1\]\.name: found 'lovas', expected one of cross_entropy"),
        (('"Flip"', '"Flop"'), r"augment\[0\]\.name: found 'Flop'"),
        (("low = -60", "lo = -60"), r"augment\[1\]\.lo: unknown; LaserMix has areas, low, high"),
        (("epochs = 3", "epochs = 3\nepochs = 4"), r"x\.toml: not TOML"),
        (("rate = 0.01", "rate = 0.01\nschedule = 'step'"), r"train\.schedule: found 'step'"),
    ],
)
def test_mistakes_name_the_key(change, message):
    text = SMALL.format(sequences=8, epochs=3)
    assert change[0] in text
    parse_recipe(text)
    with pytest.raises(ValueError, match=message):
        parse_recipe(text.replace(*change), "x.toml")


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    root = tmp_path_factory.mktemp("kitti")
    trees.semantic_kitti(root, range(22), 4, 2000)
    for name, sequences, epochs in (("a", 8, 3), ("b", 8, 40)):
        (root / f"{name}.toml").write_text(SMALL.format(sequences=sequences, epochs=epochs))
    return root


def run(root, recipe, output, *more):
    return [
        "train",
        "--recipe",
        str(root / recipe),
        "--data",
        str(root),
        "--output",
        str(output),
        *more,
    ]


def test_train_and_evaluate(tree, tmp_path, capsys):
    output = tmp_path / "run"
    assert main(run(tree, "a.toml", output)) == 0
    text = capsys.readouterr().out
    assert "4 clouds to learn from, 4 to measure on; 19 classes" in text and "epoch   3" in text
    with open(output / "history.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 and float(rows[-1]["loss"]) < float(rows[0]["loss"])
    assert {p.name for p in output.iterdir()} == {
        "checkpoint.safetensors",
        "history.csv",
        "model.json",
        "model.safetensors",
        "pipeline.json",
        "recipe.toml",
    }
    assert main(["evaluate", str(output), "--data", str(tree), "--views", "2"]) == 0
    printed = capsys.readouterr().out
    assert "traffic-sign" in printed and "mean class accuracy" in printed
    out = tmp_path / "out"
    assert main(["evaluate", str(output), "--data", str(tree), "--submission", str(out)]) == 0
    data = ds.SemanticKITTI(tree, "valid")
    found = [np.fromfile(out / f"sequences/08/predictions/{i:06}.label", "<u4") for i in range(4)]
    confusion = Confusion(data.classes)
    for i in range(4):
        confusion.add(data[i].columns["label"], data.table.indices(found[i], "prediction"))
    told = capsys.readouterr().out
    assert f"mean IoU {confusion.mean_iou:.4f}" in told  # what is written is what is measured


def test_memory_that_mlx_keeps_is_bound_by_a_step(tree, tmp_path, capsys):
    assert main(run(tree, "a.toml", tmp_path / "run")) == 0
    limit = mx.set_cache_limit(4 << 30)
    assert limit == max(32 << 20, min(limit, mx.get_peak_memory())) < 1 << 30


def test_mistakes_have_no_stack_trace(tree, tmp_path, capsys):
    for arguments, message in (
        (["train", "--recipe", "none", "--data", "x", "--output", "o"], "recipe 'none' is unknown"),
        (["train", "--recipe", "a", "--output", "o"], "--recipe needs --data PATH"),
        (["train", "--data", "x", "--output", "o"], "--data belongs to --recipe"),
        (["train", "--output", "o"], "no data: name files"),
        (run(tmp_path, "x.toml", "o"), "x.toml"),
        (["evaluate", str(tmp_path), "--data", str(tree)], "expected a folder that"),
    ):
        assert main(arguments) == 1
        assert message in capsys.readouterr().err
    (tmp_path / "a.toml").write_text((tree / "a.toml").read_text())
    assert main(run(tmp_path, "a.toml", tmp_path / "r")) == 1
    error = capsys.readouterr().err
    assert "sequences/00/velodyne/000000.bin" in error and "get it from semantic-kitti.org" in error


def test_kill_and_resume_give_the_same_bits(tree, tmp_path):
    """kill -9 in the middle of a run, then --resume: the weights of an uninterrupted run."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    text = SMALL.format(sequences=8, epochs=6)
    (tree / "c.toml").write_text(text)
    assert main(run(tree, "c.toml", whole)) == 0
    command = [sys.executable, "-m", "mlx_lattice", *run(tree, "c.toml", cut)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=dict(os.environ))
    deadline = time.monotonic() + 120
    while not (cut / "checkpoint.safetensors").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert main(run(tree, "c.toml", cut, "--resume")) == 0
    for name in ("checkpoint.safetensors", "model.safetensors"):
        import mlx.core as mx

        a, b = (mx.load(str(folder / name)) for folder in (whole, cut))
        assert a.keys() == b.keys() and all(mx.array_equal(a[k], b[k]).item() for k in a)


def test_metrics():
    confusion = Confusion(["a", "b", "c"])
    confusion.add([0, 0, 0, 1], [0, 0, 1, 1])
    assert abs(confusion.accuracy - 0.75) < 1e-9
    assert abs(confusion.mean_accuracy - (2 / 3 + 1) / 2) < 1e-9  # class c is in no row
    parts = PartIoU([range(2), range(2, 5)])
    parts.add(0, [0, 0, 1, 1], [0, 0, 1, 0])  # 2/3 and 1/2
    parts.add(1, [2, 2], [2, 2])  # 1, and two parts that nobody has: 1 each
    parts.add(1, [3, 3], [4, 4])  # 1, 0, 0
    assert abs(parts.instance_iou - (7 / 12 + 1 + 1 / 3) / 3) < 1e-9
    assert abs(parts.category_iou - (7 / 12 + 2 / 3) / 2) < 1e-9


def test_resume_compares_the_recipe(tree, tmp_path, capsys):
    (tmp_path / "r.toml").write_text(SMALL.format(sequences=8, epochs=1))
    command = ["--recipe", str(tmp_path / "r.toml"), "--data", str(tree)]
    output = tmp_path / "run"
    assert main(["train", *command, "--output", str(output)]) == 0
    before = {p.name: p.read_bytes() for p in output.iterdir()}
    for old, new, word in (
        ("size = 0.8", "size = 0.9", "voxels.size 0.8, found 0.9"),
        ('name = "Flip"', 'name = "Jitter"', "augment"),
        ("batch = 2", "batch = 1", "train.batch 2, found 1"),
        ("sequences = [8]", "sequences = [7, 8]", "data.options"),
    ):
        text = SMALL.format(sequences=8, epochs=2)
        assert old in text
        (tmp_path / "r.toml").write_text(text.replace(old, new))
        capsys.readouterr()
        assert main(["train", *command, "--output", str(output), "--resume"]) == 1
        assert word in capsys.readouterr().err
        assert {p.name: p.read_bytes() for p in output.iterdir()} == before
    (tmp_path / "r.toml").write_text(text.replace("workers = 2", "workers = 0"))
    assert main(["train", *command, "--output", str(output), "--resume"]) == 0


def test_two_recipes_in_one_folder(tree, tmp_path, capsys):
    from mlx_lattice.cli.run_folder import RunFolder

    with RunFolder(tmp_path / "run").locked():
        assert main(run(tree, "a.toml", tmp_path / "run")) == 1
    assert "another training" in capsys.readouterr().err
