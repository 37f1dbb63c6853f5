"""Boxes, voxels and metrics against recordings.

goldens/detect_*.npz: overlaps by float64 clipping, and kept boxes, voxels and scores of OpenPCDet
8cacccec, spconv 2.3.8 and nuscenes-devkit 1.2.0 on made-up data; no code of theirs is here.
"""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx_lattice import ops
from mlx_lattice.training.detection import (
    in_range,
    kitti_metrics,
    nuscenes_attributes,
    nuscenes_metrics,
)

GOLDENS = Path(__file__).parent / "goldens"


def load(name):
    return dict(np.load(GOLDENS / f"{name}.npz"))


def test_overlaps():
    data = load("detect_boxes")
    a, b = data["pairs/a"], data["pairs/b"]
    for kind, name in (("area", "overlap"), ("bev", "iou_bev"), ("3d", "iou_3d")):
        expected = data[f"pairs/{name}"]
        found = np.array(ops.box_overlap_pairs(a, b, kind=kind))
        assert np.abs(found - expected).max() <= 1e-6 * max(1, np.abs(expected).max())
        matrix = np.array(ops.box_overlap(a[:9], b[:7], kind=kind))
        assert np.array_equal(np.diag(matrix), found[:7])


@pytest.mark.parametrize("case", range(5))
def test_suppression(case):
    data = load("detect_boxes")
    boxes, scores, threshold, square, pre, post = (
        data[f"nms{case}/{name}"]
        for name in ("boxes", "scores", "thresh", "circle_square", "pre", "post")
    )
    limits = {"pre": int(pre), "post": int(post)}
    for kind, name, value in (
        ("rotated", "keep", threshold),
        ("upright", "keep_axis_aligned", threshold),
        ("circle", "keep_circle", square),
    ):
        found = ops.nms(boxes, scores, float(value), kind=kind)
        assert found.tolist() == data[f"nms{case}/{name}"].tolist()
    rows = np.flatnonzero(scores >= 0.3)
    found = rows[np.array(ops.nms(boxes[rows], scores[rows], float(threshold), **limits))]
    assert found.tolist() == data[f"nms{case}/keep_score_0.3"].tolist()


def test_bad_boxes():
    box = [[0.0, 0, 0, 1, 1, 1, 0]]
    with pytest.raises(ValueError, match=r"\[nms\] boxes must be finite, got nan in row 1"):
        ops.nms([*box, [float("nan"), 0, 0, 1, 1, 1, 0]], [1.0, 1.0], 0.5)
    with pytest.raises(ValueError, match=r"\[box_overlap\] b must have sizes >= 0"):
        ops.box_overlap(box, [[0.0, 0, 0, 1, -1, 1, 0]])
    zero = [[0.0, 0, 0, 0, 0, 0, 0]]
    assert ops.box_overlap(zero, box).item() == 0
    assert ops.nms(mx.zeros((0, 7)), mx.zeros((0,)), 0.5).shape == (0,)


@pytest.mark.parametrize("case", ["kitti_full", "thirds", "one_point"])
def test_voxels(case):
    data = {k.removeprefix(f"{case}/"): v for k, v in load("detect_voxelize").items()}
    limits = {"max_points": int(data["max_points"]), "max_voxels": int(data["max_voxels"])}
    grid = [data[name].tolist() for name in ("low", "high", "size")]
    found = ops.point_voxels(data["points"], *grid, **limits)
    assert np.array_equal(found.coords, data["indices"])
    assert np.array_equal(found.counts, data["num_points"])
    assert np.abs(np.array(found.mean) - data["mean"]).max() <= 1e-6 * np.abs(data["mean"]).max()
    total = np.array(found.voxels).sum((0, 1))
    assert np.allclose(total, data["voxels_sum"], rtol=1e-5, atol=1e-3)
    assert np.array_equal(found.owner, data["point_to_voxel"])
    assert found.outside + found.full_grid == (data["point_to_voxel"] < 0).sum()
    assert found.full_voxel + int(found.counts.sum()) == (data["point_to_voxel"] >= 0).sum()
    dynamic = ops.point_voxels(data["points"], *grid)
    assert dynamic.full_voxel == dynamic.full_grid == 0
    assert int(dynamic.counts.sum()) + dynamic.outside == len(data["points"])


def columns(data, prefix):
    return {k.removeprefix(prefix): v for k, v in data.items() if k.startswith(prefix)}


def test_kitti_metrics():
    data = load("detect_metrics")
    scores = kitti_metrics(columns(data, "kitti/gt/"), columns(data, "kitti/dt/"))
    for name, expected in columns(data, "kitti/AP/").items():
        assert np.abs(scores.ap[name] - expected).max() <= 1e-6, name
    assert "Car 3d" in str(scores)
    with pytest.raises(ValueError, match="found lacks the columns score"):
        kitti_metrics(columns(data, "kitti/gt/"), columns(data, "kitti/gt/"))


def test_nuscenes_metrics():
    data = load("detect_metrics")
    classes = data["nuscenes/classes"].tolist()
    scores = nuscenes_metrics(columns(data, "nuscenes/gt/"), columns(data, "nuscenes/dt/"), classes)
    assert np.abs(scores.ap - data["nuscenes/AP"]).max() <= 1e-6
    expected = data["nuscenes/tp_errors_per_class"]
    assert np.array_equal(np.isnan(scores.errors_per_class), np.isnan(expected))
    assert np.nanmax(np.abs(scores.errors_per_class - expected)) <= 1e-6
    assert np.abs(scores.errors - data["nuscenes/tp_errors"]).max() <= 1e-6
    assert abs(scores.mean_ap - data["nuscenes/mean_ap"]) <= 1e-6
    assert abs(scores.nds - data["nuscenes/nd_score"]) <= 1e-6


def test_attributes_and_ranges():
    names = ["bus", "bus", "bicycle", "bicycle", "pedestrian", "pedestrian", "car", "traffic_cone"]
    speeds = np.array([[3, 0], [0.1, 0.1], [0, -1], [0, 0], [1, 1], [0, 0], [0, 0.2], [5, 5]])
    expected = ["vehicle.moving", "vehicle.stopped", "cycle.with_rider", "cycle.without_rider"]
    expected += ["pedestrian.moving", "pedestrian.standing", "vehicle.parked", ""]
    assert nuscenes_attributes(names, speeds).tolist() == expected
    assert nuscenes_attributes([], np.zeros((0, 2))).tolist() == []
    with pytest.raises(ValueError, match=r"velocities must have shape \(8, 2\)"):
        nuscenes_attributes(names, speeds[:3])
    rows = {"class": np.array([0, 5, 8, 8]), "translation": np.zeros((4, 3))}
    rows["translation"][:, 0] = [49, 41, 31, -29]
    ego = np.zeros((4, 2))
    assert in_range(rows, ego).tolist() == [True, False, False, True]
    assert in_range(rows, ego + [10, 0]).tolist() == [True, True, True, False]
    with pytest.raises(ValueError, match=r"class must be in 0\.\.1"):
        in_range(rows, ego, ["car", "bus"])
    with pytest.raises(ValueError, match="classes must be some of"):
        in_range(rows, ego, ["tram"])
    with pytest.raises(ValueError, match="lacks translation"):
        in_range({"class": rows["class"]}, ego)
