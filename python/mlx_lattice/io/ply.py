"""PLY: ASCII and both binary orders; the element `vertex` becomes points, others are skipped."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..core._checks import one_of
from ._native import read_native, write_native
from .cloud import PointCloud

if TYPE_CHECKING:
    from ..core.types import FilePath

FORMS = ("ascii", "binary_little_endian", "binary_big_endian")


def read_ply(path: FilePath, *, on_progress: Callable[[float], object] | None = None) -> PointCloud:
    """PointCloud of the vertices of a PLY file, ASCII or binary; other elements are skipped.

    Args:
        on_progress: Called now and then with the share that is done, 0..1; what it raises ends the
            work.

    Raises:
        ValueError: The file is not what it says; the message begins with its path.
    """
    return read_native(path, "ply", on_progress)


def write_ply(path: FilePath, cloud: PointCloud, *, format: str = "binary_little_endian") -> None:
    """Writes the points and columns as the element `vertex` of a PLY file.

    Colors become 8 bits, and a column (N, k) becomes k properties.

    Args:
        format: "binary_little_endian", "binary_big_endian" or "ascii".

    Raises:
        ValueError: A column cannot be stored, for example because its name has a space.

    Examples:
        >>> import os, tempfile
        >>> from mlx_lattice import io, samples
        >>> path = os.path.join(tempfile.mkdtemp(), "yard.ply")
        >>> io.write_ply(path, samples.scan(), format="ascii")
        >>> io.read_ply(path)
        PointCloud(6,000 points float32; label uint8, intensity float32)
    """
    write_native("write_ply", path, cloud, "ply", one_of("write_ply", "format", format, FORMS))
