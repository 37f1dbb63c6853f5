"""E57 through `pye57`, where it is installed: all scans of a file, placed by their poses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..core._checks import path as check_path
from ._check import naming, require
from .cloud import PointCloud

if TYPE_CHECKING:
    from ..core.types import FilePath

COLORS = ("colorRed", "colorGreen", "colorBlue")


def read_e57(path: FilePath) -> PointCloud:
    """PointCloud float64 of all scans of an E57 file, placed by their poses.

    It has `intensity` and `color` where all scans have them, and `scan`, the number of the scan,
    where there are several. The package pye57 must be installed.
    """
    check_path("read_e57", path)
    pye57 = require("pye57", "e57")
    with open(path, "rb"):
        pass  # a missing file stays an OSError
    with naming(path, "E57"):
        file = pye57.E57(str(path))
        try:
            scans = [
                file.read_scan(i, intensity=True, colors=True, ignore_missing_fields=True)
                for i in range(file.scan_count)
            ]
        finally:
            file.close()
        if not scans:
            raise ValueError("no scan inside")
        shared = set.intersection(*(set(s) for s in scans))

        def join(name: str) -> np.ndarray:
            return np.concatenate([s[name] for s in scans])

        points = np.stack([join(f"cartesian{axis}") for axis in "XYZ"], axis=1)
        columns = {}
        if "intensity" in shared:
            columns["intensity"] = join("intensity").astype(np.float32)
        if set(COLORS) <= shared:
            columns["color"] = np.stack([join(c) for c in COLORS], axis=1).astype(np.uint8)
        if len(scans) > 1:
            lengths = [len(s["cartesianX"]) for s in scans]
            columns["scan"] = np.repeat(np.arange(len(scans), dtype=np.int32), lengths)
        return PointCloud(points.astype(np.float64), columns)
