"""The choice of boxes against plain NumPy: rules and box codes that no recording has."""

import copy

import mlx.core as mx
import numpy as np
import pytest
from mlx_lattice import ops
from mlx_lattice.models import detection
from mlx_lattice.models.detection.anchor_head import choose
from test_detection import Recorded

YES = mx.array(True)


def greedy(boxes, scores, threshold, pre, post=-1):
    """Rotated suppression, one box after the other."""
    order = np.argsort(-scores, kind="stable")[: pre if pre > 0 else None]
    kept = []
    for i in order:
        overlap = np.array(ops.box_overlap(boxes[i : i + 1, :7], boxes[kept, :7]))
        if not (overlap > threshold).any():
            kept.append(i)
    return np.array(kept[: post if post >= 0 else None], int)


def center_head(change):
    """A head of three groups with 3 classes and the output iou, on a map of 6 x 5 cells."""
    config = copy.deepcopy(Recorded("centerpoint_det3d").net().settings.as_dict())
    config["family"] = "openpcdet"
    config["class_names"] = ["a", "b", "c"]
    head = config["model"]["DENSE_HEAD"]
    head["CLASS_NAMES_EACH_HEAD"] = [["c"], ["a", "b"]]
    head["SEPARATE_HEAD_CFG"]["HEAD_DICT"]["iou"] = {"out_channels": 1, "num_conv": 2}
    head["SEPARATE_HEAD_CFG"]["HEAD_DICT"].pop("vel", None)
    head["POST_PROCESSING"].update({"MAX_OBJ_PER_SAMPLE": 12, "SCORE_THRESH": 0.3})
    head["POST_PROCESSING"]["POST_CENTER_LIMIT_RANGE"] = [-1e3, -1e3, -1, 1e3, 1e3, 1]
    head["POST_PROCESSING"].update(change(head))
    return detection.Detector(config, 5, [4, 4, 4, 4, 4]).dense_head


def outputs(groups, n, rng):
    sizes = {"center": 2, "center_z": 1, "dim": 3, "rot": 2, "iou": 1}
    made = [{k: rng.normal(size=(n, w)) * 0.7 for k, w in sizes.items()} for _ in groups]
    for out, group in zip(made, groups):
        out["hm"] = rng.normal(size=(n, len(group)))
        out["dim"] += 1.5
    return [{k: mx.array(v.astype(np.float32)) for k, v in out.items()} for out in made]


def expected(head, made, width, rectifier, thresholds, pre, shared):
    """(boxes, scores, classes) of the rules, in float64."""
    s = head._settings
    step = np.array(s.voxel_size[:2]) * head._stride()
    parts = []
    for out, group in zip(made, head._groups):
        out = {k: np.array(v, np.float64) for k, v in out.items()}
        heat = 1 / (1 + np.exp(-out["hm"]))
        per = np.argsort(-heat, axis=0, kind="stable")[:12].T
        scores = np.take_along_axis(heat.T, per, 1).reshape(-1)
        best = np.argsort(-scores, kind="stable")[:12]
        rows, classes, scores = per.reshape(-1)[best], best // per.shape[1], scores[best]
        place = np.stack([rows % width, rows // width], 1) + out["center"][rows]
        rot = out["rot"][rows]
        turn = np.arctan2(rot[:, 1], rot[:, 0])[:, None]
        xy = place * step + s.low[:2]
        boxes = np.concatenate([xy, out["center_z"][rows], np.exp(out["dim"][rows]), turn], 1)
        keep = (scores > 0.3) & (np.abs(boxes[:, 2]) <= 1)
        labels = np.array([s.class_names.index(n) for n in group])[classes]
        a = np.broadcast_to(rectifier, 3)[labels]
        quality = np.clip((out["iou"][rows, 0] + 1) / 2, 0, 1)
        scores = scores ** (1 - a) * quality**a
        parts.append((boxes[keep], scores[keep], labels[keep]))
    if shared:
        parts = [tuple(np.concatenate(column) for column in zip(*parts))]
    found = []
    for boxes, scores, labels in parts:
        for c in range(3):
            mine = np.flatnonzero(labels == c)
            kept = mine[
                greedy(boxes[mine], scores[mine], thresholds[c], pre[c], 4 if shared else -1)
            ]
            found.append((boxes[kept], scores[kept], labels[kept]))
    return [np.concatenate(column) for column in zip(*found)]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("rectifier", [0.5, [0.2, 0.7, 0.4]])
def test_rectified_scores_and_classes_alone(shared, rectifier):
    """class_specific_nms of each group, or IOU_BRANCH over all groups."""
    thresholds, pre = [0.1, 0.3, 0.2], [9, 6, 8]
    nms = {"NMS_TYPE": "class_specific_nms", "NMS_THRESH": thresholds, "NMS_PRE_MAXSIZE": pre}

    def change(head):
        if shared:
            head.update({"IOU_BRANCH": True, "RECTIFIER": rectifier})
            return {"NMS_CONFIG": {**nms, "NMS_POST_MAXSIZE": [4, 4, 4]}}
        rules = {"USE_IOU_TO_RECTIFY_SCORE": True, "IOU_RECTIFIER": rectifier}
        return {**rules, "NMS_CONFIG": nms}

    head = center_head(change)
    rng = np.random.default_rng(int(shared))
    made = outputs(head._groups, 30, rng)
    found = head.choose(made, (6, 5), [YES])[0]
    boxes, scores, classes = expected(head, made, 5, rectifier, thresholds, pre, shared)
    assert len(boxes) > 5
    assert np.array_equal(found.classes, classes)
    assert np.abs(np.array(found.boxes) - boxes).max() < 1e-4
    assert np.abs(np.array(found.scores) - scores).max() < 1e-6
    assert len(head.choose(made, (6, 5), [mx.array(False)])[0].scores) == 0
    del made[0]["iou"]
    with pytest.raises(ValueError, match="no output iou"):
        head.choose(made, (6, 5), [YES])


@pytest.mark.parametrize("kind", ["nms_gpu", "nms_normal_gpu"])
def test_every_class_alone(kind):
    rng = np.random.default_rng(2)
    boxes = np.concatenate([rng.uniform(0, 6, (40, 3)), rng.uniform(1, 3, (40, 4))], 1)
    scores = rng.random((40, 3)).astype(np.float32)
    rules = {"NMS_TYPE": kind, "NMS_THRESH": 0.2, "NMS_PRE_MAXSIZE": 15, "NMS_POST_MAXSIZE": 5}
    post = {"SCORE_THRESH": 0.4, "NMS_CONFIG": {**rules, "MULTI_CLASSES_NMS": True}}
    found = choose(mx.array(boxes.astype(np.float32)), mx.array(scores), post, YES)
    seen = boxes.astype(np.float32)
    if kind == "nms_normal_gpu":
        seen = seen * [1, 1, 1, 1, 1, 1, 0]
    rows, classes = [], []
    for c in range(3):
        mine = np.flatnonzero(scores[:, c] >= 0.4)
        kept = mine[greedy(seen[mine], scores[mine, c], 0.2, 15, 5)]
        rows, classes = rows + kept.tolist(), classes + [c] * len(kept)
    assert np.array_equal(found.boxes, boxes.astype(np.float32)[rows])
    assert np.array_equal(found.classes, classes)
    rules["NMS_TYPE"] = "x"
    with pytest.raises(ValueError, match="NMS_TYPE must be one of"):
        choose(found.boxes, found.scores[:, None], {"NMS_CONFIG": rules}, YES)


@pytest.mark.parametrize("size, sincos", [(7, False), (9, False), (7, True), (9, True)])
@pytest.mark.parametrize("bins", [2, 3])
def test_box_codes(size, sincos, bins):
    config = Recorded("pointpillars").net().settings.as_dict()
    head = config["model"]["DENSE_HEAD"]
    head["NUM_DIR_BINS"], head["DIR_OFFSET"], head["DIR_LIMIT_OFFSET"] = bins, 0.5, 0.25
    coder = {"code_size": size, "encode_angle_by_sincos": sincos}
    head["TARGET_ASSIGNER_CONFIG"] = {"BOX_CODER_CONFIG": coder}
    net = detection.Detector(config).dense_head
    ny, nx, per, _ = net.anchors.shape
    rng, width = np.random.default_rng(3), size + sincos
    made = {
        "cls_preds": rng.normal(size=(2, ny, nx, per * net._classes)),
        "box_preds": rng.normal(size=(2, ny, nx, per * width)) * 0.3,
        "dir_cls_preds": rng.normal(size=(2, ny, nx, per * bins)),
    }
    _, boxes = net.decode({k: mx.array(v.astype(np.float32)) for k, v in made.items()})
    t = made["box_preds"].reshape(2, -1, width)
    a = net.anchors.reshape(1, -1, 7).astype(np.float64)
    diagonal = np.hypot(a[..., 3], a[..., 4])[..., None]
    turn = t[..., 6] + a[..., 6]
    if sincos:
        turn = np.arctan2(t[..., 7] + np.sin(a[..., 6]), t[..., 6] + np.cos(a[..., 6]))
    period, v = 2 * np.pi / bins, turn - 0.5
    way = made["dir_cls_preds"].reshape(2, -1, bins).argmax(-1)
    turn = v - np.floor(v / period + 0.25) * period + 0.5 + period * way
    place = t[..., :2] * diagonal + a[..., :2]
    z = t[..., 2:3] * a[..., 5:6] + a[..., 2:3]
    rest = t[..., 7 + sincos :]
    sizes = np.exp(t[..., 3:6]) * a[..., 3:6]
    expected = np.concatenate([place, z, sizes, turn[..., None], rest], -1)
    assert boxes.shape == expected.shape
    gap = np.abs(np.array(boxes) - expected)
    gap[..., 6] = np.minimum(gap[..., 6], np.abs(gap[..., 6] - period))  # at a border of the floor
    assert gap.max() < 1e-4
    coder["code_size"] = 8
    with pytest.raises(ValueError, match="code_size must be 7"):
        detection.Detector(config)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda c: c["model"].pop("DENSE_HEAD"), "model lacks DENSE_HEAD; it has NAME, VFE"),
        (lambda c: c["model"]["VFE"].pop("NUM_FILTERS"), r"model\.VFE lacks NUM_FILTERS"),
        (lambda c: c["model"].pop("BACKBONE_2D"), "other heads follow a BACKBONE_2D"),
        (lambda c: c["model"]["DENSE_HEAD"].update(NAME="VoxelNeXtHead"), "VoxelNeXtHead follows"),
        (lambda c: c.pop("voxel_size"), "config lacks voxel_size"),
        (lambda c: c.update(voxel_size=[0.16, 0.16, 2]), "pillars are one cell high"),
        (lambda c: c.update(point_cloud_range=[0, 0, 0, 5]), "expected six numbers"),
        (lambda c: c.update(class_names=[]), "expected at least one name"),
    ],
)
def test_configurations_that_do_not_fit(change, message):
    config = Recorded("pointpillars").net().settings.as_dict()
    config = copy.deepcopy(config)
    change(config)
    with pytest.raises(ValueError, match=message):
        detection.Detector(config)


def test_a_checkpoint_without_configuration():
    with pytest.raises(ValueError, match=r"net\.pth needs config: second_kitti"):
        detection.load("net.pth")
