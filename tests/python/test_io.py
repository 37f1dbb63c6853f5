"""Point-cloud files: what is written is read, files of others are read, bad ones are named."""

import builtins

import numpy as np
import pytest
from mlx_lattice import io
from mlx_lattice.io import PointCloud

EXACT = [
    ("a.ply", {}),
    ("a.ply", {"encoding": "binary_big_endian"}),
    ("a.ply", {"encoding": "ascii"}),
    ("a.pcd", {}),
    ("a.pcd", {"encoding": "ascii"}),
    ("a.pcd", {"encoding": "binary_compressed"}),
    ("a.npy", {}),
    ("a.npz", {}),
    ("a.npz", {"compressed": False}),
]


def a_cloud(n=257, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    return PointCloud(
        rng.normal(size=(n, 3)).astype(dtype),
        {
            "color": rng.integers(0, 256, (n, 3), dtype=np.uint8),
            "intensity": rng.random(n).astype(np.float32),
            "label": rng.integers(0, 5, n).astype(np.int32),
            "normal": rng.normal(size=(n, 3)).astype(np.float32),
            "time": rng.random(n),
            "ring": rng.integers(0, 64, n).astype(np.uint16),
        },
    )


def same(a, b):
    assert a.points.dtype == b.points.dtype and np.array_equal(a.points, b.points, equal_nan=True)
    assert set(a.columns) == set(b.columns)
    for name, values in a.columns.items():
        assert values.dtype == b.columns[name].dtype and np.array_equal(
            values, b.columns[name], equal_nan=True
        ), name


@pytest.mark.parametrize("n", [0, 1, 257])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name, options", EXACT)
def test_round_trip_is_exact(tmp_path, name, options, dtype, n):
    cloud = a_cloud(n, dtype)
    io.write(tmp_path / name, cloud, **options)
    same(cloud, io.read(tmp_path / name))


@pytest.mark.parametrize("name, options", EXACT)
def test_nan_and_extremes_survive(tmp_path, name, options):
    points = np.array(
        [[np.nan, np.inf, -np.inf], [1e-45, 3.4e38, -0.0], [1 / 3, 16777217, 0.1]], np.float32
    )
    cloud = PointCloud(points, {"count": np.array([0, 2**31 - 1, -(2**31)], np.int32)})
    io.write(tmp_path / name, cloud, **options)
    back = io.read(tmp_path / name)
    same(cloud, back)
    assert back.finite().tolist() == [False, True, True]


def test_kitti(tmp_path):
    cloud = PointCloud(a_cloud().points, {"intensity": a_cloud().columns["intensity"]})
    io.write(tmp_path / "a.bin", cloud)
    same(cloud, io.read(tmp_path / "a.bin"))
    assert (tmp_path / "a.bin").stat().st_size == 257 * 16
    (np.arange(257, dtype="<u4") << 16 | 7).tofile(tmp_path / "a.label")
    labeled = io.read_kitti(tmp_path / "a.bin", tmp_path / "a.label")
    assert set(labeled.columns["label"]) == {7} and labeled.columns["instance"][256] == 256
    np.zeros(3, "<u4").tofile(tmp_path / "b.label")
    with pytest.raises(ValueError, match="3 labels, expected one for each of 257"):
        io.read_kitti(tmp_path / "a.bin", tmp_path / "b.label")
    with pytest.raises(ValueError, match="no place for color"):
        io.write(tmp_path / "b.bin", a_cloud())


@pytest.mark.parametrize("name", ["a.las", "a.laz"])
@pytest.mark.parametrize("n", [0, 1, 257])
def test_las_keeps_millimeters_of_a_map(tmp_path, name, n):
    pytest.importorskip("laspy")
    pytest.importorskip("lazrs")
    cloud = a_cloud(n, np.float64)
    cloud = PointCloud(cloud.points + [412345.678, 5812345.678, 120], cloud.columns)
    io.write(tmp_path / name, cloud)
    back = io.read(tmp_path / name)
    assert (
        back.points.dtype == np.float64
        and np.abs(back.points - cloud.points).max(initial=0) < 0.000501
    )
    assert np.array_equal(back.columns["color"] >> 8, cloud.columns["color"])
    for column in ("label", "normal", "time", "ring"):
        assert np.array_equal(
            back.columns.get(column, []), cloud.columns[column] if column in back.columns else []
        ), column
    io.write(tmp_path / "again.las", back)
    assert np.array_equal(
        io.read(tmp_path / "again.las").points, back.points
    )  # same scale and offset
    with pytest.raises(ValueError, match="LAS cannot hold point 0"):
        io.write(tmp_path / name, PointCloud(np.full((1, 3), np.nan)))
    with pytest.raises(ValueError, match="larger scale"):
        io.write(tmp_path / name, PointCloud(np.array([[0, 0, 0], [1e9, 0, 0]])), scale=0.001)


def test_plyfile_agrees(tmp_path):
    plyfile = pytest.importorskip("plyfile")
    cloud = a_cloud()
    for encoding in ("ascii", "binary_little_endian", "binary_big_endian"):
        io.write(tmp_path / "ours.ply", cloud, encoding=encoding)
        theirs = plyfile.PlyData.read(tmp_path / "ours.ply")
        assert np.array_equal(theirs["vertex"]["y"], cloud.points[:, 1])
        assert np.array_equal(theirs["vertex"]["green"], cloud.columns["color"][:, 1])
        theirs.write(tmp_path / "theirs.ply")
        same(cloud, io.read(tmp_path / "theirs.ply"))


def test_names_of_other_programs(tmp_path):
    (tmp_path / "a.ply").write_text(
        "ply\r\nformat ascii 1.0\r\nobj_info x\nelement camera 1\nproperty float f\n"
        "element vertex 2\nproperty double x\nproperty double y\nproperty double z\n"
        "property uchar r\nproperty uchar g\nproperty uchar b\nproperty float scalar_Intensity\n"
        "property int Classification\nelement face 1\n"
        "property list uchar int vertex_indices\nend_header\n"
        "9\n1 2 3 4 5 6 0.5 7\n1 2 4 4 5 6 nan 8\n3 0 1 1\n"
    )
    cloud = io.read(tmp_path / "a.ply")
    assert cloud.points.tolist() == [[1, 2, 3], [1, 2, 4]] and cloud.points.dtype == np.float64
    assert set(cloud.columns) == {"color", "intensity", "label"} and cloud.columns[
        "label"
    ].tolist() == [7, 8]
    (tmp_path / "a.pcd").write_text(
        "VERSION .7\nFIELDS x y z _ rgb\nSIZE 4 4 4 1 4\nTYPE F F F U F\nCOUNT 1 1 1 2 1\n"
        "WIDTH 1\nHEIGHT 1\nPOINTS 1\nDATA ascii\n1 2 3 0 0 4.2108e+06\n"
    )
    cloud = io.read(tmp_path / "a.pcd")
    assert cloud.columns["color"].tolist() == [[0x80, 0x80, 0xE0]] and set(cloud.columns) == {
        "color"
    }


def test_npy_forms(tmp_path):
    rows = np.arange(20, dtype=">f8").reshape(4, 5)
    for order in "CF":
        np.save(tmp_path / "a.npy", np.asarray(rows, order=order))
        cloud = io.read(tmp_path / "a.npy")
        assert np.array_equal(cloud.points, rows[:, :3]) and np.array_equal(
            cloud.columns["features"], rows[:, 3:]
        )
    np.savez(tmp_path / "a.npz", x=rows[:, 0], y=rows[:, 1], z=rows[:, 2], label=np.arange(4))
    assert io.read(tmp_path / "a.npz").columns["label"].tolist() == [0, 1, 2, 3]
    np.save(tmp_path / "o.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(ValueError, match="pickled objects are never loaded"):
        io.read(tmp_path / "o.npy")


PLY = (
    "ply\nformat {form} 1.0\nelement vertex {count}\nproperty {kind} x\nproperty float y\n"
    "property float z\n{more}end_header\n"
)
PCD = (
    "FIELDS x y z\nSIZE 4 4 {size}\nTYPE F F {kind}\nWIDTH {count}\nHEIGHT 1\n"
    "POINTS {points}\nDATA {form}\n"
)


def ply(form="binary_little_endian", count="2", kind="float", more="", body=bytes(24)):
    return PLY.format(form=form, count=count, kind=kind, more=more).encode() + body


def pcd(size="4", kind="F", count="2", points="2", form="binary", body=bytes(24)):
    return PCD.format(size=size, kind=kind, count=count, points=points, form=form).encode() + body


BAD = {
    "truncated.ply": (ply(body=bytes(23)), "2 vertices of 12 bytes need 24 bytes, found 23"),
    "huge.ply": (ply(count="99999999999"), "need 1199999999988 bytes, found 24"),
    "hugeascii.ply": (ply("ascii", "99999999999", body=b"1 2 3\n"), "cannot stand in 6 bytes"),
    "few.ply": (ply("ascii", body=b"1 2 3\n\n\n\n\n\n\n"), "found 1 lines of points, expected 2"),
    "negative.ply": (ply(count="-1"), "count of element 'vertex': found '-1'"),
    "type.ply": (ply(kind="quad"), "header line 'property quad x'"),
    "list.ply": (ply(more="property list uchar int n\n"), "list property 'n' in element 'vertex'"),
    "twice.ply": (ply(more="property float x\n"), "property 'x' twice"),
    "text.ply": (ply("ascii", body=b"1 2 3\n4 five 6\n"), "five"),
    "long.ply": (b"ply\n" + b"comment \n" * 100000, "header longer than 65536 bytes"),
    "line.ply": (b"ply\n" + b"c" * 200000, "header longer than 65536 bytes"),
    "end.ply": (b"ply\nformat ascii 1.0\n", "without 'end_header'"),
    "magic.ply": (b"PK\nend_header\n", "expected 'ply'"),
    "empty.ply": (b"", "header of a PLY file"),
    "novertex.ply": (b"ply\nformat ascii 1.0\nend_header\n", "no `element vertex`"),
    "noz.ply": (
        b"ply\nformat ascii 1.0\nelement vertex 0\nproperty float x\nproperty float y\n"
        b"end_header\n",
        "without z",
    ),
    "truncated.pcd": (pcd(body=bytes(23)), "2 points of 12 bytes need 24 bytes, found 23"),
    "area.pcd": (pcd(points="3"), "WIDTH times HEIGHT is 2"),
    "type.pcd": (pcd(kind="Q"), "TYPE Q and SIZE 4"),
    "size.pcd": (pcd(size="3"), "SIZE 3"),
    "huge.pcd": (pcd(count="99999999999", points="99999999999"), "found 24"),
    "form.pcd": (pcd(form="zip"), "expected one of ascii, binary, binary_compressed"),
    "lzf.pcd": (
        pcd(form="binary_compressed", body=b"\x10\0\0\0\x18\0\0\0" + bytes(3)),
        "16 compressed bytes, found 3",
    ),
    "bomb.pcd": (
        pcd(
            count="100",
            points="100",
            form="binary_compressed",
            body=b"\x03\0\0\0\xb0\x04\0\0" + bytes(3),
        ),
        "cannot become 1200",
    ),
    "odd.bin": (bytes(17), "17 bytes, expected a multiple of 16 (kitti"),
    "head.las": (b"LASF", "expected b'LASF' and a header of 227 bytes"),
    "shape.npy": (
        b"\x93NUMPY\x01\0v\0"
        + b"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 3), }".ljust(117)
        + b"\n"
        + bytes(12),
        "found 12: truncated",
    ),
    "zip.npz": (b"PK\x03\x04", "not a valid NPZ file"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_named(tmp_path, name):
    content, message = BAD[name]
    if name.endswith(".las"):
        pytest.importorskip("laspy")
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError) as error:
        io.read(path)
    assert str(error.value).startswith(str(path)) and message in str(error.value)


def test_bad_arguments(tmp_path):
    with pytest.raises(FileNotFoundError):
        io.read(tmp_path / "none.ply")
    with pytest.raises(ValueError, match="format 'doc', expected one of ply"):
        io.read("a.doc")
    with pytest.raises(ValueError, match="format 'obj', expected one of ply"):
        io.write(tmp_path / "a.obj", a_cloud())
    with pytest.raises(ValueError, match=r"points: found shape \(3,\), expected \(N, 3\)"):
        PointCloud(np.zeros(3))
    with pytest.raises(ValueError, match="column 'c': found shape"):
        PointCloud(np.zeros((3, 3)), {"c": np.zeros(2)})
    with pytest.raises(ValueError, match="without spaces"):
        io.write(tmp_path / "a.ply", PointCloud(np.zeros((3, 3)), {"two words": np.zeros(3)}))
    with pytest.raises(ValueError, match=r"format must be one of .*, found 'text'"):
        io.write(tmp_path / "a.ply", a_cloud(), encoding="text")
    with pytest.raises(TypeError, match="unexpected keyword"):
        io.write(tmp_path / "a.ply", a_cloud(), level=3)
    with pytest.raises(ValueError, match="too large for a PLY file"):
        io.write(tmp_path / "a.ply", PointCloud(np.zeros((1, 3)), {"id": np.array([2**40])}))


def test_missing_packages_name_the_cure(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.split(".")[0] == "laspy":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr("importlib.import_module", without)
    with pytest.raises(ImportError, match=r"pip install 'lattice-mlx\[io\]'"):
        io.read(tmp_path / "a.las")


def test_local_points_of_a_map():
    cloud = PointCloud(np.array([[412345.678, 5812345.001, 1.0], [412346.678, 5812345.002, 2.0]]))
    points, origin = cloud.local()
    assert np.abs(np.array(points, np.float64) + origin - cloud.points).max() < 1e-6
    for origin in ("sum", [1.0, 2.0], {}):
        with pytest.raises(ValueError, match=r"\[PointCloud.local\] origin: .* three numbers"):
            cloud.local(origin)
