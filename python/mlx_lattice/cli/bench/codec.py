"""`bench entropy` and `bench codec`: our coders beside zlib, zstd, Draco and LAZ in one run.

Python itself brings zlib. The tables show zstandard, DracoPy and laspy[lazrs] if they are
installed.
"""

from __future__ import annotations

import argparse
import importlib
import io
import time
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import TypeAlias, TypeVar

import mlx.core as mx
import numpy as np

from ... import ops
from ...samples.streets import sweep
from ...training.progress import progress
from ..options import Commands, check_positive

Result = TypeVar("Result")
Coder: TypeAlias = tuple[str, Callable[[], bytes], Callable[[bytes], object]]  # encodes, decodes


def add_topics(topics: Commands) -> None:
    entropy = topics.add_parser("entropy", help="rANS and range coder against zlib and zstd")
    entropy.add_argument("--symbols", type=int, default=8_000_000, metavar="N")
    entropy.add_argument("--repeat", type=int, default=5, help="the best of so many runs counts")
    entropy.set_defaults(run=bench_entropy)
    codec = topics.add_parser("codec", help="voxel codec against zstd, LAZ and Draco")
    codec.add_argument(
        "input", nargs="*", help=".npy files of integer voxels (N, 3); default: a LiDAR-like sweep"
    )
    codec.add_argument("--voxel", type=float, default=0.1, help="voxel size of the sweep in meters")
    codec.set_defaults(run=bench_codec)


def _timed(work: Callable[[], Result], repeat: int = 1) -> tuple[Result, float]:
    """(result, best CPU seconds)"""
    best = float("inf")
    for _ in progress(range(repeat), "measuring", unit="runs"):
        begin = time.process_time()
        result = work()
        best = min(best, time.process_time() - begin)
    return result, best


def _import(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def bench_entropy(arguments: argparse.Namespace) -> None:
    check_positive(arguments, "symbols", "repeat")
    n = arguments.symbols
    prob = np.exp(-np.abs(np.arange(256) - 128) / 12.0)
    prob /= prob.sum()
    values = np.random.default_rng(0).choice(256, n, p=prob).astype(np.uint8)
    table, symbols = mx.array(prob[None].astype(np.float32)), mx.array(values.astype(np.int32))
    raw = values.tobytes()
    coders: list[Coder] = [
        (
            "rANS",
            lambda: ops.rans_encode_from_prob(table, symbols),
            lambda d: mx.eval(ops.rans_decode_from_prob(table, d)),
        ),
        (
            "range coder",
            lambda: ops.range_encode_from_prob(table, symbols),
            lambda d: mx.eval(ops.range_decode_from_prob(table, d)),
        ),
        ("zlib -6", lambda: zlib.compress(raw, 6), zlib.decompress),
    ]
    zstd = _import("zstandard")
    if zstd:
        for level in (3, 19):
            compress = partial(zstd.ZstdCompressor(level=level).compress, raw)
            coders.append((f"zstd -{level}", compress, zstd.ZstdDecompressor().decompress))
    print(
        f"{n:,} symbols of 256, one table, entropy {-(prob * np.log2(prob)).sum():.3f} bits; "
        "CPU time, one thread"
    )
    print(
        f"\n{'':12} {'bits/symbol':>12} {'encode MB/s':>12} {'decode MB/s':>12} {'/ inflate':>10}"
    )
    rows = []
    for name, encode, decode in coders:
        data, spent = _timed(encode)
        rows.append(
            (
                name,
                8 * len(data) / n,
                n / spent * 1e-6,
                n / _timed(partial(decode, data), arguments.repeat)[1] * 1e-6,
            )
        )
    inflate = rows[2][3]
    for name, bits, encode, decode in rows:
        print(f"{name:12} {bits:12.3f} {encode:12.1f} {decode:12.1f} {decode / inflate:10.2f}")


def _rivals(cells: np.ndarray) -> Iterator[Coder]:
    """Other coders, where they are installed; cells are sorted rows (N, 3)."""
    cells = cells - cells.min(0)
    zstd, draco, laspy = _import("zstandard"), _import("DracoPy"), _import("laspy")
    if zstd:
        # Columns of differences of sorted rows, which helps it most.
        columns = np.diff(cells, axis=0, prepend=0).astype(np.int32).T.copy()
        packed = columns.astype(np.int16) if np.abs(columns).max() < 2**15 else columns
        for name, values in (
            ("zstd -19 rows", cells.astype(np.int32)),
            ("zstd -19 differences", packed),
        ):
            yield (
                name,
                partial(zstd.ZstdCompressor(level=19).compress, values.tobytes()),
                lambda d: zstd.ZstdDecompressor().decompress(d),
            )
    if laspy:

        def write() -> bytes:
            header = laspy.LasHeader(point_format=0, version="1.2")
            header.scales, header.offsets = [1, 1, 1], [0, 0, 0]
            las = laspy.LasData(header)
            las.x, las.y, las.z = cells.T
            file = io.BytesIO()
            las.write(file, do_compress=True)
            return file.getvalue()

        yield "LAZ", write, lambda d: laspy.read(io.BytesIO(d))
    if draco:
        bits = max(1, int(cells.max()).bit_length())
        for level in (1, 7):  # kd-tree mode, as for every cloud without given order
            yield (
                f"Draco kd-tree, level {level}",
                partial(
                    draco.encode,
                    cells.astype(np.float32),
                    quantization_bits=bits,
                    compression_level=level,
                    quantization_range=float(2**bits - 1),
                    quantization_origin=[0.0] * 3,
                ),
                draco.decode,
            )


def bench_codec(arguments: argparse.Namespace) -> None:
    scenes = [(path, np.load(path)) for path in arguments.input]
    if not scenes:
        check_positive(arguments, "voxel")
        scenes = [("sweep", np.floor(sweep(1) / arguments.voxel).astype(np.int32))]
    for name, cells in scenes:
        if cells.ndim != 2 or cells.shape[1] != 3 or cells.dtype.kind not in "iu" or not len(cells):
            raise ValueError(
                f"{name}: found {cells.dtype} of shape {cells.shape}, expected integers (N, 3)"
            )
        cells = np.unique(cells, axis=0)  # sorted by x, y, z
        coords = mx.array(np.concatenate([np.zeros((len(cells), 1)), cells], 1).astype(np.int32))
        print(f"\n{name}: {len(cells):,} voxels; CPU time")
        print(f"{'':24} {'bits/voxel':>10} {'encode s':>9} {'decode s':>9}")
        ours: Coder = ("mlx_lattice", partial(ops.encode_points, coords), ops.decode_points)
        for coder, encode, decode in (ours, *_rivals(cells)):
            data, spent = _timed(encode, 2)
            bits, decoding = 8 * len(data) / len(cells), _timed(partial(decode, data), 2)[1]
            print(f"{coder:24} {bits:10.3f} {spent:9.3f} {decoding:9.3f}", flush=True)
