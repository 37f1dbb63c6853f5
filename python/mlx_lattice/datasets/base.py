"""What every data set is: a sequence of clouds that are read when they are asked for.

    dataset[i]          PointCloud; column `label` int32: class index, -1 where it does not count
    dataset.classes     names of the classes, by index
    dataset.name(i)     a name that is unique in the data set, such as 08/000123

Nothing is read when a data set is made but names of files. What is missing is an error that shows
the expected tree and where to get the data.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..io import PointCloud
from .tables import LabelTable


class DatasetError(ValueError):
    """A data set that is not there, or not as published."""


class Dataset(Sequence[Any]):
    """Base class of the data sets: a sequence of clouds that are read when they are asked for.

    Subclasses define `_names`, `_read(i)`, TREE (the expected tree) and SOURCE (its origin).
    """

    TREE = ""
    SOURCE = ""
    SPLITS: tuple[str, ...] = ("train", "valid", "test")
    table: LabelTable
    root: Path
    split: str

    def __init__(self, root: str | os.PathLike[str], split: str) -> None:
        self.root, self.split = Path(root), split
        if split not in self.SPLITS:
            raise ValueError(
                f"[{self._kind}] split: found {split!r}, expected one of {', '.join(self.SPLITS)}"
            )
        if not self.root.is_dir():
            self._missing(f"there is no folder {self.root}")
        self._names: list[str] = []

    @property
    def _kind(self) -> str:
        return type(self).__name__

    @property
    def classes(self) -> tuple[str, ...]:
        return self.table.names

    @property
    def labeled(self) -> bool:
        """False for a test split, whose labels are not published."""
        return self.split != "test"

    def __len__(self) -> int:
        return len(self._names)

    def name(self, i: int) -> str:
        return self._names[i]

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        if not -len(self) <= i < len(self):
            raise IndexError(f"[{self._kind}] item {i} of {len(self)}")
        i = int(i) % len(self)
        cloud = self._read(i)
        return PointCloud(cloud.points, cloud.columns, {**cloud.meta, "name": self._names[i]})

    def __iter__(self) -> Iterator[PointCloud]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"{self._kind}({self.split}: {len(self):,} items, {len(self.classes)} classes)"

    def source(self, i: int) -> list[Path]:
        """The files of an item; a cache notices when they change."""
        raise NotImplementedError

    def _read(self, i: int) -> PointCloud:
        raise NotImplementedError

    def _missing(self, what: str) -> None:
        tree = "\n".join("  " + line for line in self.TREE.strip("\n").splitlines())
        raise DatasetError(
            f"[{self._kind}] {what}\nexpected under {self.root}:\n{tree}\nget it from {self.SOURCE}"
        )

    def _folder(self, path: Path) -> Path:
        if not path.is_dir():
            self._missing(f"there is no folder {path}")
        return path

    def _file(self, path: Path) -> Path:
        if not path.is_file():
            self._missing(f"there is no file {path}")
        return path
