"""Which surface is it? A network of point convolutions on made-up clouds.

Ragged, turned, scaled, noisy.

    python examples/shapes.py                    1,440 clouds, 12 epochs; 94 % or more on 360 others
    python examples/shapes.py --knn              the same with the network over nearest neighbors
    python examples/shapes.py --attention --epochs 20        a Point Transformer V3 on voxels
    python examples/shapes.py --checkpoint run.safetensors --resume

The only feature is the constant 1: all that the network can see is where the points are. Clouds are
thinned to a third of the grid before the network, so that the density of the sampling tells
nothing. Each epoch turns the training clouds another way.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn
import mlx.optimizers as optim
import numpy as np
from mlx_lattice import models, nn, ops, points

GRID = 0.2


def circle(t: Any) -> Any:
    return np.stack([np.cos(t), np.sin(t)], 1)


def sphere(n: int, rng: np.random.Generator) -> Any:
    v = rng.normal(size=(n, 3))
    return v / np.linalg.norm(v, axis=1, keepdims=True)


def cube(n: int, rng: np.random.Generator) -> Any:
    p = rng.uniform(-0.8, 0.8, size=(n, 3))
    p[np.arange(n), rng.integers(0, 3, n)] = rng.choice([-0.8, 0.8], n)
    return p


def cylinder(n: int, rng: np.random.Generator) -> Any:
    """The side and both lids, by area: radius 0.6, height 1.6."""
    lid = rng.random(n) < 0.6 / (0.6 + 1.6)
    r = np.where(lid, 0.6 * np.sqrt(rng.random(n)), 0.6)
    z = np.where(lid, rng.choice([-0.8, 0.8], n), rng.uniform(-0.8, 0.8, n))
    return np.column_stack([circle(rng.uniform(0, 2 * np.pi, n)) * r[:, None], z])


def cone(n: int, rng: np.random.Generator) -> Any:
    r = np.sqrt(rng.random(n))
    return np.column_stack([circle(rng.uniform(0, 2 * np.pi, n)) * 0.8 * r[:, None], 0.8 - 1.6 * r])


def torus(n: int, rng: np.random.Generator) -> Any:
    ring, tube = circle(rng.uniform(0, 2 * np.pi, n)), circle(rng.uniform(0, 2 * np.pi, n)) * 0.3
    return np.column_stack([ring * (0.7 + tube[:, :1]), tube[:, 1]])


def helix(n: int, rng: np.random.Generator) -> Any:
    t = rng.uniform(-1, 1, n)
    return np.column_stack([0.7 * circle(2 * np.pi * 1.5 * t), 0.9 * t])


CLASSES = (sphere, cube, cylinder, cone, torus, helix)


def rotation(rng: np.random.Generator) -> Any:
    """Uniform over all rotations."""
    q, r = np.linalg.qr(rng.normal(size=(3, 3)))
    q *= np.sign(np.diag(r))
    return q * np.sign(np.linalg.det(q))


def cloud(label: int, rng: np.random.Generator) -> Any:
    p = CLASSES[label](int(rng.integers(192, 385)), rng) @ rotation(rng).T * rng.uniform(0.8, 1.2)
    return (p + rng.normal(scale=0.02, size=p.shape)).astype(np.float32)


class Clouds:
    """Batches of clouds, what train_pointcnn takes: dicts with "batch" and "labels".

    turned: each time in another order, and each cloud turned another way. Else made once, with the
    rulebooks of the first use.
    """

    def __init__(self, count: int, seed: int, size: int = 20, turned: bool = False) -> None:
        self._rng = np.random.default_rng(seed)
        self._labels = self._rng.permutation(np.arange(count) % len(CLASSES))
        self._clouds = [cloud(label, self._rng) for label in self._labels]
        self._parts = [slice(begin, begin + size) for begin in range(0, count, size)]
        self._made = (
            None if turned else [self._batch(np.arange(count)[part], None) for part in self._parts]
        )

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Any:
        if self._made is not None:
            return iter(self._made)
        order = self._rng.permutation(len(self._clouds))
        return (self._batch(order[part], self._rng) for part in self._parts)

    def _batch(self, rows: Any, rng: np.random.Generator | None) -> dict[str, Any]:
        chosen = [self._clouds[r] for r in rows]
        if rng is not None:
            chosen = [(p @ rotation(rng).T).astype(np.float32) for p in chosen]
        raw = points.PointCloudBatch.from_list([mx.array(p) for p in chosen])
        thin, _, _ = points.grid_downsample(raw.point_set(GRID), GRID / 3)
        batch = points.PointCloudBatch(thin.positions, lengths=thin.lengths)
        return {"batch": batch, "labels": mx.array(self._labels[rows])}


class NeighborNet(mlx.nn.Module):
    """PointCNNEncoder on the positions, the largest values of each cloud, a linear layer."""

    def __init__(self, classes: Any, channels: int = 64, k: int = 12) -> None:
        super().__init__()
        self.encoder = points.PointCNNEncoder(3, 3, channels, k)
        self.pool, self.head = points.GlobalPool("max"), nn.Linear(channels, classes)

    def __call__(self, batch: Any) -> Any:
        y = self.encoder(batch.positions, batch.positions, batch.lengths)
        return self.head(self.pool(y, batch.lengths))


class AttentionNet(mlx.nn.Module):
    """A small Point Transformer V3 on voxels of the grid; features are 1 and the mean position."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.net = models.PointTransformerV3(
            4,
            classes,
            stride=(2, 2),
            enc_depths=(1, 1, 1),
            enc_channels=(16, 32, 64),
            enc_num_head=(1, 2, 4),
            enc_patch_size=(512, 512, 512),
            drop_path=0.0,
            cls_mode=True,
        )

    def __call__(self, batch: Any) -> Any:
        feats = mx.concatenate([mx.ones((batch.total_points, 1)), batch.positions], axis=1)
        return self.net(ops.voxelize(batch.positions, feats, GRID, batch_indices=batch.indices))


def loss_fn(scores: Any, labels: mx.array) -> Any:
    return mlx.nn.losses.cross_entropy(scores, labels, reduction="mean")


def network(kind: str) -> Any:
    """The network that is called "conv", "knn" or "attention"."""
    if kind == "knn":
        return NeighborNet(len(CLASSES))
    if kind == "attention":
        return AttentionNet(len(CLASSES))
    return points.PointClassifier(1, len(CLASSES), channels=(16, 32, 64), grid=GRID, blocks=1)


def train(
    clouds: int = 1440,
    tests: int = 360,
    epochs: int = 12,
    seed: int = 0,
    kind: str = "conv",
    log: Callable[..., Any] = print,
    **options: Any,
) -> tuple[Any, ...]:
    """Returns (model, history)."""
    mx.random.seed(seed)
    model = network(kind)
    data, unseen = Clouds(clouds, seed + 1, turned=True), Clouds(tests, seed + 2)
    optimizer = optim.Adam(optim.cosine_decay(3e-3, epochs * len(data)))
    history = points.train_pointcnn(
        model, data, optimizer, loss_fn, epochs, eval_loader=unseen, seed=seed, log=log, **options
    )
    return model, history


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clouds", type=int, default=1440)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--knn", action="store_true", help="the network over nearest neighbors")
    kinds.add_argument("--attention", action="store_true", help="a Point Transformer V3")
    parser.add_argument("--checkpoint", help="file that is written after each epoch, *.safetensors")
    parser.add_argument("--resume", action="store_true", help="continue from the checkpoint")
    args = parser.parse_args()
    begin, cpu = time.monotonic(), time.process_time()
    _, rows = train(
        args.clouds,
        epochs=args.epochs,
        seed=args.seed,
        kind="knn" if args.knn else "attention" if args.attention else "conv",
        checkpoint=args.checkpoint,
        resume=args.resume,
    )
    print(
        f"test accuracy {100 * rows[-1]['eval_accuracy']:.1f} %, "
        f"{time.monotonic() - begin:.0f} s, CPU {time.process_time() - cpu:.0f} s"
    )
