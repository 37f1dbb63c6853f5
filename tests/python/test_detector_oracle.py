"""Detectors with configurations that no recording has, against `detector_oracle.py` in float64."""

import mlx.core as mx
import numpy as np
import pytest
from detector_oracle import Oracle, greedy
from mlx_lattice.models import detection

CLASSES = ["a", "b", "c", "d"]


def base(low, high, size, model, **more):
    config = {"point_cloud_range": [*low, *high], "voxel_size": size, "model": model}
    limits = {"class_names": CLASSES, "max_points_per_voxel": 3, "max_voxels": 400}
    return {**config, **limits, **more}


def levels(nums, strides, filters, ups=(), wide=()):
    given = {"LAYER_NUMS": nums, "LAYER_STRIDES": strides, "NUM_FILTERS": filters}
    return {**given, "UPSAMPLE_STRIDES": list(ups), "NUM_UPSAMPLE_FILTERS": list(wide)}


def anchors(stride, classes, sizes=1, turns=(0, 1.57), **more):
    """Class sets of `sizes` sizes each."""
    made = []
    for i, name in enumerate(classes):
        shapes = [[1.5 + i + j, 0.8 + 0.2 * j, 1.2 + 0.1 * i] for j in range(sizes)]
        entry = {"class_name": name, "anchor_sizes": shapes, "anchor_rotations": list(turns)}
        entry |= {"anchor_bottom_heights": [-1.0 + i], "feature_map_stride": stride}
        made.append({**entry, "align_center": False, **more})
    return made


def anchor_model(name, generator, nms, **head):
    dense = {"NAME": "AnchorHeadSingle", "ANCHOR_GENERATOR_CONFIG": generator}
    dense |= {"USE_DIRECTION_CLASSIFIER": True, "NUM_DIR_BINS": 2, "DIR_OFFSET": 0.78539}
    post = {"SCORE_THRESH": 0.3, "NMS_CONFIG": {"MULTI_CLASSES_NMS": False, **nms}}
    return {"NAME": name, "DENSE_HEAD": {**dense, **head}, "POST_PROCESSING": post}


def nms(kind="nms_gpu", threshold=0.1, pre=300, post=40):
    limits = {"NMS_PRE_MAXSIZE": pre, "NMS_POST_MAXSIZE": post}
    return {"NMS_TYPE": kind, "NMS_THRESH": threshold, **limits}


def center_model(name, groups, rules, velocities=True, count=2, **head):
    sizes = {"center": 2, "center_z": 1, "dim": 3, "rot": 2, **({"vel": 2} if velocities else {})}
    outputs = {k: {"out_channels": n, "num_conv": count} for k, n in sizes.items()}
    post = {"SCORE_THRESH": 0.2, "MAX_OBJ_PER_SAMPLE": 30, "NMS_CONFIG": rules}
    post["POST_CENTER_LIMIT_RANGE"] = [-3.0, -2.0, -1.5, 4.0, 3.0, 1.6]
    dense = {"NAME": "VoxelNeXtHead" if name == "VoxelNeXt" else "CenterHead"}
    dense |= {"CLASS_NAMES_EACH_HEAD": groups, "NUM_HM_CONV": 2, "USE_BIAS_BEFORE_NORM": False}
    dense |= {"SEPARATE_HEAD_CFG": {"HEAD_DICT": outputs}, "SHARED_CONV_CHANNEL": 8}
    dense |= {"TARGET_ASSIGNER_CONFIG": {"FEATURE_MAP_STRIDE": 8}, "POST_PROCESSING": post}
    return {"NAME": name, "DENSE_HEAD": {**dense, **head}}


MEAN = {"NAME": "MeanVFE"}
BOX = [-3.2, -2.4, -2.0], [3.2, 4.0, 1.2], [0.05, 0.1, 0.1]  # 128 x 64 x 32 cells


def second(**more):
    model = anchor_model("SECONDNet", anchors(8, "ab", 2, (0, 0.8, 1.6)), nms(post=7), **more)
    model |= {"VFE": MEAN, "BACKBONE_3D": {"NAME": "VoxelBackBone8x"}}
    model["BACKBONE_2D"] = levels([1, 0, 2], [1, 2, 2], [8, 6, 10], [1, 2, 4], [4, 6, 2])
    return base(*BOX, model, class_names=["a", "b"])


def pillars(width, model, **vfe):
    options = {"NAME": "PillarVFE", "USE_ABSLOTE_XYZ": True, "WITH_DISTANCE": False, **vfe}
    model |= {"VFE": {**options, "USE_NORM": True, "NUM_FILTERS": width}}
    model["BACKBONE_2D"] = levels([1, 1], [2, 2], [6, 8], [1, 2], [4, 6])
    low, high, size = [-3.2, -2.4, -3.0], [3.2, 2.4, 1.0], [0.2, 0.3, 4.0]  # 32 x 16
    return base(low, high, size, model, max_points_per_voxel=5)


def centerpoint(model, **sparse):
    model |= {"VFE": MEAN, "BACKBONE_3D": {"NAME": "VoxelResBackBone8x", **sparse}}
    model["BACKBONE_2D"] = levels([2], [1], [8])
    return base(*BOX, model)


def voxelnext(model, sizes):
    name = "VoxelResBackBone8xVoxelNeXt"
    sparse = {"NAME": name, "SPCONV_KERNEL_SIZES": sizes, "CHANNELS": [4, 6, 8, 8, 8]}
    model |= {"VFE": MEAN, "BACKBONE_3D": {**sparse, "OUT_CHANNEL": 10}}
    return base(*BOX, model)


RULES = nms("nms_gpu", 0.2, 25, 10)
PAIRS = [["b", "d"], ["a"], ["c"]]
BIAS = {"USE_BIAS_BEFORE_NORM": True}


def cases():
    """(name, configuration, columns of a point, channels of the stages)."""
    centered = anchors(8, "ab", 2, (0, 0.8, 1.6), align_center=True)
    plain = {"USE_DIRECTION_CLASSIFIER": False, "ANCHOR_GENERATOR_CONFIG": centered}
    yield "anchors of many sizes, centered, no direction", second(**plain), 4, (4, 6, 8, 8, 6)
    bins = {"NUM_DIR_BINS": 3, "DIR_OFFSET": 0.3, "DIR_LIMIT_OFFSET": 0.5}
    yield "three bins of direction", second(**bins), 5, (4, 4, 6, 6, 8)
    model = anchor_model("PointPillar", anchors(2, CLASSES), nms("nms_normal_gpu"))
    deep = pillars([8, 6], model, WITH_DISTANCE=True, USE_ABSLOTE_XYZ=False)
    yield "two layers of pillars, upright suppression", deep, 4, None
    fine = {**BIAS, "TARGET_ASSIGNER_CONFIG": {"FEATURE_MAP_STRIDE": 2}}
    model = center_model("CenterPoint", PAIRS, RULES, False, 3, **fine)
    yield "centers on pillars without velocities", pillars([7], model), 5, None
    options = {"BN_EPS": 1e-2, "NUM_HM_CONV": 3}
    model = center_model("CenterPoint", [["d", "a", "c", "b"]], RULES, count=1, **options)
    config = centerpoint(model, USE_BIAS=False)
    yield "blocks without biases, another epsilon", config, 5, (4, 6, 8, 10, 6)
    wide = {**BIAS, "KERNEL_SIZE_HEAD": 3, "SHARED_CONV_CHANNEL": 10}
    config = voxelnext(center_model("VoxelNeXt", PAIRS, RULES, count=3, **wide), [5, 3, 5, 3])
    yield "VoxelNeXt with kernels of 5", config, 5, (4, 6, 8, 8, 8, 8, 10)
    one, groups = {**wide, "KERNEL_SIZE_HEAD": 1}, [["a", "c"], ["b", "d"]]
    config = voxelnext(center_model("VoxelNeXt", groups, RULES, False, **one), [3, 5, 3, 5])
    yield "VoxelNeXt without velocities", config, 4, (4, 6, 8, 8, 8, 8, 10)


CASES = {name: rest for name, *rest in cases()}


def frames_of(config, columns, rng):
    """Three frames of different sizes; some points lie outside, some on borders of cells."""
    low, high = np.array(config["point_cloud_range"]).reshape(2, 3)
    made = []
    for n in (700, 40, 900):
        points = rng.normal(size=(n, columns)) * 0.3
        anchor = rng.uniform(low, high, (12, 3))[rng.integers(0, 12, n)]
        points[:, :3] = anchor + rng.normal(size=(n, 3)) * [0.4, 0.3, 0.2]
        points[::50, :3] = low + np.array(config["voxel_size"]) * np.round(points[::50, :3])
        made.append(points.astype(np.float32))
    return made


def near(found, expected, tolerance=1e-5):
    found = np.array(found, np.float64)
    assert found.shape == expected.shape
    return not found.size or np.abs(found - expected).max() <= tolerance * np.abs(expected).max()


def anchor_grid(config, entry):
    """(ny, nx, sizes times rotations, 7) of a class set."""
    low, high = np.array(config["point_cloud_range"]).reshape(2, 3)
    cells = np.round((high - low) / config["voxel_size"]).astype(int)
    nx, ny = cells[:2] // entry["feature_map_stride"]
    if entry["align_center"]:
        x = (np.arange(nx) + 0.5) * (high[0] - low[0]) / nx
        y = (np.arange(ny) + 0.5) * (high[1] - low[1]) / ny
    else:
        x, y = np.linspace(0, high[0] - low[0], nx), np.linspace(0, high[1] - low[1], ny)
    pairs = [(s, r) for s in entry["anchor_sizes"] for r in entry["anchor_rotations"]]
    made = np.zeros((ny, nx, len(pairs), 7))
    made[..., 0], made[..., 1] = low[0] + x[None, :, None], low[1] + y[:, None, None]
    for i, (size, turn) in enumerate(pairs):
        made[..., i, 2] = entry["anchor_bottom_heights"][0] + size[2] / 2
        made[..., i, 3:6], made[..., i, 6] = size, turn
    return made


def anchor_boxes(config, made):
    """(scores, boxes) of all anchors."""
    head = config["model"]["DENSE_HEAD"]
    grids = [anchor_grid(config, entry) for entry in head["ANCHOR_GENERATOR_CONFIG"]]
    a, t = np.concatenate(grids, 2).reshape(1, -1, 7), made["box_preds"]
    place = t[..., :2] * np.hypot(a[..., 3:4], a[..., 4:5]) + a[..., :2]
    z, size = t[..., 2:3] * a[..., 5:6] + a[..., 2:3], np.exp(t[..., 3:6]) * a[..., 3:6]
    boxes = np.concatenate([place, z, size, t[..., 6:] + a[..., 6:]], -1)
    if "dir_cls_preds" in made:
        period, v = 2 * np.pi / head["NUM_DIR_BINS"], boxes[..., 6] - head["DIR_OFFSET"]
        turned = v - np.floor(v / period + head.get("DIR_LIMIT_OFFSET", 0)) * period
        bins = made["dir_cls_preds"].argmax(-1)
        boxes[..., 6] = turned + head["DIR_OFFSET"] + period * bins
    return 1 / (1 + np.exp(-made["cls_preds"])), boxes


def chosen_anchors(config, made, frame):
    scores, boxes = (part[frame] for part in anchor_boxes(config, made))
    post, best, labels = config["model"]["POST_PROCESSING"], scores.max(1), scores.argmax(1)
    rules, mine = post["NMS_CONFIG"], np.flatnonzero(best >= post["SCORE_THRESH"])
    limits = rules["NMS_PRE_MAXSIZE"], rules["NMS_POST_MAXSIZE"], rules["NMS_TYPE"]
    kept = mine[greedy(boxes[mine], best[mine], rules["NMS_THRESH"], *limits)]
    return boxes[kept], best[kept], labels[kept] + 1


def center_boxes(config, out, cells, names):
    """(boxes, scores, labels) of one group and frame before suppression."""
    head, post = config["model"]["DENSE_HEAD"], config["model"]["DENSE_HEAD"]["POST_PROCESSING"]
    heat, most = 1 / (1 + np.exp(-out["hm"])), post["MAX_OBJ_PER_SAMPLE"]
    per = [np.argsort(-column, kind="stable")[:most] for column in heat.T]
    rows, kinds = np.concatenate(per), np.repeat(np.arange(len(per)), len(per[0]))
    best = np.argsort(-heat[rows, kinds], kind="stable")[:most]
    rows, kinds = rows[best], kinds[best]
    step = np.array(config["voxel_size"][:2]) * head["TARGET_ASSIGNER_CONFIG"]["FEATURE_MAP_STRIDE"]
    out = {name: values[rows] for name, values in out.items()}
    place = (cells[rows] + out["center"]) * step + config["point_cloud_range"][:2]
    turn = np.arctan2(out["rot"][:, 1], out["rot"][:, 0])[:, None]
    parts = [place, out["center_z"], np.exp(out["dim"]), turn]
    parts += [out["vel"]] if "vel" in out else []
    boxes, scores = np.concatenate(parts, 1), heat[rows, kinds]
    low, high = np.array(post["POST_CENTER_LIMIT_RANGE"]).reshape(2, 3)
    keep = ((boxes[:, :3] >= low) & (boxes[:, :3] <= high)).all(1) & (scores > post["SCORE_THRESH"])
    labels = np.array([config["class_names"].index(n) + 1 for n in names])[kinds]
    return boxes[keep], scores[keep], labels[keep]


def chosen_centers(config, groups, frame, shape, rows):
    """rows: `Rows` of a sparse head, else None."""
    head = config["model"]["DENSE_HEAD"]
    rules = head["POST_PROCESSING"]["NMS_CONFIG"]
    if rows is None:
        mine = slice(frame * shape[0] * shape[1], (frame + 1) * shape[0] * shape[1])
        cells = np.stack(np.divmod(np.arange(shape[0] * shape[1]), shape[1])[::-1], 1)
    else:
        mine = np.flatnonzero(rows.index[:, 0] == frame)
        cells = rows.index[mine][:, :0:-1]
    found = []
    for out, names in zip(groups, head["CLASS_NAMES_EACH_HEAD"]):
        part = center_boxes(config, {k: v[mine] for k, v in out.items()}, cells, names)
        limits = rules["NMS_PRE_MAXSIZE"], rules["NMS_POST_MAXSIZE"], rules["NMS_TYPE"]
        kept = greedy(part[0], part[1], rules["NMS_THRESH"], *limits)
        found.append([column[kept] for column in part])
    return [np.concatenate(column) for column in zip(*found)]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("order", ["sorted", "spconv"])
def test_other_configurations(name, order):
    config, columns, widths = CASES[name]
    frames = frames_of(config, columns, np.random.default_rng(5))
    oracle = Oracle(config, columns, widths, seed=len(name))
    made, stages = oracle.run(frames)
    net = detection.from_state(oracle.state, config, order=order)
    voxels = net.voxels(frames)
    ours = net.stages(voxels)
    for stage, rows in stages.items():
        if not hasattr(rows, "index"):
            found = ours[stage] if stage == "vfe" else mx.moveaxis(ours[stage], -1, 1)
            assert near(found, rows), stage
            continue
        y = ours["backbone_3d"][stage]
        index, feats = np.array(y.coords), np.array(y.feats)
        index = index if rows.index.shape[1] == 4 else index[:, [0, 2, 3]]
        as_met = order == "spconv" or stage == "conv1"  # those of conv1 are the voxels
        at = slice(None) if as_met else np.lexsort(rows.index.T[::-1])
        assert np.array_equal(index, rows.index[at]), stage
        assert near(feats, rows.feats[at]), stage
        assert y.bounds[1][3 - len(rows.shape) :] == rows.shape
    found = net.detect_frames(frames)
    assert sum(map(len, found)) > 10
    for i, frame in enumerate(found):
        if isinstance(made, dict):
            boxes, scores, labels = chosen_anchors(config, made, i)
        else:
            dense = stages.get("backbone_2d")
            shape = None if dense is None else dense.shape[2:]
            sparse = stages["shared_conv"] if dense is None else None
            boxes, scores, labels = chosen_centers(config, made, i, shape, sparse)
        assert np.array_equal(frame.labels, labels)
        assert list(frame.names) == [config["class_names"][k - 1] for k in labels]
        assert near(frame.scores, scores)
        parts = [frame.boxes, *([] if frame.velocities is None else [frame.velocities])]
        assert near(np.concatenate(parts, 1), boxes)
