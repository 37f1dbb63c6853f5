"""Object labels and calibration of KITTI: boxes in the frame of the camera and of the LiDAR."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..core._checks import caller, instance, numpy_array, sizes, wrong_value
from ._check import naming

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.types import FilePath

Floats = NDArray[np.float64]
_COLUMNS = 15  # name, truncated, occluded, alpha, bbox 4, h w l, x y z, rotation_y; then a score


@dataclass(frozen=True, eq=False)
class KittiCalibration:
    """From the LiDAR to the camera: rect_velo (4, 4), and the projection p2 (3, 4) to pixels."""

    rect_velo: Floats
    p2: Floats

    def __post_init__(self) -> None:
        for name, shape in (("rect_velo", (4, 4)), ("p2", (3, 4))):
            object.__setattr__(self, name, _floats(self, name, getattr(self, name), shape))

    def to_camera(self, points: Floats) -> Floats:
        """Points (N, 3) of the LiDAR in the frame of the camera: x right, y down, z forward."""
        points = _floats("to_camera", "points", points, (-1, 3))
        return points @ self.rect_velo[:3, :3].T + self.rect_velo[:3, 3]

    def to_lidar(self, points: Floats) -> Floats:
        """Points (N, 3) of the camera in the frame of the LiDAR: x forward, y left, z up."""
        points = _floats("to_lidar", "points", points, (-1, 3))
        try:
            back = np.linalg.inv(self.rect_velo)
        except np.linalg.LinAlgError:
            raise ValueError("[to_lidar] rect_velo has no inverse; expected a motion") from None
        return points @ back[:3, :3].T + back[:3, 3]

    def to_image(self, points: Floats) -> tuple[Floats, Floats]:
        """(pixels (N, 2), depths (N,)) of points in the frame of the camera."""
        points = _floats("to_image", "points", points, (-1, 3))
        seen = points @ self.p2[:, :3].T + self.p2[:, 3]
        return seen[:, :2] / seen[:, 2:], seen[:, 2]

    def in_image(self, points: Floats, width: int, height: int) -> NDArray[np.bool_]:
        """Which points of the LiDAR the camera sees."""
        width, height = sizes("in_image", "width and height", (width, height), 2)
        pixels, depth = self.to_image(self.to_camera(points))
        inside = (pixels >= 0).all(1) & (pixels < [width, height]).all(1)
        return np.asarray(inside & (depth > 0))


def _floats(who: object, name: str, values: object, shape: tuple[int, int]) -> Floats:
    """Numbers as float64 of a shape; -1 stands for any number of rows."""
    made = np.asarray(numpy_array(who, name, values), np.float64)
    if made.ndim != 2 or any(want not in (-1, size) for want, size in zip(shape, made.shape)):
        wanted = ", ".join("N" if size == -1 else str(size) for size in shape)
        raise ValueError(f"[{caller(who)}] {name} must have shape ({wanted}), found {made.shape}")
    return made


def _lines(path: FilePath) -> list[str]:
    with naming(path, "text"):
        return Path(path).read_text(encoding="utf-8").splitlines()


def read_kitti_calibration(path: FilePath) -> KittiCalibration:
    """The calibration of a frame: lines "P2:", "R0_rect:" and "Tr_velo_to_cam:".

    Raises:
        OSError: The file cannot be opened.
        ValueError: A line is missing or has another number of values.
    """
    found: dict[str, Floats] = {}
    for line in _lines(path):
        name, _, values = line.partition(":")
        try:
            found[name.strip()] = np.array([float(v) for v in values.split()])
        except ValueError as error:
            raise ValueError(f"{path}: line {name!r}: {error}") from None
    sizes = {"P2": 12, "R0_rect": 9, "Tr_velo_to_cam": 12}
    for name, size in sizes.items():
        if name not in found or len(found[name]) != size:
            raise ValueError(f"{path}: expected a line {name!r} with {size} numbers")
    rect, velo = np.eye(4), np.eye(4)
    rect[:3, :3] = found["R0_rect"].reshape(3, 3)
    velo[:3] = found["Tr_velo_to_cam"].reshape(3, 4)
    return KittiCalibration(rect @ velo, found["P2"].reshape(3, 4))


def read_kitti_objects(path: FilePath) -> dict[str, NDArray[np.generic]]:
    """The columns of a label or result file, as `training.detection.kitti_metrics` takes them.

    "dimensions" are length, height, width; "location" is the center of the bottom in the frame of
    the camera; "score" is there if the file has one.

    Raises:
        OSError: The file cannot be opened.
        ValueError: A line has another number of values; the message names it.
    """
    rows, names = [], []
    for number, line in enumerate(_lines(path), 1):
        words = line.split()
        if not words:
            continue
        if len(words) not in (_COLUMNS, _COLUMNS + 1):
            raise ValueError(
                f"{path}: line {number} has {len(words)} values, expected {_COLUMNS}, or "
                f"{_COLUMNS + 1} with a score"
            )
        try:
            rows.append([float(w) for w in words[1:]])
        except ValueError as error:
            raise ValueError(f"{path}: line {number}: {error}") from None
        names.append(words[0])
    widths = {len(row) for row in rows}
    if len(widths) > 1:
        raise ValueError(f"{path}: some lines have a score and others have none")
    table = np.array(rows, np.float64).reshape(len(rows), max(widths, default=_COLUMNS - 1))
    made: dict[str, NDArray[np.generic]] = {
        "name": np.array(names, dtype=str),
        "truncated": table[:, 0],
        "occluded": table[:, 1],
        "alpha": table[:, 2],
        "bbox": table[:, 3:7],
        "dimensions": table[:, [9, 7, 8]],
        "location": table[:, 10:13],
        "rotation_y": table[:, 13],
    }
    if table.shape[1] > _COLUMNS - 1:
        made["score"] = table[:, 14]
    return made


def lidar_boxes(
    objects: dict[str, NDArray[np.generic]], calibration: KittiCalibration
) -> NDArray[np.float32]:
    """Boxes (N, 7) in the frame of the LiDAR: center, dx, dy, dz, heading."""
    who = "lidar_boxes"
    instance(who, "objects", objects, dict, "the columns of read_kitti_objects")
    instance(who, "calibration", calibration, KittiCalibration, "a KittiCalibration")
    for name in ("dimensions", "location", "rotation_y"):
        if name not in objects:
            wrong_value(who, "objects", sorted(objects, key=str), f"a column {name!r}")
    size = _floats(who, "dimensions", objects["dimensions"], (-1, 3))
    center = calibration.to_lidar(_floats(who, "location", objects["location"], (len(size), 3)))
    center[:, 2] += size[:, 1] / 2
    turn = np.asarray(numpy_array(who, "rotation_y", objects["rotation_y"]), np.float64)
    if turn.shape != (len(size),):
        wrong_value(who, "rotation_y", turn, f"{len(size)} angles")
    heading = -turn - np.pi / 2
    made = np.concatenate([center, size[:, [0, 2, 1]], heading[:, None]], axis=1)
    return np.asarray(made, np.float32)


def camera_objects(
    boxes: Floats, calibration: KittiCalibration, size: Sequence[int]
) -> dict[str, NDArray[np.generic]]:
    """The columns of boxes (N, 7) of the LiDAR in the frame of the camera; size is (width, height).

    "bbox" is the rectangle around the projected corners, inside of the image.
    """
    from ..viewer.boxes import box_corners

    rows = _floats("camera_objects", "boxes", boxes, (-1, 7))
    instance("camera_objects", "calibration", calibration, KittiCalibration, "a KittiCalibration")
    size = sizes("camera_objects", "size", size, 2)
    bottom = rows[:, :3] - [0, 0, 0.5] * rows[:, 5:6]
    turn = -rows[:, 6] - np.pi / 2
    corners = calibration.to_camera(box_corners(rows).reshape(-1, 3))
    pixels, _ = calibration.to_image(corners)
    pixels = pixels.reshape(-1, 8, 2)
    edge = np.array(size) - 1
    bbox = np.concatenate(
        [np.clip(pixels.min(1), 0, edge), np.clip(pixels.max(1), 0, edge)], axis=1
    )
    return {
        "location": calibration.to_camera(bottom),
        "dimensions": rows[:, [3, 5, 4]],
        "rotation_y": turn,
        "alpha": turn - np.arctan2(-rows[:, 1], rows[:, 0]),
        "bbox": bbox,
    }
