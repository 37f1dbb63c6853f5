"""The far end of large arrays: more than 2^32 elements, the last rows of which are computed.

A 32-bit product of a row and its channels would wrap there. The arrays are mapped without reserve.
"""

import mlx.core as mx
import mlx_lattice as ml
import numpy as np
import pytest
from metal.host import MetalError
from metal.host.far import Far, record, run_far
from mlx_lattice import nn, ops, points

pytestmark = pytest.mark.usefixtures("needs_host")

ROWS, CHANNELS = (1 << 26) + 64, 64  # 2^32 + 2^12 elements
RANDOM = np.random.default_rng(5)


def numbers(*shape):
    return RANDOM.standard_normal(shape).astype(np.float16)


def scene(rows=70):
    coords = np.zeros((rows, 4), np.int32)
    coords[:, 1] = np.arange(rows)
    return ml.SparseTensor(mx.array(coords), mx.array(numbers(rows, CHANNELS)))


def ints(*values):
    return np.array(values, np.int32)


def sorted_convolution(backend="metal", tensor=False):
    """Offset 26 of the last tile: position p reads row N - 1 - p and writes row N - 64 + p."""
    x, weight = scene(), mx.array(numbers(27, CHANNELS, CHANNELS))
    tier, kernel = ("neural_accelerator", "conv_tensor") if tensor else (None, "conv_tiles")
    launch = record(lambda: ops.subm_conv3d(x, weight).feats, kernel + "_sorted", tier, backend)
    rows = np.arange(ROWS - 1, ROWS - 65, -1, dtype=np.int32)
    tail, w = numbers(64, CHANNELS), np.array(weight)
    arrays = {
        "x": Far(ROWS, tail),
        "w": w,
        "words": ints(
            ROWS, 27, 1, CHANNELS, CHANNELS, CHANNELS * CHANNELS, CHANNELS, CHANNELS, 0, 0
        ),
        "map": Far(27 * ROWS, rows),
        "tile_masks": Far(ROWS // 16, np.full(4, 1 << 26, np.int32)),
        "order": Far(ROWS, rows[::-1]),
        "y": Far(ROWS, np.zeros((64, CHANNELS), np.float16)),
    }
    expected = tail[::-1].astype(np.float32) @ w[26].astype(np.float32)
    return launch, arrays, (ROWS // 64 * 128, 1, 1), 1, expected


def tensor_convolution(backend="metal"):
    return sorted_convolution(backend, tensor=True)


def convolution_by_rows(backend="metal"):
    x, weight = scene(), mx.array(numbers(27, 1, CHANNELS))
    launch = record(
        lambda: ops.subm_conv3d(x, weight, groups=CHANNELS).feats, "conv_rows", backend=backend
    )
    tail, w = numbers(64, CHANNELS), np.array(weight)
    arrays = {
        "x": Far(ROWS, tail),
        "w": w,
        "words": ints(ROWS, 27, CHANNELS, 1, 1, CHANNELS, 1, CHANNELS, 0, 0),
        "row_offsets": Far(ROWS + 1, np.arange(65, dtype=np.int32)),
        "edge_ids": np.arange(64, dtype=np.int32),
        "in_rows": np.arange(ROWS - 1, ROWS - 65, -1, dtype=np.int32),
        "kernel_ids": np.full(64, 26, np.int32),
        "y": Far(ROWS, np.zeros((64, CHANNELS), np.float16)),
    }
    expected = tail[::-1].astype(np.float32) * w[26].astype(np.float32)
    return launch, arrays, (CHANNELS, ROWS, 1), 16, expected


def packed_linear(backend="metal"):
    weight = mx.array(numbers(CHANNELS, CHANNELS))
    packed = ml.quantize_weight(weight, bits=4)
    x = mx.array(numbers(70, CHANNELS))
    launch = record(lambda: ops.linear_features(x, packed), "conv_tiles_same", backend=backend)
    tail = numbers(64, CHANNELS)
    arrays = {
        "x": Far(ROWS, tail),
        "codes": np.array(packed.weight),
        "scales": np.array(packed.scales),
        "code_biases": np.array(packed.biases),
        "words": ints(ROWS, 1, 1, CHANNELS, CHANNELS, 0, 0, 0, packed.group_size, 0),
        "y": Far(ROWS, np.zeros((64, CHANNELS), np.float16)),
    }
    dense = np.array(ops.linear_features(mx.array(tail), packed).astype(mx.float32))
    return launch, arrays, (ROWS // 64 * 128, 1, 1), 1, dense


def weight_gradient(backend="metal"):
    """40 edges of one offset, between the last rows of both sides."""
    x, weight = scene(), mx.array(numbers(27, CHANNELS, CHANNELS))
    g = mx.array(numbers(70, CHANNELS))
    launch = record(
        lambda: mx.vjp(lambda w: ops.subm_conv3d(x, w).feats, [weight], [g])[1],
        "outer_tiles",
        backend=backend,
    )
    left, right = numbers(64, CHANNELS), numbers(64, CHANNELS)
    i, o = (RANDOM.integers(0, 64, 40).astype(np.int32) for _ in range(2))
    size = CHANNELS * CHANNELS
    arrays = {
        "x": Far(ROWS, left),
        "g": Far(ROWS, right),
        "in_rows": i + (ROWS - 64),
        "out_rows": o + (ROWS - 64),
        "parts": ints(0, 0, 40, 0),
        "words": ints(1, CHANNELS, CHANNELS, size, CHANNELS, CHANNELS, 0, 0),
        "u": np.zeros((CHANNELS, CHANNELS), np.float16),
    }
    expected = left[i].astype(np.float32).T @ right[o].astype(np.float32)
    return launch, arrays, (128, 1, 1), 1, expected


def segment_sum(backend="metal"):
    """The last 16 segments have two entries each, of the last rows."""
    indices, lengths = mx.arange(40), mx.full((20,), 2)  # more than a group of threads has
    x = mx.array(numbers(40, CHANNELS))
    launch = record(
        lambda: points.indexed_segment_reduce(x, indices, lengths, "sum"),
        "segments_sum",
        backend=backend,
    )
    tail, rows = numbers(64, CHANNELS), RANDOM.integers(0, 64, 32).astype(np.int32)
    arrays = {
        "x": Far(ROWS, tail),
        "words": ints(CHANNELS, 0, 0, 0, 0, 0, 0, 0),
        "offsets": Far(ROWS + 1, np.arange(0, 34, 2, dtype=np.int32)),
        "rows": rows + (ROWS - 64),
        "out": Far(ROWS, np.zeros((16, CHANNELS), np.float16)),
    }
    expected = tail[rows].astype(np.float32).reshape(16, 2, CHANNELS).sum(1)
    return launch, arrays, (CHANNELS // 4, ROWS, 1), 1, expected


def gathered_rows(backend="metal"):
    x = mx.array(numbers(4, CHANNELS))
    lengths = mx.array([10, 20, 10, 3])
    launch = record(lambda: points.segment_expand(x, lengths), "segments_gather", backend=backend)
    tail, rows = numbers(64, CHANNELS), RANDOM.integers(0, 64, 16).astype(np.int32)
    arrays = {
        "x": Far(ROWS, tail),
        "words": ints(CHANNELS, 0, 0, 0, 0, 0, 0, 0),
        "rows": Far(ROWS, rows + (ROWS - 64)),
        "out": Far(ROWS, np.zeros((16, CHANNELS), np.float16)),
    }
    return launch, arrays, (CHANNELS // 4, ROWS, 1), 1, tail[rows]


def norm_of(backend, kernel):
    x = mx.array(numbers(600, CHANNELS))
    return record(lambda: ops.batch_norm_act(x, eps=1e-3)[0], kernel, backend=backend)


def norm_sums(backend="metal"):
    """The last part has 64 rows: their mean, what rounding left of it, the squares around it."""
    launch = norm_of(backend, "norm_parts")
    tail, parts = numbers(64, CHANNELS), -(-ROWS // 512)
    exact = tail.astype(np.float32)
    squares = ((exact - exact.mean(0)) ** 2).sum(0)
    expected = np.stack([exact.mean(0), 0 * squares, squares])[None]
    expected[..., :32] = 0  # only the last group runs, which has the last 32 channels
    arrays = {
        "x": Far(ROWS, tail),
        "words": ints(ROWS, CHANNELS, 512, 0, 0, 0, 0, 0),
        "parts": Far(parts, np.zeros((1, 3, CHANNELS), np.float32)),
    }
    return launch, arrays, (parts * 256, 2, 1), 1, expected


def norm_values(backend="metal"):
    launch = norm_of(backend, "norm_apply")
    tail = numbers(64, CHANNELS)
    channels = np.stack([numbers(CHANNELS).astype(np.float32) for _ in range(4)])
    mean, var, weight, bias = channels[0], np.abs(channels[1]) + 1, channels[2], channels[3]
    arrays = {
        "x": Far(ROWS, tail),
        "mean": mean,
        "var": var,
        "weight": weight,
        "bias": bias,
        "words": ints(ROWS, CHANNELS, 512, 0, 0, 0, 0, 0),
        "y": Far(ROWS, np.zeros((32, CHANNELS), np.float16)),
    }
    expected = (tail[32:].astype(np.float32) - mean) / np.sqrt(var) * weight + bias
    return launch, arrays, (CHANNELS // 8, ROWS, 1), 1, expected


def slopes_of(backend, kernel):
    """Of a norm with a residual and ReLU; x, g, y and mean of its last 64 rows."""
    x, added = mx.array(numbers(600, CHANNELS)), mx.array(numbers(600, CHANNELS))

    def loss(x, added):
        return ops.batch_norm_act(x, eps=1e-3, relu=True, residual=added)[0].sum()

    launch = record(lambda: mx.grad(loss, (0, 1))(x, added), kernel, backend=backend)
    rows = {name: numbers(64, CHANNELS) for name in "xgy"}
    mean = numbers(CHANNELS).astype(np.float32)
    arrays = {name: Far(ROWS, tail) for name, tail in rows.items()}
    arrays |= {"mean": mean, "words": ints(ROWS, CHANNELS, 512, 0, 0, 0, 0, 0)}
    x, g, y = (rows[name].astype(np.float32) for name in "xgy")
    return launch, arrays, np.where(y > 0, g, 0), x - mean


def norm_slope_sums(backend="metal"):
    launch, arrays, slope, away = slopes_of(backend, "norm_slope_parts")
    parts = -(-ROWS // 512)
    arrays["parts"] = Far(parts, np.zeros((1, 2, CHANNELS), np.float32))
    expected = np.stack([slope.sum(0), (slope * away).sum(0)])[None]
    expected[..., :32] = 0  # only the last group runs, which has the last 32 channels
    return launch, arrays, (parts * 256, 2, 1), 1, expected


def norm_slope_values(backend="metal"):
    launch, arrays, slope, away = slopes_of(backend, "norm_slope_apply")
    line = numbers(3, CHANNELS).astype(np.float32)
    empty = np.zeros((32, CHANNELS), np.float16)
    arrays |= {"line": line, "kept": Far(ROWS, empty), "dx": Far(ROWS, empty)}
    expected = line[0] * slope + line[1] * away + line[2]
    return launch, arrays, (CHANNELS // 8, ROWS, 1), 1, expected[32:]


def convolution_with_norm(backend="metal"):
    """As sorted_convolution, 96 columns wide; norm, residual and ReLU where the tile is stored."""
    wide, x = 96, scene()
    layer, after = nn.SubmConv3d(CHANNELS, wide, bias=False), nn.BatchNorm(wide)
    layer.set_dtype(mx.float16)
    for module in (layer, after):
        module.eval()
    added = x.replace(feats=mx.array(numbers(70, wide)))
    launch = record(
        lambda: layer.with_norm(x, after, added, True).feats, "conv_tiles_sorted96", backend=backend
    )
    rows = np.arange(ROWS - 1, ROWS - 65, -1, dtype=np.int32)
    tail, w, residual = numbers(64, CHANNELS), numbers(27, CHANNELS, wide), numbers(64, wide)
    mean, var, scale, shift = (numbers(wide).astype(np.float32) for _ in range(4))
    var = np.abs(var) + 1
    words = ints(ROWS, 27, 1, CHANNELS, wide, CHANNELS * wide, wide, wide, 0, 0)
    arrays = {"x": Far(ROWS, tail), "w": w, "words": words}
    arrays |= {"mean": mean, "var": var, "norm_weight": scale, "shift": shift}
    arrays |= {
        "residual": Far(ROWS, residual),
        "map": Far(27 * ROWS, rows),
        "tile_masks": Far(ROWS // 16, np.full(4, 1 << 26, np.int32)),
        "order": Far(ROWS, rows[::-1]),
        "y": Far(ROWS, np.zeros((64, wide), np.float16)),
    }
    product = tail[::-1].astype(np.float32) @ w[26].astype(np.float32)
    expected = (product - mean) / np.sqrt(var) * scale + shift + residual
    return launch, arrays, (ROWS // 64 * 128, 1, 1), 1, np.maximum(expected, 0)


CASES = [
    norm_slope_sums,
    norm_slope_values,
    convolution_with_norm,
    norm_sums,
    norm_values,
    sorted_convolution,
    tensor_convolution,
    convolution_by_rows,
    packed_linear,
    weight_gradient,
    segment_sum,
    gathered_rows,
]


def check(case, backend="metal", **options):
    launch, arrays, grid, last, expected = case(backend)
    found = run_far(launch, arrays, grid, last, **options).astype(np.float32)
    limit = np.abs(expected).max() * 2e-3
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=limit)


@pytest.mark.parametrize("backend", ["metal", "cuda"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_rows_beyond_2_to_the_32_elements(case, backend):
    if backend == "cuda" and case is tensor_convolution:
        pytest.skip("CUDA has no tensor operations of Metal")
    check(case, backend)


def plant(old, new):
    def change(text):
        assert old in text, f"the kernel has no place for this mistake: {old}"
        return text.replace(old, new)

    return change


PLANTS = {
    "rows of x": (
        sorted_convolution,
        "size_t(at.row) * size_t(at.stride)",
        "size_t(at.row * at.stride)",
    ),
    "rows of x, tensors": (
        tensor_convolution,
        "size_t(at.row) * size_t(at.stride)",
        "size_t(at.row * at.stride)",
    ),
    "rows of y": (
        sorted_convolution,
        "size_t(rows.out_row(row)) * size_t(sizes.groups * sizes.out)",
        "size_t(int(rows.out_row(row)) * (sizes.groups * sizes.out))",
    ),
    "rows of g": (
        weight_gradient,
        "size_t(to) * size_t(sizes.groups * out)",
        "size_t(to * (sizes.groups * out))",
    ),
    "rows of a norm": (
        norm_values,
        "size_t(row) * size_t(sizes.channels)",
        "size_t(row * sizes.channels)",
    ),
    "rows of a slope": (
        norm_slope_sums,
        "size_t(row) * size_t(sizes.channels)",
        "size_t(row * sizes.channels)",
    ),
    "rows of a segment": (segment_sum, "size_t(row) * size_t(channels)", "size_t(row * channels)"),
}


@pytest.mark.parametrize("backend", ["metal", "cuda"])
@pytest.mark.parametrize("name", PLANTS)
def test_an_index_of_32_bits_is_found_and_named(name, backend):
    case, old, new = PLANTS[name]
    if backend == "cuda" and case is tensor_convolution:
        pytest.skip("CUDA has no tensor operations of Metal")
    with pytest.raises(MetalError, match="signed integer overflow"):
        check(case, backend, variant="asan", change=plant(old, new))


def test_an_index_that_wraps_reads_other_rows():
    """A product of unsigned numbers may wrap by the rules of the language."""
    change = plant("size_t(row) * size_t(channels)", "size_t(uint(row) * uint(channels))")
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check(segment_sum, change=change)
