"""KITTI 3D object detection (Geiger et al., 2012): scans with boxes in the frame of the LiDAR."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn, overload

import numpy as np
from numpy.typing import NDArray

from ..core import _checks
from ..io import (
    KittiCalibration,
    lidar_boxes,
    read_kitti,
    read_kitti_calibration,
    read_kitti_objects,
)
from ..io.box_frame import BoxFrame
from .base import DatasetError, inside, item_number

IMAGE = (1242, 375)  # pixels of the camera, where the image itself is not read


class KittiBoxes(Sequence[BoxFrame]):
    """Frames of KITTI: points x, y, z, intensity and the boxes of some classes.

    Args:
        root: Folder of the data set as downloaded.
        split: A file of ImageSets without .txt, "train" or "val"; or "all" for every scan of
            training/velodyne.
        classes: Names of the objects that count; label i + 1 is classes[i].
        in_view: Whether only points that the camera sees are kept, as published detectors do.

    Raises:
        DatasetError: Something is missing; the message shows the expected tree.
    """

    TREE = """
training/velodyne/000000.bin     x y z intensity, float32
training/label_2/000000.txt      objects
training/calib/000000.txt        calibration
ImageSets/train.txt, val.txt     names of the frames of a split
"""
    SOURCE = "cvlibs.net/datasets/kitti (3D object detection)"

    def __init__(
        self,
        root: str | os.PathLike[str],
        split: str = "train",
        classes: Sequence[str] = ("Car", "Pedestrian", "Cyclist"),
        in_view: bool = True,
    ) -> None:
        _checks.path(self, root, "root")
        _checks.path(self, split, "split")
        self.root, self.split = Path(os.fsdecode(root)), os.fspath(split)
        self.classes = tuple(_checks.names(self, "classes", classes))
        self._in_view = _checks.flag(self, "in_view", in_view)
        folder = self.root / "training" / "velodyne"
        if not folder.is_dir():
            self._missing(f"there is no folder {folder}")
        if split == "all":
            self._names = sorted(path.stem for path in folder.glob("*.bin"))
        else:
            listed = self.root / "ImageSets" / f"{split}.txt"
            if not listed.is_file():
                self._missing(f"there is no file {listed}")
            self._names = listed.read_text(encoding="utf-8").split()

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"KittiBoxes({self.split}: {len(self):,} frames, {', '.join(self.classes)})"

    def name(self, i: int) -> str:
        """The name of a frame, such as 000123."""
        return self._names[item_number(self, i, len(self))]

    def calibration(self, i: int) -> KittiCalibration:
        """The calibration of a frame."""
        return read_kitti_calibration(self._file("calib", i, "txt"))

    def objects(self, i: int) -> dict[str, NDArray[np.generic]]:
        """All objects of a frame in the frame of the camera, with the column "frame"."""
        found = read_kitti_objects(self._file("label_2", i, "txt"))
        frame = np.full(len(found["name"]), item_number(self, i, len(self)))
        return {**found, "frame": frame}

    @overload
    def __getitem__(self, i: int) -> BoxFrame: ...
    @overload
    def __getitem__(self, i: slice) -> list[BoxFrame]: ...
    def __getitem__(self, i: int | slice) -> BoxFrame | list[BoxFrame]:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        cloud = read_kitti(self._file("velodyne", i, "bin"))
        intensity = cloud.columns["intensity"].astype(np.float32)
        points = np.concatenate([cloud.points.astype(np.float32), intensity[:, None]], axis=1)
        calibration = self.calibration(i)
        if self._in_view:
            points = points[calibration.in_image(points[:, :3].astype(np.float64), *IMAGE)]
        objects = read_kitti_objects(self._file("label_2", i, "txt"))
        keep = np.isin(objects["name"], self.classes)
        kept = {name: column[keep] for name, column in objects.items()}
        labels = np.array([self.classes.index(n) + 1 for n in kept["name"]], np.int32)
        return BoxFrame(points, lidar_boxes(kept, calibration), labels)

    def _file(self, kind: str, i: int, extension: str) -> Path:
        path = inside(self.root, "training", kind, f"{self.name(i)}.{extension}")
        if not path.is_file():
            self._missing(f"there is no file {path}")
        return path

    def _missing(self, what: str) -> NoReturn:
        tree = "\n".join("  " + line for line in self.TREE.strip("\n").splitlines())
        raise DatasetError(
            f"[KittiBoxes] {what}\nexpected under {self.root}:\n{tree}\nget it from {self.SOURCE}"
        )
