"""PointCloud: points and named columns, as every reader returns and every writer takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _ext
from ..core._checks import numpy_array, told

if TYPE_CHECKING:
    import mlx.core as mx

    from ..core.types import ArrayLike


@dataclass(frozen=True, eq=False)
class PointCloud:
    """Points and named columns, as every reader returns and every writer takes them.

    The arrays are NumPy's, because coordinates of maps need float64, which MLX has only on the CPU.
    `local()` returns MLX arrays.

    Args:
        points: (N, 3), float32 or float64 as the file has them; integers become floats.
        columns: Arrays (N,) or (N, k) of numbers by name, such as `label`, `intensity`, `color` and
            `normal`.
        meta: What else a format knows, such as scale and offset of LAS. Writing with these gives
            the same integers again.

    Raises:
        TypeError: An argument is no array, or columns is no dictionary.
        ValueError: An array has another shape, or holds something else than numbers.

    Examples:
        >>> import numpy as np
        >>> from mlx_lattice import io
        >>> cloud = io.PointCloud(np.zeros((4, 3)), {"label": np.array([0, 0, 1, 1], np.uint8)})
        >>> cloud
        PointCloud(4 points float64; label uint8)
        >>> len(cloud[cloud.columns["label"] == 1])
        2
    """

    points: np.ndarray
    columns: dict[str, np.ndarray] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        points = numpy_array(self, "points", self.points, kinds=None)
        if points.ndim != 2 or points.shape[1] != 3:
            raise ValueError(f"[PointCloud] points: found shape {points.shape}, expected (N, 3)")
        if points.dtype.kind not in "fiu":
            raise ValueError(
                f"[PointCloud] points: found {points.dtype}, expected float32 or float64"
            )
        if points.dtype not in (np.float32, np.float64):
            points = points.astype(np.float32 if points.dtype.itemsize <= 2 else np.float64)
        for name in ("columns", "meta"):
            if not isinstance(getattr(self, name), Mapping):
                raise TypeError(
                    f"[PointCloud] {name}: found {told(getattr(self, name))}, expected a dictionary"
                )
        columns = {}
        for name, given in self.columns.items():
            values = numpy_array(self, f"column {name!r}", given, kinds=None)
            if values.ndim not in (1, 2) or len(values) != len(points):
                raise ValueError(
                    f"[PointCloud] column {name!r}: found shape {values.shape}, "
                    f"expected {len(points)} rows"
                )
            if values.dtype.kind not in "fiub":
                raise ValueError(
                    f"[PointCloud] column {name!r}: found {values.dtype}, expected numbers"
                )
            columns[str(name)] = plain(values)
        object.__setattr__(self, "points", plain(points))
        object.__setattr__(self, "columns", columns)

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, rows: np.ndarray | slice | list[int]) -> PointCloud:
        """The cloud of some rows: a mask, indices or a slice."""
        return PointCloud(
            self.points[rows],
            {name: values[rows] for name, values in self.columns.items()},
            dict(self.meta),
        )

    def __repr__(self) -> str:
        columns = ", ".join(
            f"{n} {v.dtype}{list(v.shape[1:]) or ''}" for n, v in self.columns.items()
        )
        return f"PointCloud({len(self):,} points {self.points.dtype}; {columns or 'no columns'})"

    def _repr_html_(self) -> str:
        from ..viewer import notebook

        return notebook.point_cloud(self)

    def finite(self) -> np.ndarray:
        """(N,) mask: rows without NaN or infinite coordinates."""
        x, y, z = np.isfinite(self.points).T
        return x & y & z

    def bounds(self) -> tuple[np.ndarray, np.ndarray] | None:
        """(low, high) of the finite points, float64; None when there are none."""
        finite = self.finite()
        points = self.points if finite.all() else self.points[finite]
        if not len(points):
            return None
        # Axis by axis, as in finite(): 18 ns per point; reducing over rows of three took 85.
        low, high = (
            np.array([pick(points[:, i]) for i in range(3)], np.float64)
            for pick in (np.min, np.max)
        )
        return low, high

    def local(self, origin: ArrayLike | None = None) -> tuple[mx.array, np.ndarray]:
        """(mx.array (N, 3) float32, origin): points less `origin`, subtracted in float64.

        The default origin is the low corner. So coordinates of a map (400,000 m) keep their
        millimeters. An origin that is not three numbers is a ValueError.
        """
        import mlx.core as mx

        if origin is None:
            bounds = self.bounds()
            origin = np.zeros(3) if bounds is None else bounds[0]
        origin = _three_numbers("local", origin)
        return mx.array(self.less(origin).astype(np.float32, copy=False)), origin

    def less(self, origin: ArrayLike) -> np.ndarray:
        """(N, 3): points less an origin of three numbers, in the dtype of the points.

        The subtraction is done in float64. So float64 positions keep their meaning, however far
        apart they are.
        """
        origin = _three_numbers("less", origin)
        if self.points.dtype == np.float64:
            return self.points - origin
        near = origin.astype(np.float32)
        if self.points.dtype == np.float32 and (near == origin).all():
            # The difference of two float32 is rounded once, as through float64; half the time.
            return self.points - near
        return (self.points.astype(np.float64) - origin).astype(np.float32)


def _three_numbers(method: str, origin: ArrayLike) -> np.ndarray:
    try:
        return np.broadcast_to(np.asarray(origin, np.float64), (3,))
    except (TypeError, ValueError):
        raise ValueError(
            f"[PointCloud.{method}] origin: found {told(origin)}, expected three numbers"
        ) from None


def check_cloud(who: str, cloud: object, what: str = "cloud") -> None:
    """Raises if the value is not a cloud."""
    if not isinstance(cloud, PointCloud):
        raise TypeError(
            f"[{who}] {what} must be a PointCloud, found {told(cloud)}; make one:"
            " PointCloud(points)"
        )


def plain(values: np.ndarray) -> np.ndarray:
    """The same values as a contiguous, aligned array in the byte order of this machine.

    MLX and C need such an array. A column of a structured array has strides of the whole row; such
    a column is copied.
    """
    values = values.astype(values.dtype.newbyteorder("="), copy=False)
    return np.require(values, requirements=["C", "A"])


def gather(fields: Mapping[str, np.ndarray], what: str) -> PointCloud:
    """A PointCloud from {name in the file: (N,) or (N, k)}; x, y and z are required."""
    return PointCloud(*_ext.gather_columns({n: plain(v) for n, v in fields.items()}, what))


def color_range(values: np.ndarray) -> str:
    """Why colors cannot be written to a file, in words; empty if they can.

    Floats are 0..1 and integers 0..65535. Floats may leave 0..1 by rounding errors.
    """
    if not values.size or values.dtype == bool:
        return ""
    floats = values.dtype.kind == "f"
    low, high, slack = values.min(), values.max(), 1e-3 if floats else 0
    if low >= -slack and high <= (1 if floats else 65535) + slack:
        return ""
    if floats:
        return f"found floats in {low}..{high}, expected 0..1; divide them, or convert to uint8"
    return f"found {low}..{high}, expected 0..65535"


def color8(values: np.ndarray) -> np.ndarray:
    """Colors as uint8: floats are 0..1; 16-bit colors lose their low byte if one is above 255."""
    if values.dtype == np.uint8:
        return values
    if values.dtype.kind == "f":
        return np.rint(np.clip(np.nan_to_num(values), 0, 1) * 255).astype(np.uint8)
    wide = values.size and values.max() > 255
    return np.clip(values >> 8 if wide else values, 0, 255).astype(np.uint8)


def whole_numbers(values: np.ndarray, low: int, high: int) -> str:
    """Why values do not fit an integer field of this range, in words; empty if they fit."""
    if not values.size:
        return ""
    if values.dtype.kind == "f":
        bad = values[~np.isfinite(values) | (values != np.rint(values))]
        if bad.size:
            return f"found {bad[0]}, expected whole numbers in {low}..{high}"
    least, most = values.min(), values.max()
    if least < low or most > high:
        return f"found {least}..{most}, expected {low}..{high}"
    return ""


def labels_of(cloud: PointCloud, column: str, name: str) -> np.ndarray:
    """(N,) class labels of a cloud, int64; floats that hold whole numbers are labels too.

    Raises ValueError, which begins with `name`, if there is no such column of whole numbers.
    """
    if column not in cloud.columns:
        found = ", ".join(cloud.columns) or "none"
        raise ValueError(f"{name}: no column {column!r}; found {found}")
    values = cloud.columns[column]
    if values.ndim != 1:
        raise ValueError(
            f"{name}: column {column!r} has shape {values.shape}, expected one label per point"
        )
    if values.dtype.kind == "f":
        bad = values[~(np.abs(values) < 2**62) | (values != np.rint(values))]
        if bad.size:
            raise ValueError(
                f"{name}: column {column!r} has the label {bad[0]}, expected whole numbers"
            )
    return values.astype(np.int64, copy=False)
