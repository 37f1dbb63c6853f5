"""Class names and learning maps of the data sets, as tables.

A learning map joins the ids of the files to class indices 0 .. C - 1; -1 is a class that does not
count. An id that the table does not have is an error: files of another data set are noticed.
"""

from dataclasses import dataclass

import numpy as np

from ..core import _checks

MOST_ID = 1 << 24  # a table has an entry for every number up to the largest id


@dataclass(frozen=True)
class LabelTable:
    """Joins the ids that files have to class indices, and class indices to ids in predictions.

    Args:
        names: The names of the classes, by index.
        ids: The class index of each id that the files have; -1 does not count.
        written: The id that a prediction file has for each class.
        strict: Whether an id that is not in `ids` is an error; otherwise it does not count.

    Examples:
        >>> import numpy as np
        >>> from mlx_lattice import datasets
        >>> table = datasets.LabelTable(("road", "car"), {40: 0, 10: 1, 0: -1}, (40, 10))
        >>> table.indices(np.array([10, 0, 40]), "a.label").tolist()
        [1, -1, 0]
        >>> table.values(np.array([1, 0])).tolist()
        [10, 40]
    """

    names: tuple[str, ...]
    ids: dict[int, int]
    written: tuple[int, ...]
    strict: bool = True

    def __post_init__(self) -> None:
        _checks.instance(self, "names", self.names, tuple, "names of classes, a tuple")
        _checks.instance(self, "written", self.written, tuple, "one id per class, a tuple")
        _checks.instance(self, "ids", self.ids, dict, "class indices by id")
        for value in self.ids:
            _checks.integer(self, "ids", value, -MOST_ID, MOST_ID)
        if not self.ids:
            _checks.wrong_value(self, "ids", self.ids, "at least one id")

    def indices(self, values: np.ndarray, where: str) -> np.ndarray:
        """(N,) int32 class index of each id; ValueError, which names `where`, if one is unknown."""
        low, high = min(self.ids), max(self.ids)
        lookup = np.full(high - low + 2, -2, np.int32)
        lookup[np.array(list(self.ids)) - low] = list(self.ids.values())
        ids = _checks.numpy_array("LabelTable", "values", values, "ids").astype(np.int64)
        found = lookup[np.where((ids >= low) & (ids <= high), ids - low, high - low + 1)]
        if not self.strict:
            return np.maximum(found, -1)
        if (found == -2).any():
            bad = np.unique(ids[found == -2])
            raise ValueError(
                f"{where}: label {bad[0]} is unknown; expected one of {sorted(self.ids)}"
            )
        return found

    def values(self, classes: np.ndarray) -> np.ndarray:
        """(N,) ids of class indices, as prediction files have them."""
        expected = f"class indices 0..{len(self.written) - 1}"
        index = _checks.numpy_array("LabelTable", "classes", classes, expected, "iu")
        if index.size and not 0 <= index.min() <= index.max() < len(self.written):
            _checks.wrong_value("LabelTable", "classes", classes, expected)
        return np.asarray(self.written, np.int64)[index]


def _groups(text: str, ignored: tuple[int, ...]) -> LabelTable:
    """Table of lines `name: id id ...`; the first id of a class is the one that is written."""
    names: list[str] = []
    ids, written = dict.fromkeys(ignored, -1), []
    for line in text.strip().splitlines():
        name, numbers = line.split(":")
        members = [int(n) for n in numbers.split()]
        ids |= dict.fromkeys(members, len(names))
        names.append(name.strip())
        written.append(members[0])
    return LabelTable(tuple(names), ids, tuple(written))


# Behley et al., 2019: moving objects count as their class, rare vehicles are one class.
SEMANTIC_KITTI = _groups(
    """
    car: 10 252
    bicycle: 11
    motorcycle: 15
    truck: 18 258
    other-vehicle: 20 13 16 256 257 259
    person: 30 254
    bicyclist: 31 253
    motorcyclist: 32 255
    road: 40 60
    parking: 44
    sidewalk: 48
    other-ground: 49
    building: 50
    fence: 51
    vegetation: 70
    trunk: 71
    terrain: 72
    pole: 80
    traffic-sign: 81
    """,
    ignored=(0, 1, 52, 99),
)
SEMANTIC_KITTI_SPLITS = {
    "train": (0, 1, 2, 3, 4, 5, 6, 7, 9, 10),
    "valid": (8,),
    "test": (11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21),
}

# Fong et al., 2022: 32 categories of the files, 16 of the challenge; predictions have 1 .. 16.
_NUSCENES = _groups(
    """
    barrier: 9
    bicycle: 14
    bus: 15 16
    car: 17
    construction_vehicle: 18
    motorcycle: 21
    pedestrian: 2 3 4 6
    traffic_cone: 12
    trailer: 22
    truck: 23
    driveable_surface: 24
    other_flat: 25
    sidewalk: 26
    terrain: 27
    manmade: 28
    vegetation: 30
    """,
    ignored=(0, 1, 5, 7, 8, 10, 11, 13, 19, 20, 29, 31),
)
NUSCENES = LabelTable(_NUSCENES.names, _NUSCENES.ids, tuple(range(1, 17)))

_NUSCENES_VALIDATION = """
3 12-18 35 36 38 39 92-110 221 268-278 329-332 344-346 519-524 552-565 625-627 629 630 632-638
770 771 775 777 778 780-784 794-800 802 904-917 919-931 962 963 966-969 971 972 1059-1073
"""


def _numbers(text: str) -> frozenset[int]:
    found: set[int] = set()
    for word in text.split():
        first, _, last = word.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return frozenset(found)


NUSCENES_VALIDATION = _numbers(_NUSCENES_VALIDATION)  # 150 scenes; the other 700 are learned from
NUSCENES_MINI_VALIDATION = frozenset({103, 916})

# Armeni et al., 2016. Stairs, which some rooms have, count as clutter.
S3DIS_CLASSES = [
    "ceiling",
    "floor",
    "wall",
    "beam",
    "column",
    "window",
    "door",
    "table",
    "chair",
    "sofa",
    "bookcase",
    "board",
    "clutter",
]

# Wu et al., 2015
MODELNET40_CLASSES = [
    "airplane",
    "bathtub",
    "bed",
    "bench",
    "bookshelf",
    "bottle",
    "bowl",
    "car",
    "chair",
    "cone",
    "cup",
    "curtain",
    "desk",
    "door",
    "dresser",
    "flower_pot",
    "glass_box",
    "guitar",
    "keyboard",
    "lamp",
    "laptop",
    "mantel",
    "monitor",
    "night_stand",
    "person",
    "piano",
    "plant",
    "radio",
    "range_hood",
    "sink",
    "sofa",
    "stairs",
    "stool",
    "table",
    "tent",
    "toilet",
    "tv_stand",
    "vase",
    "wardrobe",
    "xbox",
]

# Yi et al., 2016: synset, category, number of parts; part ids count through the categories.
SHAPENET_PARTS = (
    ("02691156", "Airplane", 4),
    ("02773838", "Bag", 2),
    ("02954340", "Cap", 2),
    ("02958343", "Car", 4),
    ("03001627", "Chair", 4),
    ("03261776", "Earphone", 3),
    ("03467517", "Guitar", 3),
    ("03624134", "Knife", 2),
    ("03636649", "Lamp", 4),
    ("03642806", "Laptop", 2),
    ("03790512", "Motorbike", 6),
    ("03797390", "Mug", 2),
    ("03948459", "Pistol", 3),
    ("04099429", "Rocket", 3),
    ("04225987", "Skateboard", 3),
    ("04379243", "Table", 3),
)
