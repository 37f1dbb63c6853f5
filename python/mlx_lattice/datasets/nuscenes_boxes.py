"""nuScenes 3D detection (Caesar et al., 2020): several sweeps in one frame, boxes, velocities."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, overload

import numpy as np
from numpy.typing import NDArray

from ..core import _checks
from ..io.box_frame import BoxFrame
from .base import DatasetError, inside, item_number
from .label_tables import NUSCENES_MINI_VALIDATION, NUSCENES_VALIDATION
from .nuscenes import rows_of

Floats = NDArray[np.float64]
CLASSES = (
    "car", "truck", "construction_vehicle", "bus", "trailer", "barrier", "motorcycle", "bicycle",
    "pedestrian", "traffic_cone",
)  # fmt: skip
_POSE = ("rotation", "translation")
_CATEGORIES = {
    "vehicle.car": "car",
    "vehicle.truck": "truck",
    "vehicle.construction": "construction_vehicle",
    "vehicle.bus.bendy": "bus",
    "vehicle.bus.rigid": "bus",
    "vehicle.trailer": "trailer",
    "vehicle.motorcycle": "motorcycle",
    "vehicle.bicycle": "bicycle",
    "movable_object.barrier": "barrier",
    "movable_object.trafficcone": "traffic_cone",
    "human.pedestrian.adult": "pedestrian",
    "human.pedestrian.child": "pedestrian",
    "human.pedestrian.construction_worker": "pedestrian",
    "human.pedestrian.police_officer": "pedestrian",
}


def rotation(quaternion: Sequence[float]) -> Floats:
    """The matrix (3, 3) of a unit quaternion w, x, y, z."""
    w, x, y, z = np.asarray(quaternion, np.float64) / np.linalg.norm(quaternion)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def pose(row: dict[str, Any]) -> Floats:
    """The matrix (4, 4) of a row with "rotation" and "translation"."""
    made = np.eye(4)
    made[:3, :3], made[:3, 3] = rotation(row["rotation"]), row["translation"]
    return made


@dataclass(frozen=True)
class _Scan:
    path: str
    time: float  # seconds
    to_world: Floats
    before: str


class NuScenesBoxes(Sequence[BoxFrame]):
    """Key frames of nuScenes: points x, y, z, intensity, time lag of `sweeps` scans, and boxes.

    Boxes have velocities: (M, 9). The frame is that of the LiDAR at the key frame.

    Args:
        root: Folder of the data set as downloaded.
        split: "train" or "valid", by scene.
        version: v1.0-trainval or v1.0-mini.
        sweeps: Scans that are put together, the key frame and those before it.
        least_points: Boxes with fewer points are left out.

    Raises:
        DatasetError: Something is missing; the message shows the expected tree.
    """

    TREE = """
v1.0-trainval/scene.json sample.json sample_data.json ego_pose.json calibrated_sensor.json
v1.0-trainval/sample_annotation.json instance.json category.json
samples/LIDAR_TOP/NAME.pcd.bin, sweeps/LIDAR_TOP/NAME.pcd.bin    x y z intensity ring, float32
"""
    SOURCE = "nuscenes.org/nuscenes (full data set v1.0)"
    classes = CLASSES

    def __init__(
        self,
        root: str | os.PathLike[str],
        split: str = "train",
        *,
        version: str = "v1.0-trainval",
        sweeps: int = 10,
        least_points: int = 1,
    ) -> None:
        _checks.path(self, root, "root")
        _checks.one_of(self, "split", split, ("train", "valid"))
        _checks.path(self, version, "version")
        self.root, self.split = Path(os.fsdecode(root)), split
        self._sweeps = _checks.integer(self, "sweeps", sweeps)
        least_points = _checks.integer(self, "least_points", least_points, 0)
        self._tables = self.root / version
        held = NUSCENES_MINI_VALIDATION if version == "v1.0-mini" else NUSCENES_VALIDATION
        scenes = {
            row["token"]
            for row in self._rows("scene", "token", "name")
            if (int(row["name"].removeprefix("scene-")) in held) == (split == "valid")
        }
        rows = self._rows("sample", "token", "scene_token", numbers=("timestamp",))
        times = {r["token"]: r["timestamp"] / 1e6 for r in rows if r["scene_token"] in scenes}
        self._scans: dict[str, _Scan] = {}
        self._keys: list[tuple[str, str]] = []  # token of the scan, of the sample
        self._read_scans(times)
        self._boxes = self._read_boxes(times, least_points)

    def _rows(self, table: str, *fields: str, numbers: Sequence[str] = ()) -> list[dict[str, Any]]:
        path = self._tables / f"{table}.json"
        if not path.is_file():
            self._missing(f"there is no file {path}")
        return list(rows_of(path, *fields, numbers=numbers))

    def _read_scans(self, times: dict[str, float]) -> None:
        poses = {r["token"]: pose(r) for r in self._rows("ego_pose", "token", numbers=_POSE)}
        sensors = {
            r["token"]: pose(r) for r in self._rows("calibrated_sensor", "token", numbers=_POSE)
        }
        fields = ("token", "sample_token", "filename", "is_key_frame", "prev",
                  "ego_pose_token", "calibrated_sensor_token")  # fmt: skip
        for row in self._rows("sample_data", *fields, numbers=("timestamp",)):
            if "/LIDAR_TOP/" not in row["filename"]:
                continue
            world = poses[row["ego_pose_token"]] @ sensors[row["calibrated_sensor_token"]]
            scan = _Scan(row["filename"], row["timestamp"] / 1e6, world, row["prev"])
            self._scans[row["token"]] = scan
            if row["is_key_frame"] and row["sample_token"] in times:
                self._keys.append((row["token"], row["sample_token"]))
        self._keys.sort(key=lambda key: self._scans[key[0]].path)

    def _read_boxes(self, times: dict[str, float], least: int) -> dict[str, list[Any]]:
        """By sample: (class number, place, size, matrix, velocity) in the frame of the world."""
        names = {r["token"]: r["name"] for r in self._rows("category", "token", "name")}
        kinds = {
            r["token"]: _CATEGORIES.get(names[r["category_token"]])
            for r in self._rows("instance", "token", "category_token")
        }
        fields = ("token", "sample_token", "instance_token", "prev", "next")
        numbers = (*_POSE, "size", "num_lidar_pts")
        listed = self._rows("sample_annotation", *fields, numbers=numbers)
        rows = {r["token"]: r for r in listed}
        found: dict[str, list[Any]] = {}
        for row in rows.values():
            kind = kinds.get(row["instance_token"])
            if kind is None or row["num_lidar_pts"] < least or row["sample_token"] not in times:
                continue
            first, last = rows.get(row["prev"], row), rows.get(row["next"], row)
            span = times[last["sample_token"]] - times[first["sample_token"]]
            gap = np.subtract(last["translation"], first["translation"])
            velocity = gap / span if 0 < span <= 3 else np.full(3, np.nan)
            turn = rotation(row["rotation"])
            found.setdefault(row["sample_token"], []).append(
                (CLASSES.index(kind) + 1, row["translation"], row["size"], turn, velocity)
            )
        return found

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"NuScenesBoxes({self.split}: {len(self):,} frames, {self._sweeps} sweeps)"

    @overload
    def __getitem__(self, i: int) -> BoxFrame: ...
    @overload
    def __getitem__(self, i: slice) -> list[BoxFrame]: ...
    def __getitem__(self, i: int | slice) -> BoxFrame | list[BoxFrame]:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        token, sample = self._keys[item_number(self, i, len(self))]
        from_world = np.asarray(np.linalg.inv(self._scans[token].to_world), np.float64)
        boxes, labels = [], []
        for label, place, (wide, long, high), turn, velocity in self._boxes.get(sample, ()):
            center = from_world[:3, :3] @ place + from_world[:3, 3]
            ahead = from_world[:3, :3] @ turn[:, 0]
            moved = from_world[:3, :3] @ velocity
            heading = np.arctan2(ahead[1], ahead[0])
            boxes.append([*center, long, wide, high, heading, *moved[:2]])
            labels.append(label)
        return BoxFrame(
            self._points(token, from_world),
            np.array(boxes, np.float32).reshape(-1, 9),
            np.array(labels, np.int32),
        )

    def _points(self, token: str, from_world: Floats) -> NDArray[np.float32]:
        now = self._scans[token].time
        parts: list[NDArray[np.float32]] = []
        while len(parts) < self._sweeps and token in self._scans:
            scan = self._scans[token]
            path = inside(self.root, scan.path)
            if not path.is_file():
                self._missing(f"there is no file {path}")
            rows = np.fromfile(path, "<f4")
            if rows.size % 5:
                raise ValueError(f"{path}: {rows.size} floats, expected five per point")
            rows = rows.reshape(-1, 5)
            rows = rows[(np.abs(rows[:, 0]) >= 1) | (np.abs(rows[:, 1]) >= 1)]  # the vehicle itself
            move = from_world @ scan.to_world
            places = rows[:, :3] @ move[:3, :3].T + move[:3, 3]
            lag = np.full((len(rows), 1), now - scan.time)
            parts.append(np.concatenate([places, rows[:, 3:4], lag], axis=1).astype(np.float32))
            token = scan.before
        return np.concatenate(parts)

    def _missing(self, what: str) -> NoReturn:
        tree = "\n".join("  " + line for line in self.TREE.strip("\n").splitlines())
        raise DatasetError(
            f"[NuScenesBoxes] {what}\nexpected under {self.root}:\n{tree}\n"
            f"get it from {self.SOURCE}"
        )
