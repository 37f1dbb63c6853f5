"""What an attack with hostile calls found: one test per finding, numbered as the findings were.

Crashes run in a child process.
"""

import copy
import json
import os
import pickle
import resource
import signal
import struct
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx_lattice import (
    SparseTensor,
    cli,
    core,
    io,
    models,
    nn,
    ops,
    points,
    training,
    transforms,
    viewer,
)
from mlx_lattice._atomic import atomic_file

rng = np.random.default_rng


def survives(code):
    """Runs code in a child process; it must end by itself with status 0."""
    code = "import mlx.core as mx, mlx_lattice as ml, numpy as np\n" + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    return done.stdout


class full_disk:
    """Files of this process cannot grow beyond `size` bytes."""

    def __init__(self, size):
        self.size = size

    def __enter__(self):
        self.old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, resource.RLIM_INFINITY))

    def __exit__(self, *error):
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        signal.signal(signal.SIGXFSZ, self.old)


def cloud_of(n=300, seed=0, **columns):
    return io.PointCloud(rng(seed).random((n, 3)).astype(np.float32), columns)


# Crashes.


@pytest.mark.parametrize("form", [{}, {"use_rel_pos": True}, {"xconv": True, "k": 2}])
@pytest.mark.parametrize("row", [5, -7, 2**30])
def test_01_neighbor_rows_are_checked(form, row):
    conv = points.PointCNNConv(4, 4, **form)
    idx = mx.array([[row, 0], [0, 0], [0, 0]])
    with pytest.raises(
        ValueError, match=r"\[(PointCNNConv|indexed_segment_reduce)\].*(holds|is outside)"
    ):
        conv(mx.ones((3, 4)), mx.ones((3, 3)), idx, mx.zeros((3, 2, 3)))


def test_02_labels_and_weights_are_checked():
    loss, logits = training.classification_loss, mx.zeros((3, 4))
    good = mx.array([0, 1, -1])
    for labels, weights, text in (
        (mx.array([7, 0, 1]), None, "labels holds 7"),
        (mx.array([7, 0, 1]), mx.ones((4,)), "labels holds 7"),
        (good, mx.ones((2,)), "weights must have shape"),
        (mx.array([0]), None, "labels must have shape"),
    ):
        with pytest.raises(ValueError, match=text):
            loss(logits, labels, weights)
    with pytest.raises(TypeError, match="labels must hold integers"):
        loss(logits, mx.array([0.5, 1.0, 2.0]))
    assert loss(logits, good).item() == pytest.approx(np.log(4))
    traced = mx.compile(loss)(logits, mx.array([2**30, 0, 1]), mx.ones((4,)))
    assert np.isnan(traced.item())  # a traced label has no value to check, and nothing is read


@pytest.mark.parametrize("items", [0, 3])
def test_03_short_state(items):
    state = (mx.zeros((1, 4), mx.int32), mx.ones((1, 2)), (1, 1, 1))[:items]
    for broken in (state, (1, 2, 3, 4)):
        with pytest.raises(ValueError, match=r"\[SparseTensor\] state must be"):
            SparseTensor.__new__(SparseTensor).__setstate__(broken)


def test_04_logs_end_in_any_order():
    survives("""
        import threading
        from mlx_lattice._explain import DecisionLog
        x = ml.SparseTensor(mx.array([[0, 0, 0, 0], [0, 1, 0, 0]]), mx.ones((2, 4)))
        w = mx.ones((4, 3, 3, 3, 4))
        a, b = DecisionLog(), DecisionLog()
        a.__enter__(); b.__enter__(); a.__exit__(None, None, None)
        ml.ops.subm_conv3d(x, w)
        assert len(a.decisions) == 0
        assert [d.operation for d in b.decisions] == ["relate", "conv"]
        t = threading.Thread(target=lambda: b.__exit__(None, None, None)); t.start(); t.join()
        del a, b
        for _ in range(20): mx.eval(ml.ops.subm_conv3d(x, w).feats)
        """)


def test_05_zero_channels():
    survives("""
        c = mx.array([[0, 3, 0, 0], [1, 1, 0, 0], [0, 2, 0, 0]]); f = mx.zeros((3, 0))
        x = ml.SparseTensor(c, f)
        assert x.to_dense().shape == (2, 4, 1, 1, 0)
        mx.eval(mx.grad(lambda f: x.replace(feats=f).sorted()[0].feats.sum())(f))
        mx.eval(mx.grad(lambda f: sum(a.sum() for a in x.replace(feats=f).decomposed_features))(f))
        mask = mx.ones((1, 2, 2, 2), mx.bool_)
        total = lambda d: ml.SparseTensor.from_dense(d, mask=mask).feats.sum()
        mx.eval(mx.grad(total)(mx.zeros((1, 2, 2, 2, 0))))
        """)


def test_06_numpy_views_do_not_reach_geometry():
    survives("""
        from mlx_lattice import core, ops, points
        c = np.zeros((1000, 4), np.int32); c[:, 1] = np.arange(1000)
        view = lambda a: np.array(a, copy=False)
        a = mx.array(c); x = ml.SparseTensor(a, mx.ones((1000, 4))); view(a)[:, 0] = 2**28
        assert len(x.batch_rows) == 1
        x = ml.SparseTensor(mx.array(c), mx.ones((1000, 4))); view(x.coords)[:, 0] = 2**28
        assert len(x.batch_rows) == 1
        r = ops.build_kernel_relation(mx.array(c), 3); view(r.edges.in_rows)[:] = 2**30; r.input_csr
        assert max(r.edges.in_rows.tolist()) < 1000
        for v in (r.output_csr, r.kernel_csr):
            view(v.row_offsets)[:] = 2**30; view(v.edge_ids)[:] = 2**30
        view(r.implicit_gemm.out_in_map)[:] = 2**30
        mx.eval(points.point_conv(mx.ones((1000, 4)), mx.ones((27, 1, 4, 4)), r))
        i = mx.array(np.zeros(5, np.int32))
        r = core.KernelRelation(i, i, i, n_in=1, n_out=1, n_kernels=1); view(i)[:] = 2**30
        y = points.point_conv(mx.ones((1, 4)), mx.ones((1, 1, 4, 4)), r)
        assert y.tolist() == [[20.0] * 4]
        n = ops.build_knn_relation(mx.array(c), k=2); view(n.edges.source_rows)[:] = 2**30
        view(n.row_offsets)[:] = 2**30
        mx.eval(ops.gather_neighbor_features(mx.ones((1000, 2)), n))
        """)


def test_07_memory_shortage_is_an_error():
    survives("""
        import resource
        from mlx_lattice import ops
        c = np.unique(np.random.default_rng(0).integers(0, 60, (60000, 3)), axis=0)
        C = mx.array(np.concatenate([np.zeros((len(c), 1)), c], 1).astype(np.int32))
        mx.set_cache_limit(0); found = 0
        kept = [ops.build_transposed_kernel_relation(C)]  # threads begin, and have their memory
        for extra in range(1, 40):
            lim = int(open("/proc/self/statm").read().split()[0]) * 4096 + (extra << 20)
            resource.setrlimit(resource.RLIMIT_AS, (lim, resource.RLIM_INFINITY))
            try: kept.append(ops.build_transposed_kernel_relation(C))  # the pool is used up
            except MemoryError: found += 1
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
        assert found
        """)


# Silent errors.


@pytest.mark.parametrize("form", ["ply", "pcd", "npy", "bin", "npz", "las", "csv"])
def test_08_and_18_a_full_disk_is_an_error_and_the_old_file_stays(form, tmp_path):
    cloud = cloud_of(2000, intensity=np.ones(2000, np.float32))
    path = tmp_path / "velodyne" / f"a.{form}"
    path.parent.mkdir()
    io.write(path, cloud)
    old = path.read_bytes()
    for lack in (1, 1000):
        with full_disk(len(old) - lack), pytest.raises(OSError):
            io.write(path, cloud)
        assert path.read_bytes() == old and os.listdir(path.parent) == [path.name]
    link = tmp_path / f"full.{form}"
    link.symlink_to("/dev/full")
    with pytest.raises(OSError):
        io.write(link, cloud)


def test_18_every_other_writer_keeps_the_old_file(tmp_path):
    model = models.MinkUNet(6, 2, depth=14, width=2)
    cloud = cloud_of(2000)
    writers = {
        "net.safetensors": model.save,
        "page.html": lambda p: viewer.write(p, cloud),
        "page.png": lambda p: viewer.write(p, cloud, size=(64, 64)),
        "recipe.json": training.scans.VoxelPipeline(0.1, ((0, "a" * 9000), (1, "b"))).save,
    }
    for name, write in writers.items():
        path = tmp_path / name
        write(path)
        old = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
        with full_disk(500), pytest.raises(OSError):
            write(path)
        assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == old


def test_18_a_plan_is_written_beside(tmp_path):
    x = SparseTensor(mx.array([[0, i, 0, 0] for i in range(200)]), mx.ones((200, 1)))
    x.coord_manager.submanifold_kernel_relation(x.coord_key)
    plan = core.GeometryPlan.record(x)
    plan.save(tmp_path / "a.plan")
    old = (tmp_path / "a.plan").read_bytes()
    with full_disk(100), pytest.raises(OSError):
        plan.save(tmp_path / "a.plan")
    assert (tmp_path / "a.plan").read_bytes() == old and len(os.listdir(tmp_path)) == 1


def test_18_commands_onto_their_input(tmp_path, capsys):
    path = tmp_path / "a.ply"
    io.write(path, cloud_of(2000))
    old = path.read_bytes()
    with full_disk(2000):
        assert cli.main(["voxelize", str(path), str(path), "--size", "0.001"]) == 1
    assert path.read_bytes() == old
    assert cli.main(["compress", str(path), str(path), "--voxel", "0.5"]) == 1
    assert path.read_bytes() == old and "the input itself" in capsys.readouterr().err
    assert cli.main(["voxelize", str(path), str(path), "--size", "0.5"]) == 0
    assert len(io.read(path)) == 8


def test_18_links_and_permissions_stay(tmp_path):
    real, link = tmp_path / "real.bin", tmp_path / "link.bin"
    real.write_bytes(b"old")
    real.chmod(0o640)
    link.symlink_to(real)
    with atomic_file(link) as file:
        file.write(b"new")
    assert (
        link.is_symlink() and real.read_bytes() == b"new" and real.stat().st_mode & 0o777 == 0o640
    )


@pytest.mark.parametrize("name", ["X", "Y", "Z", "x", "red"])
def test_09_las_columns_with_names_of_the_format(name, tmp_path):
    with pytest.raises(ValueError, match=f"cannot be named '{name}'.*rename"):
        io.write(tmp_path / "a.las", io.PointCloud(np.eye(3), {name: np.arange(3)}))


def test_10_kitti_holds_one_intensity_and_float32(tmp_path):
    path = tmp_path / "a.bin"
    with pytest.raises(ValueError, match="'intensity' has 5 values per point"):
        io.write_kitti(path, cloud_of(4, intensity=np.ones((4, 5), np.float32)))
    far = rng(0).random((1000, 3)) * 10 + [500000, 5400000, 300]
    with pytest.raises(ValueError, match=r"moves the points by up to.*subtract an origin"):
        io.write_kitti(path, io.PointCloud(far))
    io.write_kitti(path, io.PointCloud(far - [500000, 5400000, 300]))


def test_11_las_integers_do_not_wrap(tmp_path):
    path, P = tmp_path / "a.las", np.zeros((3, 3))
    for column in (
        {"color": np.array([[70000] * 3, [-1] * 3, [5] * 3])},
        {"user_data": np.array([-1, 256, 3])},
        {"scan_angle": np.array([1.5, 2, 3])},
        {"scan_angle": np.array([1e6, 2, 3])},
        {"point_source_id": np.array([70000, 1, 2])},
    ):
        with pytest.raises(ValueError, match=next(iter(column))):
            io.write(path, io.PointCloud(P, column))
    for dtype in (np.uint8, np.int32, np.int64):
        io.write(path, io.PointCloud(P, {"color": np.full((3, 3), 200, dtype)}))
        assert (io.read(path).columns["color"] == 51400).all()
    io.write(path, io.PointCloud(P, {"color": np.full((3, 4), 200, np.uint8)}))
    assert io.read(path).columns["color"].shape == (3, 4)
    io.write(path, io.PointCloud(P, {"scan_angle": np.array([-3.0, 2, 3])}))
    assert io.read(path).columns["scan_angle"].tolist() == [-3, 2, 3]


@pytest.mark.parametrize("spread, gap", [(1, 1e-2), (50, 1e-3), (50, 2e-5), (500, 1e-3)])
def test_12_derivatives_of_near_distances(spread, gap):
    r = rng(0)
    a = r.uniform(-spread, spread, (256, 3)).astype(np.float32)
    b = (a + r.standard_normal((256, 3)) * gap).astype(np.float32)
    A, B = mx.array(a), mx.array(b)
    d = a.astype(np.float64) - b
    n = np.linalg.norm(d, axis=1, keepdims=True)
    unit = np.where(n > 0, d / np.maximum(n, 1e-300), 0)
    g, h = mx.grad(lambda a, b: points.indexed_distance(a, b).min(axis=1).sum(), (0, 1))(A, B)
    np.testing.assert_allclose(np.array(g), unit, atol=3e-6)
    np.testing.assert_allclose(np.array(h), -unit, atol=3e-6)
    t = r.standard_normal(a.shape).astype(np.float32)
    j = mx.jvp(lambda a: points.indexed_distance(a, B), [A], [mx.array(t)])[1][0]
    np.testing.assert_allclose(np.diag(np.array(j)), (unit * t).sum(1), atol=2e-5)


def test_11_fractions_and_ranges_are_not_lost(tmp_path):
    path, P = tmp_path / "a.las", np.zeros((3, 3))
    for values, text in (
        (np.array([0.5, 1, 2]), "'intensity': found 0.5, expected whole numbers"),
        (np.array([np.nan, 1, 2]), "'intensity': found nan"),
        (np.array([-1, 1, 2]), r"'intensity': found -1\.\.2"),
        (np.ones((3, 2)), "'intensity' has 2 values per point"),
    ):
        with pytest.raises(ValueError, match=text):
            io.write(path, io.PointCloud(P, {"intensity": values}))
    for form in ("las", "ply", "pcd", "csv"):
        for color in (np.full((3, 3), 200.0), np.full((3, 3), np.nan), np.full((3, 3), -1)):
            with pytest.raises(ValueError, match=r"column 'color': found"):
                io.write(tmp_path / f"a.{form}", io.PointCloud(P, {"color": color}))


def small_run(folder, values=(5, 9), clouds=2, dtype=np.int64):
    """Arguments of a training of one second; clouds of two classes."""
    (folder / "s").mkdir(exist_ok=True)
    (folder / "c.json").write_text('{"depth": 14, "width": 4, "stem_kernel_size": 3}')
    for i in range(clouds):
        P = (rng(i).random((1500, 3)) * [8, 8, 3]).astype(np.float32)
        label = np.array(values, dtype)[(P[:, 2] > 1.5).astype(int)]
        io.write(folder / "s" / f"{i}.npz", io.PointCloud(P, {"label": label}))
    return [
        "train",
        str(folder / "s"),
        "--config",
        str(folder / "c.json"),
        "--output",
        str(folder / "r"),
    ]


def test_13_predicted_labels_keep_their_values(tmp_path):
    train = small_run(tmp_path, (5, 2**40 + 7))
    assert cli.main([*train, "--voxel", "0.4", "--epochs", "1", "--validation", "0"]) == 0
    assert (
        cli.main(
            ["predict", str(tmp_path / "r"), str(tmp_path / "s/0.npz"), str(tmp_path / "p.npz")]
        )
        == 0
    )
    assert set(np.unique(io.read(tmp_path / "p.npz").columns["label"])) <= {5, 2**40 + 7}


def test_14_resume_compares_what_was_trained(tmp_path, capsys):
    train = small_run(tmp_path)
    assert cli.main([*train, "--voxel", "0.4", "--epochs", "1"]) == 0
    files = {p.name: p.read_bytes() for p in (tmp_path / "r").iterdir()}
    assert cli.main([*train, "--voxel", "0.2", "--epochs", "1", "--resume"]) == 1
    assert "was started with voxel 0.4, found 0.2" in capsys.readouterr().err
    small_run(tmp_path, (7, 9))
    assert cli.main([*train, "--voxel", "0.4", "--epochs", "2", "--resume"]) == 1
    assert "was started with classes" in capsys.readouterr().err
    small_run(tmp_path, clouds=3)
    assert cli.main([*train, "--voxel", "0.4", "--epochs", "2", "--resume"]) == 1
    assert "was started with files" in capsys.readouterr().err
    assert {p.name: p.read_bytes() for p in (tmp_path / "r").iterdir()} == files


def test_15_unknown_mean_iou_keeps_the_last_network(tmp_path, capsys):
    train = small_run(tmp_path, clouds=3)
    for path in sorted((tmp_path / "s").iterdir())[1:2]:
        cloud = io.read(path)
        io.write(path, io.PointCloud(cloud.points, {"label": np.zeros(len(cloud), np.int64)}))
    options = ["--voxel", "0.4", "--ignore", "0", "--validation", "0.34"]
    seed = next(s for s in range(99) if np.random.default_rng([s, 99]).permutation(3)[0] == 1)
    assert cli.main([*train, *options, "--epochs", "1", "--seed", str(seed)]) == 0
    first = (tmp_path / "r" / "model.safetensors").read_bytes()
    assert "mean IoU unknown" in capsys.readouterr().out
    assert cli.main([*train, *options, "--epochs", "2", "--seed", str(seed), "--resume"]) == 0
    assert (tmp_path / "r" / "model.safetensors").read_bytes() != first
    assert "last epoch 2, on 1 unseen cloud" in capsys.readouterr().out


def test_16_compress_keeps_64_bits(tmp_path):
    gps = 1.3e9 + np.arange(500) * 0.01
    big = np.arange(500, dtype=np.int64) + 2**40
    P = np.stack([np.arange(500), np.zeros(500), np.zeros(500)], 1)
    a, b, c = (str(tmp_path / n) for n in ("a.npz", "a.mlat", "b.npz"))
    io.write(a, io.PointCloud(P, {"gps_time": gps, "id": big, "small": np.arange(500)}))
    assert (
        cli.main(["compress", a, b, "--voxel", "0.5"]) == 0 and cli.main(["decompress", b, c]) == 0
    )
    read = io.read(c)
    order = np.argsort(read.points[:, 0])
    assert read.columns["gps_time"].dtype == np.float64 and read.columns["id"].dtype == np.int64
    assert (read.columns["gps_time"][order] == gps).all() and (
        read.columns["id"][order] == big
    ).all()


def test_17_columns_come_back(tmp_path):
    P, v = np.zeros((3, 3)), np.array([1.0, 2, 3])
    io.write(tmp_path / "a.npz", io.PointCloud(P, {"allow_pickle": v, "file": v}))
    assert sorted(io.read(tmp_path / "a.npz").columns) == ["allow_pickle", "file"]
    io.write(tmp_path / "a.pcd", io.PointCloud(P, {"_weight": v}))
    assert io.read(tmp_path / "a.pcd").columns["_weight"].tolist() == [1, 2, 3]
    for name in ("rgb", "_"):
        with pytest.raises(ValueError, match=f"cannot be named '{name}'"):
            io.write(tmp_path / "a.pcd", io.PointCloud(P, {name: v.astype(np.float32)}))
    with pytest.raises(ValueError, match="'vec': found no value"):
        io.write(tmp_path / "a.ply", io.PointCloud(P, {"vec": np.zeros((3, 0))}))
    names = ["x", "y", "z", "Intensity", "intensity"]
    head = "".join(f"property float {n}\n" for n in names)
    text = f"ply\nformat ascii 1.0\nelement vertex 1\n{head}end_header\n0 0 0 1 2\n"
    (tmp_path / "b.ply").write_text(text)
    read = io.read(tmp_path / "b.ply").columns
    assert read["Intensity"].tolist() == [1] and read["intensity"].tolist() == [2]


def test_17_names_that_differ_by_case_only(tmp_path):
    columns = {"Intensity": np.array([0.5, 1, 2]), "intensity": np.arange(3), "X": np.ones(3)}
    io.write(tmp_path / "a.csv", io.PointCloud(np.eye(3), columns))
    read = io.read(tmp_path / "a.csv")
    assert (read.points == np.eye(3)).all() and sorted(read.columns) == sorted(columns)
    assert read.columns["Intensity"].tolist() == [0.5, 1, 2]


@pytest.mark.parametrize("name", ["points", "header", "array", "return_num", "pt_src_id"])
def test_17_las_columns_named_as_parts_of_laspy(name, tmp_path):
    """laspy takes some names for its own attributes or for fields under their older names."""
    P = np.arange(9.0).reshape(3, 3)
    io.write(tmp_path / "a.las", io.PointCloud(P, {name: np.array([200, 1, 2])}))
    read = io.read(tmp_path / "a.las")
    assert read.columns[name].tolist() == [200, 1, 2] and (read.points == P).all()
    assert list(read.columns) == [name]


def test_17_las_names_that_laspy_cannot_hold(tmp_path):
    laspy = pytest.importorskip("laspy")
    for name in ("scales", "offsets", "bit_fields"):  # the first two never ended
        with pytest.raises(ValueError, match=f"cannot be named '{name}'"):
            io.write(tmp_path / "a.las", io.PointCloud(np.zeros((3, 3)), {name: np.ones(3)}))
    header = laspy.LasHeader(version="1.4", point_format=6)
    header.add_extra_dim(laspy.ExtraBytesParams("scales", "f8"))
    with laspy.open(tmp_path / "b.las", mode="w", header=header) as writer:
        writer.write_points(laspy.PackedPointRecord.zeros(5, header.point_format))
    with pytest.raises(ValueError, match="a dimension named 'scales'"):
        io.read(tmp_path / "b.las")


# Resources.


def test_19_knn_takes_memory_for_the_rows_there_are():
    c = mx.array([[0, 1, 1, 1], [0, 0, 0, 0], [0, 2, 1, 1], [0, 5, 0, 0]])
    for k in (100, 10**8, 2**31 - 1, 2**40):
        assert ops.build_knn_relation(c, c[:2], k=k).edge_count == 8


def test_20_too_many_neighbors_are_counted_before_they_are_stored():
    survives("""
        import resource
        from mlx_lattice import points
        P = mx.array(np.random.default_rng(0).random((46400, 3)).astype(np.float32))
        used = int(open("/proc/self/statm").read().split()[0]) * 4096
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30),) * 2)
        try: points.PointSet(P, grid=10.0).rulebook(); assert False
        except ValueError as error: assert "2152960000 neighbors" in str(error), error
        """)


def crc32c(data):
    c = 0xFFFFFFFF
    for b in data:
        c ^= b
        for _ in range(8):
            c = (c >> 1) ^ (0x82F63B78 if c & 1 else 0)
    return c ^ 0xFFFFFFFF


def test_21_small_files_take_little_memory(tmp_path):
    triple = lambda *v: b"".join(struct.pack("<q", i) for i in v)
    steps = [(16, 2**12), (16, 2**24)]
    body = (
        struct.pack("<IBQ", 1, 0, 1) + triple(*[2**40] * 3) + struct.pack("<4iBI", 0, 0, 0, 0, 0, 2)
    )
    for i, (k, n) in enumerate(steps):
        body += struct.pack("<BII", 4, i, 2**32 - 1) + triple(k, k, k) * 2 + triple(0, 0, 0)
        body += triple(1, 1, 1) + struct.pack("<Q", n)
    with pytest.raises(ValueError, match="too many edges"):
        core.GeometryPlan.decode(b"MLATPLAN" + struct.pack("<II", 1, crc32c(body)) + body)
    path = tmp_path / "b.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("points.npy", "w", force_zip64=True) as member,
    ):
        head = {"descr": "<f4", "fortran_order": False, "shape": (30_000_000, 3)}
        np.lib.format.write_array_header_1_0(member, head)
        for _ in range(30):
            member.write(b"\0" * 12_000_000)
    with pytest.raises(ValueError, match="arrays of 360000128 bytes from a file of"):
        io.read(path)


def test_22_sizes_have_bounds(tmp_path):
    with pytest.raises(ValueError, match="indices must be below"):
        points.PointCloudBatch(mx.zeros((1, 3)), indices=mx.array([2**25]))
    for call in (
        lambda: viewer.picture(cloud_of(2), size=(64, 64), point_size=1e9),
        lambda: viewer.page(cloud_of(2), point_size=1e9),
        lambda: points.PointClassifier(1, 2, channels=(1,), blocks=2**40),
        lambda: points.PointUNet(1, 2, channels=(1,), blocks=(2**40,)),
        lambda: points.PointCNNEncoder(num_layers=2**40),
        lambda: io.write(tmp_path / "a.npz", cloud_of(2, **{"n" * 70000: np.zeros(2)})),
    ):
        with pytest.raises(ValueError, match=r"point_size|blocks|num_layers|cannot be named"):
            call()


# Stack traces and messages.


def test_23_mistakes_are_one_line(tmp_path, capsys):
    head = (
        "ply\nformat ascii 1.0\nelement vertex 2\nproperty float x\nproperty float y\nproperty"
        " float z\n"
    )
    (tmp_path / "c.ply").write_text(head + "property float color\nend_header\n0 0 0 1\n1 1 1 2\n")
    voxelize = lambda a: cli.main(
        ["voxelize", str(tmp_path / a), str(tmp_path / "o.las"), "--size", "0.1"]
    )
    assert voxelize("c.ply") == 0
    io.write(tmp_path / "w.npy", cloud_of(30, features=np.zeros((30, 8), np.float32)))
    assert voxelize("w.npy") == 1 and "LAS holds 1 to 3" in capsys.readouterr().err
    both = head.replace("float x", "float X\nproperty float x")
    (tmp_path / "x.ply").write_text(both + "end_header\n0 7 7 7\n1 7 7 7\n")
    assert voxelize("x.ply") == 1 and "cannot be named 'X'" in capsys.readouterr().err
    mx.save_safetensors(str(tmp_path / "m.safetensors"), {"a.weight": mx.random.normal((256, 256))})
    (tmp_path / "full.safetensors").symlink_to("/dev/full")
    quantize = [
        "quantize",
        str(tmp_path / "m.safetensors"),
        "--output",
        str(tmp_path / "full.safetensors"),
    ]
    assert cli.main(quantize) == 1
    train = [*small_run(tmp_path), "--voxel", "0.4", "--epochs", "1"]
    (tmp_path / "deep.json").write_text("[" * 100000)
    deep = [str(tmp_path / "deep.json") if a.endswith("c.json") else a for a in train]
    assert cli.main(deep) == 1 and "not JSON" in capsys.readouterr().err
    with full_disk(100_000):
        assert cli.main(train) == 1
    assert not [p for p in (tmp_path / "r").iterdir() if p.name.startswith(".writing")]
    assert cli.main(train) == 0
    path = str(tmp_path / "r" / "checkpoint.safetensors")
    arrays, about = mx.load(path, return_metadata=True)
    about.pop("state")
    mx.save_safetensors(path, arrays, about)
    capsys.readouterr()
    assert cli.main([*train, "--resume"]) == 1 and "no training state" in capsys.readouterr().err


def test_24_messages(tmp_path, capsys):
    assert repr(core.CoordinateSet(mx.array([[0, 0, 0, 0]]))).startswith("CoordinateSet(1 row")
    with pytest.raises(
        TypeError, match=r"\[encode_points\] attributes must map names to mx.array.*ndarray"
    ):
        ops.encode_points(mx.array([[0, 1, 1, 1]]), {"a": np.array([1], np.uint8)})
    op = points.custom_sparse_op_with_grad
    grad = mx.grad(lambda a: op(lambda a: (a * a, (None, a)), lambda s, g: 2 * g * s[1], a).sum())
    assert grad(mx.ones(3)).tolist() == [2, 2, 2]
    with pytest.raises(ValueError, match=r"gradient 0 must have shape \(3,\), found \(7, 7\)"):
        mx.grad(lambda a: op(lambda a: a * 2, lambda s, g: mx.ones((7, 7)), a).sum())(mx.ones(3))
    batch = points.PointCloudBatch(mx.ones((3, 3)))
    batch.point_set(0.1)
    for other in (pickle.loads(pickle.dumps(batch)), copy.deepcopy(batch)):
        assert other.total_points == 3 and other.point_set(0.1) is not batch.point_set(0.1)
    with pytest.raises(ValueError, match=r"\[clip_neighbors\] distances\[1\] is NaN"):
        points.clip_neighbors(mx.arange(3), mx.array([3]), mx.array([0.0, np.nan, 1]), 2)
    with pytest.raises(ValueError, match="beta must be > 0 and finite"):
        ops.softplus_features(mx.array([[0.0]]), beta=float("inf"))
    io.write(tmp_path / "a.las", cloud_of(30, a=np.ones((30, 1))))
    assert io.read(tmp_path / "a.las").columns["a"].tolist() == [1.0] * 30
    with pytest.raises(ValueError, match="has 0 values per point"):
        io.write(tmp_path / "a.las", cloud_of(30, a=np.zeros((30, 0))))
    big = np.array([[1e308] * 3, [-1e308] * 3, [0] * 3])
    io.write(tmp_path / "big.npz", io.PointCloud(big))
    assert cli.main(["info", str(tmp_path / "big.npz")]) == 0
    io.write(tmp_path / "bool.npz", cloud_of(30, intensity=np.ones(30, bool)))
    assert cli.main(["view", str(tmp_path / "bool.npz"), str(tmp_path / "o.html")]) == 0
    io.write(tmp_path / "zero.npz", cloud_of(30, a=np.zeros((30, 0))))
    capsys.readouterr()
    assert (
        cli.main(["compress", str(tmp_path / "zero.npz"), str(tmp_path / "o.mlat"), "--voxel", "1"])
        == 1
    )
    assert "column 'a': found 0 values per point" in capsys.readouterr().err
    models.MinkUNet(6, 2, depth=14, width=2).save(tmp_path / "model.safetensors")
    training.scans.VoxelPipeline(0.1, ((0, "a"), (1, "b"))).save(tmp_path / "recipe.json")
    io.write(tmp_path / "empty.ply", cloud_of(0))
    predict = ["predict", str(tmp_path), str(tmp_path / "empty.ply"), str(tmp_path / "o.ply")]
    assert cli.main(predict) == 0 and len(io.read(tmp_path / "o.ply")) == 0


def test_25_viewer_and_terminal(tmp_path, capsys):
    page = viewer.page(viewer.Panel(cloud_of(30), "__DATA__.ply"))
    assert '<script type="application/json" id="data">__DATA__' not in page
    assert "__DATA__.ply" in page[page.find("<title>") :][:60]
    pictures = [
        np.asarray(viewer.picture(cloud_of(300, **c), color="height", size=(64, 64)))
        for c in ({}, {"height": np.full(300, 99.0)})
    ]
    assert (pictures[0] == pictures[1]).all()
    color = rng(1).integers(0, 256, (300, 3)).astype(np.uint8)
    pictures = [
        np.asarray(viewer.picture(cloud_of(300, color=color, **c), color="rgb", size=(64, 64)))
        for c in ({}, {"rgb": np.full(300, 99.0)})
    ]
    assert (pictures[0] == pictures[1]).all()
    with pytest.raises(ValueError, match="expected one of height, column rgb"):
        viewer.picture(cloud_of(300, rgb=np.ones(300)), color="rgb", size=(64, 64))
    axes = "".join(f"property float {n}\n" for n in ("x", "y", "z", "\x1b]0;owned\x07\x1b[31mred"))
    (tmp_path / "e.ply").write_text(
        f"ply\nformat ascii 1.0\nelement vertex 1\n{axes}end_header\n0 0 0 1\n"
    )
    assert cli.main(["info", str(tmp_path / "e.ply")]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_26_wrong_types_are_named(tmp_path):
    sparse = SparseTensor(mx.array([[0, 0, 0, 0]]), mx.ones((1, 1)))
    bad = type("I", (), {"__index__": lambda self: 1 / 0})()
    for call, text in (
        (
            lambda: points.PointConv3d(3, 4)(mx.ones((5, 3)), mx.ones((5, 3))),
            r"\[PointSet\] points must be",
        ),
        (lambda: nn.BatchNorm(3)(np.ones((5, 3))), r"\[BatchNorm\] x must be a SparseTensor"),
        (lambda: nn.ReLU()(np.ones((5, 3))), r"\[ReLU\] x must be a SparseTensor"),
        (lambda: nn.Linear(3, 3)(np.ones((5, 3))), r"\[Linear\] x must be a SparseTensor"),
        (
            lambda: points.PointUNet(1, 2, channels=(2,), blocks=(1,))(sparse),
            r"\[PointUNet\] positions must be",
        ),
        (
            lambda: io.write(tmp_path / "x.npz", np.ones((3, 3))),
            r"\[write\] cloud must be a PointCloud",
        ),
        (
            lambda: ops.sparse_quantize(mx.zeros((1, 3)), bad),
            r"\[sparse_quantize\] voxel_size must",
        ),
    ):
        with pytest.raises(TypeError, match=text):
            call()
    for layer in (lambda: nn.Linear(1, 2**64), lambda: nn.RMSNorm(2**64)):
        with pytest.raises(ValueError, match="must be below 2"):
            layer()


def test_26_two_trainings_in_one_folder(tmp_path, capsys):
    import fcntl

    train = [*small_run(tmp_path), "--voxel", "0.4", "--epochs", "1"]
    (tmp_path / "r").mkdir()
    handle = os.open(tmp_path / "r", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    assert cli.main(train) == 1 and "another training" in capsys.readouterr().err
    os.close(handle)
    assert cli.main(train) == 0
    assert json.loads((tmp_path / "r" / "model.json").read_text())["model"] == "MinkUNet"
    assert Path(tmp_path / "r" / "recipe.json").is_file()


# What the larger attack found: every public module, function transformations, memory.


@pytest.mark.parametrize("name", ["cross_entropy", "focal", "dice", "lovasz"])
def test_27_every_loss_checks_its_labels(name):
    options = [{"weights": mx.ones((4,))}] if name in ("cross_entropy", "focal") else []
    if name == "cross_entropy":
        options.append({"smoothing": 0.1})
    for option in ({}, *options):
        loss, logits = getattr(training.losses, name)(**option), mx.zeros((3, 4))
        for labels in ([7, 0, 1], [2**30, 0, 1]):
            with pytest.raises(ValueError, match=rf"\[{name}\] labels holds {labels[0]}"):
                loss(logits, mx.array(labels))
        with pytest.raises(ValueError, match=rf"\[{name}\] labels must have shape \(3,\)"):
            loss(logits, mx.array([0]))
    survives(f"""
        from mlx_lattice.training import losses
        loss = losses.{name}()
        mx.compile(loss)(mx.zeros((3, 4)), mx.array([2**30, 0, 1])).item()
        """)


def test_28_a_parameter_that_no_memory_holds():
    """MLX itself ends the process where memory is short: such a layer is refused before."""
    for make in (
        lambda: nn.Linear(512, 2**31 - 1),
        lambda: nn.SubmConv3d(2**16, 2**16),
        lambda: nn.BatchNorm(2**31 - 1),
        lambda: nn.RMSNorm(2**31 - 1),
        lambda: points.PointConv3d(2**16, 2**16),
        lambda: points.RaggedLayerNorm(2**31 - 1),
        lambda: points.resnet18(num_classes=2**31 - 1),
    ):
        with pytest.raises(ValueError, match=r"\] a parameter of shape .* would hold [0-9,]+ val"):
            make()


@pytest.mark.parametrize("value", [1, 0.5, True])
def test_29_rows_that_have_no_length(value):
    rows = mx.array([0, 0])
    with pytest.raises(TypeError, match=r"\[KernelRelation\] kernel_offsets: found \w+, expected"):
        core.KernelRelation(rows, rows, rows, n_in=1, n_out=1, kernel_offsets=value)


def test_30_an_error_without_a_name_gets_one(tmp_path):
    for call, kind, text in (
        (lambda: points.SetAbstraction(4, 3), TypeError, r"\[SetAbstraction\] channels.*found 3"),
        (lambda: nn.GELU(mx.ones((3,))), ValueError, r"\[GELU\].*approximate: .*shape \(3,\)"),
        (lambda: io.read(mx.ones((3,))), TypeError, r"\[\w+\].*path: .*array of shape \(3,\)"),
        (lambda: io.read_npz(None), TypeError, r"\[io\] path: found NoneType"),
        (lambda: training.WeightAverage(None), TypeError, r"\[WeightAverage\].*model: None"),
        (lambda: points.PointCloudBatch.from_list(3), TypeError, r"\[from_list\].*: 3"),
        (lambda: transforms.Rotate(low=2**64, high=mx.array(1)), TypeError, r"\[Rotate\].*low:"),
        (lambda: io.read_mlat(2**31 - 1), TypeError, r"\[io\] path: found int"),
        (lambda: points.RaggedBatchNorm(4)(0.5), TypeError, r"\[RaggedBatchNorm\].*x: 0.5"),
    ):
        with pytest.raises(kind, match=text):
            call()

    def mine(model, item):
        raise KeyError("my own")

    trainer = training.Trainer(nn.Linear(1, 1), training.adamw(0.1, 1), mine, quiet=True)
    with pytest.raises(KeyError, match=r"^'my own'$"):  # a user's own error stays as it is
        trainer.fit([1], 1)


def test_31_features_of_other_rows_are_not_gathered():
    """Rows are gathered by number: features with fewer rows read foreign memory."""
    positions, x = mx.random.normal((6, 3)), mx.ones((2, 4))
    down = points.SetAbstraction(4, (5,))
    up = points.FeaturePropagation(4, (5,))
    for call in (
        lambda: down(x, positions, mx.array([6])),
        lambda: up(x, positions, mx.array([6]), None, positions, mx.array([6])),
        lambda: up(mx.ones((6, 4)), positions, mx.array([6]), x, positions, mx.array([6])),
    ):
        with pytest.raises(ValueError, match=r"\[\w+n\] features must have shape \(6, C\)"):
            call()
    with pytest.raises(ValueError, match=r"\[SetAbstraction\] lengths must be >= 0 and sum to 6"):
        down(mx.ones((6, 4)), positions, mx.array([7]))


def test_32_a_mesh_checks_its_faces():
    """MLX arrays with a corner that is no vertex ended the process."""
    for vertices, faces, text in (
        (mx.zeros((3, 4), dtype=mx.int32), mx.zeros((8, 3), dtype=mx.int32), r"vertices: found sh"),
        (mx.zeros((3, 3)), mx.zeros((8, 4), dtype=mx.int32), r"faces: found int32 of shape"),
        (mx.zeros((3, 3)), mx.zeros((8, 3)), r"faces: found float32"),
        (mx.zeros((3, 3)), mx.full((8, 3), 3), r"a face with vertex 3, expected 0\.\.2"),
        (mx.zeros((3, 3)), mx.full((8, 3), -1), r"a face with vertex -1"),
    ):
        with pytest.raises(ValueError, match=r"\[Mesh\] " + text):
            io.Mesh(vertices, faces)


def test_33_a_large_integer_is_a_number():
    logits, labels = mx.zeros((3, 2)), mx.array([0, 1, 0])
    for make in (training.losses.dice, training.losses.focal):
        assert mx.isfinite(make(2**64)(logits, labels)).item()
        for value in (-1, float("nan"), float("inf")):
            with pytest.raises(ValueError, match="expected a finite number, 0 or more"):
                make(value)


def test_34_errors_of_writers_name_one_file(tmp_path):
    """`'a.ply' -> None` stood in every message."""
    with pytest.raises(FileNotFoundError) as error:
        io.write(tmp_path / "no" / "a.ply", cloud_of(3))
    assert str(error.value).endswith(f"{tmp_path / 'no' / 'a.ply'}'")


def test_35_a_predicted_cloud_keeps_its_truth(tmp_path, capsys):
    """The second prediction took the first one for the truth and dropped the truth."""
    train = small_run(tmp_path)
    assert cli.main([*train, "--voxel", "0.4", "--epochs", "1", "--validation", "0"]) == 0
    path, run = tmp_path / "s/0.npz", str(tmp_path / "r")
    truth = io.read(path).columns["label"]
    told = []
    for _ in range(2):
        capsys.readouterr()
        assert cli.main(["predict", run, str(path), str(path)]) == 0
        told.append(capsys.readouterr().out.split("IoU per voxel")[1])
        assert (io.read(path).columns["truth"] == truth).all()
    assert told[0] == told[1]


def test_36_training_into_the_folder_of_the_clouds(tmp_path, capsys):
    train = small_run(tmp_path)
    train[-1] = str(tmp_path / "s")
    assert cli.main([*train, "--voxel", "0.4", "--epochs", "1"]) == 0
    assert cli.main([*train, "--voxel", "0.4", "--epochs", "2", "--resume"]) == 0
    assert "history.csv: no points, passed over" in capsys.readouterr().out


def test_37_a_map_of_other_points():
    x = SparseTensor(mx.array([[0, 0, 0, 0], [0, 1, 0, 0]]), mx.ones((2, 1)))
    five = ops.build_point_voxel_map(mx.zeros((5, 3)), x.coords)
    with pytest.raises(ValueError, match=r"point_voxel_map must be that of the 3 points.*of 5"):
        ops.devoxelize(mx.zeros((3, 3)), x, point_voxel_map=five)
    found = ops.devoxelize(
        mx.zeros((7, 3)), x, point_voxel_map=five, point_active_rows=mx.array([5])
    )
    assert found.shape == (5, 1)


def test_38_a_batch_number_beyond_the_limit():
    x = SparseTensor(mx.array([[2**31 - 1, 0, 0, 0]]), mx.ones((1, 1)))
    with pytest.raises(ValueError, match=r"coords hold batch 2147483647, expected at most 1677"):
        ops.global_sum_pool(x)


def test_39_copies_of_a_coordinate_set():
    one = core.CoordinateSet(mx.array([[0, 1, 2, 3]]))
    for other in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert isinstance(other, core.CoordinateSet) and other.tolist() == [[0, 1, 2, 3]]


def test_40_coordinates_that_cannot_be_drawn(tmp_path, capsys, recwarn):
    """A blank picture, and a message of JSON."""
    far = io.PointCloud(np.array([[1e308, -1e308, 0], [-1e308, 1e308, 1]]))
    for draw in (viewer.page, lambda c: viewer.picture(c, size=(64, 64))):
        with pytest.raises(ValueError, match=r"\[viewer\] panels: found coordinates beyond"):
            draw(far)
        draw(io.PointCloud(np.zeros((2, 3)), {"a": np.array([1e308, -1e308])}))
    io.write(tmp_path / "a.npz", far)
    for command, output in (("voxelize", "b.npz"), ("compress", "b.mlat")):
        paths = [str(tmp_path / "a.npz"), str(tmp_path / output)]
        assert cli.main([command, *paths, "--voxel", "0.1"]) == 1
        assert "than 2^31 voxels" in capsys.readouterr().err
    assert not [w for w in recwarn if issubclass(w.category, RuntimeWarning)]


def test_41_modules_inside_packages_have_the_net_too():
    """The generator of hostile calls did not reach them."""
    from mlx_lattice import samples
    from mlx_lattice.models import convert

    for call, kind, text in (
        (lambda: samples.write_scans(0.5), TypeError, r"\[write_scans\].*folder: 0.5"),
        (lambda: convert.from_legacy_points({}), ValueError, r"\[from_legacy_points\].*weight:"),
        (
            lambda: convert.minkowski_layer(mx.ones((27, 4, 4)), kind=np.ones(3), kernel_size=3),
            ValueError,
            r"\[minkowski_layer\].*kind:",
        ),
    ):
        with pytest.raises(kind, match=text):
            call()


def test_42_numpy_arrays_of_any_order():
    """Big-endian arrays were `std::bad_cast`, reversed views an error of DLPack."""
    rows = np.array([[0, 1, 2, 3], [0, 4, 5, 6]])
    for given in (rows.astype(">i4"), rows.astype(">i8"), rows[::-1][::-1], rows[:, ::-1][:, ::-1]):
        x = SparseTensor(given, np.array([[1.0], [2.0]], ">f4")[::-1])
        assert x.coords.tolist() == rows.tolist() and x.feats.tolist() == [[2.0], [1.0]]
        assert ops.lookup_coords(given, given).tolist() == [0, 1]
        assert ops.lookup_coords(given[::-1], given).tolist() == [1, 0]
    for given in (np.full((2, 2), -1.0, ">f4"), np.full((2, 2), -1.0, ">f8")[::-1]):
        assert ops.relu_features(given).tolist() == [[0, 0], [0, 0]]
    with pytest.raises(TypeError, match=r"\[relu_features\] feats"):
        ops.relu_features(np.array([["a"]]))


def test_43_active_rows_of_another_dtype():
    rows = mx.zeros((1, 4), dtype=mx.int32)
    with pytest.raises(ValueError, match=r"active_rows must be an int32 array.*int64"):
        SparseTensor(rows, mx.ones((1, 1)), active_rows=mx.array([1], dtype=mx.int64))


def test_44_a_checkpoint_that_is_not_there():
    with pytest.raises(ValueError, match="path holds no checkpoint"):
        training.checkpoint.load("", None, None)


def test_45_single_values_where_rows_belong():
    one = mx.array(1)
    with pytest.raises(TypeError, match=r"\[build_target_kernel_relation\] rows must be"):
        ops.build_target_kernel_relation(one, mx.array([-1]), kernel_size=3)
    with pytest.raises(TypeError, match=r"\[child_coords_from_indices\] coords must be"):
        ops.child_coords_from_indices(one, mx.array([0]))


def test_46_a_loader_knows_its_positions():
    loader = training.Loader(mx.array([[0, 1, 1, 1]]), lambda cloud, name: cloud)
    assert loader.item(0, 0).tolist() == [0, 1, 1, 1]
    for position in (1, -1, 2**62, 0.5):
        with pytest.raises(ValueError, match=r"\[Loader\] position"):
            loader.item(position, 0)
