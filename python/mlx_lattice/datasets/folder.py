"""Folder: labeled clouds of any format below one folder, with classes that are found or given."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..core import _checks
from ..io import READERS, PointCloud, format_of, read
from ..io.cloud import labels_of
from ..io.text import is_points
from .base import Dataset
from .label_tables import MOST_ID, LabelTable


class Folder(Dataset):
    """Labeled clouds of your own: all point-cloud files below a folder.

    Args:
        root: Folder with the files; those in folders below it count too.
        split: "all", "train" or "valid".
        label: The column of the classes: whole numbers.
        classes: Names by id, or a `LabelTable`, which also says what is ignored; by default the ids
            that the files have, found by reading all files.
        ignored: Ids that do not count.
        held: Share of the clouds that are the split `valid`, 0 or more and below 1.
        seed: Seed of the choice of these clouds.
        format: Name of the format where the extension does not tell; see `io.read`.

    Raises:
        DatasetError: The folder is missing or holds no cloud.
        TypeError, ValueError: A file lacks the labels, or an argument is of another kind.

    Examples:
        >>> import tempfile
        >>> from mlx_lattice import datasets, samples
        >>> folder = tempfile.mkdtemp()
        >>> paths = samples.write_scans(folder)
        >>> data = datasets.Folder(folder, "train", classes=dict(enumerate(samples.CLASSES)))
        >>> len(data), data.classes[1], data[0].columns["label"].dtype
        (4, 'wall', dtype('int32'))
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
        classes: dict[int, str] | LabelTable | None = None,
        ignored: Sequence[int] = (),
        held: float = 0.2,
        seed: int = 0,
        format: str | None = None,
    ) -> None:
        super().__init__(root, split)
        held, seed = _checks.share(self, "held", held), _checks.integer(self, "seed", seed, 0)
        _checks.instance(self, "label", label, str, "the name of a column")
        if format is not None:
            _checks.instance(self, "format", format, str, "the name of a format")
        if classes is not None:
            _checks.instance(self, "classes", classes, (dict, LabelTable), "names by id")
        listed = _checks.listed(self, "ignored", ignored, "ids")
        ignored = [_id(value) for value in listed]
        self.label, self._format = label, format
        every = clouds_below(self.root)
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
        self.table = classes if isinstance(classes, LabelTable) else self._table(classes, ignored)

    def _table(self, classes: dict[int, str], ignored: Sequence[int]) -> LabelTable:
        if not classes:
            raise ValueError(f"[Folder] {self.root}: no class besides the ignored ones")
        index = {_id(value): i for i, value in enumerate(classes)}
        return LabelTable(tuple(classes.values()), dict.fromkeys(ignored, -1) | index, tuple(index))

    def _ids(self, path: Path) -> set[int]:
        labels = labels_of(read(path, self._format), self.label, str(path))
        return {int(v) for v in np.unique(labels)}

    def _read(self, i: int) -> PointCloud:
        path = self._paths[i]
        cloud = read(path, self._format)
        label = self.table.indices(labels_of(cloud, self.label, str(path)), str(path))
        return PointCloud(cloud.points, {**cloud.columns, "label": label}, dict(cloud.meta))


def clouds_below(root: Path) -> list[Path]:
    """The point-cloud files of a folder and of the folders below it, in order of their names."""
    return sorted(p for p in root.rglob("*") if p.is_file() and _is_cloud(p) and not is_notes(p))


def _is_cloud(path: Path) -> bool:
    ending = path.suffix.lower().lstrip(".")
    return ending in READERS and ending != "label" and format_of(path) != "scannet"


def is_notes(path: Path) -> bool:
    """Whether a file has the name of a cloud but holds notes, or what a training wrote."""
    text = path.suffix.lower() == ".txt" or path.name == "history.csv"
    return text and not is_points(path)


def _id(value: object) -> int:
    """An id; a text of digits is one too, because the keys of TOML tables are texts."""
    if isinstance(value, str) and value.removeprefix("-").isdecimal():
        value = int(value)
    return _checks.integer("Folder", "label", value, -MOST_ID, MOST_ID)
