"""The base of all transforms: a cloud goes in and comes out, with randomness from one generator.

    t = Compose([Flip("xy"), Rotate("z"), Jitter(0.01)])
    cloud = t(cloud, rng_of(seed, epoch, index))

A transform moves points and picks rows; every column follows its row, normals turn with the points.
The same seed, epoch and index give the same bits. `draw(rng)` gives another cloud of the data set
to transforms that mix two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..core._checks import finite, integer, number, told
from ..io import PointCloud
from ..io.cloud import check_cloud

Draw = Callable[[np.random.Generator], PointCloud]


def rng_of(seed: int, epoch: int, index: int) -> np.random.Generator:
    """The generator of one item in one epoch: it does not depend on workers, ranks or order.

    Each of the three is an integer >= 0.
    """
    given = {"seed": seed, "epoch": epoch, "index": index}
    most = 2**63 - 1
    return np.random.default_rng([integer("rng_of", k, v, 0, most) for k, v in given.items()])


class Transform:
    """Base class of the transforms: transform(cloud, rng, draw) -> another PointCloud.

    All randomness comes from rng, a generator of NumPy such as `rng_of` makes. `draw(rng)` gives a
    second cloud to the transforms that mix two. Subclasses are frozen dataclasses with `apply`;
    their repr names all settings.

    Examples:
        >>> from dataclasses import dataclass
        >>> from mlx_lattice import io, samples, transforms
        >>> @dataclass(frozen=True)
        ... class Lift(transforms.Transform):
        ...     height: float = 1.0
        ...
        ...     def apply(self, cloud, rng, draw):
        ...         return io.PointCloud(cloud.points + [0, 0, self.height], cloud.columns)
        >>> yard = samples.scan()
        >>> lifted = Lift(2.0)(yard, transforms.rng_of(seed=0, epoch=0, index=0))
        >>> float(lifted.bounds()[0][2] - yard.bounds()[0][2])
        2.0
    """

    def __call__(
        self, cloud: PointCloud, rng: np.random.Generator, draw: Draw | None = None
    ) -> PointCloud:
        check_cloud(type(self).__name__, cloud)
        if not isinstance(rng, np.random.Generator):
            raise TypeError(
                f"[{type(self).__name__}] rng must be a generator of NumPy, found {told(rng)}; make"
                " one with rng_of(seed, epoch, index) or numpy.random.default_rng(seed)"
            )
        return self.apply(cloud, rng, draw)

    def apply(self, cloud: PointCloud, rng: np.random.Generator, draw: Draw | None) -> PointCloud:
        """The transformed cloud; what a subclass defines. The arguments are those of the call."""
        raise NotImplementedError

    def _second(self, rng: np.random.Generator, draw: Draw | None) -> PointCloud:
        name = type(self).__name__
        if draw is None:
            raise ValueError(f"[{name}] needs a second cloud: pass draw, which returns one")
        if not callable(draw):
            raise TypeError(f"[{name}] draw must be a function of rng, found {told(draw)}")
        other = draw(rng)
        check_cloud(name, other, "what draw(rng) returns")
        return other


@dataclass(frozen=True)
class Compose(Transform):
    """One transform after the other.

    Examples:
        >>> from mlx_lattice import samples, transforms
        >>> augment = transforms.Compose([transforms.Flip("xy"), transforms.CropSphere(500)])
        >>> len(augment(samples.scan(), transforms.rng_of(seed=0, epoch=0, index=0)))
        500
    """

    transforms: tuple[Transform, ...]

    def __init__(self, transforms: Sequence[Transform]) -> None:
        object.__setattr__(self, "transforms", _several(self, transforms))

    def apply(self, cloud: PointCloud, rng: np.random.Generator, draw: Draw | None) -> PointCloud:
        for transform in self.transforms:
            cloud = transform(cloud, rng, draw)
        return cloud


@dataclass(frozen=True)
class Sometimes(Transform):
    """The transform with probability p; otherwise the cloud stays as it is."""

    transform: Transform
    p: float = 0.5

    def __post_init__(self) -> None:
        _several(self, [self.transform], "transform")
        number(self, "p", self.p, 0, 1)

    def apply(self, cloud: PointCloud, rng: np.random.Generator, draw: Draw | None) -> PointCloud:
        return self.transform(cloud, rng, draw) if rng.random() < self.p else cloud


@dataclass(frozen=True)
class OneOf(Transform):
    """One of the transforms, each as likely as the others."""

    transforms: tuple[Transform, ...]

    def __init__(self, transforms: Sequence[Transform]) -> None:
        object.__setattr__(self, "transforms", _several(self, transforms))
        check(self, "transforms", len(self.transforms) > 0, "one or more")

    def apply(self, cloud: PointCloud, rng: np.random.Generator, draw: Draw | None) -> PointCloud:
        return self.transforms[rng.integers(len(self.transforms))](cloud, rng, draw)


def _several(
    transform: object, given: Sequence[Transform], name: str = "transforms"
) -> tuple[Transform, ...]:
    if not isinstance(given, (list, tuple)) or not all(callable(one) for one in given):
        raise TypeError(
            f"[{type(transform).__name__}] {name}: found {told(given)}, expected transforms"
        )
    return tuple(given)


def check(transform: object, key: str, good: bool, expected: str) -> None:
    """Raises for a setting that is out of range."""
    if not good:
        raise ValueError(
            f"[{type(transform).__name__}] {key}: found {told(getattr(transform, key))}, "
            f"expected {expected}"
        )


def check_numbers(transform: object, key: str, expected: str, count: int = 3) -> list[float]:
    """The numbers of a setting, which must be `count` of them."""
    values = getattr(transform, key)
    check(transform, key, np.shape(values) == (count,), expected)
    return [finite(transform, key, value) for value in values]


def axes_of(transform: object, key: str) -> list[int]:
    """Column numbers of letters such as "xy"."""
    letters = getattr(transform, key)
    good = isinstance(letters, str) and len(set(letters)) == len(letters) > 0
    check(transform, key, good and set(letters) <= set("xyz"), "some of the letters x, y and z")
    return ["xyz".index(letter) for letter in letters]


def moved(cloud: PointCloud, points: np.ndarray, matrix: np.ndarray | None = None) -> PointCloud:
    """The cloud with other points; `matrix` (3, 3) also turns its normals, of length 1."""
    columns = dict(cloud.columns)
    normal = columns.get("normal")
    if matrix is not None and normal is not None and normal.ndim == 2 and normal.shape[1] == 3:
        # Normals follow the inverse transpose; for turns and mirrors that is the matrix itself.
        turned = normal.astype(np.float64) @ np.linalg.inv(matrix)
        length = np.linalg.norm(turned, axis=1, keepdims=True)
        turned = np.divide(turned, length, out=np.zeros_like(turned), where=length > 0)
        columns["normal"] = turned.astype(normal.dtype)
    return PointCloud(points.astype(cloud.points.dtype, copy=False), columns, dict(cloud.meta))


def linear(cloud: PointCloud, matrix: np.ndarray) -> PointCloud:
    """Every point times a matrix (3, 3), in the precision of the points.

    Written out by columns: a product of BLAS wakes all threads for three columns, 17 ms of CPU time
    per 120,000 points against 1.
    """
    points = np.empty_like(cloud.points)
    for i in range(3):
        terms = [
            cloud.points[:, j] if m == 1 else cloud.points[:, j] * cloud.points.dtype.type(m)
            for j, m in enumerate(matrix[i])
            if m != 0
        ]
        points[:, i] = sum(terms[1:], terms[0]) if terms else 0
    return moved(cloud, points, matrix)


def join(first: PointCloud, second: PointCloud, what: str) -> PointCloud:
    """Both clouds, which must have the same columns; objects of the second get new numbers."""
    if set(first.columns) != set(second.columns):
        raise ValueError(
            f"[{what}] columns: found {sorted(second.columns)} in the second cloud, "
            f"expected {sorted(first.columns)} as in the first"
        )
    columns = {}
    for name, values in first.columns.items():
        other = second.columns[name]
        if name == "instance" and values.size and other.size:
            values = values.astype(np.int64)
            other = np.where(other > 0, other.astype(np.int64) + max(int(values.max()), 0), other)
        columns[name] = np.concatenate([values, other])
    points = np.concatenate([first.points, second.points.astype(first.points.dtype, copy=False)])
    return PointCloud(points, columns, dict(first.meta))
