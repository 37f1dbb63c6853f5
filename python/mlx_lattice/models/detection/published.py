"""The published configurations by name."""

from __future__ import annotations

from typing import Any


def _anchors(stride: int) -> list[dict[str, Any]]:
    kinds = (
        ("Car", [3.9, 1.6, 1.56], -1.78, 0.6, 0.45),
        ("Pedestrian", [0.8, 0.6, 1.73], -0.6, 0.5, 0.35),
        ("Cyclist", [1.76, 0.6, 1.73], -0.6, 0.5, 0.35),
    )
    return [
        {
            "class_name": name,
            "anchor_sizes": [size],
            "anchor_rotations": [0, 1.57],
            "anchor_bottom_heights": [bottom],
            "align_center": False,
            "feature_map_stride": stride,
            "matched_threshold": matched,
            "unmatched_threshold": unmatched,
        }
        for name, size, bottom, matched, unmatched in kinds
    ]


def _levels(nums: list[int], strides: list[int], filters: list[int], ups: list[int],
            up_filters: list[int]) -> dict[str, Any]:  # fmt: skip
    return {
        "NAME": "BaseBEVBackbone",
        "LAYER_NUMS": nums,
        "LAYER_STRIDES": strides,
        "NUM_FILTERS": filters,
        "UPSAMPLE_STRIDES": ups,
        "NUM_UPSAMPLE_FILTERS": up_filters,
    }


_KITTI_POST = {
    "SCORE_THRESH": 0.1,
    "NMS_CONFIG": {
        "MULTI_CLASSES_NMS": False,
        "NMS_TYPE": "nms_gpu",
        "NMS_THRESH": 0.01,
        "NMS_PRE_MAXSIZE": 4096,
        "NMS_POST_MAXSIZE": 500,
    },
}
_GROUPS = [
    ["car"],
    ["truck", "construction_vehicle"],
    ["bus", "trailer"],
    ["barrier"],
    ["motorcycle", "bicycle"],
    ["pedestrian", "traffic_cone"],
]


def _anchor_head(stride: int) -> dict[str, Any]:
    return {
        "NAME": "AnchorHeadSingle",
        "CLASS_AGNOSTIC": False,
        "USE_DIRECTION_CLASSIFIER": True,
        "DIR_OFFSET": 0.78539,
        "DIR_LIMIT_OFFSET": 0.0,
        "NUM_DIR_BINS": 2,
        "ANCHOR_GENERATOR_CONFIG": _anchors(stride),
        "LOSS_CONFIG": {
            "LOSS_WEIGHTS": {
                "cls_weight": 1.0,
                "loc_weight": 2.0,
                "dir_weight": 0.2,
                "code_weights": [1.0] * 7,
            }
        },
    }


def _center_head(name: str, channels: int) -> dict[str, Any]:
    outputs = {"center": 2, "center_z": 1, "dim": 3, "rot": 2, "vel": 2}
    return {
        "NAME": name,
        "CLASS_NAMES_EACH_HEAD": _GROUPS,
        "SHARED_CONV_CHANNEL": channels,
        "KERNEL_SIZE_HEAD": 1,
        "USE_BIAS_BEFORE_NORM": True,
        "NUM_HM_CONV": 2,
        "SEPARATE_HEAD_CFG": {
            "HEAD_ORDER": list(outputs),
            "HEAD_DICT": {k: {"out_channels": n, "num_conv": 2} for k, n in outputs.items()},
        },
        "TARGET_ASSIGNER_CONFIG": {
            "FEATURE_MAP_STRIDE": 8,
            "NUM_MAX_OBJS": 500,
            "GAUSSIAN_OVERLAP": 0.1,
            "MIN_RADIUS": 2,
        },
        "LOSS_CONFIG": {
            "LOSS_WEIGHTS": {
                "cls_weight": 1.0,
                "loc_weight": 0.25,
                "code_weights": [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.2, 0.2, 1.0, 1.0],
            }
        },
        "POST_PROCESSING": {
            "SCORE_THRESH": 0.1,
            "POST_CENTER_LIMIT_RANGE": [-61.2, -61.2, -10.0, 61.2, 61.2, 10.0],
            "MAX_OBJ_PER_SAMPLE": 500,
            "NMS_CONFIG": {
                "NMS_TYPE": "nms_gpu",
                "NMS_THRESH": 0.2,
                "NMS_PRE_MAXSIZE": 1000,
                "NMS_POST_MAXSIZE": 83,
            },
        },
    }


_KITTI_CLASSES = ["Car", "Pedestrian", "Cyclist"]
_NUSCENES_CLASSES = [name for group in _GROUPS for name in group]
_BEV = _levels([5, 5], [1, 2], [128, 256], [1, 2], [256, 256])


def _centerpoint(half: float, voxel: float, voxels: int) -> dict[str, Any]:
    return {
        "class_names": _NUSCENES_CLASSES,
        "point_cloud_range": [-half, -half, -5.0, half, half, 3.0],
        "voxel_size": [voxel, voxel, 0.2],
        "max_points_per_voxel": 10,
        "max_voxels": voxels,
        "model": {
            "NAME": "CenterPoint",
            "VFE": {"NAME": "MeanVFE"},
            "BACKBONE_3D": {"NAME": "VoxelResBackBone8x"},
            "BACKBONE_2D": _BEV,
            "DENSE_HEAD": _center_head("CenterHead", 64),
        },
    }


PUBLISHED: dict[str, dict[str, Any]] = {
    "second_kitti": {
        "class_names": _KITTI_CLASSES,
        "point_cloud_range": [0.0, -40.0, -3.0, 70.4, 40.0, 1.0],
        "voxel_size": [0.05, 0.05, 0.1],
        "max_points_per_voxel": 5,
        "max_voxels": 40000,
        "model": {
            "NAME": "SECONDNet",
            "VFE": {"NAME": "MeanVFE"},
            "BACKBONE_3D": {"NAME": "VoxelBackBone8x"},
            "BACKBONE_2D": _BEV,
            "DENSE_HEAD": _anchor_head(8),
            "POST_PROCESSING": _KITTI_POST,
        },
    },
    "pointpillars_kitti": {
        "class_names": _KITTI_CLASSES,
        "point_cloud_range": [0.0, -39.68, -3.0, 69.12, 39.68, 1.0],
        "voxel_size": [0.16, 0.16, 4.0],
        "max_points_per_voxel": 32,
        "max_voxels": 40000,
        "model": {
            "NAME": "PointPillar",
            "VFE": {
                "NAME": "PillarVFE",
                "WITH_DISTANCE": False,
                "USE_ABSLOTE_XYZ": True,
                "USE_NORM": True,
                "NUM_FILTERS": [64],
            },
            "BACKBONE_2D": _levels(
                [3, 5, 5], [2, 2, 2], [64, 128, 256], [1, 2, 4], [128, 128, 128]
            ),
            "DENSE_HEAD": _anchor_head(2),
            "POST_PROCESSING": _KITTI_POST,
        },
    },
    "centerpoint_nuscenes": _centerpoint(54.0, 0.075, 160000),
    "centerpoint_nuscenes_0.1": _centerpoint(51.2, 0.1, 60000),
    "voxelnext_nuscenes": {
        **_centerpoint(54.0, 0.075, 160000),
        "model": {
            "NAME": "VoxelNeXt",
            "VFE": {"NAME": "MeanVFE"},
            "BACKBONE_3D": {"NAME": "VoxelResBackBone8xVoxelNeXt"},
            "DENSE_HEAD": _center_head("VoxelNeXtHead", 128),
        },
    },
}
