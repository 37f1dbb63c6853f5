"""ScanNet v2 (Dai et al., 2017), 20 classes, and ScanNet200 (Rozenberszki et al., 2022), 200."""

from __future__ import annotations

import csv
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from ..core import _checks
from ..io import PointCloud, read_scannet
from .base import Dataset
from .label_tables import LabelTable
from .scannet_tables import (
    CLASSES_20,
    CLASSES_200,
    FIRST_TEST_SPACE,
    NYU40,
    VALIDATION_SPACES,
)


def _table(classes: dict[int, str], ids: range | None) -> LabelTable:
    index = {value: i for i, value in enumerate(classes)}
    known = dict.fromkeys(ids or (), -1) | {0: -1} | index
    return LabelTable(tuple(classes.values()), known, tuple(classes))


class ScanNet(Dataset):
    """ScanNet v2: the vertices of reconstructed rooms, with colors and 20 or 200 classes.

    Args:
        root: Folder of the data set as downloaded; the page Data sets shows its tree.
        split: "train", "valid" or "test"; a test split has no labels.
        classes: Number of classes: 20 or 200.

    Raises:
        DatasetError: Something is missing; the message shows the expected tree.
        ValueError: Another number of classes.
    """

    TREE = """
scans/scene0000_00/scene0000_00_vh_clean_2.ply          vertices with color
scans/scene0000_00/scene0000_00_vh_clean_2.labels.ply   NYU40 ids (20 classes)
scans/scene0000_00/scene0000_00_vh_clean_2.0.010000.segs.json   (200 classes)
scans/scene0000_00/scene0000_00.aggregation.json                (200 classes)
scans_test/scene0707_00/scene0707_00_vh_clean_2.ply     (test split)
scannetv2-labels.combined.tsv                           (200 classes)
"""
    SOURCE = "www.scan-net.org (ScanNet v2; --type of the download script for each ending)"

    def __init__(
        self, root: str | os.PathLike[str], split: str = "train", *, classes: int = 20
    ) -> None:
        super().__init__(root, split)
        _checks.one_of(self, "classes", classes, (20, 200))
        self.table = (
            _table(CLASSES_20, range(NYU40 + 1)) if classes == 20 else _table(CLASSES_200, None)
        )
        self._fine = classes == 200
        top = self._folder(self.root / ("scans_test" if split == "test" else "scans"))
        self._paths = []
        for folder in sorted(p for p in top.iterdir() if p.is_dir()):
            match = re.fullmatch(r"scene(\d{4})_(\d{2})", folder.name)
            if match is None:
                self._missing(f"{folder} is not a scene")
            if self._split_of(int(match[1])) == split:
                self._names.append(folder.name)
                self._paths.append(self._file(folder / f"{folder.name}_vh_clean_2.ply"))
                if self.labeled:
                    for path in self._label_paths(folder):
                        self._file(path)
        if not self._names:
            self._missing(f"{top} holds no scene of the split {split}")
        self._ids = self._read_ids() if self._fine and self.labeled else {}

    @staticmethod
    def _split_of(space: int) -> str:
        if space >= FIRST_TEST_SPACE:
            return "test"
        return "valid" if space in VALIDATION_SPACES else "train"

    def _label_paths(self, folder: Path) -> list[Path]:
        if not self._fine:
            return [folder / f"{folder.name}_vh_clean_2.labels.ply"]
        return [
            folder / f"{folder.name}_vh_clean_2.0.010000.segs.json",
            folder / f"{folder.name}.aggregation.json",
        ]

    def _read_ids(self) -> dict[str, int]:
        """Category id of each raw name of the annotation."""
        path = self._file(self.root / "scannetv2-labels.combined.tsv")
        with open(path, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t"))
        if not rows or not {"id", "raw_category"} <= set(rows[0]):
            raise ValueError(f"{path}: expected the columns id and raw_category")
        return {row["raw_category"]: int(row["id"]) for row in rows}

    def _files(self, i: int) -> list[Path]:
        return [self._paths[i], *(self._label_paths(self._paths[i].parent) if self.labeled else [])]

    def _read(self, i: int) -> PointCloud:
        path = self._paths[i]
        if not self.labeled:
            return read_scannet(path, False)
        if not self._fine:
            labels = self._label_paths(path.parent)[0]
            cloud = read_scannet(path, labels)
            classes = self.table.indices(cloud.columns["label"], str(labels))
            return PointCloud(cloud.points, {**cloud.columns, "label": classes})
        cloud = read_scannet(path, False)
        label, instance = self._annotation(path.parent, len(cloud))
        return PointCloud(cloud.points, {**cloud.columns, "label": label, "instance": instance})

    def _annotation(self, folder: Path, count: int) -> tuple[np.ndarray, np.ndarray]:
        """(class index, object number from 1) per vertex, from segments and groups of segments."""
        segments_path, groups_path = self._label_paths(folder)
        segments = np.array(_json(segments_path, "segIndices"), np.int64)
        if len(segments) != count:
            raise ValueError(f"{segments_path}: {len(segments)} labels, expected {count}")
        values, at = np.unique(segments, return_inverse=True)
        label, instance = np.full(len(values), -1, np.int32), np.zeros(len(values), np.int32)
        index = {value: k for k, value in enumerate(CLASSES_200)}
        for group in _json(groups_path, "segGroups"):
            if group["label"] not in self._ids:
                raise ValueError(
                    f"{groups_path}: label {group['label']!r} is not in "
                    "scannetv2-labels.combined.tsv"
                )
            rows = np.isin(values, group["segments"])
            label[rows] = index.get(self._ids[group["label"]], -1)
            instance[rows] = int(group["objectId"]) + 1
        return label[at], instance[at]

    def prediction_path(self, i: int) -> str:
        """Where the benchmark expects the prediction of an item."""
        return f"{self.name(i)}.txt"


def _json(path: Path, key: str) -> list[Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))[key]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: no JSON object with {key!r}: {error!r}") from None
