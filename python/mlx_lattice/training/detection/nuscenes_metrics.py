"""Detection scores of nuScenes: mean average precision, errors of the hits, and NDS.

Caesar et al., "nuScenes: A multimodal dataset for autonomous driving", CVPR 2020.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...core._checks import instance, names, numpy_array

Floats = NDArray[np.float64]
Columns = Mapping[str, "NDArray[np.generic]"]

CLASSES = (
    "car", "truck", "bus", "trailer", "construction_vehicle", "pedestrian", "motorcycle",
    "bicycle", "traffic_cone", "barrier",
)  # fmt: skip
CLASS_RANGE = {
    "car": 50, "truck": 50, "bus": 50, "trailer": 50, "construction_vehicle": 50,
    "pedestrian": 40, "motorcycle": 40, "bicycle": 40, "traffic_cone": 30, "barrier": 30,
}  # fmt: skip
DISTANCES = (0.5, 1.0, 2.0, 4.0)
ERRORS = ("trans_err", "scale_err", "orient_err", "vel_err", "attr_err")
_TP_DISTANCE = 2.0
_RECALL = np.linspace(0, 1, 101)
_FIRST = 11  # index of the first recall above the least one, 0.1
_NOT_ASKED = {"traffic_cone": ("orient_err", "vel_err", "attr_err"),
              "barrier": ("vel_err", "attr_err")}  # fmt: skip
_MOVING = 0.2  # meters per second
# By class: the attribute of what moves, of what stands, and the most frequent one of the data set.
_VEHICLE = ("vehicle.moving", "", "vehicle.parked")
_CYCLE = ("cycle.with_rider", "", "cycle.without_rider")
_ATTRIBUTES = {
    **dict.fromkeys(("car", "truck", "trailer", "construction_vehicle"), _VEHICLE),
    "bus": ("vehicle.moving", "vehicle.stopped", "vehicle.moving"),
    **dict.fromkeys(("motorcycle", "bicycle"), _CYCLE),
    "pedestrian": ("", "pedestrian.standing", "pedestrian.moving"),
}


@dataclass(frozen=True)
class NuScenesScores:
    """`ap` (class, distance), `errors_per_class` (class, 5), `errors` (5,) in the order of ERRORS.

    `mean_ap` is the mean of `ap`; `nds` is (5 mean_ap + sum of max(0, 1 - error)) / 10.
    """

    classes: tuple[str, ...]
    ap: Floats
    errors_per_class: Floats
    errors: Floats
    mean_ap: float
    nds: float

    def __str__(self) -> str:
        lines = [f"mAP {self.mean_ap:.4f}  NDS {self.nds:.4f}"]
        lines += [f"{name:10} {value:.4f}" for name, value in zip(ERRORS, self.errors)]
        return "\n".join(lines)


def nuscenes_metrics(
    truth: Columns, found: Columns, classes: Sequence[str] = CLASSES
) -> NuScenesScores:
    """The scores of detections against ground truth, both as columns with one row per box.

    Boxes that are out of range or hold no points are removed by the caller; `in_range` does it.

    Args:
        truth: "sample", "class" (a number of `classes`), "translation" (N, 3), "size_wlh" (N, 3),
            "yaw", "velocity" (N, 2) with NaN where it is not known, "attribute" ("" if none).
        found: The same and "score".
        classes: Their names. "barrier" and "traffic_cone" are not asked for some errors.

    Raises:
        ValueError: A column is missing or has another number of rows.
    """
    classes = names("nuscenes_metrics", "classes", classes)
    truth, found = _checked("truth", truth, ()), _checked("found", found, ("score",))
    ap = np.zeros((len(classes), len(DISTANCES)))
    errors = np.zeros((len(classes), len(ERRORS)))
    for c, name in enumerate(classes):
        t, d = _class_rows(truth, c), _class_rows(found, c)
        for i, distance in enumerate(DISTANCES):
            curve = _curve(t, d, distance, name)
            ap[c, i] = _average_precision(curve)
            if distance == _TP_DISTANCE:
                errors[c] = _true_positive_errors(curve, name)
    means = np.array([_mean(errors[:, e]) for e in range(len(ERRORS))])
    mean_ap = float(ap.mean())
    nds = (5 * mean_ap + float(np.clip(1 - means, 0, None).sum())) / 10
    return NuScenesScores(tuple(classes), ap, errors, means, mean_ap, nds)


def in_range(columns: Columns, ego: Floats, classes: Sequence[str] = CLASSES) -> NDArray[np.bool_]:
    """Which boxes lie nearer to the vehicle than the range of their class.

    Args:
        columns: "class" and "translation", as for `nuscenes_metrics`.
        ego: (N, 2): x, y of the vehicle for each row, in the frame of the boxes.
        classes: Their names; each must be one of nuScenes.

    >>> import numpy as np
    >>> from mlx_lattice.training.detection import in_range
    >>> rows = {"class": np.array([0, 8]), "translation": np.array([[45.0, 0, 0], [45, 0, 0]])}
    >>> in_range(rows, np.zeros((2, 2))).tolist()
    [True, False]
    """
    who = "in_range"
    instance(who, "columns", columns, Mapping, "columns by name")
    ranges = np.array([CLASS_RANGE.get(name, np.nan) for name in names(who, "classes", classes)])
    missing = [name for name in ("class", "translation") if name not in columns]
    if missing or np.isnan(ranges).any():
        raise ValueError(
            f"[{who}] columns lacks {', '.join(missing)}"
            if missing
            else f"[{who}] classes must be some of {', '.join(CLASS_RANGE)}, got {list(classes)}"
        )
    kinds = numpy_array(who, "class", columns["class"], "integers (N,)", "iu")
    place = np.asarray(numpy_array(who, "translation", columns["translation"]), np.float64)
    ego = np.asarray(numpy_array(who, "ego", ego), np.float64)
    if kinds.ndim != 1 or place.shape != (len(kinds), 3) or ego.shape != (len(kinds), 2):
        raise ValueError(
            f"[{who}] class, translation and ego must have shapes (N,), (N, 3) and (N, 2), got "
            f"{kinds.shape}, {place.shape} and {ego.shape}"
        )
    if kinds.size and not (kinds.min() >= 0 and kinds.max() < len(ranges)):
        raise ValueError(f"[{who}] class must be in 0..{len(ranges) - 1}")
    return np.asarray(np.linalg.norm(place[:, :2] - ego, axis=1) < ranges[kinds])


def nuscenes_attributes(classes: Sequence[str], velocities: Floats) -> NDArray[np.str_]:
    """The attribute of each found box by its class and velocity (N, 2), for `nuscenes_metrics`.

    Faster than 0.2 m/s, vehicles are moving and cycles have a rider. Slower, people are standing
    and buses have stopped. Otherwise a box has the most frequent attribute of its class, cones and
    barriers have "".

    >>> from mlx_lattice.training.detection import nuscenes_attributes
    >>> nuscenes_attributes(["car", "car", "barrier"], [[3, 0], [0, 0], [0, 0]]).tolist()
    ['vehicle.moving', 'vehicle.parked', '']
    """
    who = "nuscenes_attributes"
    kinds = names(who, "classes", classes)
    given = np.asarray(numpy_array(who, "velocities", velocities), np.float64)
    if given.shape != (len(kinds), 2):
        raise ValueError(
            f"[{who}] velocities must have shape ({len(kinds)}, 2), one for each class name, got "
            f"{given.shape}"
        )
    made = []
    for name, velocity in zip(kinds, given):
        moving, standing, frequent = _ATTRIBUTES.get(name, ("", "", ""))
        made.append((moving if np.hypot(*velocity) > _MOVING else standing) or frequent)
    return np.array(made, dtype=str)


def _checked(what: str, columns: Columns, more: Sequence[str]) -> dict[str, NDArray[np.generic]]:
    needed = ("sample", "class", "translation", "size_wlh", "yaw", "velocity", "attribute", *more)
    instance("nuscenes_metrics", what, columns, Mapping, "columns by name")
    missing = [name for name in needed if name not in columns]
    if missing:
        raise ValueError(f"[nuscenes_metrics] {what} lacks the columns {', '.join(missing)}")
    made = {name: np.asarray(columns[name]) for name in needed}
    n = len(made["sample"])
    for name, column in made.items():
        if len(column) != n:
            raise ValueError(
                f"[nuscenes_metrics] {what}[{name!r}] has {len(column)} rows, 'sample' has {n}"
            )
    return made


def _class_rows(columns: dict[str, NDArray[np.generic]], c: int) -> dict[str, Floats]:
    keep = columns["class"] == c
    return {name: column[keep] for name, column in columns.items()}


@dataclass(frozen=True)
class _Curve:
    """At 101 recalls: precision, score, and the running mean of each error."""

    precision: Floats
    score: Floats
    errors: dict[str, Floats]


def _curve(t: dict[str, Floats], d: dict[str, Floats], distance: float, name: str) -> _Curve | None:
    n = len(t["sample"])
    order = np.argsort(d["score"], kind="stable")[::-1]  # of equal scores the later box first
    free = np.ones(n, bool)
    is_hit = np.zeros(len(order), bool)
    pairs = []
    places = {s: np.flatnonzero(t["sample"] == s) for s in np.unique(t["sample"])}
    for i, row in enumerate(order):
        near = places.get(d["sample"][row], np.zeros(0, int))
        near = near[free[near]]
        if not len(near):
            continue
        gap = t["translation"][near, :2] - d["translation"][row, :2]
        away = np.sqrt((gap**2).sum(1))
        j = int(away.argmin())
        if away[j] < distance:
            free[near[j]] = False
            is_hit[i] = True
            pairs.append((near[j], row))
    if n == 0 or not pairs:
        return None
    tp = np.cumsum(is_hit)
    recall, precision = tp / n, tp / np.arange(1, len(order) + 1)
    score = np.interp(_RECALL, recall, d["score"][order], right=0)
    hits = d["score"][order][is_hit]
    errors = {}
    for key, values in _errors(t, d, np.array(pairs), name).items():
        mean = _running_mean(values)
        errors[key] = np.interp(score[::-1], hits[::-1], mean[::-1])[::-1]
    return _Curve(np.interp(_RECALL, recall, precision, right=0), score, errors)


def _errors(
    t: dict[str, Floats], d: dict[str, Floats], pairs: NDArray[np.int64], name: str
) -> dict[str, Floats]:
    a = {key: column[pairs[:, 0]] for key, column in t.items()}
    b = {key: column[pairs[:, 1]] for key, column in d.items()}
    shared = np.prod(np.minimum(a["size_wlh"], b["size_wlh"]), 1)
    whole = np.prod(a["size_wlh"], 1) + np.prod(b["size_wlh"], 1) - shared
    period = np.pi if name == "barrier" else 2 * np.pi
    turn = (a["yaw"] - b["yaw"] + period / 2) % period - period / 2
    same = (a["attribute"] == b["attribute"]).astype(np.float64)
    return {
        "trans_err": np.sqrt(((a["translation"] - b["translation"])[:, :2] ** 2).sum(1)),
        "scale_err": 1 - shared / whole,
        "orient_err": np.abs(turn),
        "vel_err": np.sqrt(((a["velocity"] - b["velocity"]) ** 2).sum(1)),
        "attr_err": np.where(a["attribute"] == "", np.nan, 1 - same),
    }


def _running_mean(values: Floats) -> Floats:
    known = ~np.isnan(values)
    if not known.any():
        return np.ones(len(values))
    count = np.cumsum(known)
    total = np.cumsum(np.where(known, values, 0))
    return np.divide(total, count, out=np.zeros(len(values)), where=count > 0)


def _average_precision(curve: _Curve | None) -> float:
    if curve is None:
        return 0.0
    return float(np.clip(curve.precision[_FIRST:] - 0.1, 0, None).mean() / 0.9)


def _true_positive_errors(curve: _Curve | None, name: str) -> Floats:
    made = np.ones(len(ERRORS))
    if curve is not None:
        reached = np.flatnonzero(curve.score)
        last = int(reached[-1]) if len(reached) else 0
        if last >= _FIRST:
            made = np.array([curve.errors[key][_FIRST : last + 1].mean() for key in ERRORS])
    made[[ERRORS.index(key) for key in _NOT_ASKED.get(name, ())]] = np.nan
    return made


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else 1.0
