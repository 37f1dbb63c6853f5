"""SemanticKITTI (Behley et al., ICCV 2019): 64-beam scans of streets, 19 classes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..core import _checks
from ..io import PointCloud, read_kitti
from .base import Dataset
from .label_tables import SEMANTIC_KITTI, SEMANTIC_KITTI_SPLITS


class SemanticKITTI(Dataset):
    """SemanticKITTI (Behley et al., 2019): 64-beam scans of streets with 19 classes.

    With scans > 1 the poses of the data set move the earlier scans into the frame of the item's
    scan. The column `time` counts back: 0, -1, -2, ... Only points of time 0 are evaluated.

    Args:
        root: Folder of the data set as downloaded; the page Data sets shows its tree.
        split: "train", "valid" or "test"; a test split has no labels.
        sequences: Numbers of the sequences; by default those of the split.
        scans: How many scans lie in one cloud: that of the item and those before it.

    Raises:
        DatasetError: Something is missing; the message shows the expected tree.
        TypeError, ValueError: An argument is of another kind.

    Examples:
        >>> from mlx_lattice import datasets
        >>> data = datasets.SemanticKITTI("semantickitti", "valid")  # the folder as downloaded
        >>> data.name(0), data.classes[0], len(data.classes)
        ('08/000000', 'car', 19)
    """

    TREE = """
sequences/00/velodyne/000000.bin   x y z intensity, float32
sequences/00/labels/000000.label   uint32 per point (sequences 00 to 10)
sequences/00/poses.txt             one 3 x 4 matrix per scan (scans > 1)
sequences/00/calib.txt             with a line Tr: (scans > 1)
...
sequences/21/velodyne/...
"""
    SOURCE = "semantic-kitti.org (velodyne scans: the KITTI odometry benchmark, 80 GB)"
    table = SEMANTIC_KITTI

    def __init__(
        self,
        root: str | os.PathLike[str],
        split: str = "train",
        *,
        sequences: Sequence[int] | None = None,
        scans: int = 1,
    ) -> None:
        super().__init__(root, split)
        self._scans = _checks.integer(self, "scans", scans)
        numbers: Sequence[int] = SEMANTIC_KITTI_SPLITS[split]
        if sequences is not None:
            numbers = _checks.listed(self, "sequences", sequences, "numbers of sequences")
        inner = self.root / "dataset"
        top = inner if (inner / "sequences").is_dir() else self.root
        self._paths = []
        self._first: list[int] = []  # index of the first scan of the item's sequence
        self._poses: dict[Path, np.ndarray] = {}
        for number in numbers:
            name = f"{_checks.integer(self, 'sequences', number, 0):02}"
            self._add(top / "sequences" / name)

    def _add(self, folder: Path) -> None:
        found = sorted(self._folder(folder / "velodyne").glob("*.bin"))
        if not found:
            self._missing(f"{folder / 'velodyne'} holds no .bin file")
        if self.labeled:
            labels = {p.stem for p in self._folder(folder / "labels").glob("*.label")}
            without = [p for p in found if p.stem not in labels]
            if without:
                self._missing(
                    f"{len(without)} of {len(found)} scans of {folder.name} have no labels, "
                    f"the first is {folder / 'labels' / (without[0].stem + '.label')}"
                )
        if self._scans > 1:
            self._poses[folder] = self._read_poses(folder, len(found))
        self._first += [len(self._paths)] * len(found)
        self._paths += found
        self._names += [f"{folder.name}/{p.stem}" for p in found]

    def _files(self, i: int) -> list[Path]:
        first = max(self._first[i], i - self._scans + 1)
        scans = self._paths[first : i + 1]
        return scans + ([self._label_path(p) for p in scans] if self.labeled else [])

    @staticmethod
    def _label_path(scan: Path) -> Path:
        return scan.parent.parent / "labels" / (scan.stem + ".label")

    def _one(self, i: int) -> PointCloud:
        path = self._paths[i]
        labels = self._label_path(path) if self.labeled else False
        cloud = read_kitti(path, labels)
        if not self.labeled:
            return cloud
        classes = self.table.indices(cloud.columns["label"], str(labels))
        return PointCloud(cloud.points, {**cloud.columns, "label": classes})

    def _read(self, i: int) -> PointCloud:
        if self._scans == 1:
            return self._one(i)
        first = max(self._first[i], i - self._scans + 1)
        poses = self._poses[self._paths[i].parent.parent]
        here = np.linalg.inv(poses[i - self._first[i]])
        parts = []
        for j in range(i, first - 1, -1):
            cloud = self._one(j)
            move = here @ poses[j - self._first[i]]
            points = (cloud.points @ move[:3, :3].T + move[:3, 3]).astype(np.float32)
            if j == i:
                points = cloud.points
            columns = {**cloud.columns, "time": np.full(len(cloud), j - i, np.int32)}
            parts.append((points, columns))
        columns = {name: np.concatenate([c[name] for _, c in parts]) for name in parts[0][1]}
        return PointCloud(np.concatenate([p for p, _ in parts]), columns)

    def _read_poses(self, folder: Path, count: int) -> np.ndarray:
        """(count, 4, 4) float64 in the scanner's frame: inv(Tr) pose Tr of the camera's poses."""
        lines = self._file(folder / "calib.txt").read_text().splitlines()
        rows = [line.split()[1:] for line in lines if line.startswith("Tr")]
        if len(rows) != 1 or len(rows[0]) != 12:
            raise ValueError(f"{folder / 'calib.txt'}: expected one line Tr: with 12 numbers")
        tr = _matrices(np.array(rows, np.float64))[0]
        path = self._file(folder / "poses.txt")
        try:
            values = np.loadtxt(path, np.float64, ndmin=2)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        if values.shape != (count, 12):
            raise ValueError(
                f"{path}: found {values.shape[0]} lines of {values.shape[1]} numbers, "
                f"expected 12 numbers for each of {count} scans"
            )
        return np.linalg.inv(tr) @ _matrices(values) @ tr

    def prediction_path(self, i: int) -> str:
        """Where the benchmark expects the prediction of an item."""
        sequence, stem = self.name(i).split("/")
        return f"sequences/{sequence}/predictions/{stem}.label"


def _matrices(rows: np.ndarray) -> np.ndarray:
    full = np.tile(np.eye(4), (len(rows), 1, 1))
    full[:, :3] = rows.reshape(-1, 3, 4)
    return full
