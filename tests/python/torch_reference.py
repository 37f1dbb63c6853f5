"""What PyTorch computes for the operations on points.

Each formula in torch, and the same restated in NumPy float64 with its gradient.

    python tests/python/torch_reference.py     writes torch_reference.npz, from torch if installed

The record in the repository is from the restatement, because no PyTorch was at hand. The tests of
`test_torch_parity` compare the record with the library and with the restatement. If torch is
installed, they also compare it with torch, so that a wrong restatement would be seen.

A case is made by inputs() -> (differentiable arrays, constants); torch_value and numpy_vjp take
both and, the latter, a cotangent.
"""

from pathlib import Path

import numpy as np
import point_oracle

FILE = Path(__file__).with_name("torch_reference.npz")
CASES = {}


def rng(seed):
    return np.random.default_rng(seed)


class Case:
    """Subclasses are cases by their name."""

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if not cls.__name__.startswith("_"):
            CASES[cls.__name__] = cls()

    def cotangent(self, value):
        return rng(99).normal(size=value.shape)

    def by_numpy(self):
        """[value, gradient of each differentiable input], float64."""
        arrays, constants = self.inputs()
        value, vjp = self.numpy_vjp(*arrays, *constants)
        return [value, *vjp(self.cotangent(value))]

    def by_torch(self, torch):
        arrays, constants = self.inputs()
        arrays = [torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in arrays]
        constants = [
            torch.from_numpy(np.ascontiguousarray(c)) if isinstance(c, np.ndarray) else c
            for c in constants
        ]
        value = self.torch_value(torch, *arrays, *constants)
        value.backward(torch.tensor(self.cotangent(value.detach().numpy())))
        return [value.detach().numpy(), *(a.grad.numpy() for a in arrays)]


def triplets(seed, *sizes, n=200):
    return [rng(seed + s).integers(0, size, n) for s, size in enumerate(sizes)]


class mvmr(Case):
    """y[o] += a[k] b[i]; matrices (N, G, M, C)"""

    def inputs(self):
        return [rng(0).normal(size=(7, 2, 5, 17)), rng(1).normal(size=(50, 2, 17))], [
            *triplets(2, 7, 50, 40),
            40,
        ]

    def torch_value(self, torch, a, b, k, i, o, n):
        zeros = torch.zeros(n, *a.shape[1:3], dtype=a.dtype)
        return zeros.index_add(0, o, torch.einsum("tgmc,tgc->tgm", a[k], b[i]))

    def numpy_vjp(self, a, b, k, i, o, n):
        y = np.zeros((n, *a.shape[1:3]))
        np.add.at(y, o, np.einsum("tgmc,tgc->tgm", a[k], b[i]))

        def vjp(g):
            da, db = np.zeros_like(a), np.zeros_like(b)
            np.add.at(da, k, np.einsum("tgm,tgc->tgmc", g[o], b[i]))
            np.add.at(db, i, np.einsum("tgmc,tgm->tgc", a[k], g[o]))
            return da, db

        return y, vjp


class vvor(Case):
    """u[o] += x[i] outer y[j]"""

    def inputs(self):
        return [rng(3).normal(size=(30, 2, 4)), rng(4).normal(size=(20, 2, 9))], [
            *triplets(5, 30, 20, 6),
            6,
        ]

    def torch_value(self, torch, x, y, i, j, o, n):
        zeros = torch.zeros(n, *x.shape[1:], y.shape[2], dtype=x.dtype)
        return zeros.index_add(0, o, torch.einsum("tgm,tgc->tgmc", x[i], y[j]))

    def numpy_vjp(self, x, y, i, j, o, n):
        u = np.zeros((n, *x.shape[1:], y.shape[2]))
        np.add.at(u, o, np.einsum("tgm,tgc->tgmc", x[i], y[j]))

        def vjp(g):
            dx, dy = np.zeros_like(x), np.zeros_like(y)
            np.add.at(dx, i, np.einsum("tgmc,tgc->tgm", g[o], y[j]))
            np.add.at(dy, j, np.einsum("tgmc,tgm->tgc", g[o], x[i]))
            return dx, dy

        return u, vjp


GRID, LENGTHS = 0.25, [40, 0, 25]
POSITIONS = rng(6).uniform(-1, 1, (65, 3)).astype(np.float32)


class point_conv(Case):
    """PointConv3d(8, 12, 3, groups=4) on the edges of point_oracle"""

    def inputs(self):
        arrays = [
            rng(7).normal(size=(65, 8)),
            rng(8).normal(size=(27, 4, 2, 3)),
            rng(9).normal(size=(12,)),
        ]
        radius = GRID * point_oracle.scaler(3)
        return arrays, point_oracle.edges(POSITIONS, LENGTHS, POSITIONS, LENGTHS, 3, GRID, radius)

    def torch_value(self, torch, x, w, bias, i, j, k):
        zeros = torch.zeros(65, 4, 3, dtype=x.dtype)
        return (
            zeros.index_add(
                0, i, torch.einsum("tgc,tgcm->tgm", x.reshape(65, 4, 2)[j], w[k])
            ).reshape(65, 12)
            + bias
        )

    def numpy_vjp(self, x, w, bias, i, j, k):
        def vjp(g):
            g3, x3 = g.reshape(65, 4, 3), x.reshape(65, 4, 2)
            dx, dw = np.zeros_like(x3), np.zeros_like(w)
            np.add.at(dx, j, np.einsum("tgcm,tgm->tgc", w[k], g3[i]))
            np.add.at(dw, k, np.einsum("tgc,tgm->tgcm", x3[j], g3[i]))
            return dx.reshape(x.shape), dw, g.sum(0)

        return point_oracle.conv(x, w, bias, i, j, k, 65), vjp


class _segments(Case):
    """torch.segment_reduce; equal extremes share the gradient.

    Values are rounded, so that there are some.
    """

    lengths = np.array([3, 1, 6, 20, 2])

    def inputs(self):
        return [np.round(rng(10).normal(size=(32, 4)) * 2) / 2], [self.lengths]

    def torch_value(self, torch, x, lengths):
        return torch.segment_reduce(x, self.operation, lengths=lengths, axis=0)

    def numpy_vjp(self, x, lengths):
        ids, starts = point_oracle.clouds_of(lengths), np.cumsum(lengths) - lengths
        if self.operation in ("sum", "mean"):
            scale = 1 / lengths[:, None] if self.operation == "mean" else np.ones((len(lengths), 1))
            return np.add.reduceat(x, starts) * scale, lambda g: [(g * scale)[ids]]
        y = {"max": np.maximum, "min": np.minimum}[self.operation].reduceat(x, starts)
        hit = (x == y[ids]).astype(float)
        return y, lambda g: [hit * (g / np.add.reduceat(hit, starts))[ids]]


class segment_sum(_segments):
    operation = "sum"


class segment_mean(_segments):
    operation = "mean"


class segment_max(_segments):
    operation = "max"


class segment_min(_segments):
    operation = "min"


class cdist(Case):
    """torch.cdist: Euclidean distances of all pairs; where rows are equal the gradient is 0"""

    def inputs(self):
        a, b = rng(11).normal(size=(9, 3)), rng(12).normal(size=(7, 3))
        b[2] = a[4] = 0.5
        return [a, b], []

    def torch_value(self, torch, a, b):
        return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")

    def numpy_vjp(self, a, b):
        difference = a[:, None] - b[None]
        d = np.sqrt((difference**2).sum(2))

        def vjp(g):
            w = (np.divide(g, d, out=np.zeros_like(d), where=d > 0))[..., None] * difference
            return w.sum(1), -w.sum(0)

        return d, vjp


class cosine(Case):
    """1 - torch.nn.functional.cosine_similarity of given pairs"""

    def inputs(self):
        return [rng(13).normal(size=(9, 5)), rng(14).normal(size=(7, 5))], triplets(15, 9, 7, n=30)

    def torch_value(self, torch, a, b, i, j):
        return 1 - torch.nn.functional.cosine_similarity(a[i], b[j], dim=1, eps=1e-8)

    def numpy_vjp(self, a, b, i, j):
        x, y = a[i], b[j]
        nx, ny = (np.linalg.norm(v, axis=1, keepdims=True) for v in (x, y))
        cos = (x * y).sum(1, keepdims=True) / (nx * ny)

        def vjp(g):
            da, db = np.zeros_like(a), np.zeros_like(b)
            np.add.at(da, i, -g[:, None] * (y / (nx * ny) - cos * x / nx**2))
            np.add.at(db, j, -g[:, None] * (x / (nx * ny) - cos * y / ny**2))
            return da, db

        return 1 - cos[:, 0], vjp


def _normalized(x, axis, weight, bias, eps=1e-5):
    centered = x - x.mean(axis, keepdims=True)
    scale = 1 / np.sqrt((centered**2).mean(axis, keepdims=True) + eps)
    unit = centered * scale

    def vjp(g):
        u = g * weight
        dx = scale * (u - u.mean(axis, keepdims=True) - unit * (u * unit).mean(axis, keepdims=True))
        return dx, (g * unit).sum(0), g.sum(0)

    return unit * weight + bias, vjp


class batch_norm(Case):
    """torch.nn.functional.batch_norm in training: each channel over all rows"""

    def inputs(self):
        return [rng(16).normal(2, 3, (33, 6)), rng(17).normal(size=6), rng(18).normal(size=6)], []

    def torch_value(self, torch, x, weight, bias):
        return torch.nn.functional.batch_norm(x, None, None, weight, bias, training=True, eps=1e-5)

    def numpy_vjp(self, x, weight, bias):
        return _normalized(x, 0, weight, bias)


class layer_norm(batch_norm):
    """torch.nn.functional.layer_norm: each row"""

    def torch_value(self, torch, x, weight, bias):
        return torch.nn.functional.layer_norm(x, (6,), weight, bias, 1e-5)

    def numpy_vjp(self, x, weight, bias):
        return _normalized(x, 1, weight, bias)


class pointcnn(Case):
    """PointCNNConv: two linear layers on each neighbor, then torch.amax over the neighbors"""

    def inputs(self):
        arrays = [(20, 3), (8, 3), (8,), (5, 8), (5,)]
        idx = np.stack([rng(30 + i).permutation(20)[:4] for i in range(20)])
        return [rng(20 + i).normal(size=s) for i, s in enumerate(arrays)], [idx]

    def torch_value(self, torch, x, w1, b1, w2, b2, idx):
        return (torch.relu(x[idx] @ w1.T + b1) @ w2.T + b2).amax(1)

    def numpy_vjp(self, x, w1, b1, w2, b2, idx):
        h = np.maximum(x @ w1.T + b1, 0)
        z = h @ w2.T + b2
        y = z[idx].max(1)

        def vjp(g):
            dz = np.zeros_like(z)
            np.add.at(dz, idx, (z[idx] == y[:, None]) * g[:, None])  # no two neighbors are equal
            dh = dz @ w2 * (h > 0)
            return dh @ w1, dh.T @ x, dh.sum(0), dz.T @ h, dz.sum(0)

        return y, vjp


def record():
    try:
        import torch
    except ImportError:
        torch = None
    arrays = {"source": np.array("torch " + torch.__version__ if torch else "NumPy restatement")}
    for name, case in CASES.items():
        for n, value in enumerate(case.by_torch(torch) if torch else case.by_numpy()):
            arrays[f"{name}.{n}"] = value
    np.savez_compressed(FILE, **arrays)


if __name__ == "__main__":
    record()
    print(FILE, FILE.stat().st_size, "bytes")
