"""Detectors of boxes in point clouds: SECOND, PointPillars, CenterPoint, VoxelNeXt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...core._checks import instance
from ...core._checks import path as check_path
from .detector import Detector, Voxels
from .published import PUBLISHED
from .results import Detections
from .settings import Settings, read_settings
from .weights import load_state, openpcdet_names, point_columns, read_options, sparse_widths

if TYPE_CHECKING:
    import numpy as np

    from ...core.types import FilePath

__all__ = [
    "PUBLISHED",
    "Detections",
    "Detector",
    "Settings",
    "Voxels",
    "from_state",
    "load",
    "read_settings",
]


def load(
    path: FilePath, config: Mapping[str, Any] | str | None = None, *, order: str = "sorted"
) -> Detector:
    """A detector with the weights of a published file, ready for `detect`.

    Args:
        path: A checkpoint of OpenPCDet or det3d (.pth, also .safetensors and .npz), or a file that
            `Detector.save` wrote.
        config: What the network is made of: the name of a published one, a file or a dict; see
            `read_settings`. A file of `Detector.save` has its own.
        order: Of sparse rows, see `ops.conv3d`.

    Raises:
        OSError: The file cannot be opened.
        ValueError: The file is not a checkpoint, or does not fit to the configuration.

    Examples:
        net = models.detection.load("second_7862.pth", "second_kitti")
        print(net.detect(points))
    """
    check_path("load", path)
    if config is None:
        if not str(path).endswith(".safetensors"):
            raise ValueError(
                f"[detection.load] {path} needs config: {', '.join(PUBLISHED)}, or a file or dict; "
                "only files of Detector.save hold their own"
            )
        return Detector.load(path)
    from ...io import read_checkpoint

    return from_state(read_checkpoint(path).arrays, config, order=order)


def from_state(
    state: Mapping[str, np.ndarray], config: Mapping[str, Any] | str, *, order: str = "sorted"
) -> Detector:
    """A detector from weights by their published names."""
    instance("from_state", "state", state, Mapping, "weights by name")
    settings = read_settings(config)
    named = openpcdet_names(state, settings)
    read_options(named, settings)
    net = Detector(settings.as_dict(), point_columns(named, settings), sparse_widths(named), order)
    load_state(net, named)
    net.eval()
    return net
