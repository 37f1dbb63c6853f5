"""kill -9 at random moments of `train` and `compress`: files are whole, the old or the new ones.

python tests/attack/kill.py --kills 50
python tests/attack/kill.py --predict 50     a large cloud, labeled by tiles

The epoch of the checkpoint never goes back: nothing is lost but the epoch under way.
"""

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_lattice import io, models, ops, training
from mlx_lattice.cli import main as command


def started(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "mlx_lattice", *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def killed(process, seconds):
    """Kills a process after some time; True when it was still running."""
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def epoch_of(folder: Path) -> int:
    """The epoch of the checkpoint, 0 without one; every other file of the run must be whole."""
    if (folder / "model.safetensors").exists():
        models.load(folder / "model.safetensors")
    if (folder / "pipeline.json").exists():
        json.loads((folder / "pipeline.json").read_text())
    if not (folder / "checkpoint.safetensors").exists():
        return 0
    about = mx.load(str(folder / "checkpoint.safetensors"), return_metadata=True)[1]
    return json.loads(about["state"])["epoch"]


def predictions(folder: Path, kills: int) -> int:
    """Kills `predict --memory`; the same command goes on, and labels are those of the whole run."""
    rng, r = np.random.default_rng(0), random.Random(0)
    xy = rng.uniform(0, (110, 70), (60000, 2))
    cloud = io.PointCloud(np.c_[xy, np.sin(xy[:, 0] / 9)].round(3))
    io.write(folder / "yard.laz", cloud)
    run = folder / "run"
    run.mkdir()
    pipeline = training.VoxelPipeline(0.2, ((0, "a"), (1, "b"), (2, "c")))
    net = models.MinkUNet(pipeline.channels, 3, depth=14, width=8)
    net.save(run / "model.safetensors")
    pipeline.save(run / "pipeline.json")
    expected = training.predict_points(net, pipeline, io.read(folder / "yard.laz"))
    output, work = folder / "out.laz", folder / "out.laz.tiles"
    words = ["predict", run, folder / "yard.laz", output, "--memory", "1GB", "--tile", "64"]
    begin = time.monotonic()
    started(*words).wait()
    once, hit, finished, passes = time.monotonic() - begin, 0, 0, [0, 0, 0]
    for i in range(kills + 1):
        process = started(*words)
        if i == kills:
            process.wait()
        else:
            hit += killed(process, once * r.random())
        if (work / "manifest.json").exists():
            passes[(work / "classes").exists() + any(work.glob("tile_*"))] += 1
        if output.exists():
            finished += 1
            if not np.array_equal(io.read(output).columns["label"], expected):
                print("the labels are others than those of the whole run")
                return 1
            output.unlink()
    left = [path.name for path in folder.iterdir() if path not in (run, folder / "yard.laz")]
    print(
        f"{kills} kills, {hit} of a running process, {passes} in passes 1 to 3; {finished} times "
        f"to the end, all labels are those of the whole run; left over: {left or 'nothing'}"
    )
    return int(bool(left) or not finished)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--predict", type=int, metavar="KILLS")
    arguments = parser.parse_args()
    if arguments.predict is not None:
        with tempfile.TemporaryDirectory() as name:
            return predictions(Path(name), arguments.predict)
    kills = arguments.kills
    r, wrong, hit, epoch = random.Random(0), [], 0, 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "s").mkdir()
        (folder / "c.json").write_text('{"depth": 14, "width": 4, "stem_kernel_size": 3}')
        for i in range(2):
            points = (np.random.default_rng(i).random((1500, 3)) * [8, 8, 3]).astype(np.float32)
            label = (points[:, 2] > 1.5).astype(np.int32)
            io.write(folder / "s" / f"{i}.ply", io.PointCloud(points, {"label": label}))
        train = [
            "train",
            folder / "s",
            "--voxel",
            "0.4",
            "--config",
            folder / "c.json",
            "--output",
            folder / "r",
        ]
        train = [*map(str, train), "--epochs", "100000"]
        scan, packed = folder / "s" / "0.ply", folder / "p.mlat"
        command(["compress", str(scan), str(packed), "--voxel", "0.1"])
        begin = time.monotonic()
        command(["compress", str(scan), str(packed), "--voxel", "0.1"])
        once = max(time.monotonic() - begin, 0.2) + 1.5  # with the start of Python
        for i in range(kills):
            if i % 2:
                resume = ["--resume"] if (folder / "r" / "checkpoint.safetensors").exists() else []
                hit += killed(started(*train, *resume), 3 * once * r.random())
                before, epoch = epoch, epoch_of(folder / "r")
                if epoch < before:
                    wrong.append(f"the checkpoint went back from epoch {before} to {epoch}")
            else:
                hit += killed(
                    started("compress", scan, packed, "--voxel", "0.05"), once * r.random()
                )
                if not len(ops.decode_points(packed.read_bytes()).coords):
                    wrong.append("the compressed file is empty")
        if (folder / "r" / "checkpoint.safetensors").exists():
            again = subprocess.run(
                [sys.executable, "-m", "mlx_lattice", *train[:-1], "1", "--resume"],
                capture_output=True,
                text=True,
            )
            if again.returncode:
                wrong.append(again.stderr)
    print(
        f"{kills} kills, {hit} of a running process; {epoch} epochs trained; "
        f"{wrong or 'every file was whole'}"
    )
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
