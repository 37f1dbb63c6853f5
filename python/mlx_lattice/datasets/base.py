"""The base of all data sets: a sequence of clouds that are read when they are asked for.

    dataset[i]          PointCloud; column `label` int32: class index, -1 where it does not count
    dataset.classes     names of the classes, by index
    dataset.name(i)     a name that is unique in the data set, such as 08/000123

Making a data set reads only the names of files. If something is missing, an error shows the
expected tree and says where to get the data.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn, overload

from ..core import _checks
from ..io import PointCloud
from .label_tables import LabelTable


class DatasetError(ValueError):
    """A data set that is not there, or not as published; the message shows the expected tree."""


def inside(folder: Path, *parts: str) -> Path:
    """folder / parts, where the parts come from data: ValueError where they lead out of the folder.

    Links inside the folder are the user's own and may lead anywhere.
    """
    path = os.path.normpath(os.path.join(*parts))
    if os.path.isabs(path) or path.split(os.sep)[0] == os.pardir or "\0" in path:
        raise DatasetError(
            f"the data set names the file {os.path.join(*parts)!r}, expected one inside {folder}; "
            "do not trust this data set"
        )
    return folder / path


def item_number(who: object, i: object, count: int) -> int:
    """The number of an item, from 0; negative ones count from the end."""
    found = _checks.integer(who, "i", i, -(2**63), 2**63)
    if not -count <= found < count:
        raise IndexError(f"[{_checks.caller(who)}] item {found} of {count}")
    return found % count


class Dataset(Sequence[PointCloud]):
    """Base class of the data sets: a sequence of clouds that are read when they are asked for.

    A cloud has the column `label`, int32: the class index, -1 where it does not count. Subclasses
    define `_names`, `_read(i)`, TREE (the expected tree) and SOURCE (its origin).

    Args:
        root: Folder of the data set as downloaded.
        split: Part of the data set: "train", "valid" or "test".

    Raises:
        DatasetError: The folder is missing.
        TypeError, ValueError: The split is unknown, or an argument is of another kind.
    """

    TREE = ""
    SOURCE = ""
    SPLITS: tuple[str, ...] = ("train", "valid", "test")
    table: LabelTable
    _paths: list[Path]
    root: Path
    split: str
    label = "label"  # the column of the classes in the files

    def __init__(self, root: str | os.PathLike[str], split: str) -> None:
        _checks.path(self, root, "root")
        self.root, self.split = Path(os.fsdecode(root)), split
        _checks.one_of(self, "split", split, self.SPLITS)
        if not self.root.is_dir():
            self._missing(f"there is no folder {self.root}")
        self._names: list[str] = []

    @property
    def _kind(self) -> str:
        return type(self).__name__

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, by index."""
        return self.table.names

    @property
    def labeled(self) -> bool:
        """False for a test split, whose labels are not published."""
        return self.split != "test"

    def __len__(self) -> int:
        return len(self._names)

    def name(self, i: int) -> str:
        """A name that is unique in the data set, such as 08/000123."""
        return self._names[self._checked(i)]

    def _checked(self, i: int) -> int:
        return item_number(self, i, len(self))

    @overload
    def __getitem__(self, i: int) -> PointCloud: ...
    @overload
    def __getitem__(self, i: slice) -> list[PointCloud]: ...
    def __getitem__(self, i: int | slice) -> PointCloud | list[PointCloud]:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        i = self._checked(i)
        cloud = self._read(i)
        return PointCloud(cloud.points, cloud.columns, {**cloud.meta, "name": self._names[i]})

    def __iter__(self) -> Iterator[PointCloud]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"{self._kind}({self.split}: {len(self):,} items, {len(self.classes)} classes)"

    def source(self, i: int) -> list[Path]:
        """The files of an item; a cache notices when they change."""
        return self._files(self._checked(i))

    def _files(self, i: int) -> list[Path]:
        return [self._paths[i]]

    def _read(self, i: int) -> PointCloud:
        raise NotImplementedError

    def _missing(self, what: str) -> NoReturn:
        tree = "\n".join("  " + line for line in self.TREE.strip("\n").splitlines())
        raise DatasetError(
            f"[{self._kind}] {what}\nexpected under {self.root}:\n{tree}\nget it from {self.SOURCE}"
        )

    def _folder(self, path: Path) -> Path:
        if not path.is_dir():
            self._missing(f"there is no folder {path}")
        return path

    def _listed(self, *parts: str) -> Path:
        """The path of a file that a table of the data set names; it must lie inside the root."""
        return inside(self.root, *parts)

    def _file(self, path: Path) -> Path:
        if not path.is_file():
            self._missing(f"there is no file {path}")
        return path
