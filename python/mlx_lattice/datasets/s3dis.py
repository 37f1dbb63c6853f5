"""S3DIS (Armeni et al., CVPR 2016): rooms of six areas as text, 13 classes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from ..core import _checks
from ..io import PointCloud, read_text
from .base import Dataset
from .label_tables import S3DIS_CLASSES, LabelTable

COLUMNS = ("x", "y", "z", "red", "green", "blue")


class S3DIS(Dataset):
    """S3DIS (Armeni et al., 2016): rooms of six areas with colors and 13 classes.

    Args:
        root: Folder of the data set as downloaded; the page Data sets shows its tree.
        split: "valid" is the area `held`, "train" are the others.
        held: Number of the area that is held out, by convention 5.

    Raises:
        DatasetError: Something is missing; the message shows the expected tree.
        TypeError, ValueError: `held` is no area.
    """

    TREE = """
Area_1/conferenceRoom_1/Annotations/chair_1.txt   x y z r g b per line, one file per object
...
Area_6/...
"""
    SOURCE = "cvg-data.inf.ethz.ch/s3dis (Stanford3dDataset_v1.2_Aligned_Version)"
    SPLITS = ("train", "valid")
    table = LabelTable(
        tuple(S3DIS_CLASSES), {i: i for i in range(13)}, tuple(range(len(S3DIS_CLASSES)))
    )

    def __init__(
        self, root: str | os.PathLike[str], split: str = "train", *, held: int = 5
    ) -> None:
        super().__init__(root, split)
        held = _checks.integer(self, "held", held, 1, 6)
        self._paths = []
        for area in [held] if split == "valid" else [a for a in range(1, 7) if a != held]:
            folder = self._folder(self.root / f"Area_{area}")
            rooms = sorted(p for p in folder.iterdir() if (p / "Annotations").is_dir())
            if not rooms:
                self._missing(f"{folder} holds no room with a folder Annotations")
            self._paths += rooms
            self._names += [f"{folder.name}/{room.name}" for room in rooms]

    def _files(self, i: int) -> list[Path]:
        found = sorted((self._paths[i] / "Annotations").glob("*.txt"))
        if not found:
            self._missing(f"{self._paths[i] / 'Annotations'} holds no .txt file")
        return found

    def _read(self, i: int) -> PointCloud:
        clouds, labels, objects = [], [], []
        for number, path in enumerate(self._files(i), 1):
            name = path.stem.split("_")[0]
            if name == "stairs":
                name = "clutter"
            if name not in S3DIS_CLASSES:
                raise ValueError(
                    f"{path}: class {name!r} is unknown; expected one of {', '.join(S3DIS_CLASSES)}"
                )
            cloud = read_text(path, COLUMNS)
            clouds.append(cloud)
            labels.append(np.full(len(cloud), S3DIS_CLASSES.index(name), np.int32))
            objects.append(np.full(len(cloud), number, np.int32))
        color = np.concatenate([c.columns["color"] for c in clouds])
        if color.size and (color.min() < 0 or color.max() > 255):
            raise ValueError(f"{self._paths[i]}: a color outside 0..255")
        return PointCloud(
            np.concatenate([c.points for c in clouds]).astype(np.float32),
            {
                "color": color.astype(np.uint8),
                "label": np.concatenate(labels),
                "instance": np.concatenate(objects),
            },
        )
