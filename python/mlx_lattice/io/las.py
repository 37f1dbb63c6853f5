"""LAS and LAZ through laspy (and lazrs). Coordinates are float64: integer times scale plus offset.

The counts of the header are compared with the file before laspy sees the file. Points arrive in
pieces, so that memory grows with the points that really exist. `meta` keeps scale and offset;
writing with them gives the same integers again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from ..core._checks import flag, told
from ..core._checks import path as check_path
from ._check import file_size, naming, require, short
from .atomic_files import atomic_file
from .cloud import PointCloud, check_cloud, color_range, gather, whole_numbers

if TYPE_CHECKING:
    from types import ModuleType

    from ..core.types import ArrayLike, FilePath

PIECE = 16 << 20  # bytes decoded at once
# A LAZ file may become 4096 times its size and 64 MiB more: layers of equal values take no bytes.
GROWTH = 4096
TAKEN = ("x", "y", "z", "red", "green", "blue")  # coordinates and colors
LASPY_NAMES = ("scales", "offsets")  # attributes of laspy's record, which dimensions would hide
STANDARD = (
    "intensity",
    "return_number",
    "number_of_returns",
    "scan_direction_flag",
    "edge_of_flight_line",
    "classification",
    "synthetic",
    "key_point",
    "withheld",
    "overlap",
    "scanner_channel",
    "scan_angle",
    "scan_angle_rank",
    "user_data",
    "point_source_id",
    "gps_time",
    "nir",
)


def read_las(path: FilePath) -> PointCloud:
    """PointCloud of a .las or .laz file: points float64, color uint16, intensity, label, others.

    The label is the classification; other columns keep their names. Columns of the standard record
    that are 0 everywhere are left out.

    Raises:
        ImportError: laspy, or lazrs for LAZ, is not installed.
        ValueError: The file is not what it says; the message begins with its path.
    """
    laspy = require("laspy", "io")
    with naming(path, "LAS"), open(path, "rb") as file:
        compressed = _check_header(file)
        if compressed:
            require("lazrs", "io")
        file.seek(0)
        try:
            return _read(laspy, file)
        except BaseException as error:
            if type(error).__name__ == "PanicException":  # of lazrs; not an Exception
                raise ValueError("broken compressed data") from None
            raise


def _check_header(file: BinaryIO) -> bool:
    """Checks counts and offsets of the public header against the size of the file.

    Returns whether the points are compressed.
    """
    size = file_size(file)
    head = file.read(375)
    if len(head) < 227 or head[:4] != b"LASF":
        raise ValueError(
            f"begins with {head[:4]!r}, expected b'LASF' and a header of 227 bytes or more"
        )
    minor = head[25]
    header, start, vlrs = struct.unpack_from("<HII", head, 94)
    kind, row, count = struct.unpack_from("<BHI", head, 104)
    if header < 227 or not header <= start <= size:
        raise ValueError(f"header of {header} bytes, points at byte {start} of {size}")
    if minor >= 4:
        if len(head) < 375:
            raise ValueError("truncated header of LAS 1.4")
        first, extra, count = struct.unpack_from("<QIQ", head, 235)
        if extra and (first > size or extra * 60 > size - first):
            raise ValueError(
                f"{extra} extended records at byte {first} cannot stand in {size} bytes"
            )
    if vlrs * 54 > start - header:
        raise ValueError(f"{vlrs} variable records cannot stand in {start - header} bytes")
    if kind < 128:
        if count * row > size - start:
            raise ValueError(
                f"{count} points of {row} bytes need {count * row} bytes, found {size - start}: "
                "truncated, or the count is wrong"
            )
        return False
    if count * row > GROWTH * size + (64 << 20):
        raise ValueError(
            f"{count} points of {row} bytes from a compressed file of {size} bytes, "
            f"expected at most {GROWTH} times its size"
        )
    if count:
        _check_chunks(file, start, size)
    return True


def _check_chunks(file: BinaryIO, start: int, size: int) -> None:
    """LAZ: the table of chunks lies inside the file and has no more entries than bytes."""
    file.seek(start)
    table = struct.unpack("<q", file.read(8).ljust(8, b"\0"))[0]
    if table == -1:  # written at the end of a stream
        file.seek(-8, 2)
        table = struct.unpack("<q", file.read(8))[0]
    if not start + 8 <= table <= size - 8:
        raise ValueError(f"table of chunks at byte {table} of {size}: truncated")
    file.seek(table)
    _version, chunks = struct.unpack("<II", file.read(8))
    if chunks > size:
        raise ValueError(f"{chunks} chunks cannot stand in {size} bytes")


def _check_items(header: Any, row: int) -> None:
    """lazrs decodes rows as its own record describes them; they must be those of the header."""
    import lazrs

    size = lazrs.LazVlr(header.vlrs.get("LasZipVlr")[0].record_data).item_size()
    if size != row:
        raise ValueError(f"compressed points of {size} bytes, expected {row}")


def _read(laspy: ModuleType, file: BinaryIO) -> PointCloud:
    with laspy.open(
        file, closefd=False, laz_backend=laspy.LazBackend.Lazrs, read_evlrs=False
    ) as reader:
        header = reader.header
        scale, offset, total = header.scales.copy(), header.offsets.copy(), header.point_count
        if not (np.isfinite(scale).all() and np.isfinite(offset).all()):
            raise ValueError(f"scale {scale} and offset {offset}, expected finite numbers")
        hidden = set(LASPY_NAMES) & set(header.point_format.dimension_names)
        if hidden:
            raise ValueError(f"a dimension named {min(hidden)!r}, which laspy cannot read")
        row = header.point_format.size
        if header.are_points_compressed and total:
            _check_items(header, row)
        pieces = (
            [piece.array for piece in reader.chunk_iterator(max(1, PIECE // row))] if total else []
        )
        found = sum(map(len, pieces))
        if found != total:
            raise ValueError(f"found {found} points, expected {total}: truncated")
        packed = np.concatenate(pieces) if pieces else np.empty(0, header.point_format.dtype())
        record = laspy.ScaleAwarePointRecord(packed, header.point_format, scale, offset)
        with np.errstate(
            over="ignore", invalid="ignore"
        ):  # an absurd scale gives infinite points, which are legal
            fields = {
                axis.lower(): np.asarray(record[axis]) * scale[i] + offset[i]
                for i, axis in enumerate("XYZ")
            }
        other = {d.name for d in header.point_format.extra_dimensions if not d.is_scaled}
        for name in header.point_format.dimension_names:
            values = np.array(packed[name] if name in other else record[name])
            if name not in ("X", "Y", "Z") and (name not in STANDARD or values.any()):
                fields[name] = values
    cloud = gather(fields, "points")
    return PointCloud(cloud.points, cloud.columns, {"scale": scale, "offset": offset})


def write_las(
    path: FilePath,
    cloud: PointCloud,
    *,
    scale: ArrayLike | float | None = None,
    offset: ArrayLike | float | None = None,
    compressed: bool | None = None,
) -> None:
    """Writes LAS 1.4; the extension says whether compressed (LAZ), unless `compressed` is given.

    color and intensity become 16 bits (intensities in 0..1 are stretched), label becomes the
    classification. Other columns become extra bytes.

    Args:
        scale: Units per integer step, one number or one per axis; by default that of the cloud,
            else 0.001.
        offset: The position of integer 0; by default that of the cloud, else its low corner.

    Raises:
        ImportError: laspy, or lazrs for LAZ, is not installed.
        ValueError: A point or a column does not fit the format; the message says which.
    """
    check_cloud("write_las", cloud)
    write_las_pieces(path, iter([cloud]), scale=scale, offset=offset, compressed=compressed)


def write_las_pieces(
    path: FilePath,
    pieces: Iterator[PointCloud],
    *,
    scale: ArrayLike | float | None = None,
    offset: ArrayLike | float | None = None,
    compressed: bool | None = None,
) -> None:
    """`write_las` of a cloud that comes in pieces, whose columns are those of the first."""
    check_path("write_las", path)
    laspy = require("laspy", "io")
    if compressed is None:
        compressed = str(path).lower().endswith(".laz")
    if flag("write_las", "compressed", compressed):
        require("lazrs", "io")
    cloud = next(pieces)
    scales, offsets = _scale(path, cloud, scale, offset)
    header, record = _record(path, cloud, scales, offsets, laspy)
    backend = laspy.LazBackend.Lazrs if compressed else None
    how = {"closefd": False, "do_compress": compressed, "laz_backend": backend}
    with (
        atomic_file(path) as file,
        laspy.open(file, mode="w", header=header, **how) as writer,
    ):
        writer.write_points(record)
        for cloud in pieces:
            own, record = _record(path, cloud, scales, offsets, laspy)
            if own.point_format != header.point_format:
                raise ValueError(
                    f"{path}: the columns of the cloud change on the way: found "
                    f"{list(own.point_format.dimension_names)}, expected "
                    f"{list(header.point_format.dimension_names)}"
                )
            writer.write_points(record)


def _record(
    path: FilePath, cloud: PointCloud, scales: np.ndarray, offsets: np.ndarray, laspy: ModuleType
) -> tuple[Any, Any]:
    """The header and the packed points of a cloud."""
    columns = dict(cloud.columns)
    color = columns.pop("color") if _is_color(columns.get("color")) else None
    header = laspy.LasHeader(version="1.4", point_format=6 if color is None else 7)
    header.scales, header.offsets = scales, offsets
    fields = dict(zip("XYZ", _steps(path, cloud, scales, offsets).T))
    if color is not None:
        rgba = _color16(path, color)
        fields |= zip(("red", "green", "blue"), rgba[:, :3].T)
        if rgba.shape[1] == 4:
            if "alpha" in columns:
                raise ValueError(
                    f"{path}: column 'alpha' and the fourth value of `color` are both alpha"
                )
            columns["alpha"] = rgba[:, 3]
    fields |= _renamed(path, columns)
    extra = _further(path, columns, header, fields, laspy)
    record = laspy.PackedPointRecord.zeros(len(cloud), header.point_format)
    for name, values in fields.items():
        record[name] = values
    for name, values in extra.items():
        record.array[name] = values  # record[name] would take return_num for return_number
    return header, record


def _scale(
    path: FilePath,
    cloud: PointCloud,
    scale: ArrayLike | float | None,
    offset: ArrayLike | float | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Scale and offset of each axis, checked."""
    if scale is None:
        scale = cloud.meta.get("scale", 0.001)
    if offset is None:
        bounds = cloud.bounds()
        offset = cloud.meta.get("offset", np.zeros(3) if bounds is None else np.floor(bounds[0]))
    made = []
    for name, given in (("scale", scale), ("offset", offset)):
        try:
            made.append(np.broadcast_to(np.asarray(given, np.float64), (3,)))
        except (TypeError, ValueError):
            raise ValueError(
                f"[write_las] {name} must be one number or three, found {told(given)}"
            ) from None
    scales, offsets = made
    if not (np.isfinite(scales).all() and (scales > 0).all() and np.isfinite(offsets).all()):
        raise ValueError(
            f"{path}: scale {scales} and offset {offsets}, expected finite numbers, scale above 0"
        )
    return scales, offsets


def _steps(path: FilePath, cloud: PointCloud, scale: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """(N, 3) int32: the points in steps of the scale."""
    bad = np.flatnonzero(~cloud.finite())
    if len(bad):
        raise ValueError(
            f"{path}: LAS cannot hold point {bad[0]}, {cloud.points[bad[0]]}; "
            "drop such points: cloud[cloud.finite()]"
        )
    steps = np.rint((cloud.points.astype(np.float64) - offset) / scale)
    if len(steps) and np.abs(steps).max() >= 2**31 - 1:
        raise ValueError(
            f"{path}: points span more than 2^31 steps of scale {scale.tolist()}; "
            "give a larger scale="
        )
    return steps.astype(np.int32)


def _renamed(path: FilePath, columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Takes intensity and label out of the columns, as the standard record holds them."""
    fields = {}
    if "intensity" in columns:
        fields["intensity"] = _intensity(path, columns.pop("intensity"))
    label = columns.get("label")
    if (
        label is not None
        and "classification" not in columns
        and label.ndim == 1
        and label.dtype.kind in "iu"
        and _within(label, 255)
    ):
        fields["classification"] = columns.pop("label")
    return fields


def _further(
    path: FilePath,
    columns: dict[str, np.ndarray],
    header: Any,
    fields: dict[str, np.ndarray],
    laspy: ModuleType,
) -> dict[str, np.ndarray]:
    """The columns that become extra bytes, announced in the header.

    Columns that the standard record has a field for are added to `fields`.
    """
    names = set(header.point_format.dimension_names)
    taken = {*TAKEN, *LASPY_NAMES, *header.point_format.dtype().names} - names
    extra = {}
    for name, values in columns.items():
        if name in taken or name.lower() in TAKEN or (name in names and values.ndim != 1):
            raise ValueError(
                f"{path}: a column of a LAS file cannot be named {name!r}, which the format uses"
                " itself; rename it"
            )
        if name in names:
            fields[name] = _field(path, name, values, header)
        else:
            extra[name] = values = _extra(path, name, values)
            width = f"{values.shape[1]}" if values.ndim == 2 else ""
            header.add_extra_dim(laspy.ExtraBytesParams(name, f"{width}{values.dtype.str[1:]}"))
    return extra


def _within(values: np.ndarray, most: int) -> bool:
    """Whether all values are in 0..most."""
    return not len(values) or bool(values.min() >= 0 and values.max() <= most)


def _is_color(values: np.ndarray | None) -> bool:
    return values is not None and values.ndim == 2 and values.shape[1] in (3, 4)


def _color16(path: FilePath, color: np.ndarray) -> np.ndarray:
    """16 bits: floats are 0..1; integers up to 255 are stretched unless their dtype is 16 bits."""
    wrong = color_range(color)
    if wrong:
        raise ValueError(f"{path}: column 'color': {wrong}")
    if color.dtype.kind == "f":
        return np.rint(np.clip(color, 0, 1) * 65535).astype(np.uint16)
    narrow = color.dtype != np.uint16 and _within(color, 255)
    return color.astype(np.uint16) * np.uint16(257 if narrow else 1)


def _field(path: FilePath, name: str, values: np.ndarray, header: Any) -> np.ndarray:
    """A column for a field of the standard record.

    Integers that do not fit are an error, not other integers.
    """
    field = header.point_format.dimension_by_name(name)
    if field.kind.name == "FloatingPoint":
        return values
    bits = field.num_bits
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1)
    if field.kind.name != "SignedInteger":
        low, high = 0, (1 << bits) - 1
    wrong = whole_numbers(values, low, high)
    if wrong:
        raise ValueError(
            f"{path}: column {name!r}: {wrong}, because LAS stores {name!r} in {bits} bits; give"
            " the column another name, and it is stored as an extra dimension"
        )
    return values


def _extra(path: FilePath, name: str, values: np.ndarray) -> np.ndarray:
    """A column for extra bytes: one to three numbers per point, in a dtype that LAS has."""
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim == 2 and values.shape[1] not in (2, 3):
        raise ValueError(
            f"{path}: column {name!r} has {values.shape[1]} values per point, LAS holds 1 to 3; "
            "split the column or write .npz"
        )
    if not name or len(name.encode()) > 32 or "\0" in name:
        raise ValueError(
            f"{path}: a column of a LAS file cannot be named {short(name)}: expected 1 to 32 bytes"
        )
    if values.dtype.kind == "b":
        return values.astype(np.uint8)
    return values.astype(np.float32) if values.dtype == np.float16 else values


def _intensity(path: FilePath, values: np.ndarray) -> np.ndarray:
    if values.ndim == 2 and values.shape[1] != 1:
        raise ValueError(
            f"{path}: column 'intensity' has {values.shape[1]} values per point, expected one"
        )
    values = values.reshape(-1)
    if values.dtype.kind == "f" and _within(values, 1):
        return np.rint(values * 65535).astype(np.uint16)
    wrong = whole_numbers(values, 0, 65535)
    if wrong:
        raise ValueError(
            f"{path}: column 'intensity': {wrong}, because LAS stores it in 16 bits; "
            "scale floats to 0..1, which are stretched"
        )
    return values.astype(np.uint16)
