"""nuScenes-lidarseg (Fong et al., 2022): 32-beam scans, 16 classes; the data set's JSON tables."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ..core import _checks
from ..io import PointCloud, read_nuscenes
from .base import Dataset
from .label_tables import NUSCENES, NUSCENES_MINI_VALIDATION, NUSCENES_VALIDATION

PIECE = 1 << 20  # characters of a table in memory at once; sample_data.json has a gigabyte


class NuScenes(Dataset):
    """nuScenes-lidarseg: key frames of a 32-beam LiDAR with 16 classes.

    Args:
        root: Folder of the data set as downloaded; the page Data sets shows its tree.
        split: "train", "valid" or "test"; a test split has no labels.
        version: v1.0-trainval, v1.0-test or v1.0-mini; by default by the split.
        panoptic: Whether labels come from the panoptic files, with the column `instance`.

    Raises:
        DatasetError: Something is missing; the message shows the expected tree.
    """

    TREE = """
v1.0-trainval/scene.json sample.json sample_data.json lidarseg.json
samples/LIDAR_TOP/NAME.pcd.bin                  x y z intensity ring, float32
lidarseg/v1.0-trainval/TOKEN_lidarseg.bin       uint8 per point
panoptic/v1.0-trainval/TOKEN_panoptic.npz       with panoptic=True, and panoptic.json
"""
    SOURCE = "nuscenes.org/nuscenes (full data set v1.0 and nuScenes-lidarseg)"
    table = NUSCENES

    def __init__(
        self,
        root: str | os.PathLike[str],
        split: str = "train",
        *,
        version: str | None = None,
        panoptic: bool = False,
    ) -> None:
        super().__init__(root, split)
        if version is not None:
            _checks.instance(self, "version", version, str, "the name of a version")
        self.version = version or ("v1.0-test" if split == "test" else "v1.0-trainval")
        self._panoptic = panoptic
        tables = self._folder(self.root / self.version)
        scenes = self._scenes(tables)
        samples = {
            row["token"]
            for row in rows_of(self._file(tables / "sample.json"), "token", "scene_token")
            if row["scene_token"] in scenes
        }
        labels = {}
        if self.labeled:
            kind = "panoptic" if panoptic else "lidarseg"
            listed = rows_of(self._file(tables / f"{kind}.json"), "sample_data_token", "filename")
            labels = {row["sample_data_token"]: self._listed(row["filename"]) for row in listed}
        self._paths = []
        self._labels: list[Path] = []
        self._take(tables, samples, labels)

    def _scenes(self, tables: Path) -> set[str]:
        held = NUSCENES_MINI_VALIDATION if self.version == "v1.0-mini" else NUSCENES_VALIDATION
        chosen = set()
        for row in rows_of(self._file(tables / "scene.json"), "token", "name"):
            number = int(row["name"].removeprefix("scene-"))
            if self.split == "test" or (number in held) == (self.split == "valid"):
                chosen.add(row["token"])
        if not chosen:
            self._missing(f"{tables / 'scene.json'} has no scene of the split {self.split}")
        return chosen

    def _take(self, tables: Path, samples: set[str], labels: dict[str, Path]) -> None:
        fields = ("token", "sample_token", "filename", "is_key_frame")
        found = []
        for row in rows_of(self._file(tables / "sample_data.json"), *fields):
            lidar = row["is_key_frame"] and row["filename"].startswith("samples/LIDAR_TOP/")
            if lidar and row["sample_token"] in samples:
                found.append((row["filename"], row["token"]))
        for filename, token in sorted(found):
            if self.labeled:
                if token not in labels:
                    self._missing(f"no labels of {filename} (sample_data {token}) are listed")
                self._labels.append(self._file(labels[token]))
            self._paths.append(self._file(self._listed(filename)))
            self._names.append(token)
        if not found:
            self._missing(f"{tables / 'sample_data.json'} lists no scan of samples/LIDAR_TOP")

    def _files(self, i: int) -> list[Path]:
        return [self._paths[i], *self._labels[i : i + 1]]

    def _read(self, i: int) -> PointCloud:
        if not self.labeled:
            return read_nuscenes(self._paths[i])
        kind = "panoptic" if self._panoptic else "labels"
        cloud = read_nuscenes(self._paths[i], **{kind: self._labels[i]})
        classes = self.table.indices(cloud.columns["label"], str(self._labels[i]))
        return PointCloud(cloud.points, {**cloud.columns, "label": classes})

    def prediction_path(self, i: int) -> str:
        """Where the benchmark expects the prediction of an item."""
        kind = {"valid": "val"}.get(self.split, self.split)
        return f"lidarseg/{kind}/{self.name(i)}_lidarseg.bin"


def _is_number(value: object) -> bool:
    """Whether it is a number, or a list of numbers."""
    if isinstance(value, list):
        return all(isinstance(v, (int, float)) for v in value)
    return isinstance(value, (int, float))


def rows_of(path: Path, *fields: str, numbers: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Rows of a JSON table, an array of objects, one at a time; each must have the fields.

    Fields are texts, or numbers and lists of them where `numbers` names them.
    """
    decoder, text, number = json.JSONDecoder(), "", 0

    def fail(what: str) -> NoReturn:
        raise ValueError(f"{path}: {what} after row {number}; expected an array of objects")

    with open(path, encoding="utf-8") as file:
        text = file.read(PIECE).lstrip()
        if not text.startswith("["):
            fail(f"begins with {text[:20]!r}")
        text = text[1:]
        while True:
            text = text.lstrip(", \t\r\n")
            if text.startswith("]"):
                return
            try:
                row, end = decoder.raw_decode(text)
            except ValueError:
                more = file.read(PIECE)
                if not more:
                    fail("the text ends or is broken")
                text += more
                continue
            text, number = text[end:], number + 1
            if not isinstance(row, dict) or any(
                not isinstance(row.get(f), (str, bool)) for f in fields
            ):
                fail(f"a row without {', '.join(fields)} as texts")
            if any(not _is_number(row.get(f)) for f in numbers):
                fail(f"a row without {', '.join(numbers)} as numbers")
            yield {f: row[f] for f in (*fields, *numbers)}
