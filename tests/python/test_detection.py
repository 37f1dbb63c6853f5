"""Detectors against recordings of OpenPCDet, det3d and spconv: rows and kept boxes exact.

goldens/detect_*.npz: random weights, made-up points and what the originals made of them on the CPU
(OpenPCDet 8cacccec, CenterPoint 3cf7d870); no code of theirs is here.
"""

import copy
import json
import re
from pathlib import Path

import mlx.core as mx
import mlx.nn
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lattice import cli, datasets, io, ops, samples
from mlx_lattice.models import detection
from mlx_lattice.models.detection.anchor_head import decode_boxes
from mlx_lattice.training.detection import (
    BoxFrame,
    Samples,
    anchor_targets,
    detection_loss,
    flip,
    overfit,
    rotate,
    scale,
    street_config,
    varied,
)
from torch_files import save

GOLDENS = Path(__file__).parent / "goldens"
NAMES = ("second", "pointpillars", "centerpoint", "voxelnext", "centerpoint_det3d")


class Recorded:
    """One recording: weights by name, frames of points, results."""

    def __init__(self, name):
        data = np.load(GOLDENS / f"detect_{name}.npz")
        self.data = {
            k: data[k].astype(np.float32) if data[k].dtype == np.float16 else data[k]
            for k in data.files
        }
        self.config = json.loads(str(self.data["config"]))
        self.state = {
            k.removeprefix("param/"): v for k, v in self.data.items() if k.startswith("param/")
        }
        points = self.data["points"]
        self.frames = [points[points[:, 0] == b][:, 1:] for b in np.unique(points[:, 0])]

    def net(self, order="sorted"):
        return detection.from_state(self.state, self.config, order=order)


def near(a, b):
    assert a.shape == b.shape
    return a.size == 0 or np.abs(a - b).max() <= 1e-5 * np.abs(b).max()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("order", ["spconv", "sorted"])
def test_boxes_as_recorded(name, order):
    recorded = Recorded(name)
    found = recorded.net(order).detect_frames(recorded.frames)
    for i, frame in enumerate(found):
        names = recorded_classes(recorded)
        assert list(frame.names) == [names[k - 1] for k in frame.labels]
        if name == "centerpoint_det3d":
            boxes = recorded.data[f"final_rotated/{i}/box3d_lidar"]
            assert np.array_equal(frame.labels - 1, recorded.data[f"final_rotated/{i}/label_preds"])
            assert near(frame.scores, recorded.data[f"final_rotated/{i}/scores"])
            assert near(frame.boxes[:, [0, 1, 2, 4, 3, 5]], boxes[:, :6])
            assert near(frame.velocities, boxes[:, 6:8])
            turn = -frame.boxes[:, 6] - np.pi / 2 - boxes[:, 8]
            assert np.abs((turn + np.pi) % (2 * np.pi) - np.pi).max() < 1e-4
            continue
        expected = recorded.data[f"final/{i}/boxes"]
        boxes = frame.boxes
        if frame.velocities is not None:
            boxes = np.concatenate([boxes, frame.velocities], axis=1)
        assert near(boxes, expected)
        assert near(frame.scores, recorded.data[f"final/{i}/scores"])
        assert np.array_equal(frame.labels, recorded.data[f"final/{i}/labels"])


def recorded_classes(recorded):
    return detection.read_settings(recorded.config).class_names


@pytest.mark.parametrize("name", ["second", "centerpoint", "voxelnext"])
def test_rows_as_recorded(name):
    recorded = Recorded(name)
    net = recorded.net("spconv")
    stages = net.stages(net.voxels(recorded.frames))["backbone_3d"]
    for stage in ("conv2", "conv_out"):
        rows = recorded.data[f"backbone_3d/{stage}/indices"]
        found = np.array(stages[stage].coords)
        assert np.array_equal(found if rows.shape[1] == 4 else found[:, [0, 2, 3]], rows)


def test_circle_suppression_of_det3d():
    recorded = Recorded("centerpoint_det3d")
    config = copy.deepcopy(recorded.config)
    config["test_cfg"]["circular_nms"] = True
    net = detection.from_state(recorded.state, config)
    found = net.detect(recorded.frames[0])
    assert near(found.scores, recorded.data["final_circle/0/scores"])


@pytest.mark.parametrize("layout", ["spconv 2.0", "spconv 1"])
@pytest.mark.parametrize("name", ["second", "voxelnext"])
def test_layouts_of_sparse_weights(name, layout):
    recorded = Recorded(name)
    state = {}
    for key, value in recorded.state.items():
        sparse = key.startswith("backbone_3d.") or name == "voxelnext"
        if key.endswith("weight") and value.ndim >= 4 and sparse:
            volume = int(np.prod(value.shape[1:-1]))
            if volume == 1:  # the memory stays, the shape changes
                c_out, c_in = value.shape[0], value.shape[-1]
                ends = (c_out, c_in) if layout == "spconv 2.0" else (c_in, c_out)
                value = value.reshape(*value.shape[1:-1], *ends)
            elif layout == "spconv 2.0":
                value = np.moveaxis(value, 0, -2)
            else:
                value = np.moveaxis(value, 0, -1)
        state[key] = value
    net = detection.from_state(state, recorded.config)
    found = net.detect(recorded.frames[0])
    assert near(found.scores, recorded.data["final/0/scores"])


def test_load_a_checkpoint(tmp_path):
    recorded = Recorded("pointpillars")
    np.savez(tmp_path / "pillars.npz", **recorded.state)
    (tmp_path / "pillars.json").write_text(json.dumps(recorded.config))
    net = detection.load(tmp_path / "pillars.npz", str(tmp_path / "pillars.json"))
    assert near(net.detect(recorded.frames[0]).scores, recorded.data["final/0/scores"])
    net.save(tmp_path / "own.safetensors")
    again = detection.load(tmp_path / "own.safetensors")
    assert np.array_equal(
        again.detect(recorded.frames[0]).scores, net.detect(recorded.frames[0]).scores
    )


@pytest.mark.parametrize("legacy", [False, True])
def test_files_of_openpcdet_and_det3d(tmp_path, legacy):
    recorded = Recorded("pointpillars")
    state = {**recorded.state, "global_step": np.array([7])}
    file = {"epoch": 80, "it": 9, "model_state": state, "optimizer_state": None, "version": "0.6"}
    save(tmp_path / "net.pth", file, legacy)
    net = detection.load(tmp_path / "net.pth", recorded.config)
    assert near(net.detect(recorded.frames[0]).scores, recorded.data["final/0/scores"])
    recorded = Recorded("centerpoint_det3d")
    state = {f"module.{k}": v for k, v in recorded.state.items()}
    save(tmp_path / "net.pth", {"meta": {"epoch": 20}, "state_dict": state}, legacy)
    net = detection.load(tmp_path / "net.pth", recorded.config)
    assert near(net.detect(recorded.frames[0]).scores, recorded.data["final_rotated/0/scores"])


def test_bad_checkpoints_and_configurations():
    recorded = Recorded("pointpillars")
    config = copy.deepcopy(recorded.config)
    config["class_names"] = ["Car", "Pedestrian"]
    entries = config["model"]["DENSE_HEAD"]["ANCHOR_GENERATOR_CONFIG"]
    config["model"]["DENSE_HEAD"]["ANCHOR_GENERATOR_CONFIG"] = entries[:2]
    with pytest.raises(ValueError, match="another class list"):
        detection.from_state(recorded.state, config)
    state = {k: v for k, v in recorded.state.items() if "conv_box" not in k}
    with pytest.raises(ValueError, match=r"lacks dense_head\.conv_box"):
        detection.from_state(state, recorded.config)
    with pytest.raises(ValueError, match="the grid does not fit"):
        detection.read_settings({**recorded.config, "voxel_size": [0.17, 0.16, 4]})
    with pytest.raises(ValueError, match="neither a file nor one of"):
        detection.read_settings("yolo")
    with pytest.raises(ValueError, match="must be one of SECONDNet"):
        detection.read_settings({**recorded.config, "model": {"NAME": "YOLO"}})
    with pytest.raises(ValueError, match="widths must hold 5 numbers of channels"):
        detection.Detector("second_kitti", widths=(1, 2, 3))


def test_frames_without_boxes():
    recorded = Recorded("second")
    net = recorded.net()
    for points in (np.zeros((0, 4), np.float32), np.full((5, 4), 900, np.float32)):
        found = net.detect(points)
        assert len(found) == 0
        assert found.dropped["outside"] == len(points)
    both = net.detect_frames([recorded.frames[0], np.zeros((0, 4), np.float32)])
    assert near(both[0].scores, recorded.data["final/0/scores"])
    with pytest.raises(ValueError, match=r"points of frame 0 must have shape \(N, 4\)"):
        net.detect(np.zeros((5, 3), np.float32))
    assert net.detect_frames([]) == []


def test_published_configurations():
    sizes = {
        "second_kitti": 5_325_576,
        "pointpillars_kitti": 4_834_888,
        "centerpoint_nuscenes": 8_941_590,
        "voxelnext_nuscenes": 7_981_398,
    }
    for name, count in sizes.items():
        net = detection.Detector(name, in_channels=4 if "kitti" in name else 5)
        learned = [
            v.size for k, v in tree_flatten(net.parameters()) if not re.search("running_", k)
        ]
        assert sum(learned) == count, name


def street_of_boxes(seed=0):
    """Two cars and a pedestrian as points on their sides."""
    rng = np.random.default_rng(seed)
    boxes = [[2.1, -1.5, -1, 3.9, 1.6, 1.5, 0.1], [2.2, 0.9, -1, 3.9, 1.6, 1.5, 3.0]]
    boxes = np.array([*boxes, [4.7, 2, -0.6, 0.8, 0.6, 1.7, 0]], np.float32)
    points = []
    for box in boxes:
        local = rng.uniform(-0.5, 0.5, (150, 3)) * box[3:6]
        c, s = np.cos(box[6]), np.sin(box[6])
        turned = local @ np.array([[c, s, 0], [-s, c, 0], [0, 0, 1]])
        points.append(np.concatenate([turned + box[:3], np.full((150, 1), 0.5)], axis=1))
    ground = rng.uniform([0, -2.5, -1.8], [5, 2.5, -1.7], (300, 3))
    points.append(np.concatenate([ground, np.zeros((300, 1))], axis=1))
    labels = np.array([1, 1, 2], np.int32)
    return BoxFrame(np.concatenate(points).astype(np.float32), boxes, labels)


@pytest.mark.slow
def test_a_small_scene_is_learned():
    frame = street_of_boxes()
    net, losses = overfit(Recorded("pointpillars").config, frame)
    assert losses[-1] < 0.2 * losses[0]
    found = net.detect(frame.points)
    overlap = np.array(ops.box_overlap(frame.boxes, found.boxes))
    hits = (overlap > 0.5) & (found.labels[None] == frame.labels[:, None])
    assert hits.any(1).all(), found


@pytest.mark.parametrize("name", ["second", "voxelnext", "centerpoint_det3d"])
def test_losses_reach_every_weight(name):
    recorded = Recorded(name)
    net = recorded.net().train()
    points = recorded.frames[0]
    boxes = np.array([[2, 1, -0.5, 3.9, 1.6, 1.5, 0.3]], np.float32)
    if name != "second":
        boxes = np.concatenate([boxes, [[1, 0]]], axis=1).astype(np.float32)
    frame = BoxFrame(points, boxes, np.array([1], np.int32))
    loss, grads = mlx.nn.value_and_grad(net, lambda: detection_loss(net, frame))()
    assert np.isfinite(loss.item())
    silent = [k for k, g in tree_flatten(grads) if not bool(mx.any(g != 0))]
    # Groups without a box learn their heat maps only; a bias before a norm has no effect.
    assert all("heads_list" in k or k.endswith("bias") for k in silent), silent


def test_streets_have_boxes():
    frame = samples.street_boxes(3)
    assert set(frame.labels.tolist()) == {1, 2}
    owner = np.array(ops.points_in_boxes(frame.points[:, :3], frame.boxes))
    assert (np.bincount(owner[owner >= 0], minlength=len(frame.boxes)) >= 5).all()
    loss = detection_loss(detection.Detector(street_config(width=8)), frame)
    assert np.isfinite(loss.item())


def test_targets_and_augmentation():
    recorded = Recorded("pointpillars")
    settings = detection.read_settings(recorded.config)
    frame = street_of_boxes()
    labels, codes = anchor_targets(settings, frame)
    assert set(np.unique(labels)) <= {-1, 0, 1, 2}
    assert (labels == 1).sum() >= 2
    assert (labels == 2).sum() >= 1
    anchors = detection.Detector(recorded.config).dense_head.anchors.reshape(-1, 7)
    columns = [mx.array(column) for column in anchors[labels == 2].T]
    back = np.array(decode_boxes(mx.array(codes[labels == 2]), columns))
    assert np.abs(back - frame.boxes[2]).max() < 1e-4
    rng = np.random.default_rng(0)
    turned = varied(frame, [flip("x", 1), flip("y", 1), rotate(), scale()], rng)
    wider = np.array([1, 1, 1, 1.01, 1.01, 1.01, 1], np.float32)
    owners = [
        ops.points_in_boxes(f.points[:, :3], f.boxes * wider).tolist() for f in (frame, turned)
    ]
    assert owners[0] == owners[1]
    stock = Samples([frame])
    empty = BoxFrame(frame.points[-300:], np.zeros((0, 7), np.float32), np.zeros(0, np.int32))
    pasted = stock.paste({1: 5, 2: 5})(empty, rng)
    assert sorted(pasted.labels.tolist()) == [1, 1, 2]
    assert len(stock) == 3


def test_detect_command(tmp_path, capsys):
    recorded = Recorded("pointpillars")
    np.savez(tmp_path / "net.npz", **recorded.state)
    (tmp_path / "net.json").write_text(json.dumps(recorded.config))
    frame = recorded.frames[0]
    frame.astype("<f4").tofile(tmp_path / "scan.bin")
    arguments = ["detect", str(tmp_path / "scan.bin"), "--model", str(tmp_path / "net.npz")]
    arguments += ["--config", str(tmp_path / "net.json"), "--view", "--format", "kitti"]
    arguments += ["--output", str(tmp_path / "boxes.json")]
    assert cli.main(arguments) == 0
    assert "43 boxes" in capsys.readouterr().out
    assert len(json.loads((tmp_path / "boxes.json").read_text())) == 43
    assert (tmp_path / "scan.html").stat().st_size > 10_000


def test_kitti_objects(tmp_path):
    calibration = tmp_path / "calib.txt"
    calibration.write_text(
        "P0: 1 0 0 0 0 1 0 0 0 0 1 0\n"
        "P2: 700 0 600 45 0 700 180 0.2 0 0 1 0.003\n"
        "R0_rect: 1 0 0 0 1 0 0 0 1\n"
        "Tr_velo_to_cam: 0 -1 0 0 0 0 -1 -0.08 1 0 0 -0.27\n"
    )
    calib = io.read_kitti_calibration(calibration)
    boxes = np.array([[20, 3, -0.8, 3.9, 1.6, 1.5, 0.4], [30, -5, -1, 0.8, 0.6, 1.7, -2]])
    seen = io.camera_objects(boxes, calib, (1242, 375))
    assert np.abs(io.lidar_boxes(seen, calib) - boxes).max() < 1e-5
    assert (seen["bbox"][:, 2:] > seen["bbox"][:, :2]).all()
    lines = [
        f"Car 0.1 2 {a} {' '.join(map(str, b))} {high} {wide} {long} {' '.join(map(str, p))} {r}"
        for a, b, (long, high, wide), p, r in zip(
            seen["alpha"], seen["bbox"], seen["dimensions"], seen["location"], seen["rotation_y"]
        )
    ]
    (tmp_path / "label.txt").write_text("\n".join(lines))
    objects = io.read_kitti_objects(tmp_path / "label.txt")
    assert np.abs(io.lidar_boxes(objects, calib) - boxes).max() < 1e-5
    assert objects["occluded"].tolist() == [2, 2]
    (tmp_path / "bad.txt").write_text("Car 1 2 3")
    with pytest.raises(ValueError, match="line 1 has 4 values"):
        io.read_kitti_objects(tmp_path / "bad.txt")


def kitti_tree(root):
    for kind in ("velodyne", "label_2", "calib"):
        (root / "training" / kind).mkdir(parents=True)
    (root / "ImageSets").mkdir()
    (root / "ImageSets" / "train.txt").write_text("000007\n")
    points = np.array([[20, 3, -0.8, 0.5], [-20, 0, 0, 0.1]], "<f4")
    points.tofile(root / "training/velodyne/000007.bin")
    (root / "training/calib/000007.txt").write_text(
        "P2: 700 0 600 45 0 700 180 0.2 0 0 1 0.003\nR0_rect: 1 0 0 0 1 0 0 0 1\n"
        "Tr_velo_to_cam: 0 -1 0 0 0 0 -1 -0.08 1 0 0 -0.27\n"
    )
    (root / "training/label_2/000007.txt").write_text(
        "Car 0 0 0 10 10 90 90 1.5 1.6 3.9 -3 1.4 19.7 -1.9\n"
        "DontCare -1 -1 -10 0 0 5 5 -1 -1 -1 -1000 -1000 -1000 -10\n"
    )


def test_kitti_frames(tmp_path):
    with pytest.raises(datasets.DatasetError, match="training/velodyne"):
        datasets.KittiBoxes(tmp_path)
    kitti_tree(tmp_path)
    data = datasets.KittiBoxes(tmp_path, "train")
    frame = data[0]
    assert len(frame.points) == 1  # the other lies behind the camera
    assert frame.labels.tolist() == [1]
    assert np.array(ops.points_in_boxes(frame.points[:, :3], frame.boxes)).tolist() == [0]
    assert data.objects(0)["name"].tolist() == ["Car", "DontCare"]
    with pytest.raises(IndexError):
        data[1]


def nuscenes_tree(root):
    """Two scans one second apart, the vehicle drives 2 m along x; a car that drives as fast."""
    half = {"rotation": [1, 0, 0, 0]}
    tables = {
        "scene": [{"token": "s", "name": "scene-0001"}],
        "sample": [
            {"token": f"k{i}", "scene_token": "s", "timestamp": i * 1_000_000} for i in (0, 1)
        ],
        "ego_pose": [{"token": f"e{i}", "translation": [2 * i, 0, 0], **half} for i in (0, 1)],
        "calibrated_sensor": [{"token": "c", "translation": [0, 0, 1.8], **half}],
        "sample_data": [
            {
                "token": f"d{i}",
                "sample_token": f"k{i}",
                "filename": f"samples/LIDAR_TOP/{i}.pcd.bin",
                "is_key_frame": True,
                "timestamp": i * 1_000_000,
                "prev": "d0" if i else "",
                "ego_pose_token": f"e{i}",
                "calibrated_sensor_token": "c",
            }
            for i in (0, 1)
        ],
        "category": [{"token": "v", "name": "vehicle.car"}],
        "instance": [{"token": "o", "category_token": "v"}],
        "sample_annotation": [
            {
                "token": f"a{i}",
                "sample_token": f"k{i}",
                "instance_token": "o",
                "translation": [10 + 2 * i, 1, 0.8],
                "size": [1.6, 3.9, 1.5],
                "prev": "a0" if i else "",
                "next": "" if i else "a1",
                "num_lidar_pts": 3,
                **half,
            }
            for i in (0, 1)
        ],
    }
    (root / "v1.0-trainval").mkdir()
    for name, rows in tables.items():
        (root / "v1.0-trainval" / f"{name}.json").write_text(json.dumps(rows))
    (root / "samples/LIDAR_TOP").mkdir(parents=True)
    for i in (0, 1):
        rows = np.array([[10, 1, -1, 7, 0], [0.5, 0.5, 0, 1, 0]], "<f4")
        rows.tofile(root / f"samples/LIDAR_TOP/{i}.pcd.bin")


def test_nuscenes_frames(tmp_path):
    with pytest.raises(datasets.DatasetError, match=r"scene\.json"):
        datasets.NuScenesBoxes(tmp_path)
    nuscenes_tree(tmp_path)
    data = datasets.NuScenesBoxes(tmp_path, "train")
    assert len(data) == 2
    frame = data[1]
    # The point of the scan before lies 2 m behind; points of the vehicle itself are left out.
    assert np.allclose(frame.points, [[10, 1, -1, 7, 0], [8, 1, -1, 7, 1]])
    assert np.allclose(frame.boxes, [[10, 1, -1, 3.9, 1.6, 1.5, 0, 2, 0]])
    assert frame.labels.tolist() == [1]
