"""Uses of a pretrained encoder: features of points, colors, similarity, learning from few labels.

    net = models.pretrained("sonata_small.pth")
    found = encoders.point_features(net, cloud)       # one row of features per voxel
    colors = encoders.pca_colors(found.rows)
    labels = encoders.transfer_labels(found.rows, rows, values)

Rows are those of the voxels; `found.to_points(values)` carries values of rows to the points.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

import mlx.core as mx
import mlx.nn
import numpy as np

from .core._checks import (
    finite,
    instance,
    integer,
    listed,
    numpy_array,
    positive,
    told,
    wrong_value,
)
from .models import LitePT, Model, PointTransformerV3, Sonata, Utonia, upcast
from .models._hierarchy import Hierarchy
from .training import VoxelPipeline, adamw
from .training.progress import Progress
from .transforms import EncoderPipeline, encoder_pipeline

if TYPE_CHECKING:
    from .core import SparseTensor
    from .core.types import ArrayLike
    from .io import PointCloud

__all__ = [
    "PointFeatures",
    "kmeans",
    "linear_probe",
    "packed_features",
    "pca_colors",
    "pipeline_of",
    "point_features",
    "principal_directions",
    "similarity",
    "transfer_labels",
]

Pipeline: TypeAlias = "EncoderPipeline | VoxelPipeline"
PIECE = 8192  # rows of one product: larger pieces take memory, not time


@dataclass(frozen=True, eq=False)
class PointFeatures:
    """Features of the voxels of a cloud.

    Attributes:
        rows: (M, C) float32, one row per voxel.
        inverse: (N,) the row of each point; -1 where a point has none.
    """

    rows: np.ndarray
    inverse: np.ndarray

    def __post_init__(self) -> None:
        instance(self, "rows", self.rows, np.ndarray, "a NumPy array")
        instance(self, "inverse", self.inverse, np.ndarray, "a NumPy array of row numbers")
        if self.inverse.ndim != 1 or self.inverse.dtype.kind not in "iu":
            wrong_value(self, "inverse", self.inverse, "integers of shape (N,)")

    def to_points(self, values: np.ndarray) -> np.ndarray:
        """Values (M, ...) of rows for all points (N, ...); points without a row are 0."""
        values = numpy_array("PointFeatures.to_points", "values", values)
        if values.ndim < 1 or (len(self.inverse) and max(self.inverse.max(), 0) >= len(values)):
            wrong_value("PointFeatures.to_points", "values", values, "one value for each row")
        made: np.ndarray = values[np.maximum(self.inverse, 0)]
        made[self.inverse < 0] = 0
        return made


def pipeline_of(net: Model) -> EncoderPipeline:
    """The published steps that fit a network; ValueError if none are known."""
    instance("pipeline_of", "net", net, Model, "a network of mlx_lattice.models")
    channels = net.config.get("in_channels")
    if isinstance(net, Utonia) and channels == 9:
        return encoder_pipeline("utonia")
    if isinstance(net, Sonata) and channels == 9:
        return encoder_pipeline("sonata")
    if isinstance(net, LitePT) and channels == 4:
        return encoder_pipeline("litept-lidar")
    if isinstance(net, (LitePT, PointTransformerV3)) and channels == 6:
        return encoder_pipeline("ptv3-scannet")
    raise ValueError(
        f"[point_features] pipeline: nothing is published for a {type(net).__name__} of {channels} "
        "input channels; give the steps that the network was trained with"
    )


def point_features(
    net: Model,
    cloud: PointCloud,
    pipeline: Pipeline | None = None,
    *,
    concatenate: int | None = 2,
) -> PointFeatures:
    """Features of all voxels of a cloud.

    Args:
        net: A Sonata, Utonia, LitePT or PointTransformerV3.
        pipeline: How the cloud becomes voxels; by default as published for such a network.
        concatenate: Without a decoder: at how many levels from the coarse end own features are kept
            beside those of the coarser level, None for all (`models.upcast`). With a decoder the
            features are those of its finest level.

    Raises:
        TypeError: net is none of these.
        ValueError: There is no published pipeline for it, or columns are missing.
    """
    if not isinstance(net, Hierarchy):
        raise TypeError(
            f"[point_features] net must be a Sonata, Utonia, LitePT or PointTransformerV3, found "
            f"{told(net)}"
        )
    tensor, positions, inverse = _voxels(net, cloud, pipeline)
    levels = net.encode(tensor, positions=positions)
    feats = net.decode(levels)[0].feats if "dec" in net else upcast(levels, concatenate)
    return PointFeatures(np.array(feats.astype(mx.float32)), inverse)


def _voxels(
    net: Hierarchy, cloud: PointCloud, pipeline: Pipeline | None
) -> tuple[SparseTensor, mx.array | None, np.ndarray]:
    if isinstance(pipeline, VoxelPipeline):
        scan = pipeline.scan(cloud)
        return scan.tensor, None, scan.rows
    given = (pipeline or pipeline_of(net))(cloud)
    positions = mx.array(given.positions) if isinstance(net, Utonia) else None
    return given.tensor, positions, given.inverse


def principal_directions(feats: ArrayLike, count: int = 6) -> np.ndarray:
    """(C, count) unit vectors of the largest variance of features (N, C), largest first.

    The largest entry of each is positive, so that the same features give the same colors.
    """
    table = _table("principal_directions", feats)
    integer("principal_directions", "count", count, 1, table.shape[1])
    wide = table.astype(np.float64)
    wide /= max(np.abs(wide).max(initial=0.0), 1e-300)  # squares stay finite
    centered = wide - wide.sum(axis=0) / max(len(wide), 1)
    _, vectors = np.linalg.eigh(centered.T @ centered)
    vectors = vectors[:, ::-1][:, :count]
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=0)[None], axis=0)
    return vectors * np.where(largest < 0, -1, 1)


def pca_colors(
    feats: ArrayLike,
    *,
    directions: np.ndarray | None = None,
    weights: tuple[float, ...] = (0.6, 0.4),
    brightness: float = 1.2,
) -> np.ndarray:
    """(N, 3) float colors 0..1 that show which points have like features.

    Each weight takes three principal directions: red, green and blue are sums of the projections
    with these weights, scaled to 0..1 and brightened. The published demos use (0.6, 0.4), and
    outdoors (0.2, 0.2, 0.1, 0.5) with brightness 1.

    Args:
        directions: (C, 3 len(weights)) from `principal_directions`, so that several clouds get the
            same colors; by default those of feats.
    """
    table = _table("pca_colors", feats).astype(np.float64)
    shares = [
        finite("pca_colors", "weights", w)
        for w in listed("pca_colors", "weights", weights, "numbers")
    ]
    brightness = finite("pca_colors", "brightness", brightness)
    count = min(3 * len(shares), table.shape[1])
    if directions is None:
        directions = principal_directions(table, count)
    directions = numpy_array("pca_colors", "directions", directions)
    if directions.ndim != 2 or directions.shape[0] != table.shape[1]:
        raise ValueError(
            f"[pca_colors] directions must have shape ({table.shape[1]}, {3 * len(shares)}), "
            f"found {directions.shape}"
        )
    projected = table @ directions
    mixed = np.zeros((len(table), 3))
    for i, weight in enumerate(shares):
        part = projected[:, 3 * i : 3 * i + 3]
        mixed[:, : part.shape[1]] += weight * part
    low, high = (mixed.min(axis=0), mixed.max(axis=0)) if len(mixed) else (0.0, 1.0)
    shown = (mixed - low) / np.maximum(high - low, 1e-6) * brightness
    return cast("np.ndarray", np.clip(shown, 0, 1))


def similarity(feats: ArrayLike, row: int | ArrayLike) -> np.ndarray:
    """(N,) cosines between each row of features and one of them, or another vector (C,)."""
    table = _unit(_table("similarity", feats))
    if isinstance(row, (int, np.integer)):
        integer("similarity", "row", int(row), 0, max(len(table) - 1, 0))
        return cast("np.ndarray", table @ table[int(row)])
    other = numpy_array("similarity", "row", row).astype(np.float32)
    if other.shape != table.shape[1:]:
        raise ValueError(
            f"[similarity] row must be the number of a row, or a vector of {table.shape[1]} "
            f"numbers, found {told(row)}"
        )
    return cast("np.ndarray", table @ _unit(other[None])[0])


def kmeans(feats: ArrayLike, count: int, *, seed: int = 0, rounds: int = 50) -> np.ndarray:
    """(N,) the cluster 0..count-1 of each row, by direction: spherical k-means.

    Starts by k-means++ (Arthur and Vassilvitskii, 2007) from a seed; ends when nothing moves.
    """
    table = _unit(_table("kmeans", feats))
    integer("kmeans", "count", count, 1, max(len(table), 1))
    rounds = integer("kmeans", "rounds", rounds)
    rng = np.random.default_rng(integer("kmeans", "seed", seed, 0, 2**63 - 1))
    centers = _starts(table, count, rng)
    found = np.full(len(table), -1)
    with Progress("clusters", rounds, "rounds") as bar:
        for _ in range(rounds):
            before, found = found, _nearest(table, centers)
            if np.array_equal(before, found):
                break
            sums = np.zeros_like(centers)
            np.add.at(sums, found, table)
            empty = np.bincount(found, minlength=count) == 0
            centers = _unit(np.where(empty[:, None], centers, sums))
            bar.advance()
    return found


def _starts(table: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """k-means++: far rows are likelier."""
    chosen = [int(rng.integers(len(table)))] if len(table) else []
    far = np.full(len(table), np.inf)
    while 0 < len(chosen) < count:
        far = np.minimum(far, np.maximum(1 - table @ table[chosen[-1]], 0))
        total = far.sum()
        share = far / total if total > 0 else None
        chosen.append(int(rng.choice(len(table), p=share)))
    return table[chosen]


def transfer_labels(feats: ArrayLike, rows: ArrayLike, labels: ArrayLike) -> np.ndarray:
    """(N,) labels of all rows of features: that of the labeled row with the nearest direction.

    rows: (K,) which rows are labeled, at least one; labels: (K,) their integers.
    """
    table = _unit(_table("transfer_labels", feats))
    at = numpy_array("transfer_labels", "rows", rows)
    values = numpy_array("transfer_labels", "labels", labels)
    if at.ndim != 1 or at.shape != values.shape or not len(at) or at.dtype.kind not in "iu":
        raise ValueError(
            f"[transfer_labels] rows and labels must be lists of one length, at least 1, found "
            f"{told(rows)} and {told(labels)}"
        )
    if at.min() < 0 or at.max() >= len(table):
        raise ValueError(
            f"[transfer_labels] rows must be in 0..{len(table) - 1}, found {at.min()}..{at.max()}"
        )
    return cast("np.ndarray", values[_nearest(table, table[at])])


def linear_probe(
    feats: ArrayLike,
    labels: ArrayLike,
    classes: int,
    *,
    steps: int = 300,
    rate: float = 1e-2,
    seed: int = 0,
) -> mlx.nn.Linear:
    """A linear layer (C -> classes) trained on frozen features; rows with negative labels are left
    out.

    `np.array(probe(mx.array(rows))).argmax(axis=1)` are the classes of other features.
    """
    who = "linear_probe"
    table, truth = _table(who, feats), numpy_array(who, "labels", labels)
    classes, steps = integer(who, "classes", classes, 1, 65536), integer(who, "steps", steps)
    rate, seed = positive(who, "rate", rate), integer(who, "seed", seed, 0, 2**63 - 1)
    if truth.shape != (len(table),) or truth.dtype.kind not in "iu":
        raise ValueError(f"[linear_probe] labels must be {len(table)} integers")
    kept = truth >= 0
    if not kept.any() or truth.max() >= classes:
        raise ValueError(f"[linear_probe] labels must be in 0..{classes - 1}, one at least")
    x, y = mx.array(table[kept]), mx.array(truth[kept].astype(np.int32))
    mean, scale = x.mean(axis=0), mx.sqrt(x.var(axis=0)) + 1e-6
    mx.random.seed(seed)
    probe = mlx.nn.Linear(table.shape[1], classes)
    optimizer = adamw(rate, steps=steps)

    def loss(model: mlx.nn.Linear) -> mx.array:
        return mlx.nn.losses.cross_entropy(model((x - mean) / scale), y, reduction="mean")

    step = mlx.nn.value_and_grad(probe, loss)
    with Progress("linear probe", steps, "steps") as bar:
        for _ in range(steps):
            value, gradients = step(probe)
            optimizer.update(probe, gradients)
            mx.eval(probe.parameters(), optimizer.state, value)
            bar.advance()
    # The scaling of the features becomes part of the layer.
    weight = probe.weight / scale
    probe.weight, probe.bias = weight, probe.bias - weight @ mean
    return probe


def packed_features(feats: ArrayLike, size: int = 32) -> np.ndarray:
    """(N, d) int8, d <= size: directions of features for a page; cosines stay near.

    The rows, of length 1, are projected to their main directions and rounded to 1/127 of the
    largest entry.
    """
    table = _unit(_table("packed_features", feats))
    count = min(integer("packed_features", "size", size), table.shape[1])
    _, vectors = np.linalg.eigh(table.T @ table)  # not centered: cosines are about the origin
    projected = table @ vectors[:, ::-1][:, :count]
    largest = np.abs(projected).max() if projected.size else 1.0
    return cast("np.ndarray", np.rint(projected / max(largest, 1e-12) * 127).astype(np.int8))


def _table(who: str, feats: ArrayLike) -> np.ndarray:
    table = numpy_array(who, "feats", feats)
    if not isinstance(feats, np.ndarray):
        table = table.astype(np.float32)
    if table.ndim != 2 or table.shape[1] < 1 or table.dtype.kind != "f":
        raise ValueError(f"[{who}] feats must be numbers of shape (N, C), found {told(feats)}")
    wrong = ~np.isfinite(table).all(axis=1)
    if wrong.any():
        raise ValueError(
            f"[{who}] feats must be finite, found NaN or infinity in {wrong.sum():,} of "
            f"{len(table):,} rows; leave these rows out"
        )
    # The formats for which NumPy has linear algebra.
    return table.astype(np.float64 if table.dtype.itemsize > 4 else np.float32, copy=False)


def _unit(table: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(table, axis=1, keepdims=True)
    return cast("np.ndarray", table / np.maximum(length, 1e-12))


def _nearest(table: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """(N,) the center with the largest product of each row."""
    parts = [(table[i : i + PIECE] @ centers.T).argmax(axis=1) for i in range(0, len(table), PIECE)]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
