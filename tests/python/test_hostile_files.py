"""Files: a full disk leaves the old file, and what a format cannot hold is refused, not lost."""

import os
import struct
import zipfile

import mlx.core as mx
import numpy as np
import pytest
from hostile import cloud_of, full_disk
from mlx_lattice import SparseTensor, cli, core, io, models, training, viewer
from mlx_lattice.io.atomic_files import atomic_file

rng = np.random.default_rng


@pytest.mark.parametrize("form", ["ply", "pcd", "npy", "bin", "npz", "las", "csv"])
def test_a_full_disk_is_an_error_and_the_old_file_stays(form, tmp_path):
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


def test_every_other_writer_keeps_the_old_file(tmp_path):
    model = models.MinkUNet(6, 2, depth=14, width=2)
    cloud = cloud_of(2000)
    writers = {
        "net.safetensors": model.save,
        "page.html": lambda p: viewer.write(p, cloud),
        "page.png": lambda p: viewer.write(p, cloud, size=(64, 64)),
        "pipeline.json": training.scans.VoxelPipeline(0.1, ((0, "a" * 9000), (1, "b"))).save,
    }
    for name, write in writers.items():
        path = tmp_path / name
        write(path)
        old = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
        with full_disk(500), pytest.raises(OSError):
            write(path)
        assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == old


def test_a_plan_is_written_beside(tmp_path):
    x = SparseTensor(mx.array([[0, i, 0, 0] for i in range(200)]), mx.ones((200, 1)))
    x.coord_manager.submanifold_kernel_relation(x.coord_key)
    plan = core.GeometryPlan.record(x)
    plan.save(tmp_path / "a.plan")
    old = (tmp_path / "a.plan").read_bytes()
    with full_disk(100), pytest.raises(OSError):
        plan.save(tmp_path / "a.plan")
    assert (tmp_path / "a.plan").read_bytes() == old and len(os.listdir(tmp_path)) == 1


def test_links_and_permissions_stay(tmp_path):
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
def test_las_columns_with_names_of_the_format(name, tmp_path):
    with pytest.raises(ValueError, match=f"cannot be named '{name}'.*rename"):
        io.write(tmp_path / "a.las", io.PointCloud(np.eye(3), {name: np.arange(3)}))


def test_kitti_holds_one_intensity_and_float32(tmp_path):
    path = tmp_path / "a.bin"
    with pytest.raises(ValueError, match="'intensity' has 5 values per point"):
        io.write_kitti(path, cloud_of(4, intensity=np.ones((4, 5), np.float32)))
    far = rng(0).random((1000, 3)) * 10 + [500000, 5400000, 300]
    with pytest.raises(ValueError, match=r"moves the points by up to.*subtract an origin"):
        io.write_kitti(path, io.PointCloud(far))
    io.write_kitti(path, io.PointCloud(far - [500000, 5400000, 300]))


def test_las_integers_do_not_wrap(tmp_path):
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


def test_fractions_and_ranges_are_not_lost(tmp_path):
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


def test_compress_keeps_64_bits(tmp_path):
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


def test_columns_come_back(tmp_path):
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


def test_names_that_differ_by_case_only(tmp_path):
    columns = {"Intensity": np.array([0.5, 1, 2]), "intensity": np.arange(3), "X": np.ones(3)}
    io.write(tmp_path / "a.csv", io.PointCloud(np.eye(3), columns))
    read = io.read(tmp_path / "a.csv")
    assert (read.points == np.eye(3)).all() and sorted(read.columns) == sorted(columns)
    assert read.columns["Intensity"].tolist() == [0.5, 1, 2]


@pytest.mark.parametrize("name", ["points", "header", "array", "return_num", "pt_src_id"])
def test_las_columns_named_as_parts_of_laspy(name, tmp_path):
    """laspy takes some names for its own attributes or for fields under their older names."""
    P = np.arange(9.0).reshape(3, 3)
    io.write(tmp_path / "a.las", io.PointCloud(P, {name: np.array([200, 1, 2])}))
    read = io.read(tmp_path / "a.las")
    assert read.columns[name].tolist() == [200, 1, 2] and (read.points == P).all()
    assert list(read.columns) == [name]


def test_las_names_that_laspy_cannot_hold(tmp_path):
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


def crc32c(data):
    c = 0xFFFFFFFF
    for b in data:
        c ^= b
        for _ in range(8):
            c = (c >> 1) ^ (0x82F63B78 if c & 1 else 0)
    return c ^ 0xFFFFFFFF


def test_small_files_take_little_memory(tmp_path):
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


def test_a_mesh_checks_its_faces():
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


def test_errors_of_writers_name_one_file(tmp_path):
    """`'a.ply' -> None` stood in every message."""
    with pytest.raises(FileNotFoundError) as error:
        io.write(tmp_path / "no" / "a.ply", cloud_of(3))
    assert str(error.value).endswith(f"{tmp_path / 'no' / 'a.ply'}'")
