"""Checkpoints of other programs: what is read, and that hostile files run and take nothing.

LATTICE_CHECKPOINT_FUZZ sets the number of mutated files (default 900; releases run 200,000).
"""

import builtins
import json
import os
import pickle
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
from mlx_lattice import io
from test_io_fuzz import mutate
from torch_files import Writer, call, number, pickled, save, storage, tensor, text, write_zip

FUZZ = int(os.environ.get("LATTICE_CHECKPOINT_FUZZ", "900"))
RNG = np.random.default_rng(3)
WEIGHTS = {
    "module.backbone.a.weight": RNG.standard_normal((3, 4)).astype(np.float32),
    "module.backbone.b": RNG.standard_normal(5).astype(np.float16),
    "steps": np.array(7, np.int64),
    "flags": np.array([True, False, True]),
    "empty": np.zeros((0, 3), np.float32),
}
CONTENT = {
    "config": {"enc_channels": (16, 32), "order": ["z", "hilbert"], "drop_path": 0.3, "x": None},
    "state_dict": WEIGHTS,
    "epoch": 800,
    "optimizer": {"state": {0: {"exp_avg": WEIGHTS["module.backbone.a.weight"]}}},
}


def same(found, expected):
    assert list(found) == list(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


@pytest.mark.parametrize("legacy", [False, True])
def test_torch_files(tmp_path, legacy):
    save(tmp_path / "net.pth", CONTENT, legacy)
    found = io.read_checkpoint(tmp_path / "net.pth")
    same(found.arrays, WEIGHTS)
    assert found.meta["config"] == CONTENT["config"] and found.meta["epoch"] == 800
    optimizer = io.read_checkpoint(tmp_path / "net.pth", key="optimizer").arrays
    same(optimizer, {"state.0.exp_avg": WEIGHTS["module.backbone.a.weight"]})
    with pytest.raises(ValueError, match="no key 'weights'"):
        io.read_checkpoint(tmp_path / "net.pth", key="weights")


def test_plain_state_dict_and_npz(tmp_path):
    save(tmp_path / "net.pt", WEIGHTS)
    same(io.read_checkpoint(tmp_path / "net.pt").arrays, WEIGHTS)
    np.savez(tmp_path / "net.npz", **WEIGHTS)
    same(io.read_checkpoint(tmp_path / "net.npz").arrays, WEIGHTS)


def test_arrays_are_mapped(tmp_path):
    """Reading a file of 64 MB takes far less memory, and the arrays cannot be written to."""
    save(tmp_path / "net.pth", {"w": np.ones((1 << 24,), np.float32)})
    tracemalloc.start()
    array = io.read_checkpoint(tmp_path / "net.pth").arrays["w"]
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 2


def test_views_strides_and_numpy(tmp_path):
    """A transposed view, a view with an offset, tied weights, numbers and arrays of NumPy."""
    base = np.arange(12, dtype=np.float32)
    stored = storage("FloatStorage", "0", 12)
    parts = {
        "t": tensor(stored, 0, (4, 3), (1, 4)),
        "part": call("torch._utils._rebuild_parameter", tensor(stored, 6, (2,), (3,)), b"\x88"),
        "best": call(
            "numpy.core.multiarray.scalar",
            call("numpy.dtype", text("f8"), b"\x89", b"\x88"),
            call("_codecs.encode", text("\x00\x00\x00\x00\x00\x00\xf8?"), text("latin1")),
        ),
        "size": call("torch.Size", b"(K\x02K\x03t"),
        "dtype": b"ctorch\nfloat32\n",
    }
    body = b"}(" + b"".join(text(k) + v for k, v in parts.items()) + b"u"
    write_zip(tmp_path / "net.pth", pickled(body), [base])
    found = io.read_checkpoint(tmp_path / "net.pth")
    np.testing.assert_array_equal(found.arrays["t"], base.reshape(3, 4).T)
    np.testing.assert_array_equal(found.arrays["part"], [6, 9])
    assert found.meta == {"best": 1.5, "size": (2, 3), "dtype": "torch.float32"}


def test_bfloat16(tmp_path):
    stored = storage("BFloat16Storage", "0", 2)
    body = b"}" + text("w") + tensor(stored, 0, (2,), (1,)) + b"s"
    write_zip(tmp_path / "net.pth", pickled(body), [np.array([0x3FC0, 0xC000], np.uint16)])
    np.testing.assert_array_equal(io.read_checkpoint(tmp_path / "net.pth").arrays["w"], [1.5, -2])


def safetensors(header, data):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(shape, first, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [first, end]}


def test_safetensors(tmp_path):
    path = tmp_path / "net.safetensors"
    header = {"__metadata__": {"a": "b"}, "w": entry([2], 0, 8), "h": entry([2], 8, 12, "BF16")}
    path.write_bytes(safetensors(header, struct.pack("<2f2H", 1, 2, 0x3FC0, 0xC000)))
    found = io.read_checkpoint(path)
    assert found.meta == {"a": "b"}
    np.testing.assert_array_equal(found.arrays["w"], [1, 2])
    np.testing.assert_array_equal(found.arrays["h"], [1.5, -2])


@pytest.mark.parametrize(
    "header, message",
    [
        ({"w": entry([2], 0, 8), "v": entry([2], 4, 12)}, "overlap"),
        ({"w": entry([-1], 0, 8)}, "at least 0"),
        ({"w": entry([2], 0, 80)}, "outside"),
        ({"w": entry([3], 0, 8)}, "has 2 numbers"),
        ({"w": entry([1 << 61] * 3, 0, 8)}, "has 2 numbers"),
        ({"w": entry([8], 0, 8, "F8_E4M3")}, "kind"),
        ({"w": 3}, "not a valid"),
        ([], "object"),
    ],
)
def test_hostile_safetensors(tmp_path, header, message):
    path = tmp_path / "net.safetensors"
    path.write_bytes(safetensors(header, bytes(12)))
    with pytest.raises(ValueError, match=message) as error:
        io.read_checkpoint(path)
    assert str(path) in str(error.value)


class Executes:
    def __init__(self, run, *arguments):
        self.made = run, arguments

    def __reduce__(self):
        return self.made


FLOATS = storage("FloatStorage", "0", 4)
LAUGHS = b")" + b"".join(b"q%ch%c\x86" % (i, i) for i in range(50))
LONG_TEXT = text("a" * 10_000) + b"q\x00"
HOSTILE = {
    "reduce os.system": (pickle.dumps({"w": Executes(os.system, "echo ran")}, 2), "posix.system"),
    "reduce eval": (pickle.dumps(Executes(eval, "1"), 2), "eval"),
    "protocol 4": (pickle.dumps(Executes(eval, "1"), 4), "eval"),
    "protocol 0": (pickle.dumps(Executes(eval, "1"), 0), "eval"),
    "getattr": (pickle.dumps(Executes(builtins.getattr, "a", "b"), 2), "getattr"),
    "a class": (pickle.dumps(np.random.default_rng(0), 2), "numpy.random"),
    "call of a text": (pickled(text("eval") + b")R"), "calls 'eval'"),
    "call of a value": (pickled(b"cnumpy\nndarray\n)R"), "calls numpy.ndarray"),
    "wrong arguments": (pickled(call("torch._utils._rebuild_tensor_v2")), "0 arguments"),
    "inst": (pickled(b"(ios\nsystem\n"), "instruction"),
    "extension": (pickled(b"\x82\x01"), "instruction"),
    "newobj": (pickled(b"ccollections\nOrderedDict\n)\x81"), "instruction"),
    "negative size": (pickled(b"}" + text("w") + tensor(FLOATS, 0, (-1,), (1,)) + b"s"), "least 0"),
    "negative stride": (pickled(tensor(FLOATS, 0, (4,), (-1,))), "least 0"),
    "negative offset": (pickled(tensor(FLOATS, -1, (4,), (1,))), "least 0"),
    "negative count": (pickled(storage("FloatStorage", "0", -4)), "least 0"),
    "too long": (pickled(tensor(FLOATS, 0, (5,), (1,))), "does not fit"),
    "behind the end": (pickled(tensor(FLOATS, 2, (3,), (1,))), "does not fit"),
    "far stride": (pickled(tensor(FLOATS, 0, (2,), (1 << 40,))), "does not fit"),
    "expanded": (pickled(tensor(FLOATS, 0, (1 << 40,), (0,))), "does not fit"),
    "huge product": (pickled(tensor(FLOATS, 0, (1 << 61,) * 16, (0,) * 16)), "does not fit"),
    "many axes": (pickled(tensor(FLOATS, 0, (1,) * 17, (1,) * 17)), "at most 16"),
    "strides missing": (pickled(tensor(FLOATS, 0, (2, 2), (1,))), "1 strides"),
    "claimed storage": (
        pickled(b"}" + text("w") + tensor(storage("FloatStorage", "0", 99), 0, (99,), (1,)) + b"s"),
        "said to hold 99",
    ),
    "missing storage": (
        pickled(b"}" + text("w") + tensor(storage("FloatStorage", "7", 4), 0, (4,), (1,)) + b"s"),
        "not in the file",
    ),
    "two kinds": (
        pickled(
            b"}("
            + text("w")
            + tensor(FLOATS, 0, (4,), (1,))
            + text("v")
            + tensor(storage("LongStorage", "0", 2), 0, (2,), (1,))
            + b"u"
        ),
        "two kinds",
    ),
    "not a storage": (pickled(b"(" + text("module") + b"NNNNtQ"), "else than a storage"),
    "itself": (pickled(b"}q\x00" + text("a") + b"h\x00s"), "inside each other"),
    "billion laughs": (pickled(LAUGHS), "more than"),
    "nested": (pickled(b")" + b"\x85" * 5000), "inside each other"),
    "repeated copies": (
        pickled(LONG_TEXT + call("_codecs.encode", b"h\x00", text("latin1")) * 40),
        "again and again",
    ),
    "key of tuples": (pickled(b"}" + LAUGHS + b"Ns"), "as a key"),
    "unknown memory": (pickled(b"j\xff\xff\xff\xff"), "not there"),
    "empty stack": (pickled(b"a"), "empty stack"),
    "no mark": (pickled(b"t"), "mark"),
    "two values": (pickled(b"NN"), "one value"),
    "append to a text": (pickled(text("a") + b"Na"), "list"),
    "state of a list": (pickled(b"]}b"), "state for a list"),
    "dtype of objects": (pickled(call("numpy.dtype", text("O8"))), "numpy.dtype"),
    "long text": (b"\x80\x02X\xff\xff\xff\xffab.", "ends at byte"),
    "long number": (b"\x80\x02\x8b\xff\xff\xff\x7f.", "instruction"),
    "without an end": (b"\x80\x02N", "ends at byte"),
    "empty": (b"", "ends at byte"),
    "not UTF-8": (b"\x80\x02X\x02\x00\x00\x00\xff\xff.", "decode"),
    "no dictionary": (pickled(number(3)), "expected a dictionary"),
    "no array": (pickled(b"}"), "no array"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickles(tmp_path, name, capfd):
    """Each is refused by name, runs nothing and takes little memory."""
    body, message = HOSTILE[name]
    path = tmp_path / "net.pth"
    write_zip(path, body, [np.zeros(4, np.float32)])
    tracemalloc.start()
    with pytest.raises(ValueError, match=message) as error:
        io.read_checkpoint(path)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert str(path) in str(error.value) and "ran" not in capfd.readouterr().out
    assert taken < 4 << 20


def test_hostile_zips(tmp_path):
    path, body = tmp_path / "net.pth", pickled(Writer().value({"w": np.zeros(4, np.float32)}))
    data = [np.zeros(4, np.float32)]

    def refused(message):
        with pytest.raises(ValueError, match=message):
            io.read_checkpoint(path)

    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", body + bytes(1 << 20))
    refused("compressed")
    write_zip(path, body, data)
    inner = path.read_bytes()
    write_zip(path, body, data, **{"data/nested.zip": inner})
    assert list(io.read_checkpoint(path).arrays) == ["w"]  # never looked into
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("code.py", b"x")
    refused("found 0 members data.pkl")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", body)
        archive.writestr("b/data.pkl", body)
    refused("found 2 members data.pkl")
    write_zip(path, body, data, byteorder2=b"x")
    whole = path.read_bytes()
    for cut in (10, len(whole) // 2, len(whole) - 5):
        path.write_bytes(whole[:cut])
        refused(str(path))
    # Both members of the directory point to the first one: they share their bytes.
    at = whole.index(b"archive/data/0", whole.index(b"PK\x01\x02")) - 46
    first = whole.index(b"archive/byteorder", whole.index(b"PK\x01\x02")) - 46
    shared = bytearray(whole)
    shared[at + 42 : at + 46] = whole[first + 42 : first + 46]
    path.write_bytes(bytes(shared))
    refused("overlap|differ|begin")


def test_other_files_are_named(tmp_path):
    for name, data, message in [
        ("a.pth", b"hello", "neither like a zip"),
        ("a.pth", b"", "neither like a zip"),
        ("a.pth", b"\x1f\x8b123", "tar or gzip"),
        ("a.pth", pickle.dumps({"a": 1}, 2), "torch.save is missing"),
        ("a.xyz", b"", "ending"),
    ]:
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ValueError, match=message):
            io.read_checkpoint(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        io.read_checkpoint(tmp_path / "none.pth")


def test_mutated_files(tmp_path):
    """Every mutation is read or refused with the path; memory stays near the size of the file."""
    seeds = {}
    for name, legacy in (("zip.pth", False), ("old.pth", True)):
        save(tmp_path / name, CONTENT, legacy)
        seeds[name] = (tmp_path / name).read_bytes()
    header = {"w": entry([2, 3], 0, 24), "v": entry([4], 24, 32, "BF16")}
    seeds["a.safetensors"] = safetensors(header, bytes(range(32)))
    rng, opened = np.random.default_rng(int(os.environ.get("LATTICE_FUZZ_SEED", "0"))), 0
    tracemalloc.start()  # for the first files only: it takes most of the time
    for i in range(FUZZ):
        if i == 600:
            assert tracemalloc.get_traced_memory()[1] < 8 << 20
            tracemalloc.stop()
        name = list(seeds)[i % 3]
        path = tmp_path / name
        path.write_bytes(mutate(seeds[name], rng))
        try:
            for array in io.read_checkpoint(path).arrays.values():
                array.sum()
            opened += 1
        except ValueError as error:
            assert str(path) in str(error)
    assert 0 < opened < FUZZ
