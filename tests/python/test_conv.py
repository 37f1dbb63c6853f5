"""Convolutions from Python: values against the oracle, derivatives, compile, modules, errors."""

import inspect

import mlx.core as mx
import mlx.nn
import mlx.optimizers as optim
import mlx_lattice as ml
import numpy as np
import pytest
from mlx_lattice import nn, ops
from scenes import tensor

DTYPES = [mx.float32, mx.float16, mx.bfloat16]


def weights(*shape, dtype=mx.float32, seed=1):
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32) / 8
    return mx.array(values).astype(dtype)


def exact(a):
    return np.array(a.astype(mx.float32), dtype=np.float64)


def by_edges(relation, x, w, bias=None):
    """The formula, edge by edge, in float64."""
    y = np.zeros((relation.n_out, w.shape[2]))
    edges = relation.edges
    for i, o, k in zip(*(np.array(a) for a in (edges.in_rows, edges.out_rows, edges.kernel_ids))):
        y[o] += exact(x)[i] @ exact(w)[k]
    return y if bias is None else y + exact(bias)


CALLS = {
    "forward": (
        lambda x, w, **k: ops.conv3d(x, w, kernel_size=2, stride=2, **k),
        8,
        lambda x: ops.kernel_relation(x, kernel_size=2, stride=2),
    ),
    "same": (lambda x, w, **k: ops.conv3d(x, w, **k), 27, lambda x: ops.kernel_relation(x)),
    "submanifold": (
        lambda x, w, **k: ops.subm_conv3d(x, w, **k),
        27,
        lambda x: ops.submanifold_kernel_relation(x),
    ),
    "transposed": (
        lambda x, w, **k: ops.conv_transpose3d(x, w, **k),
        8,
        lambda x: ops.transposed_kernel_relation(x, kernel_size=2, stride=2),
    ),
    "generative": (
        lambda x, w, **k: ops.generative_conv_transpose3d(x, w, **k),
        8,
        lambda x: ops.generative_kernel_relation(x, kernel_size=2, stride=2),
    ),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_values(name, dtype):
    call, k, relation = CALLS[name]
    x, w, b = (
        tensor(dtype=dtype, stride=2),
        weights(k, 5, 7, dtype=dtype),
        weights(7, dtype=dtype, seed=2),
    )
    expected = by_edges(relation(x), x.feats, w, b)
    y = call(x, w, bias=b)
    tolerance = {mx.float32: 1e-5, mx.float16: 1e-3, mx.bfloat16: 8e-3}[dtype]
    assert y.feats.dtype == dtype
    np.testing.assert_allclose(exact(y.feats), expected, rtol=tolerance, atol=tolerance)


def test_target_coordinates_in_all_forms():
    x = tensor(seed=3)
    target = tensor(seed=4, n=50)
    w = weights(27, 5, 6)
    by_array = ops.conv3d(x, w, coordinates=target.coords)
    by_tensor = ops.conv3d(x, w, coordinates=target)
    by_key = ops.conv3d(x, w, coordinates=by_array.coord_key)
    assert by_array.coords is by_key.coords or by_array.same_coords(by_key)
    assert mx.array_equal(by_array.feats, by_tensor.feats) and mx.array_equal(
        by_array.feats, by_key.feats
    )
    assert by_array.feats.shape == (target.feats.shape[0], 6)


def test_groups_equal_separate_convolutions():
    x, w = tensor(channels=6), weights(27, 3, 8)
    y = ops.subm_conv3d(x, w, groups=2)
    parts = [
        ops.subm_conv3d(
            x.replace(feats=x.feats[:, 3 * g : 3 * g + 3]), w[:, :, 4 * g : 4 * g + 4]
        ).feats
        for g in range(2)
    ]
    assert mx.allclose(y.feats, mx.concatenate(parts, 1), atol=1e-6)


@pytest.mark.parametrize("name", CALLS)
def test_gradients_match_finite_differences(name):
    call, k, _ = CALLS[name]
    x, w, b = tensor(n=30, channels=3, stride=2), weights(k, 3, 4), weights(4, seed=5)

    def loss(feats, w, b):
        return (call(x.replace(feats=feats), w, bias=b).feats ** 2).sum()

    grads = mx.grad(loss, argnums=(0, 1, 2))(x.feats, w, b)
    rng = np.random.default_rng(6)
    for index, (value, grad) in enumerate(zip((x.feats, w, b), grads)):
        step = mx.array(rng.standard_normal(value.shape).astype(np.float32))
        h = 1e-2

        def at(t):
            args = [x.feats, w, b]
            args[index] = value + t * step
            return loss(*args).item()

        difference = (at(h) - at(-h)) / (2 * h)  # exact for a quadratic
        assert abs((grad * step).sum().item() - difference) <= 2e-3 * (abs(difference) + 1)


def test_second_order_and_jvp_and_compile():
    x, w = tensor(n=30, channels=3), weights(27, 3, 4)

    def loss(w):
        return (ops.subm_conv3d(x, w).feats ** 2).sum()

    # The loss is quadratic in w, so that H v = grad(v) - grad(0) = grad(v).
    v = weights(27, 3, 4, seed=9)
    hv = mx.grad(lambda w: (mx.grad(loss)(w) * v).sum())(w)
    assert mx.allclose(hv, mx.grad(loss)(v), rtol=1e-3, atol=1e-3)
    _, tangents = mx.jvp(loss, [w], [v])
    assert abs(tangents[0].item() - (mx.grad(loss)(w) * v).sum().item()) < 1e-2
    for compiled in (mx.compile(mx.grad(loss)), mx.grad(mx.compile(loss))):
        assert mx.allclose(compiled(w), mx.grad(loss)(w), rtol=1e-5, atol=1e-5)


def test_the_gradient_of_a_constant_is_left_out_and_no_other():
    x, w = tensor(), mx.random.normal((4, 3, 3, 3, 5))

    def loss(feats, of=lambda f: f):
        return (ops.subm_conv3d(x.replace(feats=of(feats)), w).feats ** 2).sum()

    def evaluated(f):
        mx.eval(f)
        return f

    plain = mx.grad(loss)(x.feats)
    assert mx.abs(plain).max() > 0
    for of in (evaluated, lambda f: f.astype(mx.float32), lambda f: evaluated(f * 1) + 0):
        assert mx.array_equal(mx.grad(lambda f: loss(f, of))(x.feats), plain)
    assert mx.array_equal(mx.grad(mx.checkpoint(loss))(x.feats), plain)


def test_traced_coordinates_and_vmap_are_errors():
    x, w = tensor(), weights(27, 5, 5)
    with pytest.raises(ValueError, match="traced"):
        mx.compile(lambda c: ops.subm_conv3d(ml.SparseTensor(c, x.feats), w).feats)(x.coords)
    with pytest.raises(ValueError, match="vmap"):
        mx.eval(
            mx.vmap(lambda f: ops.subm_conv3d(x.replace(feats=f), w).feats)(mx.stack([x.feats] * 2))
        )


def test_empty_tensor():
    x = ml.SparseTensor(mx.zeros((0, 4), mx.int32), mx.zeros((0, 5)))
    w = weights(27, 5, 6)
    assert ops.subm_conv3d(x, w).feats.shape == (0, 6)
    assert mx.array_equal(mx.grad(lambda w: ops.conv3d(x, w).feats.sum())(w), mx.zeros_like(w))


@pytest.mark.parametrize(
    "bad",
    [
        lambda x: ops.subm_conv3d(x, weights(8, 5, 6), kernel_size=2),
        lambda x: ops.subm_conv3d(x, weights(27, 4, 6)),
        lambda x: ops.subm_conv3d(x, weights(27, 5, 6, dtype=mx.float16)),
        lambda x: ops.subm_conv3d(x, weights(27, 5, 6), weights(5)),
        lambda x: ops.subm_conv3d(x, weights(27, 5, 6), groups=2),
        lambda x: ops.subm_conv3d(x, weights(27, 5, 6).astype(mx.int32)),
        lambda x: ops.conv3d(x, weights(6, 3, 3, 2, 5)),
        lambda x: ops.conv3d(x, weights(27, 5, 6), stride=0),
        lambda x: ops.conv3d(x, weights(27, 5, 6), coordinates=tensor(stride=2)),
        lambda x: ops.conv3d(x, weights(27, 5, 6), coordinates=tensor().coord_key),
        lambda x: ops.conv_transpose3d(x, weights(8, 5, 6)),
        lambda x: ops.normalized_subm_conv3d(x, weights(27, 5, 6), eps=0),
        lambda x: ops.linear(x, weights(6, 4)),
    ],
)
def test_bad_values(bad):
    with pytest.raises(ValueError, match=r"\["):
        bad(tensor())


def test_bad_types():
    x, w = tensor(), weights(27, 5, 6)
    for call in (
        lambda: ops.conv3d(x, w, kernel_size=1.5),
        lambda: ops.conv3d(x, w, stride=True),
        lambda: ops.conv3d(x, w, coordinates="here"),
        lambda: ops.conv3d(x, None),
    ):
        with pytest.raises(TypeError):
            call()


def test_explain_and_routes(monkeypatch):
    x, w = tensor(), weights(27, 5, 6)
    told = ml.explain(ops.subm_conv3d, x, w)
    assert told.routes == [("relate", "cpu.sorted"), ("conv", "cpu.tiles")]
    for word in (
        "device",
        "family",
        "relation",
        "storage",
        "shape and dtype",
        "capability",
        "edges",
        "FLOP",
    ):
        assert word in str(told)
    names = {(r.operation, r.name) for r in ml.routes()}
    assert ("conv", "cpu.tiles") in names and ("conv", "cpu.reference") in names
    fast = ops.subm_conv3d(x, w).feats
    monkeypatch.setenv("LATTICE_ROUTE", "conv=cpu.reference")
    assert ml.explain(ops.subm_conv3d, x, w).routes == [("conv", "cpu.reference")]
    assert mx.allclose(fast, ops.subm_conv3d(x, w).feats, atol=1e-5)
    monkeypatch.setenv("LATTICE_ROUTE", "conv=nonsense")
    with pytest.raises(ValueError, match="nonsense"):
        ops.subm_conv3d(x, w)


@pytest.mark.slow
def test_selftest():
    report = ml.selftest()
    assert report.ok, str(report)
    assert "cpu.tiles" in str(report)


def test_devices():
    x, w = tensor(), weights(27, 5, 6)
    before = mx.default_device()
    with pytest.raises(RuntimeError), ml.on(mx.cpu):
        raise RuntimeError
    assert mx.default_device() == before
    assert ml.supported_on(mx.cpu, ops.subm_conv3d, x, w)
    assert ml.supported_on(mx.gpu, ops.subm_conv3d, x, w) == mx.is_available(mx.gpu)
    assert mx.default_device() == before
    assert mx.array_equal(ops.subm_conv3d(x, w, stream=mx.cpu).feats, ops.subm_conv3d(x, w).feats)


MODULES = [
    lambda: nn.Conv3d(4, 6, kernel_size=2, stride=2),
    lambda: nn.SubmConv3d(4, 6, bias=False),
    lambda: nn.ConvTranspose3d(4, 6),
    lambda: nn.GenerativeConvTranspose3d(4, 6),
    lambda: nn.NormalizedSubmConv3d(4, 6),
    lambda: nn.NormalizedConvTranspose3d(4, 6),
    lambda: nn.NormalizedGenerativeConvTranspose3d(4, 6),
    lambda: nn.Linear(4, 6),
]


@pytest.mark.parametrize("make", MODULES)
def test_modules_run_train_and_save(make, tmp_path):
    module, x = make(), tensor(channels=4, stride=2)
    assert "4, 6" in repr(module)
    y = module(x)
    assert y.feats.shape[1] == 6
    module.save_weights(str(tmp_path / "w.npz"))
    other = make()
    other.load_weights(str(tmp_path / "w.npz"))
    assert mx.array_equal(other(x).feats, y.feats)
    goal = mx.zeros_like(y.feats) + 0.1
    optimizer = optim.Adam(1e-2)
    step = mlx.nn.value_and_grad(module, lambda m: ((m(x).feats - goal) ** 2).mean())
    losses = []
    for _ in range(60):
        loss, grads = step(module)
        optimizer.update(module, grads)
        mx.eval(module.parameters(), optimizer.state, loss)
        losses.append(loss.item())
    assert (
        losses[-1] < 0.8 * losses[0]
    )  # normalized outputs do not depend on the scale of the weights


def test_module_arguments_are_checked():
    for bad, error in (
        (lambda: nn.SubmConv3d(4, 6, kernel_size=2), ValueError),
        (lambda: nn.Conv3d(0, 6), ValueError),
        (lambda: nn.Conv3d(4.0, 6), TypeError),
        (lambda: nn.Conv3d(4, 6, groups=3), ValueError),
        (lambda: nn.Conv3d(4, 6, kernel_size=(3, 3)), ValueError),
        (lambda: nn.NormalizedSubmConv3d(4, 6, eps=0), ValueError),
    ):
        with pytest.raises(error):
            bad()


def test_target_transposed_module_keeps_the_skip_identity():
    x = tensor(channels=4)
    down = nn.Conv3d(4, 8, kernel_size=2, stride=2)(x)
    up = nn.ConvTranspose3d(8, 4)(down, x)
    assert up.same_coords(x)


@pytest.mark.parametrize("c_in, c_out", [(0, 5), (5, 0), (0, 0)])
@pytest.mark.parametrize("groups", [1, 5])
def test_no_channels(c_in, c_out, groups):
    x, w, b = tensor(channels=c_in), mx.ones((27, c_in // groups, c_out)), mx.ones((c_out,))

    def total(feats, w, b):
        return ops.subm_conv3d(x.replace(feats=feats), w, b, groups=groups).feats.sum()

    assert ops.subm_conv3d(x, w, b, groups=groups).feats.tolist() == [[1.0] * c_out] * x.capacity
    grads = mx.grad(total, (0, 1, 2))(x.feats, w, b)
    assert [g.tolist() for g in grads[:2]] == [mx.zeros_like(a).tolist() for a in (x.feats, w)]
    assert grads[2].tolist() == [float(x.capacity)] * c_out
    assert ops.linear(x, mx.ones((c_out, c_in)), b).feats.tolist() == [[1.0] * c_out] * x.capacity


def test_normalized_convolution_rounds_once():
    x, w = tensor(channels=64, dtype=mx.float16), weights(27, 64, 2, dtype=mx.float16)
    x, w = (
        x.replace(feats=x.feats * 0 + 200),
        w * 0 + 30,
    )  # the sum itself, 384000 an edge, leaves float16
    wide = ops.normalized_subm_conv3d(x.astype(mx.float32), w.astype(mx.float32)).feats
    assert mx.array_equal(ops.normalized_subm_conv3d(x, w).feats, wide.astype(mx.float16))
    assert mx.isfinite(wide).all()


@pytest.mark.parametrize(
    "arguments, error, text",
    [
        ({"stride": 0}, ValueError, r"\[conv3d\] stride"),
        ({"groups": True}, TypeError, r"\[conv3d\] groups"),
        ({"coordinates": 5}, TypeError, r"\[conv3d\] coordinates"),
        ({"bias": mx.zeros((7,))}, ValueError, r"\[conv3d\] bias"),
        (
            {"weight": mx.zeros((27, 5, 6), mx.float16)},
            ValueError,
            r"\[conv3d\] weight .* float16 and float32",
        ),
    ],
)
def test_errors_name_the_operation_that_was_called(arguments, error, text):
    with pytest.raises(error, match="^" + text):
        ops.conv3d(tensor(), **{"weight": weights(27, 5, 6), **arguments})


def test_eps_is_what_the_documentation_says():
    assert inspect.signature(ops.normalized_subm_conv3d).parameters["eps"].default == 1e-8


def test_forced_routes_may_have_spaces_and_must_exist(monkeypatch):
    x, w = tensor(), weights(27, 5, 6)
    monkeypatch.setenv("LATTICE_ROUTE", "outer=cpu.tiles, conv = cpu.reference")
    assert ml.explain(ops.subm_conv3d, x, w).routes[-1] == ("conv", "cpu.reference")
    monkeypatch.setenv("LATTICE_ROUTE", "convolution=cpu.reference")
    with pytest.raises(ValueError, match='no operation "convolution"'):
        ops.subm_conv3d(x, w)


def test_decision_log_used_wrongly_is_an_error():
    log = ml._ext.DecisionLog()
    with pytest.raises(ValueError, match="not open"):
        log.__exit__(None, None, None)
    with log, pytest.raises(ValueError, match="open already"):
        log.__enter__()


def test_what_is_supported_is_tried():
    def fails():
        raise RuntimeError

    for error in (
        RuntimeError,
        TypeError,
        KeyError,
        AttributeError,
        NotImplementedError,
        MemoryError,
    ):

        def fails_with(error=error):
            raise error

        assert ml.supported_on(mx.cpu, fails_with) is False
    assert ml.supported_on(mx.cpu, lambda: mx.array(1))
    assert not ml.supported_on(mx.cpu, lambda: fails())
    x, w = tensor(), weights(8, 5, 6)
    assert not ml.supported_on(mx.cpu, ops.conv_transpose3d, x, w)  # stride 1 is not divisible by 2
    assert ml.supported_on(mx.cpu, ops.conv_transpose3d, x.replace(stride=2), w)


def test_channels_may_be_integer_scalars():
    module = nn.Conv3d(np.int64(4), mx.array(6), groups=np.uint8(2))
    assert module.weight.shape == (6, 3, 3, 3, 2)
    for bad in (np.float32(4), np.bool_(True), mx.array(4.0), mx.array([4])):
        with pytest.raises(TypeError, match=r"^\[Conv3d\] in_channels"):
            nn.Conv3d(bad, 6)
    with pytest.raises(ValueError, match="eps"):
        nn.NormalizedSubmConv3d(4, 6, eps=float("inf"))


def test_padding_warns_once():
    from mlx_lattice.nn import _conv

    _conv._warned = False
    with pytest.warns(UserWarning, match="Write padding=0"):
        nn.Conv3d(4, 8, kernel_size=3, stride=2, padding=1)
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nn.Conv3d(4, 8, kernel_size=3, stride=2, padding=1)  # said once
        _conv._warned = False
        nn.Conv3d(4, 8, kernel_size=3, stride=2)
        nn.Conv3d(4, 8, kernel_size=2, stride=2, padding=1)


def test_negative_padding_is_a_shift():
    line = ml.SparseTensor(
        [[0, i, 0, 0] for i in range(6)], mx.arange(6)[:, None].astype(mx.float32)
    )
    weight = mx.array([1.0, 10.0, 100.0]).reshape(1, 3, 1, 1, 1)
    got = ops.conv3d(line, weight, kernel_size=(3, 1, 1), stride=(2, 1, 1), padding=(-1, 0, 0))
    # out * 2 + (-1, 0, 1) + 1: PyTorch's padding 0
    expected = [
        sum(w * v for w, v in zip((1, 10, 100), range(2 * o, 2 * o + 3)) if v < 6) for o in range(3)
    ]
    assert got.feats[:, 0].tolist() == expected
