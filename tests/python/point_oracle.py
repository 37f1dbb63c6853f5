"""Point convolution in NumPy, by the definition: geometry in float32 as documented, features in float64, all pairs."""

import math

import numpy as np

F = np.float32


def scaler(ks, rfs=1.0, shape="ball"):
    return ks * rfs ** (1 / 3) / 2 if shape == "cube" else (3 * ks**3 * rfs / (4 * math.pi)) ** (1 / 3)


def clouds_of(lengths):
    return np.repeat(np.arange(len(lengths)), lengths)


def tap(offset, grid, ks):
    cell = np.clip(np.rint(offset / F(grid)) + ks // 2, 0, ks - 1).astype(int)
    return (cell[..., 0] * ks + cell[..., 1]) * ks + cell[..., 2]


def edges(src, src_lengths, dst, dst_lengths, ks, grid, radius, shape="ball"):
    """(i, j, k)"""
    d = (src[None] - dst[:, None]).astype(F)
    far = np.abs(d).max(2) if shape == "cube" else np.sqrt((d[..., 0] ** 2 + d[..., 1] ** 2) + d[..., 2] ** 2)
    near = (far <= F(radius)) & (clouds_of(src_lengths)[None] == clouds_of(dst_lengths)[:, None])
    i, j = np.nonzero(near)
    return i, j, tap(d[i, j], grid, ks)


def downsample(p, lengths, size):
    """(rows kept, lengths, cell of each row, centres): by cloud, z, y, x; nearest the centre, ties to the smallest row."""
    size = F(size)
    cloud = clouds_of(lengths)
    cell = np.floor(p / size)
    keys = np.stack([cloud, cell[:, 2], cell[:, 1], cell[:, 0]], 1) if len(p) else np.zeros((0, 4))
    unique, place = np.unique(keys, axis=0, return_inverse=True)
    place = place.reshape(-1)
    centre = ((cell + F(0.5)) * size).astype(F)
    d = (p - centre).astype(F)
    d2 = (d[:, 0] ** 2 + d[:, 1] ** 2) + d[:, 2] ** 2
    rows = np.array([min(np.nonzero(place == c)[0], key=lambda r: (d2[r], r)) for c in range(len(unique))], dtype=int)
    counts = np.bincount(unique[:, 0].astype(int), minlength=len(lengths))[: len(lengths)]
    return rows, counts, place, centre[rows] if len(rows) else np.zeros((0, 3), F)


def conv(x, weight, bias, i, j, k, n):
    """y[i] = bias + sum x[j] weight[k], float64; weight (K, G, C, M)."""
    groups, c, m = weight.shape[1:]
    y = np.zeros((n, groups, m))
    np.add.at(y, i, np.einsum("tgc,tgcm->tgm", x.reshape(-1, groups, c)[j], weight[k]))
    return y.reshape(n, groups * m) + (0 if bias is None else bias)
