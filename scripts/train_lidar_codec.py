"""Trains the network of the codec's model "lidar" (docs/codec.md) and writes its integers.

    python scripts/train_lidar_codec.py SWEEPS.npz [--output lidar.mlnt]

SWEEPS.npz holds one float32 (N, 3) array per sweep, in meters, with the sensor at the origin. One
example in eight is a generated street instead. Each step sees a sector of one sweep with a random
rotation, mirror, place on the grid and voxel size. All numbers come from one seed and the number of
steps is fixed, so that the same data give the same integers on a machine of the same kind. A run
that was stopped goes on from the .npz file beside the output, with the same numbers.

The network, for level t of the octree (the nodes of level t - 1 and their masks are known, and so
the nodes of level t; wanted are their masks):

    x = act(H[t - 1] + E[mask])              3x3x3 block `a` on level t - 1
    u = act(up[child](x[parent]) + place)    3x3x3 blocks `b` and `c` on level t, gives H[t]
    h = act(head(H[t]))
    logit of bit j, after the bits before it = W[prefix] h + w[prefix],  prefix = 2^j + those bits

`place` sums four tables: range to the sensor and the three parts of the direction. H is handed down
from level to level (as in ELiC, arXiv 2511.14070). Values are multiples of 1/32 in 0 .. 255 / 32
and weights are 8-bit codes; in training both are rounded on the way forward only.
"""

from __future__ import annotations

import argparse
import json
import struct
import time
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.optimizers as optim
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lattice import SparseTensor, ops
from mlx_lattice.samples import streets

C = 32  # channels
STEP = 32  # codes of a value per unit
LEAST = 64  # nodes of a level that the network codes
BLOCKS = ("a", "b", "c")
Weights = dict[str, mx.array]


def initial(seed: int) -> Weights:
    rng = np.random.default_rng(seed)

    def normal(scale: float, *shape: int) -> mx.array:
        return mx.array((rng.standard_normal(shape) * scale).astype(np.float32))

    w = {"mask": normal(0.5, 256, C), "range": normal(0.3, 64, C), "up": normal(C**-0.5, 8, C, C)}
    for axis in "xyz":
        w[axis] = normal(0.2, 33, C)
    for block in BLOCKS:
        w[block + "1"] = normal((2 / (9 * C)) ** 0.5, 27, C, C)
        w[block + "2"] = normal(0.5 * (2 / (9 * C)) ** 0.5, 27, C, C)
        for part in "12":
            w[block + part + "b"] = mx.zeros((C,))
    w |= {"head": normal((2 / C) ** 0.5, 1, C, C), "headb": mx.zeros((C,))}
    return w | {"bits": normal(0.3 * C**-0.5, 256, C), "bitsb": mx.zeros((256,))}


def units(w: mx.array, whole: bool) -> mx.array:
    """The value of one code of each output channel of w (n_k, C_in, C_out).

    No code exceeds 127, and those that one 16-bit lane of `int_conv` adds have sums of at most 128.
    `whole`: one over the unit is a whole number, so that a residual can be added exactly.
    """
    least = mx.max(mx.abs(w), axis=(0, 1)) / 127
    lanes = w.reshape(w.shape[0], C // 16, 4, 2, 2, w.shape[2])
    for part in (lanes, -lanes):
        sums = mx.sum(mx.maximum(part, 0), axis=(2, 4))
        least = mx.maximum(least, mx.max(sums, axis=(0, 1, 2)) / 124)
    least = mx.maximum(least, 2.0**-16)
    return 1 / mx.floor(1 / least) if whole else least


def rounded(x: mx.array, unit: mx.array | float) -> mx.array:
    """x, but on the way forward the nearest multiple of unit."""
    return x + mx.stop_gradient(mx.round(x / unit) * unit - x)


class Net:
    def __init__(self, w: Weights, integers: bool) -> None:
        self.w, self.integers = w, integers

    def act(self, x: mx.array) -> mx.array:
        x = mx.clip(x, 0, 255 / STEP)
        return rounded(x, 1 / STEP) if self.integers else x

    def weight(self, name: str, whole: bool) -> mx.array:
        w = self.w[name]
        if not self.integers:
            return w
        return rounded(w, mx.stop_gradient(mx.minimum(units(w, whole), 1)))

    def table(self, name: str) -> mx.array:
        return rounded(self.w[name], 1 / STEP) if self.integers else self.w[name]

    def block(self, x: SparseTensor, name: str) -> SparseTensor:
        y = ops.subm_conv3d(x, self.weight(name + "1", False), self.w[name + "1b"])
        y = y.with_feats(self.act(y.feats))
        y = ops.subm_conv3d(y, self.weight(name + "2", True), self.w[name + "2b"])
        return y.with_feats(self.act(y.feats + x.feats))

    def level(self, above: SparseTensor, level: dict[str, Any]) -> tuple[SparseTensor, mx.array]:
        """(features of the level, logits of its prefixes (n, 256))."""
        x = above.with_feats(self.act(above.feats + self.table("mask")[level["mask_above"]]))
        x = self.block(x, "a")
        up = self.weight("up", True).transpose(0, 2, 1).reshape(8 * C, C)
        children = ops.linear_features(x.feats, up).reshape(-1, C)
        u = children[level["parent"] * 8 + level["child"]] + self.table("range")[level["range"]]
        for axis in "xyz":
            u = u + self.table(axis)[level[axis]]
        y = self.block(level["rows"].with_feats(self.act(u)), "b")
        y = self.block(y, "c")
        h = ops.linear_features(y.feats, self.weight("head", False)[0].T, self.w["headb"])
        return y, ops.linear_features(self.act(h), self.w["bits"], self.w["bitsb"])

    def loss(self, levels: list[dict[str, Any]]) -> mx.array:
        """Bits of all masks."""
        total = mx.array(0.0)
        features = None
        for level in levels:
            above = level["above"]
            if features is not None:
                above = above.with_feats(features)
            y, logits = self.level(above, level)
            features = y.feats
            chosen = mx.take_along_axis(logits, level["prefix"], axis=1)
            signed = mx.where(level["bits"], -chosen, chosen)
            total = total + mx.sum(mx.logaddexp(signed, 0.0) * level["coded"])
        return total / np.log(2)


def spread(v: np.ndarray) -> np.ndarray:
    """The lowest 20 bits of v, three apart."""
    out = np.zeros(len(v), np.int64)
    for bit in range(20):
        out |= (v >> bit & 1) << (3 * bit)
    return out


def place(cells: np.ndarray, sensor: np.ndarray, shift: int) -> dict[str, np.ndarray]:
    """Range and direction of cells of side 2^shift as rows of the tables; integers only."""
    d = 2 * cells + 1 - ((2 * sensor + 1) >> shift)
    square = (d * d).sum(1)
    top = np.frexp(square.astype(np.float64))[1] - 1  # floor of log2, -1 for 0
    half = square >> np.maximum(top - 1, 0) & 1
    found = {"range": np.clip(np.where(top > 0, 2 * top + half, 0), 0, 63)}
    most = np.maximum(np.abs(d).max(1), 1)
    return found | {axis: 16 * (d[:, a] + most) // most for a, axis in enumerate("xyz")}


def pyramid(voxels: np.ndarray, sensor: np.ndarray) -> list[dict[str, Any]]:
    """What the network sees of each level, from the top. voxels (n, 3) are not negative."""
    code = np.unique(sum(spread(voxels[:, a].astype(np.int64)) << a for a in range(3)))
    n = len(code)
    codes, masks = [], []
    while len(code) > 1:
        first = np.flatnonzero(np.diff(code >> 3, prepend=-1))
        masks.append(np.bitwise_or.reduceat(1 << (code & 7), first))
        code = code[first] >> 3
        codes.append(code)
    levels: list[dict[str, Any]] = []
    above = None
    for shift in range(len(codes), 0, -1):
        code, mask = codes[shift - 1], masks[shift - 1]
        if len(code) < LEAST:
            above = None
            continue
        cells = np.stack([unspread(code >> a) for a in range(3)], 1)
        rows = np.concatenate([np.zeros((len(cells), 1), np.int64), cells], 1).astype(np.int32)
        tensor = SparseTensor(mx.array(rows), mx.zeros((len(rows), C)))
        if above is None:
            upper = np.stack([unspread(codes[shift] >> a) for a in range(3)], 1)
            upper = np.concatenate([np.zeros((len(upper), 1), np.int64), upper], 1)
            above = SparseTensor(mx.array(upper.astype(np.int32)), mx.zeros((len(upper), C)))
        parent = np.cumsum(np.diff(code >> 3, prepend=code[0] >> 3) != 0)
        bits = mask[:, None] >> np.arange(8) & 1
        prefix = (1 << np.arange(8)) + (mask[:, None] & ((1 << np.arange(8)) - 1))
        coded = np.ones(bits.shape, np.float32)
        coded[:, 7] = mask != 128
        level = {
            "mask_above": mx.array(masks[shift]),
            "parent": mx.array(parent),
            "child": mx.array(code & 7),
            "prefix": mx.array(prefix),
            "bits": mx.array(bits.astype(bool)),
            "coded": mx.array(coded),
        }
        level |= {k: mx.array(v) for k, v in place(cells, sensor, shift).items()}
        levels.append(level | {"above": above, "rows": tensor, "voxels": n})
        above = tensor
    return levels


def unspread(v: np.ndarray) -> np.ndarray:
    out = np.zeros(len(v), np.int64)
    for bit in range(20):
        out |= (v >> (3 * bit) & 1) << bit
    return out


class Examples:
    """Sectors of sweeps, changed at random."""

    def __init__(self, path: str, seed: int, most: int) -> None:
        with np.load(path) as data:
            self.sweeps = [data[name].astype(np.float64) for name in sorted(data)]
        self.rng, self.most = np.random.default_rng(seed), most

    def points(self) -> np.ndarray:
        rng = self.rng
        if rng.random() < 0.125:
            return streets.sweep(int(rng.integers(1 << 30))) - [0, 0, streets.HEIGHT]
        return self.sweeps[rng.integers(len(self.sweeps))]

    def next(self) -> list[dict[str, Any]]:
        rng = self.rng
        points = self.points()
        side = 0.001 * 2 ** rng.uniform(3.5, 5.8)
        angle = np.arctan2(points[:, 1], points[:, 0]) - rng.uniform(-np.pi, np.pi)
        away = np.abs((angle + np.pi) % (2 * np.pi) - np.pi)
        width = min(rng.uniform(0.5, 1.4), np.sort(away)[min(self.most, len(away) - 1)])
        points = points[away <= width]
        if rng.random() < 0.5:
            points = points * [1, -1, 1]
        turn = rng.uniform(0, 2 * np.pi)
        c, s = np.cos(turn), np.sin(turn)
        points = points @ np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]]).T
        if rng.random() < 0.2:  # another accuracy of ranges
            far = np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1)
            points = points * (1 + rng.normal(0, 0.01, (len(points), 1)) / far)
        sensor = (1 << 19) + rng.integers(0, 1 << 12, 3)
        voxels = np.floor(points / side + rng.random(3)).astype(np.int64) + sensor
        voxels = voxels[((voxels >= 0) & (voxels < 1 << 20)).all(1)]
        return pyramid(voxels, sensor) if len(voxels) > 1000 else self.next()


def integers(w: Weights) -> bytes:
    """The file of the network: docs/codec.md."""
    out = [b"MLNT", struct.pack("<HH", 1, C)]

    def code(name: str, kind: str, scale: float) -> None:
        most = np.iinfo(kind).max
        codes = np.rint(np.array(w[name], np.float64) * scale)
        out.append(np.clip(codes, -most, most).astype(kind).tobytes())

    def layer(name: str, bias: str | None, whole: bool) -> None:
        unit = np.array(mx.minimum(units(w[name], whole), 1), np.float32)
        codes = np.rint(np.array(w[name] / mx.array(unit)))
        if len(codes) == 27:  # x fastest in the file, z fastest here
            codes = codes.reshape(3, 3, 3, C, C).transpose(2, 1, 0, 3, 4)
        out.append(codes.astype(np.int8).tobytes())
        b = np.zeros(C) if bias is None else np.array(w[bias], np.float64) * STEP
        out.append(np.rint(b / unit).astype("<i4").tobytes())
        out.append(np.rint(1 / unit).astype("<i4").tobytes() if whole else unit.tobytes())

    for name in ("mask", "range", "x", "y", "z"):
        code(name, "<i2", STEP)
    layer("up", None, True)
    for block in BLOCKS:
        layer(block + "1", block + "1b", False)
        layer(block + "2", block + "2b", True)
    layer("head", "headb", False)
    code("bits", "<i2", 1024)
    code("bitsb", "<i4", 1024 * STEP)
    return b"".join(out)


def save_state(path: Path, step: int, w: Weights, adam: optim.Adam, rng: Any) -> None:
    state = tree_flatten({"w": w, "adam": adam.state})
    text = json.dumps({"step": step, "random": rng.bit_generator.state})
    np.savez(path.with_suffix(".new.npz"), text=text, **{k: np.array(v) for k, v in state})
    path.with_suffix(".new.npz").rename(path)


def load_state(path: Path, adam: optim.Adam, rng: Any) -> tuple[int, Weights]:
    with np.load(path) as data:
        text = json.loads(str(data["text"]))
        state = tree_unflatten([(k, mx.array(data[k])) for k in data if k != "text"])
    adam.state = state["adam"]
    rng.bit_generator.state = text["random"]
    return text["step"], state["w"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sweeps")
    parser.add_argument("--steps", type=int, default=1750)
    parser.add_argument("--fall", type=int, default=200, help="last steps: the rate falls to 0")
    parser.add_argument("--points", type=int, default=18_000, help="of a step, at most")
    parser.add_argument("--output", type=Path, default=Path("lidar.mlnt"))
    given = parser.parse_args()
    examples, w, adam = Examples(given.sweeps, 1, given.points), initial(0), optim.Adam(1e-3)
    saved, first = given.output.with_suffix(".npz"), 0
    if saved.exists():
        first, w = load_state(saved, adam, examples.rng)
        print(f"goes on at step {first} of {saved}")
    begin, seen = time.time(), []
    for step in range(first, given.steps):
        falling = step >= given.steps - given.fall
        rate = 2e-3 * min(1, (step + 1) / 100)
        adam.learning_rate = rate * ((given.steps - step) / given.fall if falling else 1)
        levels = examples.next()

        def bits(w: Weights, levels: Any = levels, falling: bool = falling) -> mx.array:
            return Net(w, falling).loss(levels) / levels[-1]["voxels"]

        loss, gradient = mx.value_and_grad(bits)(w)
        gradient, _ = optim.clip_grad_norm(gradient, 2.0)
        w = adam.apply_gradients(gradient, w)
        mx.eval(w, adam.state, loss)
        seen.append(float(loss))
        if step % 25 == 24:
            mean, minutes = np.mean(seen[-200:]), (time.time() - begin) / 60
            left = minutes / len(seen) * (given.steps - step - 1)
            print(f"step {step + 1}: {mean:.3f} bits, {left:.0f} minutes left", flush=True)
            save_state(saved, step + 1, w, adam, examples.rng)
            given.output.write_bytes(integers(w))
    given.output.write_bytes(integers(w))
    print(f"{given.output}: {given.output.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
