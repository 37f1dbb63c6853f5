"""What a training step of MinkUNet-18 takes on a real GPU, beside what the tests count.

    PYTHONPATH=tests python -m metal.step [side]

Prints the machine, then for each precision the time of a step when every step is awaited, the time
when the trainer waits one step late, launches and asynchronous starts of a step, and the time of an
inference. The scene is that of test_step.py: a rough floor of 316 x 316 voxels.
`scripts/mac_report.sh` runs it; on a machine without a GPU it times the CPU.
"""

import statistics
import sys
import time

import mlx.core as mx
import mlx_lattice as ml
import numpy as np
from mlx_lattice import models, training

SIDE, CLASSES = 316, 20


def floor(side=SIDE, channels=4):
    """Heights differ by up to two voxels between neighbors, as on ground that a scanner sees."""
    x, y = np.meshgrid(np.arange(side), np.arange(side), indexing="ij")
    z = np.rint(1.5 * np.sin(x / 3.0) + 1.5 * np.cos(y / 4.0)).astype(np.int64)
    coords = np.stack([np.zeros_like(x), x, y, z], -1).reshape(-1, 4).astype(np.int32)
    order = np.random.default_rng(0).permutation(len(coords))
    feats = np.random.default_rng(1).standard_normal((len(coords), channels), np.float32)
    return ml.SparseTensor(mx.array(coords[order]), mx.array(feats))


def scan(side=SIDE):
    x = floor(side)
    labels = mx.array(np.random.default_rng(2).integers(0, CLASSES, len(x)).astype(np.int32))
    return training.Scan(x, labels, mx.arange(len(x)))


def trainer(precision="float16", **options):
    net = models.MinkUNet(4, CLASSES, depth=18)
    mx.eval(net.parameters())
    made = training.Trainer(
        net,
        training.adamw(1e-3, steps=10),
        training.segmentation_loss(),
        precision=precision,
        quiet=True,
        **options,
    )
    mx.eval(made.optimizer.state)
    net.train()
    return made


def counts():
    info = ml.backend_info()
    return info["launches"], info["starts"]


def timed(work, repeat):
    """Milliseconds of each run; the first two warm up."""
    found = []
    for _ in range(repeat + 2):
        begin = time.perf_counter()
        work()
        found.append(1e3 * (time.perf_counter() - begin))
    return found[2:]


def report_step(precision, items, repeat):
    made = trainer(precision)
    alone = timed(lambda: made.step(items[:1]), repeat)
    before = counts()
    made.step(items[:1])
    launches, starts = (b - a for a, b in zip(before, counts(), strict=True))
    pending = [made._start(items[:1])]

    def late():
        pending.append(made._start(items[:1]))
        made._finish(pending.pop(0))

    behind = timed(late, repeat)
    made._finish(pending[0])
    print(
        f"{precision:9} step {statistics.median(alone):8.1f} ms awaited, "
        f"{statistics.median(behind):8.1f} ms one step late; {launches} launches of our kernels, "
        f"{starts} starts"
    )


def report_inference(dtype, x, repeat):
    net = models.MinkUNet(4, CLASSES, depth=18)
    net.set_dtype(dtype)
    x = x.astype(dtype)
    mx.eval(net.parameters())
    net.eval()
    times = timed(lambda: mx.eval(net(x).feats), repeat)
    print(f"{str(dtype).split('.')[-1]:9} inference {statistics.median(times):8.1f} ms")


def main(side=SIDE, repeat=10):
    for name, value in ml.backend_info().items():
        print(f"{name}: {value}")
    begin = time.perf_counter()
    item = scan(side)
    models.MinkUNet(4, CLASSES, depth=18).plan(item.tensor)
    print(
        f"{len(item.tensor)} voxels; plan {1e3 * (time.perf_counter() - begin):.1f} ms on the CPU"
    )
    for precision in ("float32", "float16", "bfloat16"):
        report_step(precision, [item], repeat)
    for dtype in (mx.float32, mx.float16):
        report_inference(dtype, item.tensor, repeat)
    print(ml.explain(models.MinkUNet(4, CLASSES, depth=18).eval(), item.tensor))
    print({name: value for name, value in ml.backend_info().items() if name == "probes"})


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
