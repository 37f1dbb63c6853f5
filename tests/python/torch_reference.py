"""What PyTorch computes for the operations on points: each formula in torch.

    python tests/python/torch_reference.py     writes torch_reference.npz; needs torch

The record in the repository was made by the same formulas and their gradients in NumPy float64,
because no PyTorch was at hand. `test_torch_parity` compares the library with the record, and the
record with torch where it is installed.

A case is made by inputs() -> (differentiable arrays, constants); torch_value takes both.
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


class _segments(Case):
    """torch.segment_reduce; equal extremes share the gradient.

    Values are rounded, so that there are some.
    """

    lengths = np.array([3, 1, 6, 20, 2])

    def inputs(self):
        return [np.round(rng(10).normal(size=(32, 4)) * 2) / 2], [self.lengths]

    def torch_value(self, torch, x, lengths):
        return torch.segment_reduce(x, self.operation, lengths=lengths, axis=0)


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


class cosine(Case):
    """1 - torch.nn.functional.cosine_similarity of given pairs"""

    def inputs(self):
        return [rng(13).normal(size=(9, 5)), rng(14).normal(size=(7, 5))], triplets(15, 9, 7, n=30)

    def torch_value(self, torch, a, b, i, j):
        return 1 - torch.nn.functional.cosine_similarity(a[i], b[j], dim=1, eps=1e-8)


class batch_norm(Case):
    """torch.nn.functional.batch_norm in training: each channel over all rows"""

    def inputs(self):
        return [rng(16).normal(2, 3, (33, 6)), rng(17).normal(size=6), rng(18).normal(size=6)], []

    def torch_value(self, torch, x, weight, bias):
        return torch.nn.functional.batch_norm(x, None, None, weight, bias, training=True, eps=1e-5)


class layer_norm(batch_norm):
    """torch.nn.functional.layer_norm: each row"""

    def torch_value(self, torch, x, weight, bias):
        return torch.nn.functional.layer_norm(x, (6,), weight, bias, 1e-5)


class pointcnn(Case):
    """PointCNNConv: two linear layers on each neighbor, then torch.amax over the neighbors"""

    def inputs(self):
        arrays = [(20, 3), (8, 3), (8,), (5, 8), (5,)]
        idx = np.stack([rng(30 + i).permutation(20)[:4] for i in range(20)])
        return [rng(20 + i).normal(size=s) for i, s in enumerate(arrays)], [idx]

    def torch_value(self, torch, x, w1, b1, w2, b2, idx):
        return (torch.relu(x[idx] @ w1.T + b1) @ w2.T + b2).amax(1)


if __name__ == "__main__":
    import torch

    arrays = {"source": np.array("torch " + torch.__version__)}
    for name, case in CASES.items():
        arrays |= {f"{name}.{n}": value for n, value in enumerate(case.by_torch(torch))}
    np.savez_compressed(FILE, **arrays)
    print(FILE, FILE.stat().st_size, "bytes")
