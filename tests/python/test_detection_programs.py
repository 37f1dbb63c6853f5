"""Detectors as program files: the boxes of a program are those of the network, bit by bit."""

import ctypes as c
import json

import mlx.core as mx
import mlx.nn
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lattice import Program, export, io, nn, ops, samples
from mlx_lattice.core import SparseTensor
from mlx_lattice.models import detection
from mlx_lattice.programs import examples
from mlx_lattice.programs.export import program_bytes
from mlx_lattice.training.detection import street_config
from test_c_interface import lib, load, view_of  # noqa: F401
from test_detection import NAMES, Recorded


def outputs_of(program, net, points):
    columns = {name: points[:, 3 + i] for i, name in enumerate(net.columns)}
    return program(points=points[:, :3], **columns)


def check(found, expected):
    assert np.array_equal(found["boxes"], expected.boxes)
    assert np.array_equal(found["scores"], expected.scores)
    assert np.array_equal(found["labels"], expected.labels)
    assert found["dropped"].tolist() == list(expected.dropped.values())
    if expected.velocities is None:
        assert "velocities" not in found
    else:
        assert np.array_equal(found["velocities"], expected.velocities)


@pytest.mark.parametrize("name", NAMES)
def test_program_gives_the_boxes_of_the_network(name, tmp_path):
    recorded = Recorded(name)
    net = recorded.net()
    path = tmp_path / "net.lattice.safetensors"
    net.export(path, recorded.frames[0])
    program = Program.load(path)
    for points in recorded.frames:
        expected = net.detect(points)
        assert len(expected)
        check(outputs_of(program, net, points), expected)
    points = recorded.frames[0]
    for few in (points[:0], points[:1], np.full_like(points[:3], 900)):
        check(outputs_of(program, net, few), net.detect(few))
    assert len(net.detect(points[:0])) == 0
    shuffled = np.random.default_rng(0).permutation(points)
    check(outputs_of(program, net, shuffled), net.detect(shuffled))


def variants():
    recorded = Recorded("second")
    nms = {**recorded.config["model"]["POST_PROCESSING"]["NMS_CONFIG"]}
    yield "second", {"NMS_CONFIG": {**nms, "MULTI_CLASSES_NMS": True}}
    yield "second", {"NMS_CONFIG": {**nms, "NMS_TYPE": "nms_normal_gpu"}}


@pytest.mark.parametrize("name, change", list(variants()))
def test_rules_of_suppression(name, change, tmp_path):
    recorded = Recorded(name)
    recorded.config["model"]["POST_PROCESSING"].update(change)
    net = recorded.net("spconv")
    path = tmp_path / "net.lattice.safetensors"
    net.export(path, recorded.frames[0])
    points = recorded.frames[-1]
    expected = net.detect(points)
    assert len(expected)
    check(outputs_of(Program.load(path), net, points), expected)


def test_clouds_and_classes(tmp_path):
    frame = samples.street_boxes(1)
    config = street_config(width=8)
    config["model"]["POST_PROCESSING"]["SCORE_THRESH"] = 0.01
    config["model"]["VFE"].update({"NUM_FILTERS": [8, 8], "WITH_DISTANCE": True})
    net = detection.Detector(config).eval()
    far = frame.points[:, :3].astype(np.float64)
    cloud = io.PointCloud(far, {"intensity": frame.points[:, 3]})
    path = tmp_path / "net.lattice.safetensors"
    export(net, path, cloud, keep_example=True)
    program = Program.load(path)
    assert program.selftest()
    assert [name for _, name in json.loads(program.note("classes"))] == config["class_names"]
    expected = net.detect(np.column_stack([far, frame.points[:, 3]]).astype(np.float32))
    check(program(**program.cloud_inputs(cloud)), expected)  # float64 keeps its place
    with pytest.raises(ValueError, match=r"points of shape \(N, 4\)"):
        net.export(path, frame.points[:, :3])
    with pytest.raises(ValueError, match="training mode"):
        net.train().export(path, cloud)


def test_session_of_c(lib, tmp_path):  # noqa: F811
    recorded = Recorded("pointpillars")
    net = recorded.net()
    path = tmp_path / "net.lattice.safetensors"
    net.export(path, recorded.frames[0])
    records = np.ascontiguousarray(recorded.frames[0], np.float32)
    code, program = load(lib, path)
    assert code == 0
    session = c.c_void_p()
    assert lib.lattice_session_new(program, c.byref(session)) == 0
    points, intensity = view_of(records[:, :3]), view_of(records[:, 3:])
    assert lib.lattice_session_set(session, b"points", c.byref(points)) == 0
    assert lib.lattice_session_set(session, b"intensity", c.byref(intensity)) == 0
    assert lib.lattice_session_run(session) == 0
    boxes = view_of(records)
    assert lib.lattice_session_get(session, b"boxes", c.byref(boxes)) == 0
    shape = tuple(boxes.shape[:2])
    values = np.ctypeslib.as_array(c.cast(boxes.data, c.POINTER(c.c_float)), shape)
    assert np.array_equal(values, net.detect(records).boxes)
    lib.lattice_session_free(session)
    lib.lattice_program_free(program)


def test_reached_layers_and_maps(tmp_path):
    """Layers that no detector has: transposed and inverse forms, pools, other orders."""

    class Net(mlx.nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.Conv3d(3, 4, 3, 2, 1, support="reached", order="spconv")
            self.up = nn.ConvTranspose3d(4, 4, 2, 2, support="reached")
            self.back = mx.random.normal((2, 3, 3, 3, 4))

        def __call__(self, coords, feats):
            x = SparseTensor(coords, feats).with_bounds(((0, 0, 0), (9, 9, 9)))
            y = self.down(x)
            back = ops.inverse_conv3d(y, self.back, x, kernel_size=3, stride=2, padding=1)
            pooled = ops.max_pool3d(y, kernel_size=2, stride=2, support="reached")
            total = ops.sum_over(ops.merge_levels([y, pooled]), 0)
            seen = ops.to_map(ops.from_map(ops.to_map(total, (5, 5), batch_size=1), stride=2))
            return {"back": back.feats, "up": self.up(y).feats, "map": seen}

    rows = np.unique(np.random.default_rng(0).integers(0, 9, (60, 3)), axis=0)
    coords = mx.array(np.insert(rows, 0, 0, axis=1).astype(np.int32))
    feats = mx.random.normal((len(rows), 3))
    net = Net().eval()
    path = tmp_path / "net.lattice.safetensors"
    first = examples.inputs_of(net, {"coords": coords, "feats": feats})
    other = examples.inputs_of(net, {"coords": coords[:40], "feats": feats[:40]})
    weights = dict(tree_flatten(net.parameters()))
    path.write_bytes(
        program_bytes(lambda inputs: examples.call(net, inputs), weights, {}, first, other)
    )
    program = Program.load(path)
    assert "conv3d@2" in program.text
    found = program(coords=coords[10:], feats=feats[10:])
    for key, value in net(coords[10:], feats[10:]).items():
        assert np.array_equal(found[key], value), key
    with pytest.raises(ValueError, match=r"no reached supports|no operation"):
        program.export_mlir(tmp_path / "older")
