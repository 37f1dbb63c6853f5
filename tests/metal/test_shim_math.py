"""Functions of the shim on numbers and vectors, each against NumPy in float64."""

import mlx.core as mx
import numpy as np
import pytest
from metal.host.capture import run

pytestmark = pytest.mark.usefixtures("needs_host")

FLOATS = {"float": mx.float32, "half": mx.float16, "bfloat": mx.bfloat16}
# An error of 1 in the last place, 2 of float.
DIGITS = {"float": 2.0**-22, "half": 2.0**-10, "bfloat": 2.0**-7}
INTS = {"char": np.int8, "uchar": np.uint8, "short": np.int16, "ushort": np.uint16}
INTS |= {"int": np.int32, "uint": np.uint32, "long": np.int64, "ulong": np.uint64}
N = 33

# name: (formula, smallest and largest argument)
UNARY = {
    "acos": (np.arccos, -1, 1),
    "acosh": (np.arccosh, 1, 9),
    "asin": (np.arcsin, -1, 1),
    "asinh": (np.arcsinh, -9, 9),
    "atan": (np.arctan, -9, 9),
    "atanh": (np.arctanh, -0.9, 0.9),
    "ceil": (np.ceil, -9, 9),
    "cos": (np.cos, -3, 3),
    "cosh": (np.cosh, -3, 3),
    "cospi": (lambda v: np.cos(np.pi * v), -1, 1),
    "exp": (np.exp, -4, 4),
    "exp10": (lambda v: 10.0**v, -2, 2),
    "exp2": (np.exp2, -5, 5),
    "fabs": (np.abs, -9, 9),
    "floor": (np.floor, -9, 9),
    "fract": (lambda v: v - np.floor(v), -9, 9),
    "log": (np.log, 0.1, 9),
    "log10": (np.log10, 0.1, 9),
    "log2": (np.log2, 0.1, 9),
    "rint": (np.rint, -9, 9),
    "round": (lambda v: np.trunc(v + np.copysign(0.5, v)), -9, 9),
    "rsqrt": (lambda v: v**-0.5, 0.1, 9),
    "saturate": (lambda v: np.clip(v, 0, 1), -2, 2),
    "sign": (np.sign, -2, 2),
    "sin": (np.sin, -3, 3),
    "sinh": (np.sinh, -3, 3),
    "sinpi": (lambda v: np.sin(np.pi * v), -1, 1),
    "sqrt": (np.sqrt, 0, 9),
    "tan": (np.tan, -1, 1),
    "tanh": (np.tanh, -3, 3),
    "tanpi": (lambda v: np.tan(np.pi * v), -0.4, 0.4),
    "trunc": (np.trunc, -9, 9),
}
BINARY = {
    "atan2": (np.arctan2, -3, 3),
    "copysign": (np.copysign, -3, 3),
    "divide": (np.divide, 1, 9),
    "fmax": (np.fmax, -3, 3),
    "fdim": (lambda v, w: np.maximum(v - w, 0), -3, 3),
    "fmin": (np.fmin, -3, 3),
    "fmod": (np.fmod, 1, 9),
    "pow": (np.power, 0.5, 2),
    "powr": (np.power, 0.5, 2),
    "step": (lambda v, w: (w >= v) * 1.0, -3, 3),
    "max": (np.maximum, -3, 3),
    "min": (np.minimum, -3, 3),
}


def middle(a, b, c):
    return a + b + c - np.maximum(np.maximum(a, b), c) - np.minimum(np.minimum(a, b), c)


TERNARY = {
    "fma": lambda a, b, c: a * b + c,
    "fmax3": lambda a, b, c: np.maximum(np.maximum(a, b), c),
    "fmin3": lambda a, b, c: np.minimum(np.minimum(a, b), c),
    "fmedian3": middle,
}
OF_HALF = {
    "mix": lambda a, b, c: a + (b - a) * c,
    "max3": TERNARY["fmax3"],
    "min3": TERNARY["fmin3"],
    "median3": middle,
}


def table(expressions, arrays, kind, rows, out=None):
    """Row r of the result is expressions[r] of rows r of a, b and c, and of the index i."""
    body = "\n".join(
        "{ "
        + " ".join(f"const {kind} {n} = {n}s[{r * N}u + i];" for n in arrays)
        + f" out[{r * N}u + i] = {e}; }}"
        for r, e in enumerate(expressions)
    )
    inputs = {f"{name}s": array for name, array in arrays.items()}
    (result,) = run(
        f"const uint i = thread_position_in_grid.x;\n{body}",
        inputs,
        {"out": ((rows, N), out or arrays["a"].dtype)},
        N,
    )
    return np.array(result.astype(mx.float32) if result.dtype == mx.bfloat16 else result)


def sample(rows, kind, low, high):
    """Numbers that the type holds, and the same in float64."""
    low, high = np.broadcast_to(low, rows)[:, None], np.broadcast_to(high, rows)[:, None]
    values = mx.array(
        np.random.default_rng(1).uniform(low, high, (rows, N)).astype(np.float32)
    ).astype(FLOATS[kind])
    return values, np.array(values.astype(mx.float32)).astype(np.float64)


def close(found, expected, kind, name="", digits=2):
    error = DIGITS[kind]
    found = found.astype(np.float64)
    np.testing.assert_allclose(found, expected, digits * error, 4 * error, err_msg=name)


@pytest.mark.parametrize("kind", FLOATS)
def test_one_argument(kind):
    formulas, low, high = zip(*UNARY.values())
    a, exact = sample(len(UNARY), kind, low, high)
    found = table([f"metal::{name}(a)" for name in UNARY], {"a": a}, kind, len(UNARY))
    for name, formula, row, x in zip(UNARY, formulas, found, exact):
        with np.errstate(all="ignore"):
            expected = formula(x)
        close(row, expected, kind, name)


@pytest.mark.parametrize("kind", FLOATS)
def test_two_and_three_arguments(kind):
    names = [*BINARY, *TERNARY, *(OF_HALF if kind != "bfloat" else [])]
    low, high = zip(*[BINARY.get(name, (None, -2, 2))[1:] for name in names])
    (a, x), (b, y), (c, z) = (sample(len(names), kind, low, high) for _ in range(3))
    a, x = a[:, ::-1], x[:, ::-1]  # all three differ
    c, z = (mx.roll(c, 5, axis=1), np.roll(z, 5, axis=1))
    calls = [f"metal::{n}(a, b)" if n in BINARY else f"metal::{n}(a, b, c)" for n in names]
    found = table(calls, {"a": mx.contiguous(a), "b": b, "c": c}, kind, len(names))
    for r, name in enumerate(names):
        if name in BINARY:
            expected = BINARY[name][0](x[r], y[r])
        else:
            expected = (TERNARY | OF_HALF)[name](x[r], y[r], z[r])
        close(found[r], expected, kind, name)


def test_parts_of_a_float():
    a, x = sample(4, "float", -9, 9)
    x = x.astype(np.float32)
    calls = ["ldexp(a, 3)", "frexp(a, e) + 8 * e", "modf(a, w) + 100 * w", "nextafter(a, 99.0f)"]
    found = table(
        [f"({{ int e = 0; float w = 0; metal::{c}; }})" for c in calls], {"a": a}, "float", 4
    )
    mantissa, exponent = np.frexp(x[1])
    part, whole = np.modf(x[2])
    np.testing.assert_array_equal(found[0], x[0] * 8)
    np.testing.assert_allclose(found[1], mantissa + 8 * exponent, rtol=1e-6)
    np.testing.assert_allclose(found[2], part + 100 * whole, rtol=1e-6)
    np.testing.assert_array_equal(found[3], np.nextafter(x[3], np.float32(99)))


@pytest.mark.parametrize("kind", ["float", "half"])
def test_kinds_of_numbers(kind):
    special = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 6e-8] * 4 + [2], np.float32)
    x = mx.array(np.stack([special] * 5)).astype(FLOATS[kind])
    names = ["isfinite", "isinf", "isnan", "isnormal", "signbit"]
    found = table([f"metal::{n}(a) ? 1 : 0" for n in names], {"a": x}, kind, 5)
    x = np.array(x)[0]
    normal = np.isfinite(x) & (np.abs(x) >= np.finfo(x.dtype).tiny)
    for row, expected in zip(
        found, [np.isfinite(x), np.isinf(x), np.isnan(x), normal, np.signbit(x)]
    ):
        np.testing.assert_array_equal(row != 0, expected)


def test_precise_and_fast_are_names_of_the_same():
    a, x = sample(4, "float", 0.5, 2)
    calls = "metal::precise::exp(a); metal::fast::exp(a); precise::max(a, 1.0f); fast::min(a, 1.0f)"
    found = table(calls.split("; "), {"a": a}, "float", 4)
    expected = [np.exp(x[0]), np.exp(x[1]), np.maximum(x[2], 1), np.minimum(x[3], 1)]
    close(found, np.stack(expected), "float", digits=1)


@pytest.mark.parametrize("kind", ["float", "half"])
def test_geometry(kind):
    (a, x), (b, y), (c, z) = (sample(7, kind, *r) for r in ((0.5, 1), (-1, 1), (1, 2)))
    u, v = f"{kind}3(a, b, c)", f"{kind}3(c, a, b)"
    names = ["dot", "distance", "distance_squared"]
    calls = [f"metal::{n}({u}, {v})" for n in names]
    calls += [f"metal::{n}({u})" for n in ("length", "length_squared")]
    calls += [f"metal::normalize({u}).z", f"metal::cross({u}, {v}).y"]
    found = table(calls, {"a": a, "b": b, "c": c}, kind, 7)
    u, v = np.stack([x, y, z], -1), np.stack([z, x, y], -1)
    square, length = ((u - v) ** 2).sum(-1), (u**2).sum(-1)
    expected = [(u * v).sum(-1)[0], square[1] ** 0.5, square[2], length[3] ** 0.5, length[4]]
    expected += [(z / length**0.5)[5], np.cross(u, v)[6, :, 1]]
    np.testing.assert_allclose(
        found.astype(np.float64), np.stack(expected), rtol=4 * DIGITS[kind], atol=8 * DIGITS[kind]
    )


@pytest.mark.parametrize("kind", [*FLOATS, "int", "uchar", "ulong"])
def test_vectors(kind):
    """Construction from parts, conversion, swizzles, and functions that work on each component."""
    values = np.arange(1, 1 + 12 * N).reshape(12, N) % 100
    whole = kind not in FLOATS
    array = mx.array(values.astype(INTS[kind])) if whole else mx.array(values).astype(FLOATS[kind])
    v2, v3, v4, one = f"{kind}2", f"{kind}3", f"{kind}4", f"{kind}(1)"
    calls = [
        f"{v4}(a, {v2}(b, c), a).z",
        f"{v3}({v2}(a, b), c).y",
        f"vec<{kind}, 4>(a).w",
        f"{v4}(a, b, c, a).xzyw.y",
        f"{kind}(float4(a, b, c, a).z)",
        f"metal::max({v2}(a, b), {v2}(c, c)).x",
        f"metal::min({v2}(a, b), {v2}(c, c)).y",
        f"metal::clamp({v2}(a, b), {v2}(b, b), {v2}(c, c)).x",
        f"metal::select({v2}(a, b), {v2}(c, a), bool2(true, false)).x",
        "metal::any(int3(a > b, b > c, c > a)) ? a : b",
        f"metal::all({v3}(a, b, c) == {v3}(a, b, c)) ? a : b",
        f"metal::select(a, b, a > c) + static_cast<{v2}>(float2(1.0f, 2.0f)).y - {one} - {one}",
    ]
    turned, rolled = array[:, ::-1], mx.roll(array, 7, axis=1)
    arrays = {"a": array, "b": mx.contiguous(turned), "c": mx.contiguous(rolled)}
    found = table(calls, arrays, kind, 12)
    a, b, c = (np.array(arrays[n].astype(mx.float32)).astype(np.float64) for n in "abc")
    clamped, cyclic = np.minimum(np.maximum(a, b), c)[7], (a > b) | (b > c) | (c > a)
    expected = [c[0], b[1], a[2], c[3], c[4], np.maximum(a, c)[5], np.minimum(b, c)[6], clamped]
    expected += [c[8], np.where(cyclic, a, b)[9], a[10], np.where(a > c, b, a)[11]]
    np.testing.assert_array_equal(found.astype(np.float64), np.stack(expected))


def test_bits_as_another_type():
    a, x = sample(3, "float", -9, 9)
    calls = [
        "as_type<int>(a)",
        "int(as_type<ushort2>(a).y)",
        "as_type<int>(as_type<float>(as_type<uint>(a)))",
    ]
    found = table(calls, {"a": a}, "float", 3, out=mx.int32)
    bits = x.astype(np.float32).view(np.int32)
    np.testing.assert_array_equal(
        found, np.stack([bits[0], bits[1].view(np.uint32) >> 16, bits[2]])
    )


@pytest.mark.parametrize("kind", INTS)
def test_integers(kind):
    dtype = np.dtype(INTS[kind])
    bits, info = 8 * dtype.itemsize, np.iinfo(dtype)
    rng = np.random.default_rng(2)
    a, b, c = (rng.integers(info.min, info.max, (14, N), dtype, endpoint=True) for _ in range(3))
    a[:, :3] = [info.min, info.max, 0]
    calls = (
        "min(a, b); max(a, b); clamp(a, min(b, c), max(b, c)); abs(a); min3(a, b, c); "
        "max3(a, b, c); median3(a, b, c); popcount(a); clz(a); ctz(a); reverse_bits(a); "
        f"rotate(a, {kind}(3)); extract_bits(a, 2u, 5u); insert_bits(a, b, 3u, 4u)"
    )
    calls = calls.split("; ")
    arrays = {n: mx.array(v) for n, v in zip("abc", (a, b, c))}
    found = table([f"metal::{call}" for call in calls], arrays, kind, 14)
    x, y, z = (np.vectorize(int, otypes=[object])(v) for v in (a, b, c))
    mask = (1 << bits) - 1
    text = np.vectorize(lambda v: f"{v & mask:0{bits}b}", otypes=[object])(x)
    cut = (x & mask) >> 2 & 31
    expected = [
        np.minimum(x, y),
        np.maximum(x, y),
        middle(x, y, z),
        abs(x),
        np.minimum(np.minimum(x, y), z),
        np.maximum(np.maximum(x, y), z),
        middle(x, y, z),
        each(text, lambda t: t.count("1")),
        each(text, lambda t: len(t) - len(t.lstrip("0"))),
        each(text, lambda t: len(t) - len(t.rstrip("0"))),
        each(text, lambda t: int(t[::-1], 2)),
        each(text, lambda t: int(t[3:] + t[:3], 2)),
        cut - 32 * ((cut >= 16) & (info.min < 0)),
        (x & ~0x78) | (y << 3 & 0x78),
    ]
    for r, call in enumerate(calls):
        np.testing.assert_array_equal(
            each(found[r], int) & mask, expected[r][r] & mask, err_msg=call
        )


def each(values, function):
    return np.vectorize(function, otypes=[object])(values)


@pytest.mark.parametrize("kind", ["int", "uint", "ulong"])
def test_wide_products_and_differences(kind):
    dtype = np.dtype(INTS[kind])
    info, bits = np.iinfo(dtype), 8 * dtype.itemsize
    rng = np.random.default_rng(3)
    a, b = (rng.integers(info.min, info.max, (2, N), dtype, endpoint=True) for _ in range(2))
    calls = ["metal::mulhi(a, b)", "a" if kind == "ulong" else f"{kind}(metal::absdiff(a, b))"]
    found = table(calls, {"a": mx.array(a), "b": mx.array(b)}, kind, 2)
    wide = [
        [int(x) * int(y) >> bits for x, y in zip(a[0], b[0])],
        [abs(int(x) - int(y)) for x, y in zip(a[1], b[1])],
    ]
    np.testing.assert_array_equal(found[0].astype(object), np.array(wide[0], object))
    if kind != "ulong":
        np.testing.assert_array_equal(
            found[1].astype(np.uint32).astype(object), np.array(wide[1], object)
        )


@pytest.mark.parametrize("kind", [*FLOATS, *INTS])
def test_limits(kind):
    names = ["min", "max", "lowest"] + (
        ["epsilon", "infinity", "quiet_NaN", "denorm_min"] if kind in FLOATS else []
    )
    dtype = FLOATS.get(kind) or mx.array(np.zeros(1, INTS[kind])).dtype
    x = mx.zeros((len(names), N), dtype)
    found = table(
        [f"metal::numeric_limits<{kind}>::{n}()" for n in names], {"a": x}, kind, len(names)
    )[:, 0]
    if kind in INTS:
        info = np.iinfo(INTS[kind])
        np.testing.assert_array_equal(found, [info.min, info.max, info.min])
        return
    info = mx.finfo(dtype)
    tiny, eps = {"float": (-126, -23), "half": (-14, -10), "bfloat": (-126, -7)}[kind]
    expected = [2.0**tiny, info.max, info.min, 2.0**eps, np.inf, np.nan, 2.0 ** (tiny + eps)]
    np.testing.assert_array_equal(found.astype(np.float64), expected)
