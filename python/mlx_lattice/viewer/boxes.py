"""Boxes in pictures: their edges and their headings as points, colored by class and score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..core._checks import names, numpy_array, positive, wrong_type
from ..io.cloud import PointCloud

if TYPE_CHECKING:
    from ..core.types import ArrayLike
    from .scene import ClassName, Panel

_CORNERS = np.array([[x, y, z] for z in (-1, 1) for x, y in ((1, 1), (-1, 1), (-1, -1), (1, -1))])
_EDGES = [
    (a, b) for a in range(8) for b in range(a) if np.abs(_CORNERS[a] - _CORNERS[b]).sum() == 2
]


def _rows(who: str, boxes: ArrayLike) -> NDArray[np.float64]:
    """Boxes (N, 7), also of detectors that give velocities after the seven numbers."""
    rows = np.asarray(numpy_array(who, "boxes", boxes), np.float64)
    if not rows.size:
        return np.zeros((0, 7))
    if rows.ndim != 2 or rows.shape[1] < 7:
        raise ValueError(f"[{who}] boxes must have shape (N, 7), got {rows.shape}")
    if not np.isfinite(rows[:, :7]).all():
        raise ValueError(f"[{who}] boxes must be finite numbers")
    return rows


def _per_box(
    name: str, values: ArrayLike | None, count: int, dtype: type[np.generic]
) -> NDArray[np.generic]:
    """One value for each box; 1 where none are given."""
    if values is None:
        return np.ones(count, dtype)
    made = numpy_array("with_boxes", name, values)
    if made.shape != (count,):
        raise ValueError(
            f"[with_boxes] {name} must have one value for each of {count} boxes, got {made.shape}"
        )
    return made.astype(dtype)


def box_corners(boxes: ArrayLike) -> NDArray[np.float64]:
    """(N, 8, 3) corners of boxes (N, 7): four at the bottom, four above them.

    >>> from mlx_lattice.viewer.boxes import box_corners
    >>> box_corners([[0.0, 0, 0, 4, 2, 2, 0]])[0, 0].tolist()
    [2.0, 1.0, -1.0]
    """
    rows = _rows("box_corners", boxes)
    corners = _CORNERS[None] * rows[:, None, 3:6] / 2
    c, s = np.cos(rows[:, 6])[:, None], np.sin(rows[:, 6])[:, None]
    x, y = corners[..., 0] * c - corners[..., 1] * s, corners[..., 0] * s + corners[..., 1] * c
    return np.stack([x, y, corners[..., 2]], -1) + rows[:, None, :3]


def _lines(box: NDArray[np.float64], corners: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ends (L, 2, 3): the edges, and from the center of the top through the front."""
    ends = [corners[[a, b]] for a, b in _EDGES]
    ahead = np.array([np.cos(box[6]), np.sin(box[6]), 0])
    top = box[:3] + [0, 0, box[5] / 2]
    ends.append(np.stack([top, top + ahead * (box[3] / 2 + 1)]))
    return np.stack(ends)


def with_boxes(
    cloud: PointCloud | ArrayLike,
    boxes: ArrayLike,
    labels: ArrayLike | None = None,
    scores: ArrayLike | None = None,
    *,
    step: float = 0.05,
) -> PointCloud:
    """A cloud with boxes drawn into it: one point each `step` along the edges and the heading.

    Args:
        cloud: A `PointCloud` or positions (N, 3).
        boxes: (M, 7): x, y, z, dx, dy, dz, heading.
        labels: (M,) class numbers from 1; by default 1. Points of the cloud have the class 0.
        scores: (M,); by default 1. Points of the cloud have the score 0.
        step: Distance of the points in the unit of the cloud.

    Returns:
        A `PointCloud` with the columns `box` (class) and `score`, and those of the cloud that are
        numbers, with 0 on the boxes. `viewer.write(path, drawn, color="box")` shows the classes.
    """
    scan = (
        cloud
        if isinstance(cloud, PointCloud)
        else PointCloud(numpy_array("with_boxes", "cloud", cloud))
    )
    step = positive("with_boxes", "step", step)
    rows = _rows("with_boxes", boxes)[:, :7]
    kinds = _per_box("labels", labels, len(rows), np.int32)
    values = _per_box("scores", scores, len(rows), np.float32)
    points, owner = [], []
    for i, (box, corners) in enumerate(zip(rows, box_corners(rows))):
        for a, b in _lines(box, corners):
            n = int(np.clip(np.linalg.norm(b - a) / step, 1, 2000)) + 1
            points.append(a + (b - a) * np.linspace(0, 1, n)[:, None])
            owner.append(np.full(n, i))
    drawn = np.concatenate(points) if points else np.zeros((0, 3))
    who = np.concatenate(owner).astype(int) if owner else np.zeros(0, int)
    columns = {
        name: np.concatenate([column, np.zeros((len(drawn), *column.shape[1:]), column.dtype)])
        for name, column in scan.columns.items()
    }
    columns["box"] = np.concatenate([np.zeros(len(scan), np.int32), kinds[who]])
    columns["score"] = np.concatenate([np.zeros(len(scan), np.float32), values[who]])
    return PointCloud(np.concatenate([scan.points, drawn.astype(scan.points.dtype)]), columns)


def box_classes(classes: Sequence[str]) -> dict[int, ClassName]:
    """Names and colors of the layer `box`, for the option `classes` of `write` and `page`.

    The scan is gray, so that boxes stand out; class i + 1 has the name classes[i].

    >>> from mlx_lattice import viewer
    >>> viewer.box_classes(["Car"])
    {0: ('scan', (140, 148, 160)), 1: ('Car', (230, 159, 0))}
    """
    from .scene import class_color

    found = names("box_classes", "classes", classes)
    made: dict[int, ClassName] = {0: ("scan", (140, 148, 160))}
    return made | {i: (name, class_color(i)) for i, name in enumerate(found, 1)}


def box_panel(
    cloud: PointCloud | ArrayLike,
    boxes: ArrayLike,
    labels: ArrayLike | None = None,
    scores: ArrayLike | None = None,
    *,
    classes: Sequence[str] = (),
    title: str = "",
) -> Panel:
    """A panel of a cloud with boxes in the colors of their classes, and their scores above them.

    Args:
        cloud, boxes, labels, scores: As for `with_boxes`. Without scores nothing is written.
        classes: Name of label i + 1, as `Settings.class_names` of a detector.
        title: The caption.

    Examples:
        >>> import numpy as np
        >>> from mlx_lattice import viewer
        >>> box = [[0.0, 0, 0, 4, 2, 2, 0]]
        >>> viewer.box_panel(np.zeros((1, 3)), box, [1], [0.87], classes=["Car"]).marks
        [(0.0, 0.0, 1.0, 'Car 0.87')]
    """
    from .scene import Panel

    drawn = with_boxes(cloud, boxes, labels, scores)
    rows, given = _rows("box_panel", boxes), names("box_panel", "classes", classes)
    kinds = _per_box("labels", labels, len(rows), np.int32)
    marks = []
    for i, (x, y, z, _, _, high) in enumerate(rows[:, :6].tolist() if scores is not None else ()):
        name = [given[kinds[i] - 1]] if 1 <= kinds[i] <= len(given) else []
        words = " ".join([*name, f"{float(np.asarray(scores)[i]):.2f}"])
        marks.append((x, y, z + high / 2, words))
    return Panel(drawn, title, "box", marks)


def compare_boxes(
    cloud: PointCloud | ArrayLike,
    truth: tuple[ArrayLike, ArrayLike],
    found: tuple[ArrayLike, ArrayLike, ArrayLike],
    *,
    classes: Sequence[str] = (),
) -> Sequence[Panel]:
    """Two panels of one cloud: the boxes that were found, with their scores, and those that are
    true.

    truth: (boxes, labels); found: (boxes, labels, scores); classes: names as for `box_panel`.
    """
    for name, value, count in (("truth", truth, 2), ("found", found, 3)):
        if not isinstance(value, (tuple, list)) or len(value) != count:
            wrong_type("compare_boxes", name, value, f"{count} arrays")
    return [
        box_panel(cloud, *found, classes=classes, title="found"),
        box_panel(cloud, *truth, classes=classes, title="truth"),
    ]
