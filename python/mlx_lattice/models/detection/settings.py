"""The settings of a detector: classes, grid, limits, and layers by their published names."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...core._checks import finite, instance, integer, listed, names, one_of, wrong_value

Config = Mapping[str, Any]

_NAMES = ("SECONDNet", "PointPillar", "CenterPoint", "VoxelNeXt")


class _Part(dict[str, Any]):
    """A part of the configuration. A key that is asked for and missing is named."""

    def __init__(self, values: Config, path: str) -> None:
        super().__init__((key, _part(value, f"{path}.{key}")) for key, value in values.items())
        self._path = path

    def __missing__(self, key: str) -> Any:
        raise ValueError(
            f"[detection] {self._path} lacks {key}; it has {', '.join(map(str, self))}"
        )


def _part(value: Any, path: str) -> Any:
    """A copy of plain data in which every dict is a `_Part`."""
    if isinstance(value, Mapping):
        return _Part(value, path)
    if isinstance(value, (list, tuple)):
        return [_part(item, f"{path}[{i}]") for i, item in enumerate(value)]
    return value


@dataclass(frozen=True)
class Settings:
    """One detector: its classes, the grid of its voxels, and the configuration of its parts.

    Attributes:
        class_names: In the order of the labels, which count from 1.
        low, high: Corners of the grid in meters: x, y, z.
        voxel_size: In meters: x, y, z.
        max_points, max_voxels: Limits of a voxel and of a frame.
        model: The parts, with the keys of OpenPCDet: VFE, BACKBONE_3D, BACKBONE_2D, DENSE_HEAD,
            POST_PROCESSING.
        family: "openpcdet" or "det3d": the order of sizes and angles in the outputs of a center
            head, and its choice of candidates.
        columns: Names of the columns of a point after x, y, z, if the configuration has them.
    """

    class_names: tuple[str, ...]
    low: tuple[float, float, float]
    high: tuple[float, float, float]
    voxel_size: tuple[float, float, float]
    max_points: int
    max_voxels: int
    model: dict[str, Any] = field(repr=False)
    family: str = "openpcdet"
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "class_names", tuple(names(self, "class_names", self.class_names)))
        if not self.class_names:
            wrong_value(self, "class_names", self.class_names, "at least one name")
        for name in ("low", "high", "voxel_size"):
            corner = listed(self, name, getattr(self, name), "three numbers")
            if len(corner) != 3:
                wrong_value(self, name, getattr(self, name), "three numbers")
            object.__setattr__(self, name, tuple(finite(self, name, value) for value in corner))
        for name in ("max_points", "max_voxels"):
            object.__setattr__(self, name, integer(self, name, getattr(self, name)))
        instance(self, "model", self.model, dict, "the configuration of the parts")
        object.__setattr__(self, "model", _part(self.model, "model"))
        one_of(self, "family", self.family, ("openpcdet", "det3d"))
        if min(self.voxel_size) <= 0:
            wrong_value(self, "voxel_size", self.voxel_size, "three numbers > 0")

    @property
    def grid(self) -> tuple[int, int, int]:
        """Cells along x, y, z."""
        ends = zip(self.low, self.high, self.voxel_size)
        x, y, z = (round((high - low) / size) for low, high, size in ends)
        return x, y, z

    @property
    def name(self) -> str:
        """SECONDNet, PointPillar, CenterPoint or VoxelNeXt."""
        return str(self.model.get("NAME", "CenterPoint"))

    def as_dict(self) -> dict[str, Any]:
        """Plain data, from which `read_settings` makes the same settings."""
        return {
            "class_names": list(self.class_names),
            "point_cloud_range": [*self.low, *self.high],
            "voxel_size": list(self.voxel_size),
            "max_points_per_voxel": self.max_points,
            "max_voxels": self.max_voxels,
            "model": self.model,
            "family": self.family,
            "columns": list(self.columns),
        }


def read_settings(config: Config | str | Path) -> Settings:
    """Settings of a published detector by name, of a file (JSON, or YAML with PyYAML), or a dict.

    A dict has the keys of `Settings.as_dict`, those of an OpenPCDet file (CLASS_NAMES, DATA_CONFIG,
    MODEL), or those of det3d (tasks, neck, heads, test_cfg).

    Raises:
        ValueError: A key is missing, the model is not known, or the grid does not fit.
    """
    expected = "the name of a published detector, a file or a dict"
    instance("read_settings", "config", config, (Mapping, str, os.PathLike), expected)
    data: Config = _Part(config if isinstance(config, Mapping) else _read(config), "config")
    if "MODEL" in data:
        data = _from_openpcdet(data)
    elif "tasks" in data:
        data = _from_det3d(data)
    data = _Part(data, "config")
    corners = listed("read_settings", "point_cloud_range", data["point_cloud_range"], "six numbers")
    if len(corners) != 6:
        wrong_value("read_settings", "point_cloud_range", corners, "six numbers, two corners")
    settings = Settings(
        data["class_names"],
        (corners[0], corners[1], corners[2]),
        (corners[3], corners[4], corners[5]),
        data["voxel_size"],
        int(data.get("max_points_per_voxel", 10)),
        int(data.get("max_voxels", 160000)),
        data["model"],
        str(data.get("family", "openpcdet")),
        tuple(map(str, data.get("columns", ()))),
    )
    _check(settings)
    return settings


def _check(settings: Settings) -> None:
    if settings.name not in _NAMES:
        raise ValueError(
            f"[detection] the model must be one of {', '.join(_NAMES)}, got {settings.name!r}"
        )
    for axis, low, high, size, cells in zip(
        "xyz", settings.low, settings.high, settings.voxel_size, settings.grid
    ):
        if size <= 0 or high <= low or cells < 1:
            raise ValueError(
                f"[detection] the grid must have cells: along {axis} it goes from {low} to {high} "
                f"in steps of {size}"
            )
        if abs(cells * size - (high - low)) > 1e-3 * size * max(cells, 1):
            raise ValueError(
                f"[detection] the grid does not fit: {high - low} m along {axis} is no multiple of "
                f"the voxel size {size}; change point_cloud_range or voxel_size"
            )
    if settings.model["VFE"]["NAME"] == "PillarVFE" and settings.grid[2] != 1:
        raise ValueError(
            "[detection] the grid does not fit: pillars are one cell high, but voxel_size gives "
            f"{settings.grid[2]} cells along z; set its third number to "
            f"{settings.high[2] - settings.low[2]}"
        )


def _read(config: str | Path) -> Config:
    from .published import PUBLISHED

    if str(config) in PUBLISHED:
        return PUBLISHED[str(config)]
    path = Path(config)
    if not path.is_file():
        raise ValueError(
            f"[detection] config {str(config)!r} is neither a file nor one of "
            f"{', '.join(PUBLISHED)}"
        )
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        found = json.loads(text)
    else:
        try:
            import yaml  # type: ignore[import-untyped, unused-ignore]
        except ImportError as error:
            raise ValueError(
                f"[detection] {path} is YAML, which needs PyYAML: pip install pyyaml, or convert "
                "the file to JSON"
            ) from error
        found = yaml.safe_load(text)
    if not isinstance(found, dict):
        raise ValueError(f"[detection] {path} must hold a mapping, found {type(found).__name__}")
    return found


def _from_openpcdet(data: Config) -> dict[str, Any]:
    source = data.get("DATA_CONFIG", {})
    made: dict[str, Any] = {"class_names": data.get("CLASS_NAMES", ()), "model": data["MODEL"]}
    if "POINT_CLOUD_RANGE" in source:
        made["point_cloud_range"] = source["POINT_CLOUD_RANGE"]
    encoding = source.get("POINT_FEATURE_ENCODING", {})
    made["columns"] = encoding.get("used_feature_list", ())[3:]
    for step in source.get("DATA_PROCESSOR", ()):
        if step.get("NAME", "").startswith("transform_points_to_voxels"):
            made["voxel_size"] = step["VOXEL_SIZE"]
            made["max_points_per_voxel"] = step.get("MAX_POINTS_PER_VOXEL", 10)
            most = step.get("MAX_NUMBER_OF_VOXELS", 160000)
            made["max_voxels"] = most["test"] if isinstance(most, Mapping) else most
    return made


def _from_det3d(data: Config) -> dict[str, Any]:
    """The same parts under the names of OpenPCDet; only the post-processing stays as it is."""
    neck, test = data["neck"], data["test_cfg"]
    groups = [list(task["class_names"]) for task in data["tasks"]]
    rename = {"reg": "center", "height": "center_z"}
    heads = {
        rename.get(name, name): {"out_channels": out, "num_conv": count}
        for name, (out, count) in data["heads"].items()
        if name != "hm"
    }
    model = {
        "NAME": "CenterPoint",
        "VFE": {"NAME": "MeanVFE"},
        "BACKBONE_3D": {"NAME": "VoxelResBackBone8x"},
        "BACKBONE_2D": {
            "LAYER_NUMS": neck["layer_nums"],
            "LAYER_STRIDES": neck["ds_layer_strides"],
            "NUM_FILTERS": neck["ds_num_filters"],
            "UPSAMPLE_STRIDES": neck["us_layer_strides"],
            "NUM_UPSAMPLE_FILTERS": neck["us_num_filters"],
        },
        "DENSE_HEAD": {
            "NAME": "CenterHead",
            "CLASS_NAMES_EACH_HEAD": groups,
            "USE_BIAS_BEFORE_NORM": True,
            "NUM_HM_CONV": data["heads"].get("hm", (0, 2))[1],
            "SEPARATE_HEAD_CFG": {"HEAD_ORDER": list(heads), "HEAD_DICT": heads},
            "TARGET_ASSIGNER_CONFIG": {"FEATURE_MAP_STRIDE": test["out_size_factor"]},
            "POST_PROCESSING": {
                "SCORE_THRESH": test["score_threshold"],
                "POST_CENTER_LIMIT_RANGE": test["post_center_limit_range"],
                "MIN_RADIUS": test.get("min_radius"),
                "NMS_CONFIG": {
                    "NMS_TYPE": "circle_nms" if test.get("circular_nms") else "nms_gpu",
                    "NMS_THRESH": test["nms"]["nms_iou_threshold"],
                    "NMS_PRE_MAXSIZE": test["nms"]["nms_pre_max_size"],
                    "NMS_POST_MAXSIZE": test["nms"]["nms_post_max_size"],
                },
            },
        },
    }
    names: Sequence[str] = [name for group in groups for name in group]
    return {**data, "class_names": names, "model": model, "family": "det3d"}
