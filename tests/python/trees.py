"""Small trees in the exact layouts of the published data sets, for tests."""

import json
from pathlib import Path

import numpy as np
from mlx_lattice import io
from mlx_lattice.datasets.label_tables import MODELNET40_CLASSES, SHAPENET_PARTS
from mlx_lattice.io import PointCloud


def cloud_rows(n, width, seed):
    rng = np.random.default_rng(seed)
    rows = rng.uniform([-9, -9, -1], [9, 9, 3], (n, 3))
    rows = np.concatenate([rows, rng.random((n, width - 3))], axis=1)
    if width == 5:
        rows[:, 4] = rng.integers(0, 32, n)
    return rows.astype("<f4")


def semantic_kitti(root: Path, sequences=range(22), scans=2, n=400, ids=(0, 10, 40, 50, 252)):
    """Scans, labels of 00 to 10, poses that drive 1 m per scan along the camera's z axis."""
    tr = np.array([[0, -1, 0, 0.1], [0, 0, -1, 0.2], [1, 0, 0, -0.3]])  # scanner to camera
    for number in sequences:
        folder = root / "dataset/sequences" / f"{number:02}"
        (folder / "velodyne").mkdir(parents=True)
        poses = np.tile(np.eye(4)[:3], (scans, 1, 1))
        poses[:, 2, 3] = np.arange(scans)
        (folder / "poses.txt").write_text(
            "".join(" ".join(map(str, p.ravel())) + "\n" for p in poses)
        )
        p = " ".join(["1"] * 12)
        calib = "".join(f"P{i}: {p}\n" for i in range(4)) + "Tr: " + " ".join(map(str, tr.ravel()))
        (folder / "calib.txt").write_text(calib + "\n")
        (folder / "times.txt").write_text("".join(f"{i / 10}\n" for i in range(scans)))
        if number <= 10:
            (folder / "labels").mkdir()
        for i in range(scans):
            rows = cloud_rows(n, 4, number * 1000 + i)
            rows.tofile(folder / f"velodyne/{i:06}.bin")
            if number <= 10:
                height = np.digitize(rows[:, 2], [-0.8, 0, 1, 2])
                labels = np.array(ids, np.uint32)[height % len(ids)] | np.uint32(3 << 16)
                labels.astype("<u4").tofile(folder / f"labels/{i:06}.label")
    return root


def nuscenes(root: Path, n=200):
    """Two training scenes, one of validation; a sweep and a camera image that do not count."""
    tables = {"scene": [], "sample": [], "sample_data": [], "lidarseg": [], "panoptic": []}
    for folder in ("samples/LIDAR_TOP", "lidarseg/v1.0-trainval", "panoptic/v1.0-trainval"):
        (root / folder).mkdir(parents=True)
    for k, name in enumerate(["scene-0001", "scene-0002", "scene-0003"]):
        tables["scene"].append({"token": f"s{k}", "name": name, "nbr_samples": 1})
        tables["sample"].append({"token": f"f{k}", "scene_token": f"s{k}", "timestamp": k})
        token, file = f"d{k}", f"samples/LIDAR_TOP/n015__LIDAR_TOP__{k}.pcd.bin"
        base = {"sample_token": f"f{k}", "is_key_frame": True}
        tables["sample_data"] += [
            {"token": f"c{k}", "filename": f"samples/CAM_FRONT/{k}.jpg", **base},
            {"token": token, "filename": file, **base},
            {
                "token": f"w{k}",
                "filename": "sweeps/LIDAR_TOP/x.pcd.bin",
                **base,
                "is_key_frame": False,
            },
        ]
        rows = cloud_rows(n, 5, k)
        rows.tofile(root / file)
        label = np.array([24, 17, 28, 0, 30], np.uint8)[np.digitize(rows[:, 2], [-0.8, 0, 1, 2])]
        seg = f"lidarseg/v1.0-trainval/{token}_lidarseg.bin"
        label.tofile(root / seg)
        pan = f"panoptic/v1.0-trainval/{token}_panoptic.npz"
        np.savez_compressed(root / pan, data=label.astype(np.uint16) * 1000 + 5)
        tables["lidarseg"].append({"token": token, "sample_data_token": token, "filename": seg})
        tables["panoptic"].append({"token": token, "sample_data_token": token, "filename": pan})
    (root / "v1.0-trainval").mkdir()
    for name, rows in tables.items():
        (root / f"v1.0-trainval/{name}.json").write_text(json.dumps(rows, indent=1))
    return root


def scannet(root: Path, n=150):
    """A scene of each split; raw names of the annotation and their category ids."""
    for top, name in (
        ("scans", "scene0000_00"),
        ("scans", "scene0011_00"),
        ("scans_test", "scene0707_00"),
    ):
        folder = root / top / name
        folder.mkdir(parents=True)
        rng = np.random.default_rng(len(name))
        points = rng.random((n, 3)).astype(np.float32)
        color = rng.integers(0, 256, (n, 4), dtype=np.uint8)
        io.write(folder / f"{name}_vh_clean_2.ply", PointCloud(points, {"color": color}))
        if top == "scans_test":
            continue
        segments = np.arange(n) // 50  # three segments: a wall, a chair, none
        nyu = np.array([1, 5, 0], np.uint16)[segments]
        second = PointCloud(points, {"color": color, "label": nyu})
        io.write(folder / f"{name}_vh_clean_2.labels.ply", second)
        text = {"sceneId": name, "segIndices": (segments * 10).tolist()}
        (folder / f"{name}_vh_clean_2.0.010000.segs.json").write_text(json.dumps(text))
        groups = [
            {"id": 0, "objectId": 0, "segments": [0], "label": "wall"},
            {"id": 1, "objectId": 1, "segments": [10], "label": "office chair"},
        ]
        (folder / f"{name}.aggregation.json").write_text(json.dumps({"segGroups": groups}))
    (root / "scannetv2-labels.combined.tsv").write_text(
        "id\traw_category\tcategory\tnyu40id\n1\twall\twall\t1\n10\toffice chair\tchair\t5\n"
    )
    return root


def s3dis(root: Path):
    for area in range(1, 7):
        folder = root / f"Area_{area}/office_1/Annotations"
        folder.mkdir(parents=True)
        for k, name in enumerate(("ceiling_1", "chair_1", "stairs_1")):
            rows = cloud_rows(30, 3, area * 10 + k)
            lines = ["{:.3f} {:.3f} {:.3f} {} {} {}\n".format(*r, 10 * k, 20, 255) for r in rows]
            (folder / f"{name}.txt").write_text("".join(lines))
        (folder.parent / "office_1.txt").write_text("0 0 0 0 0 0\n")
    return root


TETRAHEDRON = "4 4 6\n0 0 0\n1 0 0\n0 1 0\n0 0 1\n3 0 2 1\n3 0 1 3\n3 0 3 2\n3 1 2 3\n"


def modelnet40(root: Path):
    for i, name in enumerate(MODELNET40_CLASSES):
        for split in ("train", "test"):
            (root / name / split).mkdir(parents=True)
            head = "OFF" if i % 2 else "OFF\n"  # some published files have no line break here
            (root / name / split / f"{name}_0001.off").write_text(head + TETRAHEDRON)
    return root


def shapenetpart(root: Path):
    (root / "train_test_split").mkdir(parents=True)
    entries, first = [], 0
    for synset, _name, parts in SHAPENET_PARTS:
        (root / synset).mkdir()
        rows = np.concatenate([cloud_rows(40, 6, first), np.arange(40)[:, None] % parts + first], 1)
        text = "".join(" ".join(f"{v:.6f}" for v in row) + "\n" for row in rows)
        (root / synset / "a1b2.txt").write_text(text)
        entries.append(f"shape_data/{synset}/a1b2")
        first += parts
    for split in ("train", "val", "test"):
        path = root / f"train_test_split/shuffled_{split}_file_list.json"
        path.write_text(json.dumps(entries))
    return root
