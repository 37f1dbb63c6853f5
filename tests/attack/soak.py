"""A soak: training steps with a new cloud each, and threads on one manager; memory must stay flat.

    python tests/attack/soak.py --steps 2000

After a tenth of the steps the resident memory is read. At the end it may be 2 % higher; a run below
1,000 steps may take 16 MB more, because it ends before every size of buffer was seen. Buffers that
MLX keeps for later calls do not count: mx.set_cache_limit bounds them.
"""

import argparse
import sys
import threading

import mlx.core as mx
import mlx.nn
import mlx.optimizers as optim
import numpy as np
from mlx_lattice import SparseTensor, core, models, ops


def resident() -> int:
    """Bytes of this process in memory, without the buffers that MLX keeps for later calls."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 - mx.get_cache_memory()


def cloud(rng, n=2000):
    rows = np.unique(rng.integers(0, 40, (n, 3)), axis=0)
    rows = np.concatenate([np.zeros((len(rows), 1)), rows], 1).astype(np.int32)
    return SparseTensor(
        mx.array(rows), mx.array(rng.standard_normal((len(rows), 4)).astype(np.float32))
    )


def train(steps: int) -> tuple[int, int]:
    """(bytes after a tenth, bytes at the end) of training steps on new clouds."""
    rng = np.random.default_rng(0)
    model, optimizer = models.MinkUNet(4, 3, depth=14, width=8, stem_kernel_size=3), optim.SGD(1e-3)
    step = mlx.nn.value_and_grad(model, lambda x: mx.square(model(x).feats).mean())
    early = 0
    for i in range(steps):
        _, gradient = step(cloud(rng))
        optimizer.update(model, gradient)
        mx.eval(model.parameters(), optimizer.state)
        if i == max(steps // 10, min(steps - 1, 20)):
            early = resident()
    return early, resident()


def threads(rounds: int, count: int = 8) -> list[str]:
    """Threads that insert, relate and convolve on one manager; wrong results as text."""
    manager, wrong = core.CoordinateManager(budget=1 << 20), []
    rng = np.random.default_rng(1)
    shared = np.unique(rng.integers(0, 12, (600, 3)), axis=0)
    shared = mx.array(np.concatenate([np.zeros((len(shared), 1)), shared], 1).astype(np.int32))
    key, edges = manager.insert_coords(shared), ops.build_kernel_relation(shared).edge_count

    def work(number):
        own = np.random.default_rng(number)
        for _ in range(rounds):
            if manager.kernel_relation(key).edge_count != edges:
                wrong.append(f"thread {number}: another number of edges")
            x = cloud(own, 300)
            y = SparseTensor(x.coords, x.feats, coord_manager=manager)
            mx.eval(ops.subm_conv3d(y, mx.ones((2, 3, 3, 3, 4))).feats)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2000)
    steps = parser.parse_args().steps
    wrong = threads(max(steps // 20, 5))
    early, late = train(steps)
    print(
        f"{steps} steps: {early / 2**20:.1f} MB after a tenth, {late / 2**20:.1f} MB at the end; "
        f"threads: {wrong or 'right'}"
    )
    slack = 0 if steps >= 1000 else 16 << 20
    return int(bool(wrong) or late > 1.02 * early + slack)


if __name__ == "__main__":
    sys.exit(main())
