"""Artifacts of the older package: every stored case runs or is refused as it says."""

import json
import shutil
import tarfile
from pathlib import Path

import mlx.core as mx
import mlx.nn
import numpy as np
import pytest
from mlx_lattice import Program, _ext, models, samples

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
