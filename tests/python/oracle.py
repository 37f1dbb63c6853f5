"""Relations and convolutions in plain Python integers and float64, for tests.

edge (i, o, k):  y[o] += x[i] W[k],  dx[i] += W[k] gy[o],  dW[k] += x[i] gy[o]
"""

from itertools import product

import numpy as np

KINDS = ("forward", "target", "submanifold", "transposed", "generative", "target_transposed")

ONE, ZERO = (1, 1, 1), (0, 0, 0)


def kernel_offsets(size, dilation=(1, 1, 1), centered=True):
    """Offset k = (ix * Ky + iy) * Kz + iz; odd sizes are centered on 0 when `centered`."""
    axes = [
        [(i - (n // 2 if centered and n % 2 else 0)) * d for i in range(n)]
        for n, d in zip(size, dilation)
    ]
    return list(product(*axes))


def relate(kind, coords, size, stride=ONE, padding=ZERO, dilation=ONE, target=None, dtype=np.int32):
    """(output coordinates, edges) in the documented order.

    A produced coordinate outside dtype: OverflowError.
    """
    coords = [tuple(int(v) for v in row) for row in coords]
    if kind == "submanifold":
        stride, padding = ONE, ZERO
    if kind == "generative":
        padding, dilation = ZERO, ONE
    offsets = kernel_offsets(size, dilation, kind in ("forward", "target", "submanifold"))
    rows = {c: r for r, c in reversed(list(enumerate(coords)))}

    def image(c, offset):  # c * s + o - p
        return (c[0], *(v * s + o - p for v, s, o, p in zip(c[1:], stride, offset, padding)))

    if kind in ("forward", "target", "submanifold"):
        if kind == "target":
            out = [tuple(int(v) for v in row) for row in target]
        elif (tuple(stride), tuple(padding)) == (ONE, ZERO):
            out = coords
        else:
            out = list(
                dict.fromkeys((c[0], *(v // s for v, s in zip(c[1:], stride))) for c in coords)
            )
        edges = [
            (rows[image(c, offset)], o, k)
            for o, c in enumerate(out)
            for k, offset in enumerate(offsets)
            if image(c, offset) in rows
        ]
        return out, edges

    produced = [
        (image(c, offset), i, k) for i, c in enumerate(coords) for k, offset in enumerate(offsets)
    ]
    if kind == "target_transposed":  # edges exist where an input row produces a target row
        by_coordinate = {}
        for q, i, k in produced:
            by_coordinate.setdefault(q, []).append((i, k))
        out = [tuple(int(v) for v in row) for row in target]
        edges = [(i, o, k) for o, q in enumerate(out) for i, k in by_coordinate.get(q, [])]
    else:
        limits = np.iinfo(dtype)
        for q, _, _ in produced:
            for axis, v in zip("xyz", q[1:]):
                if not limits.min <= v <= limits.max:
                    raise OverflowError(f"{axis} = {v}")
        number = {q: o for o, q in enumerate(dict.fromkeys(q for q, _, _ in produced))}
        out = list(number)
        edges = [(i, number[q], k) for q, i, k in produced]
    return out, sorted(edges, key=lambda e: (e[1], e[2], e[0]))


def conv(x, w, edges, n_out):
    """x (n_in, c_in), w (n_k, c_in, c_out) -> (n_out, c_out)."""
    x, w = np.asarray(x, np.float64), np.asarray(w, np.float64)
    y = np.zeros((n_out, w.shape[2]))
    for i, o, k in edges:
        y[o] += x[i] @ w[k]
    return y


def conv_input_grad(gy, w, edges, n_in):
    """The gradient of <gy, conv(x, w)> in x."""
    gy, w = np.asarray(gy, np.float64), np.asarray(w, np.float64)
    dx = np.zeros((n_in, w.shape[1]))
    for i, o, k in edges:
        dx[i] += w[k] @ gy[o]
    return dx


def outer(x, gy, edges, n_k):
    """The gradient of <gy, conv(x, w)> in w."""
    x, gy = np.asarray(x, np.float64), np.asarray(gy, np.float64)
    dw = np.zeros((n_k, x.shape[1], gy.shape[1]))
    for i, o, k in edges:
        dw[k] += np.outer(x[i], gy[o])
    return dw


def adjoint_error(gy, lx, adjoint_gy, x):
    """|<gy, Lx> - <L* gy, x>| relative to the sum of the magnitudes of all terms."""
    gy, lx, adjoint_gy, x = (np.asarray(v, np.float64).ravel() for v in (gy, lx, adjoint_gy, x))
    scale = np.abs(gy * lx).sum() + np.abs(adjoint_gy * x).sum()
    return 0.0 if scale == 0 else abs(gy @ lx - adjoint_gy @ x) / scale
