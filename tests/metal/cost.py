"""What the Metal kernels cost, counted while the host runs them.

`PYTHONPATH=tests python -m metal.cost` prints the table of docs/metal.md. No number here is a time.

FLOP and bytes of an output value come from the accesses of the kernel's own text. The share of the
bandwidth is a roofline: bytes / (bytes per second) against FLOP / (FLOP per second) of an M2 with
10 cores, whose figures are below.
"""

import os
from dataclasses import dataclass

import mlx.core as mx
import mlx_lattice as ml
import numpy as np
from mlx_lattice import _ext, ops, points

from .host import MetalHost

BANDWIDTH, PEAK = (
    100e9,
    3.6e12,
)  # bytes and float32 operations a second: Apple's figures of M2, June 2022
CORE_MEMORY, CORE_THREADS = (
    60 * 1024,
    3072,
)  # of a core, measured by P. Turner, metal-benchmarks; not published by Apple
SIDE, CHANNELS, DTYPE = 48, 64, mx.float16


@dataclass
class Cost:
    operation: str
    route: str
    kernel: str
    threads: int
    memory: int
    outputs: int
    flop: float  # that the operation needs
    executed: float  # with what tiles add
    touched: int
    accessed: int

    @property
    def occupancy(self):
        """Threads of a core that threadgroup memory leaves, of those it can hold.

        Registers may leave fewer.
        """
        if self.memory == 0:
            return 1.0
        return min(1.0, CORE_MEMORY // self.memory * self.threads / CORE_THREADS)

    @property
    def bandwidth_share(self):
        return min(1.0, (self.touched / BANDWIDTH) / max(self.executed / PEAK, 1e-30))


def surface():
    """A rough floor of SIDE x SIDE voxels: about 9 to 10 neighbors per row, as in a street scan."""
    random = np.random.default_rng(0)
    x, y = (a.reshape(-1) for a in np.meshgrid(np.arange(SIDE), np.arange(SIDE), indexing="ij"))
    z = np.round(2 * np.sin(x / 7) + random.random(x.size)).astype(int)
    coords = np.stack([np.zeros_like(x), x, y, z], 1)
    return ml.SparseTensor(
        mx.array(random.permutation(coords).astype(np.int32)), numbers((x.size, CHANNELS))
    )


def numbers(*shape, seed=1):
    shape = shape[0] if isinstance(shape[0], tuple) else shape
    return mx.array(np.random.default_rng(seed).standard_normal(shape).astype(np.float32)).astype(
        DTYPE
    )


def cases():
    """(operation, route, call, a call whose launches do not count)"""
    x = surface()
    n = x.feats.shape[0]
    weight = numbers(27, CHANNELS, CHANNELS)
    packed = ml.quantize_weight(weight, bits=4)
    matrix = ml.quantize_weight(numbers(CHANNELS, CHANNELS), bits=4)
    y = numbers(n, CHANNELS)
    place = x.coords[:, 1:].astype(mx.float32) + 0.3  # points between the voxels
    edges = mx.array(np.random.default_rng(2).integers(0, n, 8 * n).astype(np.int32))
    each, few = numbers(512, 1, 16, 16), edges[:512]

    def convolve():
        return ops.subm_conv3d(x, weight).feats

    def of_weight():
        return mx.vjp(lambda w: ops.subm_conv3d(x, w).feats, [weight], [y])[1]

    def apply(a, b):
        return points.sparse_matrix_vector_multiplication_reduction(a, None, b, few, few, n)

    yield from (("conv", f"metal.{name}", convolve) for name in ("sorted", "tiles", "rows"))
    yield "conv", "metal.buckets", convolve
    yield "conv", "metal.packed_sorted", lambda: ops.subm_conv3d(x, packed).feats
    yield "linear", "metal.packed", lambda: ops.linear_features(x.feats, matrix)
    yield from (("outer", f"metal.{name}", of_weight, convolve) for name in ("outer", "rows"))
    yield "pool", "metal.rows", lambda: ops.pool3d(x, mode="max", kernel_size=2, stride=2).feats
    sixteen = mx.full((n // 16,), 16, mx.int32)
    yield "segments", "metal.rows", lambda: points.segment_reduce(x.feats, sixteen, "sum")
    yield "map_rows", "metal.rows", lambda: ops.devoxelize(place, x, 1.0)
    yield "gather", "metal.rows", lambda: points.segment_expand(x.feats[: n // 16], sixteen)

    def largest(feats):
        return points.segment_reduce(feats, sixteen, "max", ties="first")

    of_largest = lambda: mx.vjp(largest, [x.feats], [x.feats[: n // 16]])[1]
    yield "argmax", "metal.rows", of_largest, lambda: largest(x.feats)
    few_points = place[:256]
    yield "distance", "metal.tiles", lambda: points.indexed_distance(few_points, few_points)
    yield "unique", "metal.hash", lambda: ops.union_coords(x.coords, x.coords)
    yield "lookup", "metal.hash", lambda: ops.lookup_coords(x.coords, x.coords)
    yield (
        "relate",
        "metal.hash",
        lambda: ops.build_submanifold_kernel_relation(x.coords, kernel_size=3).edges.in_rows,
    )
    yield "neighbors", "metal.brute", lambda: ops.build_knn_relation(few_points, k=8).distances
    forward = lambda: apply(each, numbers(n, 1, 16))
    yield "per_edge_apply", "metal.rows", forward
    yield (
        "per_edge_outer",
        "metal.rows",
        lambda: mx.vjp(lambda a: apply(a, numbers(n, 1, 16)), [each], [numbers(n, 1, 16)])[1],
        forward,
    )


def measure(operation, route, call, other=None):
    """Runs the call on the host that counts, and adds up its launches but those of `other`."""
    os.environ["LATTICE_ROUTE"] = f"{operation}={route}"
    try:
        with MetalHost() as host:
            mx.eval(other() if other else [])
        names = {ran.name for ran in host.launches}
        with MetalHost("check", timeout=600) as host, _ext.DecisionLog() as log:
            mx.eval(call())
    finally:
        del os.environ["LATTICE_ROUTE"]
    decision = next(d for d in log.decisions if (d.operation, d.route) == (operation, route))
    launches = [ran for ran in host.launches if ran.name not in names]
    main = max(launches, key=lambda ran: ran.device_bytes)
    matrices = sum(ran.matrix_flop for ran in launches)
    outputs = int(np.prod(launches[-1].outputs[0]))
    return Cost(
        operation,
        route,
        main.name.removeprefix("custom_kernel_").split("__")[0],
        int(np.prod(main.threadgroup)),
        main.threadgroup_bytes,
        outputs,
        decision.flop,
        matrices or decision.flop,
        sum(ran.touched_bytes for ran in launches),
        sum(ran.device_bytes for ran in launches),
    )


def table(costs):
    lines = [
        "| operation | route | threads | threadgroup memory | occupancy | FLOP / output "
        "| bytes / output | all accesses | executed FLOP | FLOP / byte | share of bandwidth |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for c in costs:
        executed = f"{c.executed / c.flop:.2f} x" if c.flop else "-"
        # Only the reads of tables and searches are counted, so that their share stays open.
        geometry = c.operation in {"unique", "lookup", "relate", "neighbors"}
        share = (
            "-"
            if geometry
            else f"{c.bandwidth_share:.0%} "
            + ("(memory)" if c.bandwidth_share == 1 else "(arithmetic)")
        )
        lines.append(
            f"| {c.operation} | `{c.route}` | {c.threads} | {c.memory:,} B | {c.occupancy:.0%} "
            f"| {c.flop / c.outputs:,.1f} "
            f"| {c.touched / c.outputs:,.2f} B | {c.accessed / c.outputs:,.1f} B | {executed} "
            f"| {c.flop / c.touched:,.1f} | {share} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table([measure(*case) for case in cases()]))
