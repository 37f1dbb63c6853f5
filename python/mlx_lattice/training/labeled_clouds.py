"""The pipeline of labeled clouds: their classes, their names, and whether their columns agree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ..core import _checks
from ..io import PointCloud
from ..io.cloud import labels_of
from .voxel_pipeline import VoxelPipeline, scaled

MOST_CLASSES = 256
MOST_RATIO = 20  # largest ratio of the sizes of one column in two clouds
LARGEST = 100.0  # the size of a column; the other features are about 1


def pipeline_of(
    clouds: Iterable[tuple[str, PointCloud]],
    voxel: float,
    columns: Sequence[str] = (),
    label: str = "label",
    ignored: Sequence[int] = (),
    names: Sequence[str] | Mapping[int, str] | None = None,
    normalized: Sequence[str] = (),
) -> VoxelPipeline:
    """The pipeline of labeled clouds: its classes are the label values found.

    Args:
        clouds: Pairs (name, cloud).
        voxel: The side of a voxel, in units of the points.
        columns: The columns whose means become features.
        label: The column of the classes, whole numbers.
        ignored: Label values that do not count.
        names: The names of the classes, as `class_names` takes them; by default the values.
        normalized: The columns that are divided by their own size in each cloud.

    Returns:
        A `VoxelPipeline`.

    Raises:
        ValueError: A cloud lacks a column, there are not 2 to 256 classes, or the names do not fit.

    Examples:
        >>> from mlx_lattice import samples, training
        >>> yard = samples.scan()
        >>> training.pipeline_of([("a yard", yard)], 0.2, ignored=[3]).classes
        ((0, '0'), (1, '1'), (2, '2'))
    """
    columns = _checks.listed("pipeline_of", "columns", columns, "names of columns")
    listed = _checks.listed("pipeline_of", "ignored", ignored, "label values")
    ignored = [_checks.integer("pipeline_of", "ignored", v, -(2**63), 2**63) for v in listed]
    found, widths = _labels_and_widths(clouds, columns, label)
    labels = sorted(found.difference(ignored))
    if not 2 <= len(labels) <= MOST_CLASSES:
        raise ValueError(
            f"label column {label!r}: found {len(labels)} classes, expected 2 to {MOST_CLASSES}"
        )
    named = {} if names is None else class_names(names, labels)
    classes = tuple((value, named.get(value, str(value))) for value in labels)
    sizes = tuple(widths[c] for c in columns)
    ignored, normalized = tuple(ignored), tuple(normalized)
    return VoxelPipeline(
        voxel, classes, tuple(columns), sizes, label, ignored, normalized=normalized
    )


def _labels_and_widths(
    clouds: Iterable[tuple[str, PointCloud]], columns: Sequence[str], label: str
) -> tuple[set[int], dict[str, int]]:
    """The label values of all clouds, and how many values per point each column has."""
    found: set[int] = set()
    widths: dict[str, int] = {}
    for name, cloud in _pairs(clouds):
        found |= {int(v) for v in np.unique(labels_of(cloud, label, name))}
        for column in columns:
            values = _column(cloud, column, name)
            known = widths.get(column, 1)
            width = values.reshape(len(cloud), -1).shape[1] if len(cloud) else known
            if widths.setdefault(column, width) != width:
                raise ValueError(
                    f"{name}: column {column!r} has {width} values per point, "
                    f"expected {widths[column]} as in the other clouds"
                )
    return found, widths


def class_names(names: Sequence[str] | Mapping[int, str], labels: Sequence[int]) -> dict[int, str]:
    """The names of classes by label value.

    Args:
        names: Names by label value; or a list. A list names the labels 0, 1, 2, ... if all labels
            are among them, else the labels that were found, in ascending order.
        labels: The label values that were found.

    Raises:
        ValueError: A list has another number of names than there are labels.

    Examples:
        >>> from mlx_lattice.training.labeled_clouds import class_names
        >>> class_names(["road", "car", "tree"], [0, 2])
        {0: 'road', 1: 'car', 2: 'tree'}
        >>> class_names(["road", "car"], [2, 17])
        {2: 'road', 17: 'car'}
    """
    if isinstance(names, Mapping):
        return dict(names)
    found = sorted(labels)
    if not found or (found[0] >= 0 and found[-1] < len(names)):
        return dict(enumerate(names))
    if len(names) != len(found):
        example = ",".join(f"{value}={name}" for value, name in zip(found, names))
        raise ValueError(
            f"found {len(names)} names of classes, expected {len(found)} for the labels {found}; "
            f"names by label are also possible: {example},..."
        )
    return dict(zip(found, names))


def uneven_columns(clouds: Iterable[tuple[str, PointCloud]], columns: Sequence[str]) -> list[str]:
    """One sentence for each column that has other units in some clouds, or large numbers.

    The size of a column is the 99th percentile of its absolute values, with 8 and 16 bits as 0..1.

    Examples:
        >>> import numpy as np
        >>> from mlx_lattice import io
        >>> from mlx_lattice.training.labeled_clouds import uneven_columns
        >>> a, b = (io.PointCloud(np.zeros((9, 3)), {"i": np.full(9, v)}) for v in (0.5, 4000.0))
        >>> uneven_columns([("a.npz", a), ("b.npz", b)], ["i"])
        ['column i reaches 4000 in b.npz and 0.5 in a.npz']
    """
    found = []
    pairs = [(name, cloud) for name, cloud in clouds if len(cloud)]
    for column in columns:
        sizes = {}
        for name, cloud in pairs:
            width = cloud.columns[column].reshape(len(cloud), -1).shape[1]
            sizes[name] = float(np.percentile(np.abs(scaled(cloud, column, width, name)), 99))
        if not sizes:
            continue
        most, least = max(sizes, key=lambda n: sizes[n]), min(sizes, key=lambda n: sizes[n])
        text = f"column {column} reaches {sizes[most]:.6g} in {most}"
        if sizes[most] > MOST_RATIO * sizes[least]:
            found.append(f"{text} and {sizes[least]:.6g} in {least}")
        elif sizes[most] > LARGEST:
            found.append(f"{text}; the other features are about 1")
    return found


def _pairs(clouds: Iterable[tuple[str, PointCloud]]) -> list[tuple[str, PointCloud]]:
    expected = "pairs (name, PointCloud)"
    pairs = _checks.listed("pipeline_of", "clouds", clouds, expected)
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[1], PointCloud):
            _checks.wrong_type("pipeline_of", "clouds", pair, expected)
    return pairs


def _column(cloud: PointCloud, column: str, name: str) -> np.ndarray:
    if column not in cloud.columns:
        found = ", ".join(cloud.columns) or "none"
        raise ValueError(f"{name}: no column {column!r}; found {found}")
    return cloud.columns[column]
