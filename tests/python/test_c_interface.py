"""The C interface through ctypes: codes, texts, byte strides, threads, and release_memory."""

import ctypes as c
import threading
from pathlib import Path

import mlx.core as mx
import mlx_lattice
import numpy as np
import pytest
from mlx_lattice import io, models, ops, samples, training

RANK = 8


class View(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("data", c.c_void_p),
        ("dtype", c.c_int32),
        ("rank", c.c_int32),
        ("shape", c.c_int64 * RANK),
        ("strides", c.c_int64 * RANK),
    ]


class Options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("threads", c.c_int32),
        ("max_points", c.c_int64),
        ("max_rows", c.c_int64),
        ("max_bytes", c.c_int64),
    ]


class Io(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("name", c.c_char_p),
        ("is_output", c.c_int32),
        ("dtype", c.c_int32),
        ("rank", c.c_int32),
        ("shape", c.c_int64 * RANK),
    ]


CODES = {np.dtype(np.float32): 10, np.dtype(np.int32): 6, np.dtype(np.float64): 11}


@pytest.fixture(scope="module")
def lib():
    lib = c.CDLL(str(next((Path(mlx_lattice.__file__).parent / "lib").glob("liblattice.*"))))
    lib.lattice_error.restype = lib.lattice_last_error.restype = c.c_char_p
    lib.lattice_error.argtypes = [c.c_void_p]
    for name in ("program_free", "session_free"):
        getattr(lib, f"lattice_{name}").argtypes = [c.c_void_p]
        getattr(lib, f"lattice_{name}").restype = None
    lib.lattice_session_new.argtypes = [c.c_void_p, c.c_void_p]
    lib.lattice_session_set.argtypes = [c.c_void_p, c.c_char_p, c.c_void_p]
    lib.lattice_session_get.argtypes = [c.c_void_p, c.c_char_p, c.c_void_p]
    lib.lattice_session_run.argtypes = [c.c_void_p]
    lib.lattice_program_describe.argtypes = [c.c_void_p, c.c_void_p, c.c_void_p]
    return lib


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """(path of a program, records x y z intensity, labels by Python)."""
    mx.random.seed(1)
    classes = tuple((3 * i, name) for i, name in enumerate(samples.CLASSES))
    pipeline = training.VoxelPipeline(0.3, classes, columns=("intensity",), widths=(1,))
    net = models.MinkUNet(pipeline.channels, 4, depth=14, width=4).eval()
    yard = samples.scan()
    cloud = io.PointCloud(yard.points, {"intensity": yard.columns["intensity"]})
    path = tmp_path_factory.mktemp("c") / "net.lattice.safetensors"
    net.export(path, example=cloud, pipeline=pipeline)
    scan = pipeline.scan(cloud)
    labels = pipeline.point_labels(scan, training.predict_voxels(net, scan))
    columns = [cloud.points, cloud.columns["intensity"]]
    return path, np.column_stack(columns).astype(np.float32), labels


def view_of(array):
    view = View(c.sizeof(View), array.ctypes.data, CODES[array.dtype], array.ndim)
    view.shape[: array.ndim] = array.shape
    view.strides[: array.ndim] = array.strides
    return view


def load(lib, path, **options):
    program = c.c_void_p()
    given = Options(c.sizeof(Options), **options)
    code = lib.lattice_program_load(str(path).encode(), c.byref(given), c.byref(program))
    return code, program


def label(lib, program, records):
    session = c.c_void_p()
    assert lib.lattice_session_new(program, c.byref(session)) == 0
    points, intensity = records[:, :3], records[:, 3]
    for name, array in (("points", points), ("intensity", intensity)):
        assert lib.lattice_session_set(session, name.encode(), c.byref(view_of(array))) == 0
    code, view = lib.lattice_session_run(session), View()
    if code:
        text = lib.lattice_error(session).decode()
        lib.lattice_session_free(session)
        return code, text
    assert lib.lattice_session_get(session, b"labels", c.byref(view)) == 0
    found = (c.c_int32 * view.shape[0]).from_address(view.data)
    labels = np.array(found)
    lib.lattice_session_free(session)
    return 0, labels


def test_labels_are_those_of_python(lib, network):
    path, records, expected = network
    code, program = load(lib, path)
    assert code == 0, lib.lattice_last_error()
    code, labels = label(lib, program, records)
    assert code == 0 and np.array_equal(labels, expected)
    backwards = np.ascontiguousarray(records[::-1])[::-1]  # negative strides
    assert np.array_equal(label(lib, program, backwards)[1], expected)
    records = records.copy()
    records[5, 1] = np.nan
    assert label(lib, program, records)[1][5] == -1
    lib.lattice_program_free(program)


def test_threads_share_a_program(lib, network):
    path, records, expected = network
    _, program = load(lib, path)
    found = [None] * 4

    def work(i):
        found[i] = [label(lib, program, records)[1] for _ in range(2)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(labels, expected) for some in found for labels in some)
    lib.lattice_program_free(program)


def test_ports_are_described(lib, network):
    _, program = load(lib, network[0])
    count, ports = c.c_int32(8), (Io * 8)()
    assert lib.lattice_program_describe(program, ports, c.byref(count)) == 0
    found = [(p.name.decode(), p.is_output, p.dtype) for p in ports[: count.value]]
    assert found[:2] == [("points", 0, 10), ("intensity", 0, 10)]
    assert ("labels", 1, 6) in found
    lib.lattice_program_free(program)


def test_errors_have_codes_and_texts(lib, network, tmp_path):
    path, records, _ = network
    code, _ = load(lib, tmp_path / "none")
    assert code == 2 and b"does not exist" in lib.lattice_last_error()
    assert load(lib, path, max_points=-1)[0] == 1
    assert lib.lattice_program_load(None, None, None) == 1
    _, program = load(lib, path, max_points=10)
    code, text = label(lib, program, records)
    assert code == 4 and "max_points" in text
    lib.lattice_program_free(program)
    _, program = load(lib, path)
    session = c.c_void_p()
    lib.lattice_session_new(program, c.byref(session))
    assert lib.lattice_session_run(session) == 1
    assert b'"points" is missing' in lib.lattice_error(session)
    view = view_of(records)
    assert lib.lattice_session_set(session, b"other", c.byref(view)) == 1
    view.size = 3
    assert lib.lattice_session_set(session, b"points", c.byref(view)) == 1
    view = view_of(records)
    view.dtype = 99
    assert lib.lattice_session_set(session, b"points", c.byref(view)) == 1
    view = view_of(records)
    view.shape[0] = -4
    assert lib.lattice_session_set(session, b"points", c.byref(view)) == 1
    assert lib.lattice_session_get(session, b"labels", c.byref(view)) == 1
    lib.lattice_program_free(program)
    lib.lattice_session_free(session)  # a session keeps its program alive


def test_nothing_is_too_hostile(lib, network, tmp_path):
    data = bytearray(network[0].read_bytes())
    rng = np.random.default_rng(0)
    for _ in range(50):
        bad = data.copy()
        for at in rng.integers(0, 4000, 3):
            bad[at] = rng.integers(0, 256)
        program, given = c.c_void_p(), bytes(bad)
        size = c.c_size_t(len(given))
        code = lib.lattice_program_load_memory(given, size, None, c.byref(program))
        assert (code == 0) == bool(program)
        lib.lattice_program_free(program)


def test_memory_goes_back(lib):
    lib.lattice_release_memory()
    assert mx.get_cache_memory() == 0


class Codec(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("model", c.c_char_p),
        ("fast", c.c_int32),
        ("voxel_size", c.c_double),
        ("origin", c.c_double * 3),
        ("sensor", c.c_double * 3),
    ]


def test_files_of_voxels(lib):
    coords = np.array([[0, 5, -2, 1], [0, 4, -2, 1], [0, 90, 7, 3]], np.int32)
    pointer = coords.ctypes.data_as(c.c_void_p)
    lib.lattice_encode.argtypes = [c.c_void_p, c.c_int64] + 3 * [c.c_void_p]
    lib.lattice_decode.argtypes = [c.c_void_p, c.c_size_t] + 3 * [c.c_void_p]
    for model in (b"lidar", b"octree", b"auto"):
        codec = Codec(c.sizeof(Codec), model, 0, 0.5, (1, 2, 3), (4, 5, 6))
        room = c.c_size_t(3)
        call = (pointer, 3, c.byref(codec))
        assert lib.lattice_encode(*call, None, c.byref(room)) == 4  # LATTICE_LIMIT
        data = (c.c_uint8 * room.value)()
        assert lib.lattice_encode(*call, data, c.byref(room)) == 0
        expected = ops.encode_points(
            coords, voxel_size=0.5, origin=(1, 2, 3), model=model.decode(), sensor=(4, 5, 6)
        )
        assert bytes(data) == expected
        rows, back, told = c.c_int64(0), np.zeros((3, 4), np.int32), Codec(c.sizeof(Codec))
        file = (data, len(data))
        assert lib.lattice_decode(*file, None, c.byref(rows), None) == 4 and rows.value == 3
        target = back.ctypes.data_as(c.c_void_p)
        assert lib.lattice_decode(*file, target, c.byref(rows), c.byref(told)) == 0
        assert back.tolist() == ops.decode_points(bytes(data)).coords.tolist()
        assert told.voxel_size == 0.5 and list(told.origin) == [1, 2, 3]
    assert lib.lattice_decode(b"MLAT", 4, None, c.byref(rows), None) == 1
    assert b"decode_points" in lib.lattice_last_error()
    codec = Codec(c.sizeof(Codec), b"zip")
    assert lib.lattice_encode(pointer, 3, c.byref(codec), None, c.byref(room)) == 1
    assert lib.lattice_encode(None, 3, None, None, c.byref(room)) == 1
