"""Point convolution in NumPy, by the definition.

Geometry in float32 as documented, features in float64, all pairs.
"""

import math

import numpy as np

F = np.float32


def scaler(ks, rfs=1.0, shape="ball"):
    return (
        ks * rfs ** (1 / 3) / 2 if shape == "cube" else (3 * ks**3 * rfs / (4 * math.pi)) ** (1 / 3)
    )


def clouds_of(lengths):
    return np.repeat(np.arange(len(lengths)), lengths)


def tap(offset, grid, ks):
    cell = np.clip(np.rint(offset / F(grid)) + ks // 2, 0, ks - 1).astype(int)
    return (cell[..., 0] * ks + cell[..., 1]) * ks + cell[..., 2]


def edges(src, src_lengths, dst, dst_lengths, ks, grid, radius, shape="ball"):
    """(i, j, k)"""
    d = (src[None] - dst[:, None]).astype(F)
    far = (
        np.abs(d).max(2)
        if shape == "cube"
        else np.sqrt((d[..., 0] ** 2 + d[..., 1] ** 2) + d[..., 2] ** 2)
    )
    near = (far <= F(radius)) & (clouds_of(src_lengths)[None] == clouds_of(dst_lengths)[:, None])
    i, j = np.nonzero(near)
    return i, j, tap(d[i, j], grid, ks)


def downsample(p, lengths, size):
    """(rows kept, lengths, cell of each row, centers): by cloud, z, y, x.

    Nearest the center, ties to the smallest row.
    """
    size = F(size)
    cloud = clouds_of(lengths)
    cell = np.floor(p / size)
    keys = np.stack([cloud, cell[:, 2], cell[:, 1], cell[:, 0]], 1) if len(p) else np.zeros((0, 4))
    unique, place = np.unique(keys, axis=0, return_inverse=True)
    place = place.reshape(-1)
    center = ((cell + F(0.5)) * size).astype(F)
    d = (p - center).astype(F)
    d2 = (d[:, 0] ** 2 + d[:, 1] ** 2) + d[:, 2] ** 2
    rows = np.array(
        [min(np.nonzero(place == c)[0], key=lambda r: (d2[r], r)) for c in range(len(unique))],
        dtype=int,
    )
    counts = np.bincount(unique[:, 0].astype(int), minlength=len(lengths))[: len(lengths)]
    return rows, counts, place, center[rows] if len(rows) else np.zeros((0, 3), F)


def conv(x, weight, bias, i, j, k, n):
    """y[i] = bias + sum x[j] weight[k], float64; weight (K, G, C, M)."""
    groups, c, m = weight.shape[1:]
    y = np.zeros((n, groups, m))
    np.add.at(y, i, np.einsum("tgc,tgcm->tgm", x.reshape(-1, groups, c)[j], weight[k]))
    return y.reshape(n, groups * m) + (0 if bias is None else bias)


def far(a, b):
    """Distances of all pairs, float32."""
    d = (a[:, None] - b[None]).astype(F)
    return np.sqrt((d[..., 0] ** 2 + d[..., 1] ** 2) + d[..., 2] ** 2)


def full_cover(p, lengths, grid, stride, margin=0.01):
    """(rows of the targets, lengths, R).

    Nearest the center of each cell, then a net over the points that no target sees.
    """
    radius = F(float(F(grid)) * (math.sqrt(3) / 2 * float(F(stride)) * (1 + float(F(margin)))))
    chosen, _, place, _ = downsample(p, lengths, F(grid) * F(stride))
    cloud = clouds_of(lengths)
    rows, counts = [], []
    for b in range(len(lengths)):
        first = sorted(r for r in chosen if cloud[r] == b)
        mine = np.nonzero(cloud == b)[0]
        alone = [r for r in mine if not (far(p[[r]], p[first]) <= radius).any()]
        near = far(p[alone], p[alone]) <= radius
        order = sorted(
            range(len(alone)),
            key=lambda a: (
                -near[a].sum(),
                -far(p[[alone[a]]], p[[chosen[place[alone[a]]]]])[0, 0],
                alone[a],
            ),
        )
        net = []
        for a in order:
            if not near[a, net].any():
                net.append(a)
        rows += first + sorted(alone[a] for a in net)
        counts.append(len(first) + len(net))
    return np.array(rows, dtype=int), counts, radius


def generate(p, lengths, side, stencil, scale=1, target_side=None):
    """(i, j, k, centers, lengths).

    Voxels scale * floor(p / side) + stencil[k] of each point, each once, by cloud, z, y, x.
    """
    side, target_side = F(side), F(side if target_side is None else target_side)
    v = np.floor(p / side).astype(np.int64)
    made = scale * v[:, None] + np.asarray(stencil)[None]
    cloud = np.broadcast_to(clouds_of(lengths)[:, None], made.shape[:2])
    keys = np.stack([cloud, made[..., 2], made[..., 1], made[..., 0]], -1).reshape(-1, 4)
    unique, i = np.unique(keys, axis=0, return_inverse=True)
    j, k = np.divmod(np.arange(len(keys)), len(stencil))
    counts = np.bincount(unique[:, 0], minlength=len(lengths))[: len(lengths)]
    return i.reshape(-1), j, k, (unique[:, 3:0:-1].astype(F) + F(0.5)) * target_side, counts


def cube(ks, first):
    return np.stack(np.meshgrid(*[np.arange(ks) + first] * 3, indexing="ij"), -1).reshape(-1, 3)
