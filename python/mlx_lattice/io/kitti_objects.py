"""Object labels and calibration of KITTI: boxes in the frame of the camera and of the LiDAR."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ..core.types import FilePath

Floats = NDArray[np.float64]
_COLUMNS = 15  # name, truncated, occluded, alpha, bbox 4, h w l, x y z, rotation_y; then a score


@dataclass(frozen=True, eq=False)
class KittiCalibration:
    """From the LiDAR to the camera: rect_velo (4, 4), and the projection p2 (3, 4) to pixels."""

    rect_velo: Floats
    p2: Floats

    def to_camera(self, points: Floats) -> Floats:
        """Points (N, 3) of the LiDAR in the frame of the camera: x right, y down, z forward."""
        return points @ self.rect_velo[:3, :3].T + self.rect_velo[:3, 3]

    def to_lidar(self, points: Floats) -> Floats:
        """Points (N, 3) of the camera in the frame of the LiDAR: x forward, y left, z up."""
        back = np.linalg.inv(self.rect_velo)
        return points @ back[:3, :3].T + back[:3, 3]

    def to_image(self, points: Floats) -> tuple[Floats, Floats]:
        """(pixels (N, 2), depths (N,)) of points in the frame of the camera."""
        seen = points @ self.p2[:, :3].T + self.p2[:, 3]
        return seen[:, :2] / seen[:, 2:], seen[:, 2]

    def in_image(self, points: Floats, width: int, height: int) -> NDArray[np.bool_]:
        """Which points of the LiDAR the camera sees."""
        pixels, depth = self.to_image(self.to_camera(points))
        inside = (pixels >= 0).all(1) & (pixels < [width, height]).all(1)
        return np.asarray(inside & (depth > 0))


def read_kitti_calibration(path: FilePath) -> KittiCalibration:
    """The calibration of a frame: lines "P2:", "R0_rect:" and "Tr_velo_to_cam:".

    Raises:
        OSError: The file cannot be opened.
        ValueError: A line is missing or has another number of values.
    """
    found: dict[str, Floats] = {}
    for line in Path(path).read_text(encoding="utf-8").splitlines():
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
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
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
    size = np.asarray(objects["dimensions"], np.float64)
    center = calibration.to_lidar(np.asarray(objects["location"], np.float64))
    center[:, 2] += size[:, 1] / 2
    heading = -np.asarray(objects["rotation_y"], np.float64) - np.pi / 2
    made = np.concatenate([center, size[:, [0, 2, 1]], heading[:, None]], axis=1)
    return np.asarray(made, np.float32)


def camera_objects(
    boxes: Floats, calibration: KittiCalibration, size: tuple[int, int]
) -> dict[str, NDArray[np.generic]]:
    """The columns of boxes (N, 7) of the LiDAR in the frame of the camera; size is (width, height).

    "bbox" is the rectangle around the projected corners, inside of the image.
    """
    from ..viewer.boxes import box_corners

    rows = np.asarray(boxes, np.float64)
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
