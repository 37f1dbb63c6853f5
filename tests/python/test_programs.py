"""Programs: networks leave Python as one file and come back with equal bits."""

import threading
from pathlib import Path

import mlx.core as mx
import mlx.nn
import mlx_lattice as ml
import numpy as np
import pytest
from mlx_lattice import Program, _ext, io, models, nn, ops, points, samples, training
from mlx_lattice.programs import ExportError
from mlx_lattice.programs.export import same_bits

STORED = sorted((Path(__file__).parents[1] / "programs").glob("*.lattice.safetensors"))


def voxels(counts, seed=0, channels=4, span=12):
    rng = np.random.default_rng(seed)
    clouds = [np.unique(rng.integers(0, span, (n, 3)), axis=0) for n in counts]
    coords = [np.insert(c, 0, b, axis=1) for b, c in enumerate(clouds)]
    coords = np.concatenate(coords).astype(np.int32)
    feats = rng.standard_normal((len(coords), channels)).astype(np.float32)
    return ml.SparseTensor(coords, feats, batch_counts=[len(c) for c in clouds])


def clouds(lengths, channels=0, seed=1):
    rng = np.random.default_rng(seed)
    total = sum(lengths)
    feats = mx.array(rng.standard_normal((total, channels)).astype(np.float32))
    positions = mx.array(rng.uniform(-1, 1, (total, 3)).astype(np.float32))
    return points.PointCloudBatch(positions, feats if channels else None, lengths=lengths)


SPARSE = [voxels([120]), voxels([80, 0, 60], 1), voxels([1], 2)]
CLOUDS = [clouds([60]), clouds([40, 0, 30]), clouds([1])]
PTV3 = {
    "stride": (2,),
    "enc_depths": (1, 1),
    "enc_channels": (8, 16),
    "enc_num_head": (1, 2),
    "enc_patch_size": (32, 32),
    "dec_depths": (1,),
    "dec_channels": (8,),
    "dec_num_head": (1,),
    "dec_patch_size": (32,),
}


def ptv3(**options):
    return models.PointTransformerV3(4, 3, **{**PTV3, **options})


def window():
    return models.WindowUNet(4, 3, channels=(16, 32), depths=(1, 2), window=4)


NETWORKS = {
    "minkunet": lambda: models.MinkUNet(4, 3, depth=14, width=8),
    "resnet": lambda: models.SparseResNet(4, 5, depth=14, width=8),
    "second": lambda: models.SecondBackbone(4, (12, 12, 12), (8, 8, 8, 8), 16),
    "ptv3": ptv3,
    "ptv3_rpe": lambda: ptv3(enable_rpe=True),
    "ptv3_classes": lambda: ptv3(cls_mode=True),
    "window": window,
    "pointnet2": lambda: points.PointNet2(num_classes=3, width=4),
    "pointnet2_points": lambda: points.PointNet2(num_classes=3, width=4, per_point=True),
    "dgcnn": lambda: points.DGCNN(num_classes=3, channels=(8, 8), width=16, k=5),
    "pointcnn": lambda: points.PointCNNEncoder(num_layers=2, channels=8, k=4),
    "pointcnn_relative": lambda: points.PointCNNEncoder(
        num_layers=2, channels=8, k=4, use_rel_pos=True
    ),
    "xconv": lambda: points.PointCNNEncoder(num_layers=2, channels=8, k=4, xconv=True),
    "classifier": lambda: points.PointClassifier(num_classes=3, channels=(8, 8), blocks=1),
    "point_unet": lambda: points.PointUNet(num_classes=3, channels=(8, 8), blocks=(1, 1)),
}


def inputs_of(name):
    if name.startswith(("pointcnn", "xconv")):
        return [(batch.positions, batch) for batch in CLOUDS]
    dense = name in ("minkunet", "resnet", "second", "window") or name.startswith("ptv3")
    return [(x,) for x in (SPARSE if dense else CLOUDS)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net.lattice.safetensors"


@pytest.mark.parametrize("name", NETWORKS)
def test_round_trip(name, path):
    net = NETWORKS[name]().eval()
    inputs = inputs_of(name)
    ml.export(net, path, inputs[0], keep_example=True)
    program = Program.load(path)
    assert program.selftest()
    for given in inputs:
        assert same_bits(program(*given), net(*given))


@pytest.mark.parametrize("name", NETWORKS)
def test_packed_round_trip(name, path):
    net = NETWORKS[name]().eval()
    mlx.nn.quantize(net, group_size=32, bits=8)
    net.eval()
    inputs = inputs_of(name)
    ml.export(net, path, inputs[0])
    for given in inputs:
        assert same_bits(Program.load(path)(*given), net(*given))


@pytest.mark.parametrize("make", [lambda c: models.MinkUNet(c, 4, depth=14, width=4), None])
def test_points_to_labels(make, path):
    cloud = samples.scan()
    pipeline = training.VoxelPipeline(
        0.2, tuple(zip((3, 7, 11, 40), samples.CLASSES)), columns=("intensity",), widths=(1,)
    )
    net = make(pipeline.channels) if make else models.PointTransformerV3(7, 4, **PTV3)
    net.eval().export(path, example=cloud, pipeline=pipeline)
    program = Program.load(path)
    broken = cloud.points.copy()
    broken[5] = np.nan
    for given in (cloud, io.PointCloud(broken, dict(cloud.columns))):
        given.columns.pop("label", None)
        scan = pipeline.scan(given)
        expected = pipeline.point_labels(scan, training.predict_voxels(net, scan))
        found = program(**program.cloud_inputs(given))
        assert np.array_equal(np.array(found["labels"]), expected)
        assert np.array(found["scores"]).max() <= 1
    assert json_classes(program) == [[v, n] for v, n in pipeline.classes]


def test_points_to_labels_in_a_box(path):
    """A crop belongs to the pipeline, and so to the program."""
    cloud = samples.scan()
    box = (tuple(cloud.points.min(axis=0) + 0.5), tuple(cloud.points.max(axis=0) - 0.5))
    box = tuple(tuple(float(v) for v in corner) for corner in box)
    pipeline = training.VoxelPipeline(
        0.2, tuple(enumerate(samples.CLASSES)), columns=("intensity",), widths=(1,), crop=box
    )
    pipeline.save(path.with_name("pipeline.json"))
    pipeline = training.VoxelPipeline.load(path.with_name("pipeline.json"))
    net = models.MinkUNet(pipeline.channels, 4, depth=14, width=4).eval()
    net.export(path, example=cloud, pipeline=pipeline)
    program = Program.load(path)
    columns = {"intensity": cloud.columns["intensity"].astype(np.float32)}
    columns["intensity"][3] = np.nan
    points = cloud.points.astype(np.float64)
    points[3] = np.nan
    given = io.PointCloud(points, columns)
    scan = pipeline.scan(given)
    expected = pipeline.point_labels(scan, training.predict_voxels(net, scan))
    inside = ((points >= box[0]) & (points <= box[1])).all(axis=1)
    assert np.array_equal(expected >= 0, inside)
    found = program(**program.cloud_inputs(given))["labels"]
    assert np.array_equal(np.array(found), expected)
    far = io.PointCloud(points + 1000, columns)
    assert np.all(np.array(program(**program.cloud_inputs(far))["labels"]) == -1)
    columns["intensity"][4] = np.nan
    with pytest.raises(ValueError, match="not finite"):
        program.cloud_inputs(given)
    with pytest.raises(ValueError, match=r"crop: found .* the low and the high corner"):
        training.VoxelPipeline(0.2, pipeline.classes, crop=((1, 1, 1), (0, 2, 2)))


def json_classes(program):
    import json

    return json.loads(program._loaded.note("classes"))


class Own(mlx.nn.Module):
    """A user's module: our layers, MLX's layers, functions and operators between them."""

    def __init__(self):
        super().__init__()
        self.conv = nn.SubmConv3d(4, 8)
        self.linear = mlx.nn.Linear(8, 8)
        self.norm = mlx.nn.LayerNorm(8)
        self.scale = mx.ones((8,))
        self.table = mx.random.normal((8, 3))

    def __call__(self, x):
        y = self.conv(x)
        y = nn.ReLU()(y) * 0.5 + y
        f = self.norm(self.linear(y.feats)) * self.scale
        f = mlx.nn.relu(f) + mx.array([1.0] * 8)
        f += mx.sigmoid(y.feats)
        f = mx.clip(f, -2, mx.array(2.5)) / (mx.var(f, axis=1, keepdims=True, ddof=1) + 1).sqrt()
        f = f.reshape(f.shape[0], 2, 4).transpose(0, 2, 1).reshape(-1, 8)
        f = mx.concatenate([f[:, :3], mx.maximum(f[:, 3:], 0)], axis=1)
        soft = mx.softmax(f @ self.table, axis=-1)
        return {"rows": y.with_feats(f), "soft": soft, "mean": soft.mean(axis=1, keepdims=True)}


def test_own_module_with_several_outputs(path):
    net = Own().eval()
    ml.export(net, path, SPARSE[0])
    program = Program.load(path)
    for x in SPARSE:
        expected, found = net(x), program(x)
        assert list(found) == sorted(expected)
        assert all(same_bits(found[name], expected[name]) for name in expected)
    assert "relu" in program.text
    assert "dropout" not in program.text


class Leading(mlx.nn.Module):
    """Reads at most 16 rows: both inputs of an export have more, so that their sizes are equal."""

    def __call__(self, x):
        rows = x.feats[:16]
        return rows.reshape(rows.shape[0], 2, 2).sum(axis=2).flatten(0, 1)


def test_rows_that_are_equal_by_chance_stay_free(path):
    ml.export(Leading().eval(), path, SPARSE[0])
    program = Program.load(path)
    for given in SPARSE:
        assert same_bits(program(given), Leading()(given))


def test_equal_programs_have_equal_bytes(tmp_path):
    net = NETWORKS["minkunet"]().eval()
    files = [tmp_path / f"{i}.lattice.safetensors" for i in range(2)]
    for file, x in zip(files, (SPARSE[0], SPARSE[1])):
        ml.export(net, file, x)
    assert files[0].read_bytes() == files[1].read_bytes()
    arrays, header = mx.load(str(files[0]), return_metadata=True)
    assert header["format"] == "lattice-program"
    assert "head.weight" in arrays


class Refused(mlx.nn.Module):
    def __init__(self, call):
        super().__init__()
        self.conv, self._call = nn.SubmConv3d(4, 4), call

    def __call__(self, x):
        return self._call(self.conv(x))


def by_rows(x):
    return x * float(x.active_count)


def by_branch(x):
    return nn.ReLU()(x) if x.active_count > 150 else nn.SiLU()(x)


def by_loop(x):
    for _ in range(x.batch_size):
        x = nn.ReLU()(x)
    return x


def by_array(x):
    return x.with_feats(x.feats * mx.array(np.ones(len(x), np.float32))[:, None])


def by_function(x):
    return mx.sort(x.feats, axis=0)


def by_operation(x):
    return ops.morton_order(x.coords)


def by_method(x):
    return x.sorted()[0]


def by_transform(x):
    return mx.vmap(lambda row: row * 2)(x.feats)


def by_index(x):
    return x.feats.at[0].add(1.0)


def by_first_value(x):
    return x * x.feats[0, 0].item()


def by_largest_value(x):
    return x * mx.max(x.feats).item()


def by_largest_coordinate(x):
    return x * int(np.array(x.coords).max())


def by_leading_values(x):
    return x * mx.array(np.array(x.feats)[:1])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (by_rows, ["multiply", "on one input and", "test_programs.py:"]),
        (by_branch, ["activation", "silu", "relu", "test_programs.py:"]),
        (by_loop, ["activation", "depends on the data", "test_programs.py:"]),
        (by_array, ["multiply", "test_programs.py:"]),
        (by_function, ["mx.sort", "test_programs.py:"]),
        (by_operation, ["morton_order", "test_programs.py:"]),
        (by_method, ["SparseTensor.sorted", "test_programs.py:"]),
        (by_transform, ["mx.vmap", "test_programs.py:"]),
        (by_index, ["array.at", "test_programs.py:"]),
        (by_first_value, ["multiply", "test_programs.py:"]),
        (by_largest_value, ["multiply", "test_programs.py:"]),
        (by_largest_coordinate, ["multiply", "test_programs.py:"]),
        (by_leading_values, ["multiply", "test_programs.py:"]),
    ],
)
def test_refusals_name_operation_and_line(call, words, path):
    with pytest.raises(ExportError) as error:
        ml.export(Refused(call).eval(), path, SPARSE[0])
    assert [w for w in words if w not in str(error.value)] == []
    assert not path.exists()
    assert (mx.ones((2,)) + 1).tolist() == [2, 2]  # nobody listens any more
    assert type(mx.maximum).__name__ == type(_ext.conv3d).__name__ == "nb_func"


def test_wrong_calls(path):
    net = NETWORKS["minkunet"]()
    with pytest.raises(ValueError, match=r"model\.eval\(\)"):
        net.train().export(path, example=SPARSE[0])
    net.eval()
    with pytest.raises(ValueError, match="must end in"):
        net.export(path.with_name("net.safetensors"), example=SPARSE[0])
    with pytest.raises(TypeError, match="example"):
        net.export(path, example="scan")
    net.export(path, example=SPARSE[0])
    program = Program.load(path)
    with pytest.raises(ValueError, match="input `x` must be sparse"):
        program(mx.ones((3, 4)))
    with pytest.raises(ValueError, match="input `x` is missing"):
        program()
    with pytest.raises(ValueError, match="no input `y"):
        program(SPARSE[0], y=SPARSE[0])
    with pytest.raises(ValueError, match="found sparse f32"):
        program(voxels([5], channels=3))
    with pytest.raises(FileNotFoundError):
        Program.load(path.with_name("none.lattice.safetensors"))


HEAD = "lattice-program 1\ninput x: sparse f32[?, 4] stride=[1,1,1]\n"
CONV = "kernel_size=[1,1,1] dilation=[1,1,1] groups=1\noutput y = a\n"


@pytest.mark.parametrize(
    ("body", "shape", "words"),
    [
        (f'a = subm_conv3d@1(x, "w", _) {CONV}', None, ["line 3", "no tensor", "export"]),
        (f'a = subm_conv3d@1(x, "w", _) {CONV}', (8, 5), ["line 3", "C_out, 4", "8, 5", "export"]),
        (
            f'a = subm_conv3d@1(b, "w", _) {CONV}',
            (8, 4),
            ["line 3", "`b`", "earlier line"],
        ),
        (f'a = subm_conv3d@1(a, "w", _) {CONV}', (8, 4), ["line 3", "cycle"]),
        (
            f'a = subm_conv3d@1(x, "w", _) size=3 {CONV}',
            (8, 4),
            ["line 3", "`size`", "remove it"],
        ),
        (f'a = subm_conv3d@7(x, "w", _) {CONV}', (8, 4), ["line 3", "version 7"]),
        (f'a = fly@1(x, "w", _) {CONV}', (8, 4), ["line 3", "unknown operation `fly`"]),
        (f"a = subm_conv3d@1(x, x, _) {CONV}", (8, 4), ["line 3", "`weight`"]),
        ("a = relu@1(x)\noutput y = a\n", (8, 4), ["does not read", '"w"']),
        ("a = relu_features@1(x)\noutput y = a\n", None, ["line 3", "must be array", "`x`"]),
        ("a = relu@1(x)\na = relu@1(x)\noutput y = a\n", None, ["line 4", "defined twice"]),
        ("a = relu@1(x)\n", None, ["no output"]),
    ],
)
def test_messages_name_the_line(body, shape, words):
    tensors = {} if shape is None else {"w": mx.ones(shape)}
    with pytest.raises(ValueError, match="Program") as error:
        _ext.LoadedProgram.load_memory(_ext.program_bytes(HEAD + body, tensors, {}))
    assert [w for w in words if w not in str(error.value)] == []


@pytest.fixture(scope="module")
def mink(tmp_path_factory):
    path = tmp_path_factory.mktemp("programs") / "net.lattice.safetensors"
    net = NETWORKS["minkunet"]().eval()
    net.export(path, example=SPARSE[0])
    return net, Program.load(path)


def test_commands(tmp_path, capsys):
    from mlx_lattice import cli

    cloud = samples.scan()
    pipeline = training.VoxelPipeline(0.2, tuple(enumerate(samples.CLASSES)))
    net = models.MinkUNet(pipeline.channels, 4, depth=14, width=4).eval()
    run = tmp_path / "run"
    run.mkdir()
    net.save(run / "model.safetensors")
    pipeline.save(run / "pipeline.json")
    scan, file = str(tmp_path / "scan.ply"), str(tmp_path / "net.lattice.safetensors")
    io.write(scan, io.PointCloud(cloud.points, {"intensity": cloud.columns["intensity"]}))
    assert cli.main(["export", str(run), scan, file, "--example"]) == 0
    assert cli.main(["info", file, "--rows", "1000"]) == 0
    assert cli.main(["selftest", file]) == 0
    labels = []
    for words in (["--program", file], [str(run)]):
        out = str(tmp_path / "labeled.ply")
        assert cli.main(["predict", *words, scan, out]) == 0
        labels.append(io.read(out).columns["label"])
    assert np.array_equal(*labels)
    text = capsys.readouterr().out
    for word in ("input points", "f32[?, 3]", "conv_norm@2", "MiB", "0 ground", "stored result"):
        assert word in text


def test_limits_are_errors_and_never_cut(mink):
    _, program = mink
    x = SPARSE[0]
    for limits in ({"max_points": 10}, {"max_rows": 10}, {"max_bytes": 100}):
        name = next(iter(limits))
        with pytest.raises(ValueError, match=name):
            program.session(**limits).run({"x": x})
    assert len(program.session(max_points=len(x)).run({"x": x})["output"]) == len(x)


def test_stats_and_trace(mink):
    _, program = mink
    session = program.session()
    session.trace(["v1"])
    session.run({"x": SPARSE[0]})
    assert session.traced["v1"].same_coords(SPARSE[0])
    stats = session.stats
    assert stats["rows"][0] == len(SPARSE[0])
    assert len(stats["rows"]) == 5
    assert stats["bytes"] > 0
    assert stats["features"] > 0
    with pytest.raises(ValueError, match="no value `nothing`"):
        session.trace(["nothing"])


@pytest.mark.parametrize("name", ["minkunet", "ptv3_rpe", "pointnet2_points", "classifier"])
def test_prepared_frames(name, path):
    net = NETWORKS[name]().eval()
    given = inputs_of(name)[1]
    ml.export(net, path, inputs_of(name)[0])
    program = Program.load(path)
    frames = []
    values = program._inputs(given, {})
    worker = threading.Thread(target=lambda: frames.append(program.session().prepare(values)))
    worker.start()
    worker.join()
    assert same_bits(program.session().run(frames[0])["output"], net(*given))


def test_threads_share_a_program(mink):
    net, program = mink
    expected, found = [net(x) for x in SPARSE], {}

    def work(i):
        session = program.session()
        found[i] = [session.run({"x": x})["output"] for x in SPARSE * 3]

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(found) == 4
    for results in found.values():
        assert all(same_bits(a, b) for a, b in zip(results, expected * 3))


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.name.partition(".")[0])
def test_a_stored_program_still_loads(path):
    """Written when programs came; every later version must load it and give the same result."""
    program = Program.load(path)
    inputs, outputs = program._loaded.example
    found = program.session().run(inputs)
    for name, value in outputs.items():
        parts = [(found[name], value)]
        if isinstance(value, ml.SparseTensor):
            parts = [(found[name].coords, value.coords), (found[name].feats, value.feats)]
        for part, expected in parts:
            assert np.allclose(np.array(part), np.array(expected), rtol=1e-4, atol=1e-5)


def test_every_function_of_the_table_is_known():
    """Operations have the names and arguments of the functions that Python calls."""
    from mlx_lattice.programs.listening import _parameters
    from mlx_lattice.programs.recorder import ALIASES

    added = {"causal"}
    for name, _version, operands, attributes, _results in _ext.program_operations():
        function = getattr(_ext, name, None)
        if function is None:
            continue
        known = set(_parameters(function)) | added
        known |= {name for name, other in ALIASES.items() if other in known}
        assert {o[0] for o in operands} | {a[0] for a in attributes} <= known, name


def operation_line(name, version, operands, attributes, results):
    marks = ("{}", "{}?", "[{}]")
    given = ", ".join(marks[form].format(f"{n}: {kind}") for n, kind, form in operands)
    named = " ".join(
        f"{n}: {kind}{'' if length < 0 else f' {length}'}{'?' if optional else ''}"
        for n, kind, optional, length in attributes
    )
    made = ", ".join(results).replace("array*", "arrays")
    return f"| `{name}@{version}` | {given.replace('|', ' or ')} | {named or '-'} | {made} |"


def test_page_lists_all_operations():
    """docs/programs.md is complete enough to write another reader."""
    page = (Path(__file__).parents[2] / "docs/programs.md").read_text()
    for row in _ext.program_operations():
        assert operation_line(*row) in page
