"""The 31 operations of the older package's artifacts in float64, and random programs of them.

`case(name, rng)` makes a program with one operation, or a few that need each other, with unusual
attributes: its text, weights, inputs, and the outputs by the formulas of the format. Sparse values
are dicts of rows: index -> features, or lists of rows where places may be equal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from math import erf

import numpy as np

DIGEST = "1380f1e819fc0eb1af587202ecec3c14ec2c981d249333c5061f0263f82072ad"
COORDS, ACTIVE, INTS, POINTS = (
    "tensor<?x4xi32>",
    "tensor<1xi32>",
    "tensor<?xi32>",
    "tensor<?x3xf32>",
)


def sparse_type(dtype="f32"):
    return (
        "!lattice.sparse_tensor<rank = 3, coord = batch_x_y_z, feature = row_channel, "
        f"dtype = {dtype}>"
    )


@dataclass
class Sparse:
    """Rows of lattice indices with features, and the stride."""

    index: np.ndarray
    feats: np.ndarray
    stride: tuple[int, ...]

    def where(self):
        return {tuple(row): i for i, row in enumerate(self.index)}

    def on(self, feats):
        return Sparse(self.index, feats, self.stride)


def triple(rng, low, high):
    return tuple(int(v) for v in rng.integers(low, high + 1, 3))


def offsets(size, dilation, centered):
    centers = [n // 2 if n % 2 and centered else 0 for n in size]
    return [
        tuple((p - c) * d for p, c, d in zip(at, centers, dilation))
        for at in product(*map(range, size))
    ]


def first_of(rows):
    return np.array(list(dict.fromkeys(map(tuple, rows))), np.int64).reshape(-1, 4)


def forward_rows(x, stride, padding):
    if stride == (1, 1, 1) and padding == (0, 0, 0):
        return x.index
    return first_of(np.column_stack([x.index[:, :1], x.index[:, 1:] // stride]))


def forward_edges(x, rows, taps, stride, padding):
    """(i, o, k) with x[i] = o * stride + d_k - p."""
    at = x.where()
    for o, row in enumerate(rows):
        for k, d in enumerate(taps):
            place = (row[0], *(row[1:] * stride + d - padding))
            if (i := at.get(tuple(int(v) for v in place))) is not None:
                yield i, o, k


def transposed_rows(x, taps, stride, padding):
    made = [(row[0], *(row[1:] * stride + d - padding)) for row in x.index for d in np.array(taps)]
    return first_of(made)


def transposed_edges(x, rows, taps, stride, padding):
    at = x.where()
    for o, row in enumerate(rows):
        for k, d in enumerate(taps):
            shifted = row[1:] + padding - np.array(d)
            if (shifted % stride).any():
                continue
            if (i := at.get((int(row[0]), *(int(v) for v in shifted // stride)))) is not None:
                yield i, o, k


def convolved(x, rows, edges, weight, bias, eps):
    """weight (O, K, I)."""
    y = np.zeros((len(rows), weight.shape[0]))
    norm = np.zeros_like(y)
    for i, o, k in edges:
        y[o] += weight[:, k] @ x.feats[i]
        norm[o] += (weight[:, k] ** 2).sum(axis=1)
    if eps is not None and weight.shape[1] > 1:
        y /= np.sqrt(norm + eps)
    return y if bias is None else y + bias


def pooled(x, rows, edges, mode):
    found = [[] for _ in rows]
    for i, o, _ in edges:
        found[o].append(x.feats[i])
    reduce = {"sum": np.sum, "avg": np.mean, "max": np.max}[mode]
    empty = -np.inf if mode == "max" else 0.0
    return np.array(
        [reduce(f, axis=0) if f else np.full(x.feats.shape[1], empty) for f in found]
    ).reshape(len(rows), -1)


def joined(a, b, join, op, fills):
    left, right = a.where(), b.where()
    order = {
        "inner": [r for r in left if r in right],
        "left": list(left),
        "right": list(right),
        "outer": [*left, *(r for r in right if r not in left)],
    }[join]
    functions = {
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "maximum": np.maximum,
        "minimum": np.minimum,
        "cat": lambda u, v: np.concatenate([u, v]),
    }
    u = [a.feats[left[r]] if r in left else np.full(a.feats.shape[1], fills[0]) for r in order]
    v = [b.feats[right[r]] if r in right else np.full(b.feats.shape[1], fills[1]) for r in order]
    feats = np.array([functions[op](p, q) for p, q in zip(u, v)])
    return Sparse(np.array(order, np.int64).reshape(-1, 4), feats, a.stride)


@dataclass
class Case:
    """A program under construction. Lines name values `%name`; `types` holds their types."""

    rng: np.random.Generator
    arguments: list[tuple[str, str, str]] = field(default_factory=list)  # name, type, role
    lines: list[str] = field(default_factory=list)
    types: dict[str, str] = field(default_factory=dict)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    outputs: dict[str, tuple[str, object]] = field(default_factory=dict)  # value, expected

    def argument(self, name, array, type_, role="tensor"):
        self.arguments.append((name, type_, role))
        self.types[name] = type_
        self.inputs[name] = array

    def operation(self, result, name, operands, result_type, **attributes):
        """One line; attributes in any order, sometimes over several lines."""
        given = [f"{k} = {v}" for k, v in attributes.items()]
        self.rng.shuffle(given)
        space = self.rng.choice(["", " ", "\n      ", " // said\n"])
        text = f" {{{(',' + space).join(given)}}}" if given else ""
        types = ", ".join(self.types[o] for o in operands)
        names = ", ".join(f"%{o}" for o in operands)
        self.lines.append(
            f"%{result} = lattice.{name} {names}{text} : ({types}) ->{space} {result_type}"
        )
        self.types[result] = result_type

    def weight(self, name, array, family, layout, dtype="f32"):
        self.weights[f"{name}.w"] = array.astype({"f32": np.float32, "f16": np.float16}[dtype])
        self.types[name] = f"!lattice.weight<{family}, {dtype}>"
        self.lines.append(
            f'%{name} = lattice.weight @{name} {{storage_key = "{name}.w", '
            f"layout = #lattice.weight_layout<{layout}>, packing = #lattice.packing<dense>}} "
            f": {self.types[name]}"
        )
        return self.weights[f"{name}.w"].astype(np.float64)

    def packed(self, name, shape, family):
        """Codes of a weight (O, K, I); the weight that they mean."""
        rng, (out, taps, channels) = self.rng, shape
        bits, group = int(rng.choice([4, 8])), int(rng.choice([32, 64, 128]))
        groups = -(-channels // group)
        codes = rng.integers(0, 1 << bits, (taps, out, groups * group))
        half = bool(rng.integers(2))
        kind = np.float16 if half else np.float32
        scales = rng.uniform(0.5, 1.5, (taps, out, groups)).astype(kind) / (1 << bits)
        scales = scales.astype(kind)
        biases = (-scales * (1 << (bits - 1))).astype(kind)
        per = 32 // bits
        words = codes.reshape(taps, out, -1, per).astype(np.uint64)
        words = (words << (bits * np.arange(per, dtype=np.uint64))).sum(axis=3).astype(np.uint32)
        swap = (lambda a: a) if taps == 1 else (lambda a: np.ascontiguousarray(a.swapaxes(1, 2)))
        for part, array in (("weight", words), ("scales", scales), ("biases", biases)):
            self.weights[f"{name}.w.{part}"] = swap(array)
        layout = {"conv3d": "conv3d_o_xyz_i", "linear": "linear_o_i"}[family]
        self.types[name] = f"!lattice.weight<{family}, f32>"
        fields = [f"group_size = {group}", f"scale_dtype = {'f16' if half else 'f32'}"]
        self.lines.append(
            f'%{name} = lattice.weight @{name} {{storage_key = "{name}.w", '
            f"layout = #lattice.weight_layout<{layout}>, packing = "
            f"#lattice.packing<int{bits}, {', '.join(fields)}, mode = affine>}} "
            f": {self.types[name]}"
        )
        wide = np.repeat(scales.astype(np.float64), group, axis=2) * codes
        wide += np.repeat(biases.astype(np.float64), group, axis=2)
        return wide[:, :, :channels].transpose(1, 0, 2)

    def sparse(self, name, channels, stride, rows=40, span=6, among=None):
        """A sparse input of distinct rows, with padding behind the active ones."""
        rng = self.rng
        low = rng.integers(-4, 1, 3)
        index = np.column_stack(
            [rng.integers(0, 2, rows), *(rng.integers(v, v + span, rows) for v in low)]
        )
        if among is not None:  # half of the rows of another tensor, shifted into this lattice
            index[: rows // 2] = among[rng.integers(0, len(among), rows // 2)]
        index = first_of(rng.permutation(index))
        feats = rng.standard_normal((len(index), channels)).astype(np.float32)
        pad = int(rng.integers(0, 4))
        physical = index * [1, *stride]
        self.argument(
            f"{name}_coords",
            np.concatenate([physical, np.full((pad, 4), 7)]).astype(np.int32),
            COORDS,
            "sparse_coords",
        )
        self.argument(
            f"{name}_features",
            np.concatenate([feats, np.full((pad, channels), 9, np.float32)]),
            f"tensor<?x{channels}xf32>",
            "sparse_features",
        )
        self.argument(f"{name}_active", np.array([len(index)], np.int32), ACTIVE, "sparse_active")
        self.operation(
            name,
            "sparse.make",
            [f"{name}_coords", f"{name}_features", f"{name}_active"],
            sparse_type(),
            stride=array(stride),
            coord_order="#lattice.coord<batch_x_y_z>",
        )
        return Sparse(index, feats.astype(np.float64), stride)

    def text(self):
        """The whole module."""
        quoted = lambda names: ", ".join(f'"{n}"' for n in names)
        roles = [
            "sparse_tensor" if "sparse" in self.types[v] else "tensor"
            for v, _ in self.outputs.values()
        ]
        attributes = [
            "lattice.ir_version = 2",
            f'lattice.schema_digest = "{DIGEST}"',
            f"lattice.input_names = [{quoted(a[0] for a in self.arguments)}]",
            f"lattice.input_roles = [{quoted(a[2] for a in self.arguments)}]",
            f"lattice.output_names = [{quoted(self.outputs)}]",
            f"lattice.output_roles = [{quoted(roles)}]",
            'lattice.weight_file = "weights.safetensors"',
            'lattice.producer = "test"',
        ]
        self.rng.shuffle(attributes)
        arguments = ", ".join(f"%{n}: {t}" for n, t, _ in self.arguments)
        types = ", ".join(self.types[v] for v, _ in self.outputs.values())
        values = ", ".join(f"%{v}" for v, _ in self.outputs.values())
        return (
            f"module attributes {{{', '.join(attributes)}}} {{\n"
            f"  func.func @forward({arguments}) -> ({types}) {{\n"
            + "".join(f"    {line}\n" for line in self.lines)
            + f"    return {values} : {types}\n  }}\n}}\n"
        )


def array(values):
    return f"array<i64: {', '.join(str(v) for v in values)}>"


def numbers(values):
    return f"array<f64: {', '.join(repr(float(v)) for v in values)}>"


def real(value):
    text = repr(float(np.float32(value)))
    mantissa, e, exponent = text.partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}{e}{exponent} : f32"


ACCUMULATION = '"canonical_f32"'


def convolution(case, name):
    rng = case.rng
    onto = name.startswith("target_")
    plain = name.removeprefix("target_").removeprefix("normalized_")
    eps = float(np.float32(rng.choice([1e-5, 0.3]))) if "normalized" in name else None
    subm, generative = plain == "subm_conv3d", plain.startswith("generative")
    back = "transpose" in plain
    size = triple(rng, 1, 3)
    size = tuple(2 * n - 1 for n in size) if subm else size
    if rng.integers(5) == 0:
        size = (1, 1, 1)
    stride = (1, 1, 1) if subm else triple(rng, 1, 3)
    padding = (0, 0, 0) if subm or generative else triple(rng, 0, 2)
    dilation = (1, 1, 1) if generative else triple(rng, 1, 3)
    base = triple(rng, 1, 3)
    at = tuple(b * s for b, s in zip(base, stride)) if back else base
    channels, out = int(rng.integers(1, 40)), int(rng.integers(1, 20))
    x = case.sparse("x", channels, at)
    taps = np.array(offsets(size, dilation, not back))
    edges_of = transposed_edges if back else forward_edges
    rows = transposed_rows(x, taps, stride, padding) if back else forward_rows(x, stride, padding)
    if onto:
        target_stride = base if back else tuple(b * s for b, s in zip(base, stride))
        t = case.sparse("t", 2, target_stride, among=rows)
        rows = t.index
    elif generative:
        rows = np.array(
            [(r[0], *(r[1:] * stride + d)) for r in x.index for d in taps], np.int64
        ).reshape(-1, 4)
    if rng.integers(2):
        weight = case.packed("k", (out, len(taps), channels), "conv3d")
    else:
        given = rng.standard_normal((out, *size, channels)) / np.sqrt(channels)
        weight = case.weight("k", given, "conv3d", "conv3d_o_xyz_i").reshape(out, -1, channels)
    bias, operands = None, ["x", *(["t"] if onto else []), "k"]
    if rng.integers(2):
        dtype = str(rng.choice(["f32", "f16"]))
        bias = case.weight("b", rng.standard_normal(out), "bias", "bias_c", dtype)
        operands.append("b")
    if generative:
        edges = ((i, i * len(taps) + k, k) for i in range(len(x.index)) for k in range(len(taps)))
    else:
        edges = edges_of(x, rows, taps, np.array(stride), np.array(padding))
    y = convolved(x, rows, edges, weight, bias, eps)
    attributes = {"kernel_size": array(size), "accumulation": ACCUMULATION}
    if subm:
        attributes["dilation"] = array(dilation)
    else:
        attributes["stride"] = array(stride)
    if not subm and not generative:
        attributes |= {"padding": array(padding), "dilation": array(dilation)}
    if eps is not None:
        attributes["eps"] = real(eps)
    case.operation("y", name, operands, sparse_type(), **attributes)
    new = base if back else tuple(b * s for b, s in zip(base, stride))
    case.outputs["made"] = ("y", Sparse(rows, y, new))


def pool(case, name):
    rng, mode = case.rng, str(case.rng.choice(["sum", "max", "avg"]))
    size, stride = triple(rng, 1, 3), triple(rng, 1, 3)
    padding, dilation, base = triple(rng, 0, 2), triple(rng, 1, 2), triple(rng, 1, 3)
    kernel = {
        "kernel_size": array(size),
        "stride": array(stride),
        "padding": array(padding),
        "dilation": array(dilation),
    }
    channels = int(rng.integers(1, 20))
    if name == "pool3d":
        x = case.sparse("x", channels, base)
        taps = np.array(offsets(size, dilation, True))
        rows = forward_rows(x, stride, padding)
        y = pooled(x, rows, forward_edges(x, rows, taps, np.array(stride), np.array(padding)), mode)
        case.operation(
            "y", name, ["x"], sparse_type(), mode=f"#lattice.pool_mode<{mode}>", **kernel
        )
        case.outputs["made"] = ("y", Sparse(rows, y, tuple(b * s for b, s in zip(base, stride))))
        return
    x = case.sparse("x", channels, tuple(b * s for b, s in zip(base, stride)))
    trilinear = name == "trilinear_upsample3d"
    if trilinear:
        size, padding = tuple(2 * s - 1 for s in stride), tuple(s - 1 for s in stride)
        dilation, kernel = (1, 1, 1), {"stride": array(stride)}
    taps = np.array(offsets(size, dilation, False))
    rows, operands = transposed_rows(x, taps, stride, padding), ["x"]
    if rng.integers(2):
        rows = case.sparse("t", 2, base, among=rows).index
        operands.append("t")
    share = np.ones(len(taps))
    if trilinear:
        share = np.prod(1 - np.abs(taps - np.array(padding)) / stride, axis=1)
    total, y = np.zeros((len(rows), 1)), np.zeros((len(rows), channels))
    for i, o, k in transposed_edges(x, rows, taps, np.array(stride), np.array(padding)):
        y[o] += share[k] * x.feats[i]
        total[o] += share[k]
    y = np.where(total > 0, y / np.where(total > 0, total, 1), 0)
    case.operation("y", name, operands, sparse_type(), **kernel)
    case.outputs["made"] = ("y", Sparse(rows, y, base))


def global_pool(case, name):
    rng, mode = case.rng, str(case.rng.choice(["sum", "max", "avg"]))
    x = case.sparse("x", 5, triple(rng, 1, 3))
    items = int(x.index[:, 0].max()) + 1
    present = len(np.unique(x.index[:, 0])) == items
    more = 0 if mode == "max" else int(rng.integers(0, 3))
    if mode == "max" and not present:
        mode = "sum"
    given = -1 if more == 0 and rng.integers(2) else items + more
    found = [x.feats[x.index[:, 0] == b] for b in range(items + (more if given >= 0 else 0))]
    reduce = {"sum": np.sum, "avg": np.mean, "max": np.max}[mode]
    y = np.array([reduce(f, axis=0) if len(f) else np.zeros(5) for f in found])
    case.operation(
        "y",
        name,
        ["x"],
        "tensor<?x5xf32>",
        mode=f"#lattice.pool_mode<{mode}>",
        batch_size=f"{given} : i64" if rng.integers(2) else str(given),
    )
    case.outputs["made"] = ("y", y)


def cloud(case, rows, channels):
    rng = case.rng
    points = rng.uniform(-2, 2, (rows, 3)).astype(np.float32)
    batch = rng.integers(0, 2, rows).astype(np.int32)
    active = int(rng.integers(rows // 2, rows + 1))
    case.argument("points", points, POINTS)
    if channels:
        feats = rng.standard_normal((rows, channels)).astype(np.float32)
        case.argument("f", feats, f"tensor<?x{channels}xf32>")
    case.argument("batch", batch, INTS)
    case.argument("active", np.array([active], np.int32), ACTIVE)
    return points, feats.astype(np.float64) if channels else None, batch, active


def voxelize(case, name):
    rng = case.rng
    points, feats, batch, n = cloud(case, 90, 4)
    size, origin = rng.uniform(0.2, 0.9, 3), rng.uniform(-1, 1, 3)
    reduction, stride = str(rng.choice(["sum", "mean"])), triple(rng, 1, 3)
    q = np.floor((points[:n] - origin.astype(np.float32)) / size.astype(np.float32))
    index = np.column_stack([batch[:n], q.astype(np.int64)])
    rows = first_of(index)
    at = {tuple(r): i for i, r in enumerate(rows)}
    y, count = np.zeros((len(rows), 4)), np.zeros((len(rows), 1))
    for i in range(n):
        y[at[tuple(index[i])]] += feats[i]
        count[at[tuple(index[i])]] += 1
    case.operation(
        "y",
        name,
        ["points", "f", "batch", "active"],
        sparse_type(),
        voxel_size=numbers(size),
        origin=numbers(origin),
        reduction=f"#lattice.voxel_reduction<{reduction}>",
        stride=array(stride),
    )
    case.outputs["made"] = ("y", Sparse(rows, y / count if reduction == "mean" else y, stride))


def devoxelize(case, name):
    rng = case.rng
    points, _, batch, n = cloud(case, 90, 0)
    x = case.sparse("x", 3, triple(rng, 1, 2), rows=120, span=7)
    size, origin = rng.uniform(0.4, 0.9, 3), rng.uniform(-0.5, 0.5, 3)
    how = str(rng.choice(["nearest", "linear"]))
    q = ((points - origin.astype(np.float32)) / size.astype(np.float32)).astype(np.float64)
    at, y = x.where(), np.zeros((len(points), 3))
    for p in range(n):
        low = np.floor(q[p])
        if how == "nearest":
            place = (batch[p], *np.floor(q[p] + 0.5).astype(int))
            if place in at:
                y[p] = x.feats[at[place]]
            continue
        for corner in product((0, 1), repeat=3):
            place = (batch[p], *(low + corner).astype(int))
            share = np.prod(np.where(corner, q[p] - low, 1 - (q[p] - low)))
            if place in at:
                y[p] += share * x.feats[at[place]]
    case.operation(
        "y",
        name,
        ["points", "x", "batch", "active"],
        "tensor<?x3xf32>",
        voxel_size=numbers(size),
        origin=numbers(origin),
        interpolation=f"#lattice.point_interpolation<{how}>",
    )
    case.outputs["made"] = ("y", y)


def rows_of(case, channels):
    feats = case.rng.standard_normal((20, channels)).astype(np.float32) * 3
    case.argument("f", feats, f"tensor<?x{channels}xf32>")
    return feats.astype(np.float64)


def linear(case, name):
    rng, channels, out = case.rng, int(case.rng.integers(1, 140)), int(case.rng.integers(1, 20))
    f = rows_of(case, channels)
    if rng.integers(2):
        w = case.packed("k", (out, 1, channels), "linear")[:, 0]
    else:
        w = case.weight("k", rng.standard_normal((out, channels)), "linear", "linear_o_i")
    y, operands = f @ w.T, ["f", "k"]
    if rng.integers(2):
        y = y + case.weight("b", rng.standard_normal(out), "bias", "bias_c")
        operands.append("b")
    case.operation("y", name, operands, f"tensor<?x{out}xf32>")
    case.outputs["made"] = ("y", y)


def embedding(case, name):
    rng = case.rng
    indices = rng.integers(0, 9, 30).astype(np.int32)
    case.argument("i", indices, INTS)
    dtype = str(rng.choice(["f32", "f16"]))
    table = case.weight("t", rng.standard_normal((9, 5)), "embedding", "embedding_n_c", dtype)
    case.operation("y", name, ["i", "t"], "tensor<?x5xf32>")
    case.outputs["made"] = ("y", table[indices])


def elementwise(case, name):
    f, kind = rows_of(case, 4), str(case.rng.choice(["exp", "round"]))
    if kind == "round":
        case.inputs["f"] = (np.round(f * 4) / 2).astype(np.float32)
        f = case.inputs["f"].astype(np.float64)
    case.operation("y", name, ["f"], "tensor<?x4xf32>", kind=f'"{kind}"')
    case.outputs["made"] = ("y", {"exp": np.exp, "round": np.round}[kind](f))


def softmax(case, name):
    f = rows_of(case, 6)
    axis = int(case.rng.choice([-1, 1]))
    case.operation("y", name, ["f"], "tensor<?x6xf32>", axis=f"{axis} : i64")
    e = np.exp(f - f.max(axis=1, keepdims=True))
    case.outputs["made"] = ("y", e / e.sum(axis=1, keepdims=True))


def activation(case, name):
    rng, f = case.rng, rows_of(case, 4)
    kind = str(rng.choice(["relu", "sigmoid", "gelu", "silu", "leaky_relu", "tanh", "softplus"]))
    how = str(rng.choice(["none", "precise", "tanh", "fast"]))
    ranges = ((0, 1), (0.1, 3), (-1, 4))
    alpha, beta, most = (float(np.float32(rng.uniform(*ends))) for ends in ranges)
    normal = 0.5 * (1 + np.vectorize(erf)(f / np.sqrt(2)))
    bell = 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (f + 0.044715 * f**3)))
    sigmoid = lambda v: 1 / (1 + np.exp(-v))
    gelu = {"none": normal, "precise": normal, "tanh": bell, "fast": sigmoid(1.702 * f)}[how]
    y = {
        "relu": np.maximum(f, 0),
        "sigmoid": sigmoid(f),
        "gelu": f * gelu,
        "silu": f * sigmoid(f),
        "leaky_relu": np.where(f < 0, alpha * f, f),
        "tanh": np.tanh(f),
        "softplus": np.where(beta * f > most, f, np.log1p(np.exp(beta * f)) / beta),
    }[kind]
    case.operation(
        "y",
        name,
        ["f"],
        "tensor<?x4xf32>",
        kind=f"#lattice.activation<{kind}>",
        approximate=f"#lattice.gelu_approx<{how}>",
        alpha=real(alpha),
        beta=real(beta),
        threshold=real(most),
    )
    case.outputs["made"] = ("y", y)


def norm(case, name):
    rng, f = case.rng, rows_of(case, 6)
    eps = float(np.float32(rng.choice([1e-5, 1e-13, 0.5])))
    channel = lambda n, v: case.weight(n, v, "channel", "channel_c")
    scale = channel("s", rng.standard_normal(6))
    if name == "rms_norm":
        y, operands = f / np.sqrt((f**2).mean(axis=1, keepdims=True) + eps) * scale, ["f", "s"]
    else:
        bias = case.weight("b", rng.standard_normal(6), "bias", "bias_c")
        operands = ["f", "s", "b"]
        if name == "batch_norm":
            mean, var = channel("m", rng.standard_normal(6)), channel("v", rng.uniform(0.2, 3, 6))
            operands += ["m", "v"]
        else:
            mean, var = f.mean(axis=1, keepdims=True), f.var(axis=1, keepdims=True)
        y = (f - mean) / np.sqrt(var + eps) * scale + bias
    case.operation("y", name, operands, "tensor<?x6xf32>", eps=real(eps))
    case.outputs["made"] = ("y", y)


def join(case, name):
    rng, stride = case.rng, triple(case.rng, 1, 3)
    channels = int(rng.integers(1, 9))
    a = case.sparse("a", channels, stride)
    cat = name == "sparse.cat"
    b = case.sparse("b", channels + (3 if cat else 0), stride, among=a.index)
    how = str(rng.choice(["inner", "left", "right", "outer"]))
    attributes = {"join": f"#lattice.join<{how}>"}
    op, fills = "cat", (0.0, 0.0)
    if not cat:
        op = str(rng.choice(["add", "sub", "mul", "maximum", "minimum"]))
        fills = tuple(float(np.float32(v)) for v in rng.uniform(-2, 2, 2))
        attributes |= {
            "op": f"#lattice.binary_op<{op}>",
            "lhs_fill": real(fills[0]),
            "rhs_fill": real(fills[1]),
        }
    case.operation("y", name, ["a", "b"], sparse_type(), **attributes)
    case.outputs["made"] = ("y", joined(a, b, how, op, fills))


def reindex(case, name):
    stride = triple(case.rng, 1, 3)
    a = case.sparse("a", 4, stride)
    b = case.sparse("b", 2, stride, among=a.index)
    fill, at = float(np.float32(case.rng.uniform(-2, 2))), a.where()
    y = [a.feats[at[tuple(r)]] if tuple(r) in at else np.full(4, fill) for r in b.index]
    case.operation("y", name, ["a", "b"], sparse_type(), fill=real(fill))
    case.outputs["made"] = ("y", Sparse(b.index, np.array(y), stride))


def make(case, name):
    """make, decompose and with_features, which takes other channels and another dtype."""
    del name
    x = case.sparse("x", 3, triple(case.rng, 1, 4))
    case.lines.append(
        f"%c, %f, %n = lattice.sparse.decompose %x : {sparse_type()} -> "
        f"({COORDS}, tensor<?x3xf32>, {ACTIVE})"
    )
    case.types |= {"c": COORDS, "f": "tensor<?x3xf32>", "n": ACTIVE}
    w = case.weight("k", case.rng.standard_normal((5, 3)), "linear", "linear_o_i")
    case.operation("g", "linear", ["f", "k"], "tensor<?x5xf32>")
    case.operation("y", "sparse.with_features", ["x", "g"], sparse_type())
    case.outputs["rows"] = ("c", x.index * [1, *x.stride])
    case.outputs["feats"] = ("f", x.feats)
    case.outputs["active"] = ("n", np.array([len(x.index)]))
    case.outputs["made"] = ("y", x.on(x.feats @ w.T))


MAKERS = {
    "sparse.make": make,
    "sparse.reindex": reindex,
    **dict.fromkeys(
        (
            "conv3d",
            "subm_conv3d",
            "target_conv3d",
            "conv_transpose3d",
            "target_conv_transpose3d",
            "generative_conv_transpose3d",
            "normalized_subm_conv3d",
            "normalized_conv_transpose3d",
            "target_normalized_conv_transpose3d",
            "normalized_generative_conv_transpose3d",
        ),
        convolution,
    ),
    **dict.fromkeys(("pool3d", "pool_transpose3d", "trilinear_upsample3d"), pool),
    "global_pool": global_pool,
    "voxelize": voxelize,
    "devoxelize": devoxelize,
    "linear": linear,
    "embedding_lookup": embedding,
    "elementwise": elementwise,
    "softmax": softmax,
    "activation": activation,
    **dict.fromkeys(("batch_norm", "layer_norm", "rms_norm"), norm),
    **dict.fromkeys(("sparse.binary", "sparse.cat"), join),
}


def random_case(name, rng):
    """A Case of the operation."""
    made = Case(rng)
    MAKERS[name](made, name)
    return made
