"""Folder: labeled clouds of any format below one folder, with classes that are found or given."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..io import READERS, PointCloud, format_of, read
from .base import Dataset
from .tables import LabelTable

if TYPE_CHECKING:
    from pathlib import Path


class Folder(Dataset):
    """All clouds below `root`. The split `valid` is the share `held` of them, chosen by the seed.

    label: the integer column of the classes.
    classes: {id: name}; by default the ids that the files have, found by reading all files once.
    ignored: ids that do not count.
    format: see io.read.
    """

    TREE = """
any/place/scan.ply    .ply .pcd .las .npz .csv ..., with an integer column of classes
velodyne/000000.bin   and labels/000000.label
"""
    SOURCE = "your own scans"
    SPLITS = ("train", "valid", "all")

    def __init__(
        self,
        root: str | os.PathLike[str],
        split: str = "all",
        *,
        label: str = "label",
        classes: dict[int, str] | None = None,
        ignored: Sequence[int] = (),
        held: float = 0.2,
        seed: int = 0,
        format: str | None = None,
    ) -> None:
        super().__init__(root, split)
        if not 0 <= held < 1:
            raise ValueError(f"[Folder] held: found {held}, expected 0 or a part below 1")
        self._label, self._format = label, format
        every = sorted(p for p in self.root.rglob("*") if p.is_file() and self._known(p))
        if not every:
            self._missing(f"{self.root} holds no point-cloud file")
        order = np.random.default_rng([seed, 99]).permutation(len(every)).tolist()
        count = min(max(1, round(len(every) * held)), len(every) - 1) if held else 0
        rows = {"all": range(len(every)), "valid": sorted(order[:count])}
        self._paths = [every[i] for i in rows.get(split, sorted(order[count:]))]
        self._names = [str(p.relative_to(self.root)) for p in self._paths]
        if not self._paths:
            raise ValueError(f"[Folder] split {split}: no file of {len(every)}; give a larger held")
        if classes is None:
            found = sorted(set().union(*(self._ids(p) for p in every)) - set(ignored))
            classes = {value: str(value) for value in found}
        if not classes:
            raise ValueError(f"[Folder] {self.root}: no class besides the ignored ones")
        index = {int(value): i for i, value in enumerate(classes)}
        known = dict.fromkeys(map(int, ignored), -1) | index
        if min(known) < 0:
            raise ValueError(f"[Folder] label {min(known)}: expected ids of 0 or more")
        self.table = LabelTable(tuple(classes.values()), known, tuple(index))

    def _known(self, path: Any) -> bool:
        ending = path.suffix.lower().lstrip(".")
        return ending in READERS and ending != "label" and format_of(path) != "scannet"

    def _ids(self, path: str | os.PathLike[str]) -> set[int]:
        return {int(v) for v in np.unique(self._column(path, read(path, self._format)))}

    def _column(self, path: str | os.PathLike[str], cloud: PointCloud) -> np.ndarray:
        if self._label not in cloud.columns:
            raise ValueError(
                f"{path}: no column {self._label!r}; found {', '.join(cloud.columns) or 'none'}"
            )
        values = cloud.columns[self._label]
        if values.ndim != 1 or values.dtype.kind not in "iub":
            raise ValueError(
                f"{path}: column {self._label!r} is {values.dtype} of shape {values.shape}, "
                "expected one integer per point"
            )
        return values

    def source(self, i: int) -> list[Path]:
        return [self._paths[i]]

    def _read(self, i: int) -> PointCloud:
        path = self._paths[i]
        cloud = read(path, self._format)
        label = self.table.indices(self._column(path, cloud), str(path))
        return PointCloud(cloud.points, {**cloud.columns, "label": label}, dict(cloud.meta))
