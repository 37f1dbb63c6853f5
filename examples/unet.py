"""A residual U-Net on sparse tensors.

Strided convolutions down, transposed convolutions back onto the skip's coordinates.

    python examples/unet.py        labels a synthetic scene; the loss falls below 1 % of its start

Going up, `ConvTranspose3d(x, skip)` lands on the skip's own coordinates, so that concatenation is
by shared identity: no coordinate is looked up, no row can be misaligned.
"""

from __future__ import annotations

import itertools
from typing import Any

import mlx.core as mx
import mlx.nn
import mlx.optimizers as optim
import mlx_lattice as ml
import numpy as np
from mlx_lattice import nn, ops


class ResidualBlock(mlx.nn.Module):
    """x + conv(relu(norm(conv(x)))), with a linear layer on x where the channels differ."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = (
            nn.SubmConv3d(in_channels, out_channels),
            nn.BatchNorm(out_channels),
        )
        self.conv2, self.norm2 = (
            nn.SubmConv3d(out_channels, out_channels),
            nn.BatchNorm(out_channels),
        )
        if in_channels != out_channels:
            self.project = nn.Linear(in_channels, out_channels, bias=False)

    def __call__(self, x: Any) -> Any:
        y = ops.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return ops.relu(y + (self.project(x) if "project" in self else x))


class UNet(mlx.nn.Module):
    """`channels` gives the width of each level; every level halves the resolution."""

    def __init__(self, in_channels: int, out_channels: int, channels: Any = (16, 32, 64)) -> None:
        super().__init__()
        self.stem = nn.SubmConv3d(in_channels, channels[0])
        self.encoders = [ResidualBlock(c, c) for c in channels]
        self.downs = [
            nn.Conv3d(a, b, kernel_size=2, stride=2) for a, b in itertools.pairwise(channels)
        ]
        self.ups = [
            nn.ConvTranspose3d(b, a, kernel_size=2, stride=2)
            for a, b in itertools.pairwise(channels)
        ]
        self.decoders = [ResidualBlock(2 * c, c) for c in channels[:-1]]
        self.head = nn.Linear(channels[0], out_channels)

    def __call__(self, x: Any) -> Any:
        x = self.encoders[0](self.stem(x))
        skips = []
        for down, encoder in zip(self.downs, self.encoders[1:]):
            skips.append(x)
            x = encoder(down(x))
        for skip, up, decoder in reversed(list(zip(skips, self.ups, self.decoders))):
            x = decoder(ops.cat([up(x, skip), skip]))
        return self.head(x)


def scene(n: int = 600, seed: int = 0) -> tuple[Any, ...]:
    """Two batch items of a bumpy floor with a ball; the label tells floor (0) from ball (1)."""
    rng = np.random.default_rng(seed)
    coords, labels = [], []
    for _ in range(2):
        xy = rng.integers(0, 24, (n, 2))
        floor = np.concatenate([xy, (np.sin(xy[:, :1] / 3) > 0).astype(int)], 1)
        way = rng.standard_normal((n, 3))
        ball = np.round(way / np.linalg.norm(way, axis=1, keepdims=True) * 5 + [12, 12, 6]).astype(
            int
        )
        rows, first = np.unique(np.concatenate([floor, ball]), axis=0, return_index=True)
        coords.append(mx.array(rows.astype(np.int32)))
        labels.append((first >= n).astype(np.int32))
    feats = [mx.ones((c.shape[0], 1)) for c in coords]
    return ops.sparse_collate(coords, feats), mx.array(np.concatenate(labels))


def train(steps: int = 60, seed: int = 0, report: Any = print) -> Any:
    """Overfits one scene; returns the losses."""
    mx.random.seed(seed)
    x, labels = scene()
    model = UNet(1, 2)
    optimizer = optim.AdamW(learning_rate=5e-3)
    step = mlx.nn.value_and_grad(
        model, lambda m: mlx.nn.losses.cross_entropy(m(x).feats, labels, reduction="mean")
    )
    losses = []
    for i in range(steps):
        loss, grads = step(model)
        optimizer.update(model, grads)
        mx.eval(model.parameters(), optimizer.state, loss)
        losses.append(loss.item())
        if i % 10 == 0 or i == steps - 1:
            report(f"step {i:3}  loss {losses[-1]:.5f}")
    return losses


if __name__ == "__main__":
    print(ml.backend_info()["simd"])
    train()
