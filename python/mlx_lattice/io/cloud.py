"""PointCloud: points and named columns, as every reader returns and every writer takes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import mlx.core as mx

    from .._types import ArrayLike

# Names that files use -> ours. Three or four of them together make one column.
GROUPS = {
    "color": (
        ("red", "green", "blue", "alpha"),
        ("r", "g", "b", "a"),
        ("diffuse_red", "diffuse_green", "diffuse_blue", "diffuse_alpha"),
    ),
    "normal": (("nx", "ny", "nz"), ("normal_x", "normal_y", "normal_z")),
}
ALIASES = {
    "intensity": ("scalar_intensity", "reflectance", "scalar_reflectance"),
    "label": (
        "classification",
        "class",
        "class_id",
        "semantic",
        "scalar_label",
        "scalar_classification",
    ),
}


@dataclass(frozen=True, eq=False)
class PointCloud:
    """points (N, 3), float32 or float64 as the file has them; columns: name -> (N,) or (N, k).

    The arrays are NumPy's, because coordinates of maps need float64, which MLX has only on the
    CPU. `local()` returns MLX arrays. `meta` holds what else a format knows, such as scale and
    offset of LAS; writing with these gives the same integers again.
    """

    points: np.ndarray
    columns: dict[str, np.ndarray] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        points = np.asarray(self.points)
        if points.ndim != 2 or points.shape[1] != 3:
            raise ValueError(f"[PointCloud] points: found shape {points.shape}, expected (N, 3)")
        if points.dtype.kind not in "fiu":
            raise ValueError(
                f"[PointCloud] points: found {points.dtype}, expected float32 or float64"
            )
        if points.dtype not in (np.float32, np.float64):
            points = points.astype(np.float32 if points.dtype.itemsize <= 2 else np.float64)
        columns = {}
        for name, values in self.columns.items():
            values = np.asarray(values)
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

    def __getitem__(self, rows: Any) -> PointCloud:
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
        from .. import notebook

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
        millimeters.
        """
        import mlx.core as mx

        if origin is None:
            bounds = self.bounds()
            origin = np.zeros(3) if bounds is None else bounds[0]
        try:
            origin = np.broadcast_to(np.asarray(origin, np.float64), (3,))
        except (TypeError, ValueError):
            raise ValueError(
                f"[PointCloud.local] origin: found {origin!r:.80}, expected three numbers"
            ) from None
        near = origin.astype(np.float32)
        if self.points.dtype == np.float32 and (near == origin).all():
            # The difference of two float32 is rounded once, as through float64; half the time.
            return mx.array(self.points - near), origin
        return mx.array((self.points.astype(np.float64) - origin).astype(np.float32)), origin


def plain(values: Any) -> Any:
    """The same values as a contiguous, aligned array in the byte order of this machine.

    MLX and C need such an array.

    A column of a structured array has strides of the whole row; such a column is copied.
    """
    values = values.astype(values.dtype.newbyteorder("="), copy=False)
    return np.require(values, requirements=["C", "A"])


def gather(fields: Any, what: str) -> PointCloud:
    """A PointCloud from {name in the file: (N,) or (N, k)}; x, y and z are required."""
    fields = dict(fields)
    lower = {name.lower(): name for name in reversed(fields)}
    lower |= {name: name for name in fields if name == name.lower()}  # x before X
    missing = [axis for axis in "xyz" if axis not in lower]
    if missing:
        raise ValueError(
            f"{what} without {', '.join(missing)}; found {', '.join(fields) or 'nothing'}"
        )
    xyz = [fields.pop(lower[axis]) for axis in "xyz"]
    if any(axis.ndim != 1 for axis in xyz):
        raise ValueError(f"{what} must have one number per point in each of x, y and z")
    common = np.result_type(*xyz)
    exact = common == np.float32 or (common.kind in "iu" and common.itemsize <= 2)
    dtype = np.float32 if exact else np.float64
    points = np.stack([axis.astype(dtype, copy=False) for axis in xyz], axis=1)
    columns = {}
    for name, sets in GROUPS.items():
        for parts in sets:
            found = [lower[p] for p in parts if p in lower and lower[p] in fields]
            if (
                len(found) >= 3
                and name not in fields
                and [f.lower() for f in found[:3]] == list(parts[:3])
                and all(fields[f].ndim == 1 for f in found)
            ):
                columns[name] = np.stack([fields.pop(f) for f in found], axis=1)
                break
    taken = {name.lower() for name in fields}
    for name, values in fields.items():
        ours = next(
            (
                o
                for o, others in ALIASES.items()
                if name.lower() in others and o not in taken and o not in columns
            ),
            name,
        )
        ours = name.lower() if name.lower() in ALIASES else ours
        # `Intensity` beside `intensity` keeps its own name.
        columns[name if ours != name and (ours in fields or ours in columns) else ours] = values
    return PointCloud(points, columns)


def scatter(cloud: PointCloud, dtypes: Any, what: str, flat: bool = True) -> Any:
    """Structured array for a file: x, y, z, red, green, blue ...

    `dtypes` are the dtypes of the format. color becomes 8 bits, as viewers of these formats
    expect. flat: a column (N, k) becomes name_0 ... name_{k-1}.
    """
    parts = [(axis, cloud.points[:, i]) for i, axis in enumerate("xyz")]
    for name, values in cloud.columns.items():
        width = values.shape[1] if values.ndim == 2 else 1
        if width == 0:
            raise ValueError(f"column {name!r}: found no value per point, expected some; drop it")
        if name == "color" and values.ndim == 2 and width in (3, 4):
            wrong = color_range(values)
            if wrong:
                raise ValueError(f"column 'color': {wrong}")
            parts += zip(GROUPS["color"][0], color8(values).T)
        elif name == "normal" and values.ndim == 2 and width == 3:
            parts += zip(GROUPS["normal"][0], values.T)
        elif values.ndim == 2 and flat:
            parts += [(f"{name}_{i}", values[:, i]) for i in range(width)]
        else:
            parts.append((name, values))
    parts = [(name, _stored(name, values, dtypes, what)) for name, values in parts]
    names = [name for name, _ in parts]
    for name in names:
        if names.count(name) > 1 or not name or name != "".join(name.split()) or not name.isascii():
            raise ValueError(
                f"column {name!r} cannot be a field of a {what} file: "
                "names are unique, ASCII and without spaces"
            )
    rows = np.empty(len(cloud), [(name, values.dtype, values.shape[1:]) for name, values in parts])
    for name, values in parts:
        rows[name] = values
    return rows


def color_range(values: Any) -> str:
    """What is wrong with colors for a file, in words; empty when nothing is.

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


def color8(values: Any) -> Any:
    """Colors as uint8: floats are 0..1; 16-bit colors lose their low byte if one is above 255."""
    if values.dtype == np.uint8:
        return values
    if values.dtype.kind == "f":
        return np.rint(np.clip(np.nan_to_num(values), 0, 1) * 255).astype(np.uint8)
    wide = values.size and values.max() > 255
    return np.clip(values >> 8 if wide else values, 0, 255).astype(np.uint8)


def whole_numbers(values: Any, low: Any, high: Any) -> str:
    """What is wrong with values for an integer field of this range, in words.

    Empty when nothing is.
    """
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


def _stored(name: str, values: Any, dtypes: Any, what: str) -> Any:
    """Values in the nearest dtype of the format that holds them all."""
    if values.dtype in dtypes:
        return values
    if values.dtype.kind == "b":
        return values.astype(np.uint8)
    if values.dtype.kind == "f":
        return values.astype(np.float32 if values.dtype.itemsize < 4 else np.float64)
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    for dtype in sorted(
        (np.dtype(d) for d in dtypes if np.dtype(d).kind in "iu"), key=lambda d: d.itemsize
    ):
        if dtype.itemsize >= 4 and np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
            return values.astype(dtype)
    raise ValueError(f"column {name!r}: found values in {low}..{high}, too large for a {what} file")
