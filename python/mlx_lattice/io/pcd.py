"""PCD of the Point Cloud Library: ASCII, binary and binary_compressed (LZF by column)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..core._checks import one_of
from ._native import read_native, write_native
from .cloud import PointCloud

if TYPE_CHECKING:
    from ..core.types import FilePath

FORMS = ("ascii", "binary", "binary_compressed")


def read_pcd(path: FilePath, *, on_progress: Callable[[float], object] | None = None) -> PointCloud:
    """PointCloud of a PCD file. Padding fields named _ are dropped; rgb and rgba become `color`.

    Args:
        on_progress: Called now and then with the share that is done, 0..1; what it raises ends the
            work.

    Raises:
        ValueError: The file is not what it says; the message begins with its path.
    """
    return read_native(path, "pcd", on_progress)


def write_pcd(path: FilePath, cloud: PointCloud, *, format: str = "binary") -> None:
    """Writes a PCD file. `color` becomes the packed field rgb, or rgba with four channels.

    Args:
        format: "ascii", "binary" or "binary_compressed".

    Raises:
        ValueError: A column cannot be stored, for example because its name means something else in
            this format.
    """
    write_native("write_pcd", path, cloud, "pcd", one_of("write_pcd", "format", format, FORMS))
