"""One day with own data: each command is the one that the command before it printed.

Six clouds in three formats lie in subfolders. Their labels are floats that hold whole numbers, with
gaps; 0 is unlabeled. A seventh cloud is empty.
"""

import os
import shlex
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from mlx_lattice import io
from mlx_lattice.cli.main import main

NAMES = {2: "low", 6: "middle", 17: "high"}
PLACES = ("north/a.ply", "north/b.las", "south/c.npz", "south/old/d.ply", "south/old/e.las")
SIZES = '{"depth": 14, "width": 8, "stem_kernel_size": 3}'
RECIPE = """
[data]
name = "folder"
options = { ignored = [0], classes = %s }
[voxels]
size = 0.4
columns = ["intensity"]
[network]
options = { depth = 14, width = 4, stem_kernel_size = 3 }
[train]
epochs = 2
rate = 0.01
"""


def cloud(seed, las, n=1500):
    rng = np.random.default_rng(seed)
    points = rng.uniform(0, [12, 12, 4], (n, 3)).astype(np.float32)
    label = np.select([points[:, 2] > 2.6, points[:, 2] > 1.3], [17, 6], 2)
    label[:50] = 0
    intensity = rng.random(n).astype(np.float32)
    if las:  # integers of 16 bits; the other files have 0..1
        columns = {"label": label.astype(np.uint8), "intensity": np.uint16(intensity * 65535)}
    else:
        columns = {"label": label.astype(np.float32), "intensity": intensity}
    return io.PointCloud(points, columns)


@pytest.fixture(scope="module")
def day(tmp_path_factory):
    """A folder with the clouds in data/."""
    root = tmp_path_factory.mktemp("day")
    for i, place in enumerate((*PLACES, "f.npz")):
        path = root / "data" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        io.write(path, cloud(i, path.suffix == ".las"))
    io.write(root / "data" / "south" / "empty.ply", cloud(0, False)[:0])
    (root / "sizes.json").write_text(SIZES)
    return root


class Desk:
    """Types commands in a folder; `next` is what the last one told to type."""

    def __init__(self, capsys):
        self.capsys, self.next = capsys, ""

    def type(self, *words, status=0):
        found = main([str(word) for word in words])
        out, err = self.capsys.readouterr()
        assert found == status, (words, out, err)
        lines = out.strip().splitlines()
        if status == 0:
            assert lines[-1].startswith("next: "), (words, out)
            self.next = lines[-1].removeprefix("next: ")
        return out if status == 0 else err

    def type_next(self, **replaced):
        """Types the command that was printed, with some of its words replaced."""
        words = shlex.split(self.next)
        assert words[0] == "mlx-lattice", self.next
        return self.type(*(replaced.get(word, word) for word in words[1:]))


@pytest.fixture
def desk(day, monkeypatch, capsys):
    monkeypatch.chdir(day)
    return Desk(capsys)


@pytest.fixture(scope="module")
def run(day):
    """The folder of a training on all clouds."""
    before = os.getcwd()
    os.chdir(day)
    try:
        assert main([*TRAIN, "--epochs", "2", "--output", "run"]) == 0
    finally:
        os.chdir(before)
    return day / "run"


TRAIN = [
    *("train", "data", "--voxel", "0.4", "--columns", "intensity", "--config", "sizes.json"),
    *("--ignore", "0", "--classes", "low,middle,high"),
]


def test_a_day(desk, run, day):
    told = desk.type("info", "data/north/b.las")
    assert "1,500, float64" in told
    assert "look.html: " in desk.type_next()  # view
    told = desk.type(*TRAIN, "--epochs", "3", "--output", "run", "--resume")
    assert "empty.ply: no points, passed over" in told
    assert "5 clouds to learn from, 1 to measure on" in told and "classes low, middle, high" in told
    assert "2 low, 6 middle, 17 high" in desk.type("info", "run")
    told = desk.type_next(**{"scan.ply": "data/south/c.npz", "look.html": "labeled.ply"})  # predict
    assert "50 points with the label 0 are not scored" in told and "IoU per point" in told
    labels = io.read("labeled.ply").columns
    assert set(np.unique(labels["label"])) <= set(NAMES)
    assert set(np.unique(labels["truth"])) == {0, *NAMES}
    desk.type_next()  # view
    page = (day / "look.html").read_text()
    assert '[17,"high",' in page and '[2,"low",' in page
    told = desk.type("evaluate", "run", "--data", "data")
    assert "8,700" in told and "middle" in told  # six clouds without 50 points each
    assert "IoU per point" in desk.type_next(**{"look.html": "again.ply"})  # predict
    told = desk.type("quantize", "run", "--bits", "8", "--check", "data/f.npz")
    rows = [line.split()[0] for line in told.splitlines() if ".weight" in line]
    assert rows[0].startswith("encoder.stem") and rows[-1].startswith("head")
    assert "wrote packed.safetensors" in desk.type_next()  # quantize --output
    desk.type_next(**{"scan.ply": "data/f.npz"})  # predict
    told = desk.type("compress", "data/south/old/d.ply", "d.mlat", "--voxel", "0.05")
    assert "voxels of 0.05" in told
    assert "points" in desk.type_next()  # decompress
    desk.type_next()  # view


def test_a_run_by_a_recipe_keeps_numbers_and_names(desk, day):
    classes = "{" + ", ".join(f'"{value}" = "{name}"' for value, name in NAMES.items()) + "}"
    (day / "own.toml").write_text(RECIPE % classes)
    desk.type("train", "--recipe", "own.toml", "--data", "data", "--output", "by_recipe")
    assert "middle" in desk.type_next()  # evaluate
    told = desk.type("predict", "by_recipe", "data/south/c.npz", "r.ply")
    assert "50 points with the label 0 are not scored" in told and "high" in told
    assert "--classes 2=low,6=middle,17=high" in desk.next
    assert set(np.unique(io.read("r.ply").columns["label"])) <= set(NAMES)
    assert "2 low, 6 middle, 17 high" in desk.type("info", "by_recipe")
    desk.type("quantize", "by_recipe", "--bits", "8", "--check", "data/f.npz")
    unknown = cloud(3, False)
    unknown.columns["label"][50:100] = 5
    io.write("unknown.ply", unknown)
    for folder in ("by_recipe", "run"):
        told = desk.type("predict", folder, "unknown.ply", "u.ply")
        assert "100 points with the labels 0, 5 are not scored" in told


def test_what_is_missing_is_said_before_the_work(desk, run):
    for words, told in (
        (("predict", "run", "data/f.npz", "none/x.ply"), "there is no folder"),
        (("compress", "data/f.npz", "none/x.mlat", "--voxel", "1"), "there is no folder"),
        (("voxelize", "data/f.npz", "none/x.ply", "--voxel", "1"), "there is no folder"),
        (("view", "data/f.npz", "none/x.html"), "there is no folder"),
        (("quantize", "run", "--output", "none/x.safetensors"), "there is no folder"),
        (("predict", "run", "data", "x.ply"), "data is a folder, expected a file; it holds 7"),
        (("info", "data"), "data is a folder"),
        (("view", "data", "x.html"), "data is a folder"),
        (("compress", "data", "x.mlat", "--voxel", "1"), "data is a folder"),
        (("view", "data/south/empty.ply", "x.html"), "empty.ply: no points"),
        (("predict", "run", "data/south/empty.ply", "x.html"), "empty.ply: no points"),
        (("train", "data/south/empty.ply", "--voxel", "1", "--output", "x"), "no points"),
        ((*TRAIN, "--output", "x", "--resume"), "leave --resume out"),
    ):
        assert told in desk.type(*words, status=1), words
    assert "no points" in desk.type("predict", "run", "data/south/empty.ply", "x.ply")
    assert len(io.read("x.ply")) == 0


def test_columns_of_several_units(desk, day):
    other = cloud(9, False)
    other.columns["intensity"] *= 65535
    io.write("raw.npz", other)
    train = ["train", "raw.npz", *TRAIN[1:], "--epochs", "1", "--output"]
    told = desk.type(*train, "uneven")
    assert "warning: column intensity reaches 6" in told and "--normalize intensity" in told
    told = desk.type(*train, "even", "--normalize", "intensity")
    assert "warning" not in told
    assert "normalized" in desk.type("info", "even")
    desk.type("predict", "even", "raw.npz", "raw.ply")


def test_classes_mean_the_same_in_train_and_view(desk, day):
    desk.type("view", "data/f.npz", "names.html", "--classes", "none,low,middle,high")
    page = (day / "names.html").read_text()
    assert '[0,"none",' in page and '[17,"high",' in page
    assert "4 for the labels" in desk.type(
        "view", "data/f.npz", "names.html", "--classes", "a,b", status=1
    )


def test_view_says_how_many_points_it_shows(desk):
    assert "it shows 1,000 of 1,500 points" in desk.type(
        "view", "data/f.npz", "some.html", "--limit", "1000"
    )


def command(*words):
    return [sys.executable, "-m", "mlx_lattice", *map(str, words)]


def test_interrupted_training_says_how_to_go_on(day):
    words = [*TRAIN, "--epochs", "500", "--output", "cut"]
    process = subprocess.Popen(
        command(*words),
        cwd=day,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that runs the tests in the background ignores the signal, and so would the child.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 120
    while not (day / "cut" / "checkpoint.safetensors").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err
    assert "last checkpoint in cut; to go on, type" in err
    words = shlex.split(err.strip().splitlines()[-1])
    assert words[:3] == ["mlx-lattice", "train", "data"] and words[-1] == "--resume"


def test_a_pipe_that_closes_early_ends_quietly(day):
    process = subprocess.Popen(
        command("routes", "--all"), cwd=day, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=60) == 128 + signal.SIGPIPE
