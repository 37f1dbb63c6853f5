"""Readers of scans, labels, text and meshes: layouts as published, arrays that MLX takes, errors
that name the file.
"""

import struct

import mlx.core as mx
import numpy as np
import pytest
from mlx_lattice import io
from mlx_lattice.io import PointCloud

RNG = np.random.default_rng(3)


def scan(n, width, seed=0):
    rows = np.random.default_rng(seed).normal(size=(n, width)).astype("<f4")
    if width == 5:
        rows[:, 4] = np.arange(n) % 32
    return rows


def test_columns_are_arrays_that_mlx_takes(tmp_path):
    rows = np.zeros(5, [("x", ">f4"), ("y", ">f4"), ("z", ">f4"), ("label", "u1"), ("t", ">f8")])
    rows["label"], rows["t"] = np.arange(5), np.arange(5) / 3
    cloud = PointCloud(np.stack([rows[a] for a in "xyz"], 1), {n: rows[n] for n in ("label", "t")})
    io.write(tmp_path / "a.ply", cloud)
    io.write(tmp_path / "a.pcd", cloud)
    io.write(tmp_path / "a.npy", cloud)
    for made in (cloud, *(io.read(tmp_path / f"a.{kind}") for kind in ("ply", "pcd", "npy"))):
        assert mx.array(made.columns["label"]).tolist() == [0, 1, 2, 3, 4]
        for values in (made.points, *made.columns.values()):
            assert values.flags.c_contiguous and values.flags.aligned and values.dtype.isnative
        assert made.columns["t"].tolist() == (np.arange(5) / 3).tolist()


def test_nuscenes(tmp_path):
    rows = scan(20, 5)
    path = tmp_path / "n008__LIDAR_TOP__1.pcd.bin"
    rows.tofile(path)
    cloud = io.read(path)
    assert np.array_equal(cloud.points, rows[:, :3])
    assert cloud.columns["ring"].tolist() == rows[:, 4].astype(int).tolist()
    io.write(tmp_path / "b.pcd.bin", cloud)
    assert (tmp_path / "b.pcd.bin").read_bytes() == path.read_bytes()
    (tmp_path / "a_lidarseg.bin").write_bytes(bytes(range(20)))
    assert io.read_nuscenes(path, tmp_path / "a_lidarseg.bin").columns["label"][19] == 19
    panoptic = np.arange(20, dtype=np.uint16) * 1000 + 7
    np.savez_compressed(tmp_path / "a_panoptic.npz", data=panoptic)
    both = io.read_nuscenes(path, panoptic=tmp_path / "a_panoptic.npz").columns
    assert both["label"].tolist() == list(range(20)) and set(both["instance"]) == {7}
    (tmp_path / "b_lidarseg.bin").write_bytes(bytes(3))
    with pytest.raises(ValueError, match=r"b_lidarseg\.bin: 3 labels, expected one for each of 20"):
        io.read_nuscenes(path, tmp_path / "b_lidarseg.bin")
    np.savez(tmp_path / "c_panoptic.npz", other=panoptic)
    with pytest.raises(ValueError, match=r"c_panoptic\.npz.*expected one array `data`"):
        io.read_nuscenes(path, panoptic=tmp_path / "c_panoptic.npz")


def test_bin_that_fits_both_asks_for_the_format(tmp_path):
    scan(20, 4).tofile(tmp_path / "a.bin")  # 320 bytes: 20 points of KITTI, 16 of nuScenes
    with pytest.raises(ValueError, match="--format kitti or --format nuscenes") as error:
        io.read(tmp_path / "a.bin")
    assert str(error.value).startswith(str(tmp_path / "a.bin"))
    assert len(io.read(tmp_path / "a.bin", "kitti")) == 20
    with pytest.raises(ValueError, match="not a whole ring number"):
        io.read(tmp_path / "a.bin", "nuscenes")
    scan(21, 4).tofile(tmp_path / "b.bin")
    scan(21, 5).tofile(tmp_path / "c.bin")
    assert len(io.read(tmp_path / "b.bin")) == len(io.read(tmp_path / "c.bin")) == 21
    (tmp_path / "velodyne").mkdir()  # the folder of KITTI does not make rows of five rows of four
    scan(21, 5).tofile(tmp_path / "velodyne" / "c.bin")
    assert len(io.read(tmp_path / "velodyne" / "c.bin")) == 21
    scan(20, 5).tofile(tmp_path / "velodyne" / "d.bin")
    with pytest.raises(ValueError, match="--format kitti or --format nuscenes"):
        io.read(tmp_path / "velodyne" / "d.bin")
    scan(20, 4).tofile(tmp_path / "velodyne" / "e.bin")
    assert len(io.read(tmp_path / "velodyne" / "e.bin")) == 20
    assert "ring" in io.read(tmp_path / "c.bin").columns


def test_labels_beside_velodyne(tmp_path):
    for folder in ("velodyne", "labels"):
        (tmp_path / folder).mkdir()
    scan(20, 4).tofile(tmp_path / "velodyne/000000.bin")
    assert set(io.read(tmp_path / "velodyne/000000.bin").columns) == {"intensity"}
    (np.arange(20, dtype="<u4") << 16 | 40).tofile(tmp_path / "labels/000000.label")
    for path in (tmp_path / "velodyne/000000.bin", tmp_path / "labels/000000.label"):
        cloud = io.read(path)
        assert set(cloud.columns["label"]) == {40} and cloud.columns["instance"][19] == 19
    assert "label" not in io.read(tmp_path / "velodyne/000000.bin", labels=False).columns
    np.zeros(4, "<u4").tofile(tmp_path / "labels/000001.label")
    with pytest.raises(ValueError, match=r"000001\.label: a \.label file holds no points"):
        io.read(tmp_path / "labels/000001.label")
    np.zeros(19, "<u4").tofile(tmp_path / "labels/000000.label")
    with pytest.raises(ValueError, match="19 labels, expected one for each of 20 points"):
        io.read(tmp_path / "velodyne/000000.bin")


TEXTS = {
    "spaces.xyz": ("1 2 3\n4 5 6\n", None, []),
    "more.txt": ("1 2 3 9\n4 5 6 8\n", None, ["features"]),
    "head.csv": (
        'x,y,z,"intensity",label\n1,2,3,0.5,7\n4,5,6,0.25,8\n',
        None,
        ["intensity", "label"],
    ),
    "comment.txt": (
        "# made by a program\n//X Y Z R G B\n1 2 3 4 5 6\n4 5 6 7 8 9\n",
        None,
        ["color"],
    ),
    "count.txt": ("2\n1 2 3\n4 5 6\n", None, []),
    "named.txt": ("1 2 3 0.5\n4 5 6 1.5\n", ("x", "y", "z", "intensity"), ["intensity"]),
    "semicolon.csv": ("X;Y;Z;classification\n1;2;3;4\n4;5;6;5\n", None, ["label"]),
    "bom.csv": ("\ufeffx,y,z\n1,2,3\n4,5,6\n", None, []),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text(tmp_path, name):
    text, names, columns = TEXTS[name]
    (tmp_path / name).write_text(text, encoding="utf-8")
    cloud = io.read(tmp_path / name, **({"columns": names} if names else {}))
    assert cloud.points.tolist() == [[1, 2, 3], [4, 5, 6]] and list(cloud.columns) == columns


@pytest.mark.parametrize("name", ["a.xyz", "a.txt", "a.csv"])
@pytest.mark.parametrize("n", [0, 1, 33])
def test_text_round_trip(tmp_path, name, n):
    columns = {"label": np.arange(n).astype(np.uint8), "t": RNG.random(n).astype(np.float32) + 0.1}
    cloud = PointCloud(RNG.normal(size=(n, 3)), columns)
    io.write(tmp_path / name, cloud)
    back = io.read(tmp_path / name)
    assert np.array_equal(back.points, cloud.points)
    for column, values in columns.items():
        assert np.array_equal(back.columns[column], values)


CUBE = "8 6 0\n" + "".join(f"{i & 1} {i >> 1 & 1} {i >> 2}\n" for i in range(8))
QUADS = ("0 1 3 2", "4 6 7 5", "0 4 5 1", "2 3 7 6", "0 2 6 4", "1 5 7 3")
OFF = "OFF\n" + CUBE + "".join(f"4 {q}\n" for q in QUADS)
OBJ = "".join("v " + " ".join(map(str, (i & 1, i >> 1 & 1, i >> 2))) + "\n" for i in range(8))
OBJ += "".join("f " + " ".join(f"{int(w) + 1}/1/1" for w in q.split()) + "\n" for q in QUADS)


def stl(text=False):
    tips = np.array([[i & 1, i >> 1 & 1, i >> 2] for i in range(8)], float)
    cut = [
        (int(a), int(b), int(c))
        for q in QUADS
        for a, b, c in (q.split()[:3], [q.split()[i] for i in (0, 2, 3)])
    ]
    if text:
        facets = (
            "facet normal 0 0 0\nouter loop\n"
            + "".join("vertex {} {} {}\n".format(*tips[v]) for v in f)
            + "endloop\nendfacet\n"
            for f in cut
        )
        return ("solid cube\n" + "".join(facets) + "endsolid cube\n").encode()
    body = b"".join(struct.pack("<12fH", 0, 0, 0, *tips[list(f)].ravel(), 0) for f in cut)
    return bytes(80) + struct.pack("<I", len(cut)) + body


MESHES = {
    "a.off": OFF.encode(),
    "joined.off": OFF.replace("OFF\n8", "OFF8").encode(),
    "a.obj": OBJ.encode(),
    "back.obj": OBJ.replace("f 1/1/1", "f -8//1").encode(),
    "a.stl": stl(),
    "text.stl": stl(text=True),
}


@pytest.mark.parametrize("name", MESHES)
def test_surface_of_a_cube(tmp_path, name):
    (tmp_path / name).write_bytes(MESHES[name])
    cloud = io.read(tmp_path / name, samples=6000, seed=4)
    near = np.abs(cloud.points - 0.5).max(axis=1)
    assert len(cloud) == 6000 and np.abs(near - 0.5).max() < 1e-6
    sides = [(np.abs(cloud.points[:, a] - v) < 1e-6).sum() for a in range(3) for v in (0, 1)]
    assert min(sides) > 850 and max(sides) < 1150  # 1000 expected, deviation 29
    inside = np.abs(cloud.points[cloud.points[:, 2] < 1e-6][:, :2].mean(axis=0) - 0.5)
    assert inside.max() < 0.05
    axis = np.abs(cloud.columns["normal"]).argmax(axis=1)
    assert np.allclose(np.abs(cloud.points[np.arange(6000), axis] - 0.5), 0.5)
    again = io.read(tmp_path / name, samples=6000, seed=4)
    assert np.array_equal(again.points, cloud.points)
    assert not np.array_equal(io.read(tmp_path / name, samples=6000, seed=5).points, cloud.points)


def test_mesh_without_faces_gives_vertices(tmp_path):
    (tmp_path / "a.obj").write_text("v 1 2 3\nv 4 5 6\n")
    assert io.read(tmp_path / "a.obj").points.tolist() == [[1, 2, 3], [4, 5, 6]]


BAD = {
    "short.off": (b"OFF\n9 9 0\n1 2 3\n", "cannot stand in 6 numbers"),
    "magic.off": (b"PLY\n", "expected 'OFF'"),
    "index.off": (
        b"OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 3\n",
        "a face with vertex 3, expected 0..2",
    ),
    "zero.obj": (b"v 0 0 0\nf 0 0 0\n", "line 2"),
    "flat.obj": (b"v 0 0 0\nv 0 0 0\nv 0 0 0\nf 1 2 3\n", "no area"),
    "cut.stl": (stl()[:-1], "12 facets of 50 bytes need 600 bytes, found 599"),
    "words.csv": (b"a,b,c\n1,2,3\n", "names among which are x, y and z"),
    "ragged.xyz": (b"1 2 3\n4 5\n", "ragged.xyz"),
    "letters.xyz": (b"1 2 3\n4 five 6\n", "five"),
    "few.txt": (b"3\n1 2 3\n", "counts 3 points, found 1"),
    "two.txt": (b"1 2\n3 4\n", "2 values per line"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_named(tmp_path, name):
    content, message = BAD[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError) as error:
        io.read(tmp_path / name)
    assert str(error.value).startswith(str(tmp_path / name)) and message in str(error.value)


def test_scannet_has_a_second_ply(tmp_path):
    points = RNG.normal(size=(9, 3)).astype(np.float32)
    color = RNG.integers(0, 256, (9, 4), dtype=np.uint8)
    first, second = (tmp_path / f"scene0000_00_vh_clean_2{s}.ply" for s in ("", ".labels"))
    io.write(first, PointCloud(points, {"color": color}))
    assert "label" not in io.read_scannet(first).columns
    io.write(second, PointCloud(points, {"label": np.arange(9, dtype=np.uint16)}))
    assert io.read(first, "scannet").columns["label"].tolist() == list(range(9))
    io.write(second, PointCloud(points[:8], {"label": np.arange(8, dtype=np.uint16)}))
    with pytest.raises(ValueError, match="8 labels, expected one for each of 9 points"):
        io.read_scannet(first)


def test_e57(tmp_path):
    pye57 = pytest.importorskip("pye57")
    points = RNG.normal(size=(7, 3))
    data = {f"cartesian{a}": points[:, i] for i, a in enumerate("XYZ")} | {
        "intensity": np.arange(7.0)
    }
    file = pye57.E57(str(tmp_path / "a.e57"), mode="w")
    file.write_scan_raw(data)
    file.write_scan_raw(data)
    file.close()
    cloud = io.read(tmp_path / "a.e57")
    assert len(cloud) == 14 and np.allclose(cloud.points[7:], points)
    assert cloud.columns["scan"].tolist() == [0] * 7 + [1] * 7
    (tmp_path / "b.e57").write_bytes(b"no")
    with pytest.raises(ValueError, match=r"b\.e57"):
        io.read(tmp_path / "b.e57")


def test_options_of_another_reader_are_named(tmp_path):
    (tmp_path / "a.xyz").write_text("1 2 3\n")
    with pytest.raises(TypeError, match=r"\[read\] xyz"):
        io.read(tmp_path / "a.xyz", samples=3)
