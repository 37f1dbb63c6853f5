"""Data sets in their published layouts: items, splits, classes, caches, submissions; what is
missing is named.
"""

import json
import shutil

import numpy as np
import pytest
import trees
from mlx_lattice import datasets as ds
from mlx_lattice import io
from mlx_lattice.datasets import label_tables
from mlx_lattice.datasets.scannet_tables import CLASSES_200, VALIDATION_SPACES


@pytest.fixture(scope="module")
def kitti(tmp_path_factory):
    return trees.semantic_kitti(tmp_path_factory.mktemp("kitti"))


def test_semantic_kitti(kitti):
    sizes = {split: len(ds.SemanticKITTI(kitti, split)) for split in ("train", "valid", "test")}
    assert sizes == {"train": 20, "valid": 2, "test": 22}
    data = ds.SemanticKITTI(kitti, "valid")
    assert [data.name(i) for i in range(2)] == ["08/000000", "08/000001"]
    raw = io.read(kitti / "dataset/sequences/08/velodyne/000001.bin")
    item = data[1]
    assert np.array_equal(item.points, raw.points) and item.meta["name"] == "08/000001"
    expected = {0: -1, 10: 0, 252: 0, 40: 8, 50: 12}
    assert item.columns["label"].tolist() == [expected[v] for v in raw.columns["label"].tolist()]
    assert (
        data.classes[0] == "car" and data.classes[18] == "traffic-sign" and len(data.classes) == 19
    )
    assert "label" not in ds.SemanticKITTI(kitti, "test")[0].columns
    assert len(list(data)) == 2 and len(data[:1]) == 1 and data[-1].meta["name"] == "08/000001"
    with pytest.raises(IndexError):
        data[2]


def test_scans_are_joined_by_their_poses(kitti):
    one, two = (ds.SemanticKITTI(kitti, "valid", scans=s) for s in (1, 2))
    assert len(two[0]) == len(one[0])  # the first scan of a sequence stands alone
    both = two[1]
    now, before = (both[both.columns["time"] == t] for t in (0, -1))
    assert np.array_equal(now.points, one[1].points)
    # The car drove 1 m ahead: along z of the camera, which is x of the scanner.
    assert np.abs(before.points - (one[0].points - [1, 0, 0])).max() < 1e-5
    assert np.array_equal(before.columns["label"], one[0].columns["label"])


def test_tables():
    kitti, nus = label_tables.SEMANTIC_KITTI, label_tables.NUSCENES
    assert len(kitti.ids) == 34 and len(nus.ids) == 32 and len(nus.names) == 16
    assert kitti.indices(np.array([10, 252, 99, 81]), "x").tolist() == [0, 0, -1, 18]
    assert kitti.values(np.array([0, 18])).tolist() == [10, 81]
    for table in (kitti, label_tables.NUSCENES):
        assert sorted(set(table.ids.values())) == list(range(-1, len(table.names)))
    with pytest.raises(ValueError, match=r"a\.label: label 7 is unknown"):
        kitti.indices(np.array([10, 7]), "a.label")
    assert len(label_tables.NUSCENES_VALIDATION) == 150 and len(VALIDATION_SPACES) == 142
    assert len(CLASSES_200) == 200 and CLASSES_200[1191] == "mattress"
    assert len(label_tables.MODELNET40_CLASSES) == 40
    assert sum(parts for *_, parts in label_tables.SHAPENET_PARTS) == 50


def test_nuscenes(tmp_path, monkeypatch):
    root = trees.nuscenes(tmp_path)
    train, valid = ds.NuScenes(root, "train"), ds.NuScenes(root, "valid")
    assert [train.name(i) for i in range(len(train))] == ["d0", "d1"] and valid.name(0) == "d2"
    expected = {24: 10, 17: 3, 28: 14, 0: -1, 30: 15}
    raw = np.fromfile(root / "lidarseg/v1.0-trainval/d2_lidarseg.bin", np.uint8)
    assert valid[0].columns["label"].tolist() == [expected[v] for v in raw.tolist()]
    assert set(valid[0].columns) == {"intensity", "ring", "label"}
    panoptic = ds.NuScenes(root, "valid", panoptic=True)[0]
    assert np.array_equal(panoptic.columns["label"], valid[0].columns["label"])
    assert set(panoptic.columns["instance"]) == {5}
    monkeypatch.setattr("mlx_lattice.datasets.nuscenes.PIECE", 7)  # rows over many pieces
    assert len(ds.NuScenes(root, "train")) == 2


@pytest.mark.parametrize("field", ["token", "filename"])
def test_names_in_tables_stay_inside(tmp_path, field):
    """A data set from anywhere must not read or write outside the folders it was given."""
    root = trees.nuscenes(tmp_path / "data")
    for name in ("sample_data", "lidarseg"):
        path = root / f"v1.0-trainval/{name}.json"
        rows = json.loads(path.read_text())
        for row in rows:
            key = "sample_data_token" if name == "lidarseg" and field == "token" else field
            old = row[key]
            row[key] = "../../../" + old if field == "token" else old.replace("d2", "../../../d2")
        path.write_text(json.dumps(rows))
    precious = tmp_path / "d2_lidarseg.bin"
    precious.write_bytes(b"my thesis")
    with pytest.raises(ds.DatasetError, match="expected one inside"):
        data = ds.NuScenes(root, "valid")
        ds.write_prediction(data, 0, np.zeros(len(data[0]), np.int32), tmp_path / "out")
    assert precious.read_bytes() == b"my thesis"


def test_scannet(tmp_path):
    root = trees.scannet(tmp_path)
    coarse, fine = ds.ScanNet(root, "train"), ds.ScanNet(root, "train", classes=200)
    assert [coarse.name(0), ds.ScanNet(root, "valid").name(0)] == ["scene0000_00", "scene0011_00"]
    assert coarse[0].columns["label"].tolist() == [0] * 50 + [4] * 50 + [-1] * 50
    assert fine[0].columns["label"].tolist() == [0] * 50 + [9] * 50 + [-1] * 50
    assert fine[0].columns["instance"].tolist() == [1] * 50 + [2] * 50 + [0] * 50
    test = ds.ScanNet(root, "test")
    assert test.name(0) == "scene0707_00" and set(test[0].columns) == {"color"}


def test_s3dis(tmp_path):
    root = trees.s3dis(tmp_path)
    assert len(ds.S3DIS(root, "train")) == 5
    room = ds.S3DIS(root, "valid")
    assert room.name(0) == "Area_5/office_1" and len(room[0]) == 90
    assert np.bincount(room[0].columns["label"], minlength=13)[[0, 8, 12]].tolist() == [30, 30, 30]
    assert room[0].columns["color"].dtype == np.uint8
    assert ds.S3DIS(root, "valid", held=2).name(0) == "Area_2/office_1"
    bad = root / "Area_5/office_1/Annotations/rocket_1.txt"
    bad.write_text("0 0 0 0 0 0\n")
    with pytest.raises(ValueError, match=r"rocket_1\.txt: class 'rocket' is unknown"):
        room[0]


def test_objects(tmp_path):
    model = ds.ModelNet40(trees.modelnet40(tmp_path / "m"), "test", samples=64)
    assert len(model) == 40 and model.targets == list(range(40))
    assert len(model[3]) == 64 and np.array_equal(model[3].points, model[3].points)
    assert not np.array_equal(model[3].points, model[4].points) and model[3].meta["target"] == 3
    root = trees.shapenetpart(tmp_path / "s")
    part = ds.ShapeNetPart(root, "valid")
    assert len(part) == 16 and part.parts[0] == range(4) and part.parts[15] == range(47, 50)
    assert set(part[10].columns["label"]) == set(range(30, 36)) and len(part.classes) == 50
    path = root / "02691156/a1b2.txt"
    path.write_text("0 0 0 0 0 1 9\n")
    with pytest.raises(ValueError, match=r"a1b2\.txt: parts 9..9, expected 0..3"):
        part[0]


def test_folder(tmp_path):
    for i in range(5):
        points = np.random.default_rng(i).random((20, 3)).astype(np.float32)
        label = np.arange(20, dtype=np.int32) % 3
        (tmp_path / "deep").mkdir(exist_ok=True)
        io.write(tmp_path / f"deep/{i}.ply", io.PointCloud(points, {"label": label}))
    train, valid = (ds.Folder(tmp_path, s, ignored=[0], held=0.4) for s in ("train", "valid"))
    names = {d.name(i) for d in (train, valid) for i in range(len(d))}
    assert len(train) == 3 and len(valid) == 2 and len(names) == 5
    assert train.classes == ("1", "2") and set(train[0].columns["label"]) == {-1, 0, 1}
    with pytest.raises(ValueError, match=r"0\.ply: no column 'class'"):
        ds.Folder(tmp_path, label="class")
    with pytest.raises(ValueError, match="label 2 is unknown"):
        ds.Folder(tmp_path, classes={0: "a", 1: "b"})[0]


@pytest.mark.parametrize(
    "kind, make",
    [
        (ds.SemanticKITTI, lambda root: trees.semantic_kitti(root, range(11), 1, 20)),
        (ds.NuScenes, trees.nuscenes),
        (ds.ScanNet, trees.scannet),
        (ds.S3DIS, trees.s3dis),
        (ds.ModelNet40, trees.modelnet40),
        (ds.ShapeNetPart, trees.shapenetpart),
        (ds.Folder, lambda root: root.mkdir(exist_ok=True) or root),
    ],
)
def test_wrong_trees_show_the_right_one(tmp_path, kind, make):
    """No folder, an empty folder, and any single folder that is gone."""
    for root in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(ds.DatasetError) as error:
            kind(root)
        text = str(error.value)
        assert kind.TREE.strip().splitlines()[0].split()[0] in text and "get it from" in text
    root = make(tmp_path / "tree")
    if kind is ds.Folder:
        return
    kind(root, "train")
    gone = next(
        p
        for p in sorted(root.rglob("*"))
        if p.is_dir() and not any(q.is_dir() for q in p.iterdir())
    )
    shutil.rmtree(gone)
    with pytest.raises(ds.DatasetError) as error:
        for split in kind.SPLITS:
            data = kind(root, split)
            [data[i] for i in range(len(data))]
    assert str(gone) in str(error.value) or gone.name in str(error.value)


def test_nothing_is_silently_skipped(tmp_path):
    root = trees.semantic_kitti(tmp_path, range(11), 2, 20)
    folder = root / "dataset/sequences/03"
    label = folder / "labels/000001.label"
    content = label.read_bytes()
    label.unlink()
    with pytest.raises(ds.DatasetError, match=r"1 of 2 scans of 03 have no labels.*000001\.label"):
        ds.SemanticKITTI(root)
    for data, message in (
        (content[:-4], "19 labels, expected one for each of 20"),
        (content[:-1], "79 bytes, expected a multiple of 4"),
        (np.full(20, 77, "<u4").tobytes(), "label 77 is unknown"),
    ):
        label.write_bytes(data)
        with pytest.raises(ValueError, match=message) as error:
            ds.SemanticKITTI(root, sequences=[3])[1]
        assert str(error.value).startswith(str(label))
    label.write_bytes(content)
    scan = folder / "velodyne/000001.bin"
    scan.write_bytes(scan.read_bytes()[:-3])
    with pytest.raises(ValueError, match=r"000001\.bin.*317 bytes, expected a multiple of 16"):
        ds.SemanticKITTI(root, sequences=[3])[1]
    (folder / "poses.txt").write_text("1 2 3\n")
    with pytest.raises(ValueError, match=r"poses\.txt: found 1 lines of 3 numbers"):
        ds.SemanticKITTI(root, sequences=[3], scans=2)


def half(cloud):
    return cloud[::2]


def test_cache_keeps_prepared_items(kitti, tmp_path):
    plain = ds.SemanticKITTI(kitti, "valid")
    data = ds.Cached(plain, tmp_path / "c", prepare=half)
    first, again = data[0], data[0]
    assert data.cache.hits == 1 and data.cache.misses == 1 and data.classes == plain.classes
    for made in (first, again):
        assert np.array_equal(made.points, plain[0].points[::2])
        assert np.array_equal(made.columns["label"], plain[0].columns["label"][::2])
        assert made.meta["name"] == "08/000000"
    other = ds.Cached(plain, tmp_path / "c", prepare=None)
    assert len(other[0]) == len(plain[0]) and other.cache.hits == 0  # another key
    for file in (tmp_path / "c").iterdir():
        data_ = bytearray(file.read_bytes())
        data_[-1] ^= 1
        file.write_bytes(data_)
    assert np.array_equal(data[0].points, first.points) and data.cache.rebuilt == 1
    assert np.array_equal(data[0].points, first.points) and data.cache.rebuilt == 1


def test_cache_stays_below_its_budget(kitti, tmp_path):
    plain = ds.SemanticKITTI(kitti, "train")
    size = len(plain[0]) * (3 * 4 + 4 + 4 + 2) + 2000
    data = ds.Cached(plain, tmp_path, budget=4 * size)
    for i in range(12):
        data[i]
        used = sum(p.stat().st_size for p in tmp_path.glob("*.item"))
        assert used <= 4 * size
    assert data.cache.hits == 0
    data[11]
    assert data.cache.hits == 1 and not list(tmp_path.glob("*.writing"))


def test_submissions(kitti, tmp_path):
    test = ds.SemanticKITTI(kitti, "test")
    path = ds.write_prediction(test, 1, np.array([0, 18, 8]), tmp_path)
    assert path == tmp_path / "sequences/11/predictions/000001.label"
    assert np.fromfile(path, "<u4").tolist() == [10, 81, 40]
    nus = ds.NuScenes(trees.nuscenes(tmp_path / "n"), "valid")
    path = ds.write_prediction(nus, 0, np.array([0, 15]), tmp_path / "out")
    assert path == tmp_path / "out/lidarseg/val/d2_lidarseg.bin"
    assert list(path.read_bytes()) == [1, 16]
    notes = json.loads(ds.write_submission_notes(nus, tmp_path / "out").read_text())
    assert notes["meta"]["use_lidar"] is True and notes["meta"]["use_camera"] is False
    scans = ds.ScanNet(trees.scannet(tmp_path / "s"), "test")
    path = ds.write_prediction(scans, 0, np.array([0, 19]), tmp_path / "out")
    assert path.name == "scene0707_00.txt" and path.read_text() == "1\n39\n"
    with pytest.raises(ValueError, match=r"expected one class index 0\.\.18 per point"):
        ds.write_prediction(test, 0, np.array([19]), tmp_path)
    with pytest.raises(ValueError, match="has no benchmark"):
        ds.write_prediction(ds.S3DIS(trees.s3dis(tmp_path / "r"), "valid"), 0, [0], tmp_path)
