"""Artifacts of the older package: every stored case runs or is refused as it says."""

import json
import re
import shutil
import tarfile
from pathlib import Path

import mlx.core as mx
import mlx.nn
import numpy as np
import pytest
from mlx_lattice import Program, _ext, models, samples
from older_oracle import MAKERS, Sparse, random_case

ARCHIVE = Path(__file__).parents[1] / "programs" / "older.tar.xz"


def archive_json(name):
    with tarfile.open(ARCHIVE) as archive:
        return json.load(archive.extractfile(f"./{name}"))


CASES = [
    pytest.param(kind, case, id=f"{kind}-{case['name']}")
    for kind in ("run", "stored")
    for case in archive_json(f"{kind}/manifest.json")["cases"]
]
VERDICTS = archive_json("texts/verdicts.json")
REFUSALS = archive_json("refusals.json")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("older")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


def run(path, inputs):
    return _ext.LoadedProgram.load(str(path)).session().run(inputs)


def inputs_of(path):
    physical = path / "inputs_physical.safetensors"
    return mx.load(str(physical if physical.exists() else path / "inputs.safetensors"))


def rows_by_place(coords, feats):
    order = np.lexsort((*feats.T[::-1], *coords.T[::-1]))
    return coords[order], feats[order]


def close(found, expected, case):
    found, expected = np.array(found, np.float64), np.array(expected, np.float64)
    same = found == expected  # infinities
    np.testing.assert_allclose(
        np.where(same, 0, found), np.where(same, 0, expected), case["rtol"], case["atol"]
    )


@pytest.mark.parametrize("kind, case", CASES)
def test_case_runs(folder, kind, case):
    path = folder / kind / case["name"]
    found = run(path, inputs_of(path))
    expected = mx.load(str(path / "expected.safetensors"))
    names = {
        name.removesuffix(".features")
        for name in expected
        if not name.endswith((".coords", ".active", ".stride"))
    }
    assert set(found) == names
    for name in names:
        if name in expected:
            close(found[name], expected[name], case)
            continue
        tensor, n = found[name], expected[f"{name}.active"].item()
        physical = np.array(tensor.coords) * [1, *tensor.stride]
        coords, feats = rows_by_place(physical, np.array(tensor.feats))
        there, values = rows_by_place(
            np.array(expected[f"{name}.coords"])[:n], np.array(expected[f"{name}.features"])[:n]
        )
        assert np.array_equal(coords, there)
        close(feats, values, case)


@pytest.mark.parametrize("name", [n for n, v in VERDICTS.items() if not v.get("may_refuse")])
def test_text_is_read_or_refused(folder, tmp_path, name):
    shutil.copy(folder / "texts" / name, tmp_path / "graph.mlir")
    mx.save_safetensors(str(tmp_path / "weights.safetensors"), {})
    refused = VERDICTS[name]["loader"] == "refused"
    # Texts that are accepted name weights, which this file lacks: the error is another one.
    try:
        _ext.LoadedProgram.load(str(tmp_path))
    except ValueError as error:
        assert str(error).startswith(f"{tmp_path}/graph.mlir: [Program.load] line "), error
        assert refused != ("is not in weights.safetensors" in str(error)), error
    else:
        assert not refused


def changed(arrays, change, word):
    """The arrays of a case with one of the changes that refusals.json names."""
    for how, what in change.items():
        if how == f"drop_{word}":
            del arrays[what]
        elif how == f"add_{word}":
            arrays[what] = mx.zeros((1,))
        elif how == f"cast_{word}":
            dtypes = {"f16": mx.float16, "i64": mx.int64}
            arrays[what[0]] = arrays[what[0]].astype(dtypes[what[1]])
        elif how == f"slice_{word}":
            cuts = {"[:, :, :, :2]": lambda a: a[:, :, :, :2], "[..., :3]": lambda a: a[..., :3]}
            cuts |= {"[:3]": lambda a: a[:3], "[:100]": lambda a: a[:100]}
            arrays[what[0]] = cuts[what[1]](arrays[what[0]])
        elif how == f"transpose_{word}":
            arrays[what[0]] = arrays[what[0]].transpose(what[1])
        elif how == f"set_{word}":
            arrays[what[0]] = mx.array(what[1], mx.int32)
        elif how == f"scale_{word}":
            arrays[what[0]] = arrays[what[0]] * mx.array(what[1], mx.int32)
        elif how == "copy_row_0_to_row_1_of" and word == "input":
            arrays[what][1] = arrays[what][0]
    return arrays


def changed_text(text, change):
    lines = text.split("\n")
    for i, line in enumerate(lines):
        one = "stride = array<i64: 1, 1, 1>"
        if "stride_of_target" in change and "%t = lattice.sparse.make" in line:
            lines[i] = line.replace(one, "stride = array<i64: 2, 2, 2>")
        if "stride_of_rhs" in change and "%t = lattice.sparse.make" in line:
            lines[i] = line.replace(one, "stride = array<i64: 2, 2, 2>")
        if "stride_of_operation" in change and "lattice.conv_transpose3d" in line:
            lines[i] = line.replace("stride = array<i64: 2, 2, 2>", "stride = array<i64: 3, 3, 3>")
        if "batch_size" in change and "lattice.global_pool" in line:
            lines[i] = line.replace("batch_size = 2", "batch_size = 4").replace(
                "batch_size = -1", "batch_size = 4"
            )
    return "\n".join(lines)


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case["name"])
def test_wrong_weights_and_inputs_are_refused(folder, tmp_path, case):
    base = folder / "run" / case["base"]
    change = case["change"]
    weights = changed(mx.load(str(base / "weights.safetensors")), change, "weight")
    mx.save_safetensors(str(tmp_path / "weights.safetensors"), weights)
    text = changed_text((base / "graph.mlir").read_text(), change)
    (tmp_path / "graph.mlir").write_text(text)
    with pytest.raises((ValueError, OverflowError)) as error:
        run(tmp_path, changed(inputs_of(base), change, "input"))
    assert "[Program" in str(error.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"graph\.mlir does not exist"):
        _ext.LoadedProgram.load(str(tmp_path))


def test_points_that_are_not_finite_are_refused(folder):
    path = folder / "run" / "points_to_logits"
    inputs = inputs_of(path)
    inputs["points"][3] = float("nan")
    with pytest.raises(ValueError, match=r"row 3"):
        run(path, inputs)


def same_values(found, expected):
    for name, value in expected.items():
        if isinstance(value, mx.array):
            assert mx.array_equal(found[name], value, equal_nan=True)
        else:
            assert mx.array_equal(found[name].coords, value.coords)
            assert mx.array_equal(found[name].feats, value.feats, equal_nan=True)
            assert found[name].stride == value.stride


@pytest.mark.parametrize("kind, case", CASES)
def test_what_was_read_is_written_again(folder, tmp_path, kind, case):
    path = folder / kind / case["name"]
    program = Program.load(path)
    program.export_mlir(tmp_path / "again")
    same_values(Program.load(tmp_path / "again")(**inputs_of(path)), program(**inputs_of(path)))


@pytest.mark.parametrize("bits", [None, 4, 8])
@pytest.mark.parametrize("make", [models.MinkUNet, models.SparseResNet])
def test_networks_are_written(tmp_path, make, bits):
    mx.random.seed(2)
    net = make(4, 3, depth=14, width=32).eval()
    if bits:
        mlx.nn.quantize(net, group_size=32, bits=bits)
        net.eval()
    x = samples.tensor()
    net.export(tmp_path / "net.lattice.safetensors", example=x)
    program = Program.load(tmp_path / "net.lattice.safetensors")
    program.export_mlir(tmp_path / "older")
    same_values(Program.load(tmp_path / "older")(x=x), {"output": program(x)})


def test_networks_that_it_cannot_say_are_refused(tmp_path):
    net = models.WindowUNet(4, 3, channels=(16, 32), depths=(1, 1)).eval()
    net.export(tmp_path / "net.lattice.safetensors", example=samples.tensor())
    program = Program.load(tmp_path / "net.lattice.safetensors")
    with pytest.raises(ValueError, match=r"line \d+: [a-z_]+@1.* has no operation for `"):
        program.export_mlir(tmp_path / "older")


def written(folder, text, weights):
    (folder / "graph.mlir").write_text(text)
    arrays = {name: mx.array(value) for name, value in weights.items()}
    mx.save_safetensors(str(folder / "weights.safetensors"), arrays)
    return folder


def check_case(case, found):
    for name, (_, expected) in case.outputs.items():
        if not isinstance(expected, Sparse):
            close(found[name], expected, {"atol": 1e-5, "rtol": 1e-5})
            continue
        assert found[name].stride == expected.stride
        # The order of rows is no part of the format; ours is that of the older package.
        assert np.array_equal(np.array(found[name].coords), expected.index)
        close(found[name].feats, expected.feats, {"atol": 1e-5, "rtol": 1e-5})


@pytest.mark.parametrize("name", MAKERS)
def test_random_programs_of_every_operation(tmp_path, name):
    for seed in range(6):
        case = random_case(name, np.random.default_rng(seed))
        path = written(tmp_path, case.text(), case.weights)
        check_case(case, run(path, {n: mx.array(a) for n, a in case.inputs.items()}))


def split(attributes):
    """The attributes of a dict: commas inside of brackets do not count."""
    found, depth = [""], 0
    for sign in re.sub(r"//[^\n]*", "", attributes):
        depth += (sign in "<[") - (sign in ">]")
        if sign == "," and depth == 0:
            found.append("")
        else:
            found[-1] += sign
    return [a.strip() for a in found]


def wrong_values(operation, key, value):
    yield from ('"x"', "7 : i32", '["a"]', "#lattice.coord<foo>", "array<i64: 1, 1>", "true", "")
    if value.startswith("array<i64"):
        yield from ("array<i64: -1, 1, 1>", "array<i64: 1, 1, 1, 1>", "[3, 3, 3]", "3")
        yield from () if key == "padding" else ("array<i64: 0, 1, 1>",)
        yield from (
            ("array<i64: 2, 3, 3>",)
            if (key, "subm" in operation)
            == (
                "kernel_size",
                True,
            )
            else ()
        )
    if key in ("eps", "beta"):
        yield from ("0.0 : f32", "-1.0 : f32", "1 : f32", "1.0", "1e-05 : f32")
    if key == "alpha":
        yield from ("-0.5 : f32", "0.5")
    if key == "batch_size":
        yield from ("-2", "2.0 : f32")
    if key == "axis":
        yield from ("0", "2", "-2")
    if key == "voxel_size":
        yield from ("array<f64: 0.0, 1.0, 1.0>", "array<f64: 1, 1, 1>")
    if value.startswith("#lattice."):
        word = value[9 : value.index("<")]
        yield from (f"#lattice.{word}<foo>", f"#lattice.{word}<>", f"#other.{word}<sum>")


@pytest.mark.parametrize("name", MAKERS)
def test_every_attribute_is_checked(tmp_path, name):
    """Missing, unknown and wrong attributes of each operation are refused, with the line."""
    case = random_case(name, np.random.default_rng(0))
    text = re.sub(r"//[^\n]*", "", case.text())
    for found in re.finditer(r"= lattice\.(\S+) [^{\n]*?\{([^{}]*)\}(?= :)", text):
        operation, given = found[1], split(found[2])

        def put(attributes, found=found):
            return text[: found.start(2)] + ", ".join(attributes) + text[found.end(2) :]

        _ext.LoadedProgram.load(str(written(tmp_path, put(given[::-1]), case.weights)))
        wrong = [put([*given, "extra = 1"]), put([*given, given[0]])]
        for i, attribute in enumerate(given):
            key, value = (part.strip() for part in attribute.split("=", 1))
            rest = given[:i] + given[i + 1 :]
            wrong += [put(rest), put([*rest, f"{key}2 = {value}"])]
            wrong += [
                put([*rest, f"{key} = {other}"])
                for other in wrong_values(operation, key, value)
                if key != "storage_key" or other != '"x"'
            ]
        for changed_text in wrong:
            with pytest.raises(ValueError, match=r"\[Program.load\] line \d+: "):
                _ext.LoadedProgram.load(str(written(tmp_path, changed_text, case.weights)))


MLIR = "a.b = {c = [true, 1], d = affine_map<(i) -> (i)>}"


def test_other_spellings_are_read(tmp_path):
    case = random_case("conv3d", np.random.default_rng(1))
    text = case.text()
    spellings = [
        text.replace("tensor<?x4xi32>", "tensor< ? x 4 x i32 >"),
        text.replace("tensor<1xi32>", "tensor<1x i32>"),
        text.replace("@k ", '@"0.weight" '),
        text.replace("module attributes", "module @net attributes"),
        text.replace("lattice.ir_version =", '"lattice.ir_version" ='),
        text.replace("lattice.producer", f"a.unit, {MLIR}, lattice.producer"),
        text.replace(": !lattice.weight<conv3d", ": <conv3d"),
        text.replace("return ", "func.return "),
        text.replace("\n", " // said\r\n"),
    ]
    values = {n: mx.array(a) for n, a in case.inputs.items()}
    for spelling in spellings:
        assert spelling != text
        check_case(case, run(written(tmp_path, spelling, case.weights), values))


def test_a_tensor_stands_for_its_three_inputs(tmp_path):
    case = random_case("sparse.reindex", np.random.default_rng(3))
    program = Program.load(written(tmp_path, case.text(), case.weights))
    from mlx_lattice import SparseTensor

    tensors = {}
    for name in ("a", "b"):
        n = int(case.inputs[f"{name}_active"][0])
        stride = tuple(program(**{k: mx.array(v) for k, v in case.inputs.items()})["made"].stride)
        coords = case.inputs[f"{name}_coords"][:n] // [1, *stride]
        feats = case.inputs[f"{name}_features"][:n]
        tensors[name] = SparseTensor(mx.array(coords, mx.int32), mx.array(feats), stride)
    check_case(case, program(**tensors))
    text = case.text().replace('"a_', '"')  # the inputs coords, features and active
    program = Program.load(written(tmp_path, text, case.weights))
    check_case(case, program(tensors["a"], b=tensors["b"]))
    check_case(case, program(coords=tensors["a"], b=tensors["b"]))
