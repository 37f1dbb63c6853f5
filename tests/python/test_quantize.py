"""Packed weights from Python.

Codes, convolutions, modules, whole models, files, the command, errors.
"""

import functools
import json
import re

import mlx.core as mx
import mlx.nn
import mlx.optimizers as optim
import mlx_lattice as ml
import numpy as np
import pytest
import scenes
from mlx.utils import tree_flatten
from mlx_lattice import SparseTensor, cli, models, nn, ops

DTYPES = [mx.float32, mx.float16, mx.bfloat16]


tensor = functools.partial(scenes.tensor, stride=2)


def weights(*shape, dtype=mx.float32, seed=1):
    return mx.array(
        np.random.default_rng(seed).standard_normal(shape).astype(np.float32) / 8
    ).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group", [32, 64, 128])
def test_codes_are_those_of_mlx(dtype, bits, group):
    w = weights(6, 100, dtype=dtype)
    q = ml.quantize_weight(w, group_size=group, bits=bits)
    padded = mx.pad(w, [(0, 0), (0, 128 - 100)])
    for found, expected in zip(
        (q.weight, q.scales, q.biases), mx.quantize(padded, group_size=group, bits=bits)
    ):
        assert found.dtype == expected.dtype and mx.array_equal(found[0], expected)
    assert (q.in_channels, q.out_channels, q.storage_in_channels) == (100, 6, 128)
    assert q.nbytes == 6 * (128 * bits // 8 + 2 * (128 // group) * w.itemsize)


def test_layouts_and_defaults():
    for shape, layout, size in (
        ((6, 70), "linear", (1, 1, 1)),
        ((8, 70, 6), "kernel_major", (8, 1, 1)),
        ((6, 3, 2, 1, 70), "dense_5d", (3, 2, 1)),
    ):
        w = weights(*shape)
        q = ml.quantize_weight(w, bits=8)
        assert (q.layout, q.kernel_size, q.group_size, q.bits) == (layout, size, 64, 8)
        assert q.is_pointwise == (size == (1, 1, 1))
        back = ml.dequantize_weight(q)
        assert back.shape == shape and mx.abs(back - w).max().item() < 0.004
        assert layout in repr(q) and "int8" in repr(q)
    assert ml.quantize_weight(weights(6, 63)).group_size == 32
    q = ml.quantize_weight(weights(8, 70, 6))
    assert q.weight.shape == (8, 128 // 8, 6) and q.scales.shape == (8, 2, 6)
    again = ml.QuantizedWeight(q.weight, q.scales, q.biases, 64, 4, 70, 6, 2, "kernel_major")
    assert mx.array_equal(ml.dequantize_weight(again), ml.dequantize_weight(q))


CALLS = {
    "strided": (lambda x, w, **k: ops.conv3d(x, w, kernel_size=2, stride=2, **k), 8),
    "submanifold": (lambda x, w, **k: ops.subm_conv3d(x, w, **k), 27),
    "target": (lambda x, w, **k: ops.conv3d(x, w, coordinates=tensor(50, seed=7).coords, **k), 27),
    "transposed": (lambda x, w, **k: ops.conv_transpose3d(x, w, **k), 8),
    "generative": (lambda x, w, **k: ops.generative_conv_transpose3d(x, w, **k), 8),
    "pointwise": (lambda x, w, **k: ops.conv3d(x, w, kernel_size=1, **k), 1),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bits", [4, 8])
def test_convolutions_equal_the_dense_route(name, dtype, bits, monkeypatch):
    call, k = CALLS[name]
    for c_in, c_out in ((5, 7), (64, 33)):
        x, b = tensor(channels=c_in, dtype=dtype), weights(c_out, dtype=dtype, seed=3)
        q = ml.quantize_weight(weights(k, c_in, c_out, dtype=dtype), bits=bits)
        packed = call(x, q, bias=b)
        with monkeypatch.context() as patch:  # products of bfloat16 have other bits
            patch.setenv("LATTICE_ROUTE", "conv=cpu.tiles")
            dense = call(x, ml.dequantize_weight(q), bias=b)
        assert packed.feats.dtype == dtype and mx.array_equal(packed.feats, dense.feats)


def test_routes_agree_and_are_explained(monkeypatch):
    x, q = tensor(), ml.quantize_weight(weights(27, 5, 7))
    told = ml.explain(ops.subm_conv3d, x, q)
    assert told.routes[-1] == ("conv", "cpu.packed")
    assert "packed int4, one scale per 32 codes" in str(told) and "cpu.tiles: storage" in str(told)
    fast = ops.subm_conv3d(x, q).feats
    monkeypatch.setenv("LATTICE_ROUTE", "conv=cpu.reference")
    assert mx.allclose(ops.subm_conv3d(x, q).feats, fast, atol=1e-5)
    monkeypatch.setenv("LATTICE_ROUTE", "conv=cpu.tiles")
    with pytest.raises(ValueError, match="weights are packed int4"):
        ops.subm_conv3d(x, q)


def test_gradients_flow_to_features_only():
    x, q = tensor(), ml.quantize_weight(weights(27, 5, 7))
    dense = ml.dequantize_weight(q)

    def loss(feats, b, w):
        return (ops.subm_conv3d(x.replace(feats=feats), w, b).feats ** 2).sum()

    b = weights(7)
    for found, expected in zip(
        mx.grad(loss, (0, 1))(x.feats, b, q), mx.grad(loss, (0, 1))(x.feats, b, dense)
    ):
        assert mx.array_equal(found, expected)
    compiled = mx.compile(lambda f: mx.grad(loss)(f, b, q))(x.feats)
    assert mx.allclose(compiled, mx.grad(loss)(x.feats, b, dense), atol=1e-5)

    def of_scales(scales):
        return loss(
            x.feats,
            b,
            ml.QuantizedWeight(q.weight, scales, q.biases, 32, 4, 5, 7, 3, "kernel_major"),
        )

    assert mx.array_equal(mx.grad(of_scales)(q.scales), mx.zeros_like(q.scales))


def test_no_dense_copy_exists():
    x = tensor(n=40, channels=256)
    q = ml.quantize_weight(weights(27, 256, 256))
    ops.submanifold_kernel_relation(x)
    mx.eval(x.feats, q.weight, q.scales, q.biases)
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    grad = mx.grad(lambda f: ops.subm_conv3d(x.replace(feats=f), q).feats.sum())(x.feats)
    mx.eval(grad)
    assert (
        mx.get_peak_memory() - before < 27 * 256 * 256
    )  # a quarter of the dense weight; the features are 40 KB


class UNet(mlx.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.SubmConv3d(4, 32)
        self.down = nn.Conv3d(32, 64, kernel_size=2, stride=2)
        self.middle = [nn.SubmConv3d(64, 64), nn.NormalizedSubmConv3d(64, 64)]
        self.up = nn.ConvTranspose3d(64, 32)
        self.head = nn.Linear(32, 3)

    def __call__(self, x):
        x = self.stem(x)
        y = self.down(x)
        for layer in self.middle:
            y = layer(y)
        return self.head(self.up(y, x))


def nbytes(model):
    return sum(v.nbytes for _, v in tree_flatten(model.parameters()))


def test_a_whole_model(tmp_path):
    model, x = UNet(), tensor(channels=4, stride=1)
    dense, before = model(x).feats, nbytes(model)
    normalized = model.middle[1].weight.nbytes
    mlx.nn.quantize(model, group_size=32, bits=8)
    kinds = [
        type(m).__name__ for m in (model.stem, model.down, *model.middle, model.up, model.head)
    ]
    assert kinds == [
        "QuantizedSubmConv3d",
        "QuantizedConv3d",
        "QuantizedSubmConv3d",
        "NormalizedSubmConv3d",
        "QuantizedConvTranspose3d",
        "QuantizedLinear",
    ]
    y = model(x).feats
    assert mx.linalg.norm(y - dense).item() < 0.02 * mx.linalg.norm(dense).item()
    assert nbytes(model) - normalized < 0.4 * (before - normalized)
    assert {k for k, _ in tree_flatten(model.trainable_parameters())} == {
        "middle.1.weight",
        "middle.1.bias",
    }
    mlx.nn.quantize(model)  # nothing is left to do
    for name in ("w.safetensors", "w.npz"):
        model.save_weights(str(tmp_path / name))
        other = UNet()
        mlx.nn.quantize(other, group_size=32, bits=8)
        other.load_weights(str(tmp_path / name))
        assert mx.array_equal(other(x).feats, y)
    step = mlx.nn.value_and_grad(model, lambda m: (m(x).feats ** 2).mean())
    loss, grads = step(model)
    optim.SGD(0.1).update(model, grads)
    assert step(model)[0].item() < loss.item()


PAIRS = [
    (lambda **k: nn.Conv3d(6, 4, 2, 2, groups=2, **k), nn.QuantizedConv3d),
    (lambda **k: nn.SubmConv3d(6, 4, **k), nn.QuantizedSubmConv3d),
    (lambda **k: nn.ConvTranspose3d(6, 4, **k), nn.QuantizedConvTranspose3d),
    (lambda **k: nn.GenerativeConvTranspose3d(6, 4, **k), nn.QuantizedGenerativeConvTranspose3d),
    (lambda **k: nn.Linear(6, 4, **k), nn.QuantizedLinear),
]


@pytest.mark.parametrize("make, form", PAIRS)
@pytest.mark.parametrize("bias", [True, False])
def test_modules(make, form, bias):
    dense, x = make(bias=bias), tensor(channels=6)
    if bias:
        dense.bias = weights(4)
    packed = (form.from_linear if form is nn.QuantizedLinear else form.from_conv)(
        dense, group_size=32, bits=4
    )
    assert type(packed) is form and (packed.group_size, packed.bits) == (32, 4)
    q = ml.quantize_weight(dense.weight, group_size=32, bits=4)
    dense.weight = ml.dequantize_weight(q)
    assert mx.array_equal(packed(x).feats, dense(x).feats)
    assert packed.trainable_parameters() == {} and packed.unfreeze().trainable_parameters() == {}
    assert sum(v.nbytes for _, v in tree_flatten(packed.parameters())) == q.nbytes + 16 * bias
    assert "bits=4" in repr(packed) and "6, 4" in repr(packed)
    made = form(6, 4, bias=bias, bits=8)
    assert made(x).feats.shape[1] == 4 and made.bits == 8 and ("bias" in made) == bias
    with pytest.raises(TypeError, match="expected a"):
        (form.from_linear if form is nn.QuantizedLinear else form.from_conv)(packed)


def test_normalized_modules_have_no_packed_form():
    assert not hasattr(nn.NormalizedSubmConv3d(4, 4), "to_quantized")
    with pytest.raises(TypeError, match="NormalizedSubmConv3d"):
        nn.QuantizedSubmConv3d.from_conv(nn.NormalizedSubmConv3d(4, 4))
    for arguments in ({"mode": "mxfp4"}, {"quantize_input": True}):
        with pytest.raises(ValueError, match=r"^\[Linear\] .*affine"):
            nn.Linear(32, 4).to_quantized(**arguments)


def altered(q, **other):
    """The packed weight of (27, 5, 7) with some of its parts replaced."""
    parts = {"weight": q.weight, "scales": q.scales, "biases": q.biases, "group_size": 32}
    parts |= {"bits": 4, "in_channels": 5, "out_channels": 7, "kernel_size": 3}
    return ml.QuantizedWeight(*(parts | {"layout": "kernel_major"} | other).values())


@pytest.mark.parametrize(
    "call, error, text",
    [
        (
            lambda x, q: ml.quantize_weight(weights(6, 8), bits=3),
            ValueError,
            r"\[quantize_weight\] bits must be 4 or 8, got 3",
        ),
        (lambda x, q: ml.quantize_weight(weights(6, 8), bits=4.0), TypeError, "bits"),
        (
            lambda x, q: ml.quantize_weight(weights(6, 8), group_size=48),
            ValueError,
            "group_size must be 32, 64 or 128, got 48",
        ),
        (lambda x, q: ml.quantize_weight(weights(6, 8), group_size=True), TypeError, "group_size"),
        (lambda x, q: ml.quantize_weight(weights(6)), ValueError, r"got \(6,\)"),
        (lambda x, q: ml.quantize_weight(mx.zeros((6, 0))), ValueError, "empty"),
        (lambda x, q: ml.quantize_weight(mx.zeros((6, 8), mx.int32)), ValueError, "int32"),
        (lambda x, q: ml.quantize_weight(None), TypeError, "."),
        (lambda x, q: ml.dequantize_weight(weights(6, 8)), TypeError, "."),
        (lambda x, q: ops.subm_conv3d(tensor(channels=6), q), ValueError, "C_in = 6"),
        (lambda x, q: ops.subm_conv3d(x, q, kernel_size=5), ValueError, "packed for size"),
        (lambda x, q: ops.subm_conv3d(x, q, weights(3)), ValueError, "bias"),
        (lambda x, q: ops.normalized_subm_conv3d(x, q), ValueError, "must be dense"),
        (lambda x, q: ops.linear(x, q), ValueError, "one offset"),
        (
            lambda x, q: ops.linear_features(x.feats, ml.quantize_weight(weights(7, 9))),
            ValueError,
            "5 input channels",
        ),
        (lambda x, q: altered(q, bits=8), ValueError, "shape"),
        (lambda x, q: altered(q, layout="other"), ValueError, "layout"),
        (lambda x, q: altered(q, layout=3), TypeError, "."),
        (lambda x, q: altered(q, weight=q.weight.astype(mx.int32)), ValueError, "uint32"),
        (lambda x, q: altered(q, scales=q.scales.astype(mx.int32)), ValueError, "scales"),
        (lambda x, q: altered(q, biases=q.biases.astype(mx.float16)), ValueError, "biases"),
        (lambda x, q: altered(q, in_channels=2**40), ValueError, "in_channels"),
        (lambda x, q: altered(q, kernel_size=0), ValueError, "kernel_size"),
    ],
)
def test_bad_input(call, error, text):
    with pytest.raises(error, match=text):
        call(tensor(), ml.quantize_weight(weights(27, 5, 7)))


def test_command(tmp_path, capsys):
    model, x = UNet(), tensor(channels=4, stride=1)
    source, target = tmp_path / "model.safetensors", tmp_path / "packed.safetensors"
    model.save_weights(str(source))
    arguments = [
        "quantize",
        str(source),
        "--bits",
        "8",
        "--skip",
        "middle.1",
        "--output",
        str(target),
    ]
    assert cli.main(arguments) == 0
    printed = capsys.readouterr().out
    assert (
        "down.weight" in printed
        and "int8/32" in printed
        and "skipped" in printed
        and "whole file" in printed
    )
    error = float(
        next(line for line in printed.splitlines() if line.startswith("down.weight")).split()[-1]
    )
    restored = ml.dequantize_weight(ml.quantize_weight(model.down.weight, bits=8))
    expected = mx.linalg.norm((model.down.weight - restored).flatten()) / mx.linalg.norm(
        model.down.weight.flatten()
    )
    assert error == pytest.approx(expected.item(), rel=0.01)
    arrays, metadata = mx.load(str(target), return_metadata=True)
    assert json.loads(metadata["quantization"]) == {"bits": 8, "group_size": None}
    packed = {name: text for name, text in metadata.items() if name.endswith(".weight")}
    assert {f"{name[:-6]}scales" for name in packed} == {n for n in arrays if n.endswith("scales")}
    assert packed["down.weight"] == ml.quantize_weight(model.down.weight, bits=8).form
    other = UNet()
    mlx.nn.quantize(other, bits=8, class_predicate=lambda path, m: f"{path}.scales" in arrays)
    other.load_weights(str(target))
    mlx.nn.quantize(model, bits=8, class_predicate=lambda path, m: f"{path}.scales" in arrays)
    assert mx.array_equal(other(x).feats, model(x).feats)


def test_command_mistakes_are_one_line(tmp_path, capsys):
    empty, text = tmp_path / "empty.safetensors", tmp_path / "text.safetensors"
    mx.save_safetensors(str(empty), {"bias": mx.zeros((4,))})
    text.write_text("no")
    good = tmp_path / "good.safetensors"
    mx.save_safetensors(str(good), {"weight": mx.ones((64, 64))})
    for arguments, found in (
        ([str(tmp_path / "none.safetensors")], "no file"),
        ([str(text)], "no safetensors"),
        ([str(empty)], "no float weight"),
        ([str(good), "--output", str(good)], "another file"),
        ([str(good), "--output", str(tmp_path / "x.npz")], ".safetensors"),
        ([str(good), "--output", str(tmp_path / "no" / "x.safetensors")], "no folder"),
    ):
        assert cli.main(["quantize", *arguments]) == 1
        error = capsys.readouterr().err
        assert found in error and error.count("\n") == 1, error
    with pytest.raises(SystemExit):
        cli.main(["quantize", str(good), "--bits", "5"])


@pytest.mark.parametrize("bits", [4, 8])
def test_a_packed_network_round_trips(bits, tmp_path):
    model = models.MinkUNet(3, 4, depth=14, width=32, stem_kernel_size=3)
    mlx.nn.quantize(model, group_size=32, bits=bits)
    model.eval()
    model.save(tmp_path / "net.safetensors")
    again = models.load(tmp_path / "net.safetensors")
    coords = np.unique(np.random.default_rng(0).integers(0, 40, (500, 4)) * [0, 1, 1, 1], axis=0)
    x = SparseTensor(mx.array(coords.astype(np.int32)), mx.random.normal((len(coords), 3)))
    assert mx.array_equal(model(x).feats, again(x).feats)
    _, forms = mx.load(str(tmp_path / "net.safetensors"), return_metadata=True)
    assert set(forms) == {f"{n}.weight" for n, m in model.named_modules() if hasattr(m, "bits")}
    assert forms["head.weight"].startswith("layout=linear kernel_size=1,1,1 in_channels=")
    layers = [m for _, m in again.named_modules() if isinstance(m, nn.QuantizedSubmConv3d)]
    assert layers and all(m.bits == bits for m in layers)
    path = tmp_path / "net.json"
    text = json.loads(path.read_text())
    text["quantization"]["nothing"] = {"group_size": 32, "bits": bits}
    path.write_text(json.dumps(text))
    with pytest.raises(ValueError, match="'nothing', which is no layer that can be packed"):
        models.load(tmp_path / "net.safetensors")


def test_train_quantize_predict(tmp_path, capsys):
    """The report of `quantize` has the accuracy before and after.

    `predict` takes the packed network.
    """
    from mlx_lattice import io

    (tmp_path / "s").mkdir()
    (tmp_path / "c.json").write_text('{"depth": 14, "width": 32, "stem_kernel_size": 3}')
    for i in range(2):
        points = (np.random.default_rng(i).random((1500, 3)) * [8, 8, 3]).astype(np.float32)
        label = (points[:, 2] > 1.5).astype(np.int32)
        io.write(tmp_path / "s" / f"{i}.npz", io.PointCloud(points, {"label": label}))
    data, run = str(tmp_path / "s"), tmp_path / "run"
    train = ["train", data, "--voxel", "0.4", "--epochs", "4", "--validation", "0"]
    assert cli.main([*train, "--config", str(tmp_path / "c.json"), "--output", str(run)]) == 0
    packed, cloud = tmp_path / "packed.safetensors", str(tmp_path / "s" / "0.npz")
    quantize = ["quantize", str(run / "model.safetensors"), "--bits", "8", "--output", str(packed)]
    assert cli.main([*quantize, "--check", cloud]) == 0
    report = capsys.readouterr().out
    before, after = (
        float(w) for w in re.findall(r"accuracy +([0-9.]+) dense, ([0-9.]+)", report)[0]
    )
    assert 0.5 < before <= 1 and abs(before - after) < 0.02
    assert packed.stat().st_size < 0.5 * (run / "model.safetensors").stat().st_size
    assert cli.main(["predict", str(packed), cloud, str(tmp_path / "p.npz")]) == 0
    labeled = io.read(tmp_path / "p.npz").columns
    assert np.mean(labeled["label"] == labeled["truth"]) > 0.5
