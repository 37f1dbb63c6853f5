"""Single objects: ModelNet40 (classes of meshes) and ShapeNetPart (parts of 16 categories)."""

from __future__ import annotations

import json
import os

import numpy as np

from ..core import _checks
from ..io import PointCloud, read_surface, read_text
from .base import Dataset
from .label_tables import MODELNET40_CLASSES, SHAPENET_PARTS, LabelTable


class ModelNet40(Dataset):
    """ModelNet40 (Wu et al., 2015): objects of 40 categories, as points of their surfaces.

    `targets[i]` is the class index of an object; `meta["target"]` of a cloud is the same number.

    Args:
        root: Folder of the data set as downloaded; the page Data sets shows its tree.
        split: "train" or "test".
        samples: Number of points that are drawn from each surface.
        seed: Seed of what is drawn.

    Raises:
        DatasetError: Something is missing; the message shows the expected tree.
    """

    TREE = """
airplane/train/airplane_0001.off
airplane/test/airplane_0627.off
...
xbox/test/...
"""
    SOURCE = "modelnet.cs.princeton.edu (ModelNet40.zip, 2 GB)"
    SPLITS = ("train", "test")
    table = LabelTable(
        tuple(MODELNET40_CLASSES), {i: i for i in range(40)}, tuple(range(len(MODELNET40_CLASSES)))
    )
    labeled = True  # the test split has labels, too

    def __init__(
        self,
        root: str | os.PathLike[str],
        split: str = "train",
        *,
        samples: int = 1024,
        seed: int = 0,
    ) -> None:
        super().__init__(root, split)
        self._samples = _checks.integer(self, "samples", samples)
        self._seed = _checks.integer(self, "seed", seed, 0)
        self._paths = []
        self.targets: list[int] = []
        for index, name in enumerate(MODELNET40_CLASSES):
            found = sorted(self._folder(self.root / name / split).glob("*.off"))
            if not found:
                self._missing(f"{self.root / name / split} holds no .off file")
            self._paths += found
            self._names += [f"{name}/{p.stem}" for p in found]
            self.targets += [index] * len(found)

    def _read(self, i: int) -> PointCloud:
        cloud = read_surface(self._paths[i], "off", self._samples, [self._seed, i])
        return PointCloud(
            cloud.points, {"normal": cloud.columns["normal"]}, {"target": self.targets[i]}
        )


class ShapeNetPart(Dataset):
    """ShapeNetPart (Yi et al., 2016): objects of 16 categories with one of 50 parts per point.

    `targets[i]` is the category of an object, `parts[category]` the range of its part labels.

    Args:
        root: Folder of the data set as downloaded; the page Data sets shows its tree.
        split: "train", "valid" or "test".

    Raises:
        DatasetError: Something is missing; the message shows the expected tree.

    Examples:
        >>> from mlx_lattice import datasets
        >>> data = datasets.ShapeNetPart("shapenetpart", "train")  # the folder as downloaded
        >>> len(data.classes), data[0].columns["normal"].shape[1]
        (50, 3)
    """

    TREE = """
train_test_split/shuffled_train_file_list.json   also val and test: "shape_data/SYNSET/NAME"
02691156/NAME.txt                                x y z nx ny nz part per line
...
04379243/...
"""
    SOURCE = "shapenet.cs.stanford.edu (shapenetcore_partanno_segmentation_benchmark_v0_normal)"
    categories = tuple(name for _, name, _ in SHAPENET_PARTS)
    labeled = True

    def __init__(self, root: str | os.PathLike[str], split: str = "train") -> None:
        super().__init__(root, split)
        names, self.parts, first = [], [], 0
        for _, name, count in SHAPENET_PARTS:
            self.parts.append(range(first, first + count))
            names += [f"{name} {k}" for k in range(count)]
            first += count
        self.table = LabelTable(tuple(names), {i: i for i in range(first)}, tuple(range(first)))
        synsets = [synset for synset, _, _ in SHAPENET_PARTS]
        listed = {"train": "train", "valid": "val", "test": "test"}[split]
        path = self._file(self.root / "train_test_split" / f"shuffled_{listed}_file_list.json")
        try:
            entries = [str(e).split("/")[-2:] for e in json.loads(path.read_text(encoding="utf-8"))]
            self.targets = [synsets.index(synset) for synset, _ in entries]
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"{path}: expected a list of shape_data/SYNSET/NAME: {error}"
            ) from None
        self._paths = [self._file(self._listed(s, f"{name}.txt")) for s, name in entries]
        self._names = ["/".join(entry) for entry in entries]

    def _read(self, i: int) -> PointCloud:
        path, parts = self._paths[i], self.parts[self.targets[i]]
        cloud = read_text(path, ("x", "y", "z", "nx", "ny", "nz", "label"))
        label = cloud.columns["label"].astype(np.int32)
        if label.size and not parts.start <= label.min() <= label.max() < parts.stop:
            raise ValueError(
                f"{path}: parts {label.min()}..{label.max()}, "
                f"expected {parts.start}..{parts.stop - 1}"
            )
        columns = {"normal": cloud.columns["normal"].astype(np.float32), "label": label}
        return PointCloud(cloud.points.astype(np.float32), columns, {"target": self.targets[i]})
