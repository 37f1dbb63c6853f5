"""Whole detectors: points in, boxes with names, scores and velocities out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import mlx.core as mx

from ... import ops
from ...core import SparseTensor
from ...core._checks import array, integer, listed, one_of, sizes
from .._model import Model
from .anchor_head import AnchorHead
from .backbones import VoxelBackbone, VoxelNeXtBackbone
from .bev import BevBackbone, height_to_channels
from .center_head import DenseCenterHead, SparseCenterHead
from .pillars import PillarFeatures
from .results import Candidates, Detections, detections
from .settings import Settings, read_settings

if TYPE_CHECKING:
    import numpy as np

Points: TypeAlias = "mx.array | np.ndarray"
# Channels of the published networks where their configuration does not say them.
_WIDTHS = {
    "VoxelBackBone8x": (16, 32, 64, 64, 128),
    "VoxelResBackBone8x": (16, 32, 64, 128, 128),
    "VoxelResBackBone8xVoxelNeXt": (16, 32, 64, 128, 128, 128, 128),
}


@dataclass(frozen=True, eq=False)
class Voxels:
    """The voxels of a batch of frames: slots (V, M, F), cells (V, 4) as batch, z, y, x."""

    slots: mx.array
    mean: mx.array
    cells: mx.array
    counts: mx.array
    dropped: tuple[mx.array, ...]  # of each frame: see ops.point_voxels


class Detector(Model):
    """SECOND, PointPillars, CenterPoint or VoxelNeXt.

    `detector.detect(points)` gives the boxes of a frame; `detector(frames)` gives the outputs of
    the head, for training. `models.detection.load` reads published weights.

    Args:
        config: What `read_settings` takes: the name of a published network, a file or a dict.
        in_channels: Columns of a point: x, y, z and features.
        widths: Channels of the sparse stages, conv1 .. conv_out; by default the published ones.
        order: Of sparse rows; "spconv" gives them the order of its CPU code, for comparing.

    Raises:
        ValueError: The configuration does not fit together; the message names the part.

    Examples:
        >>> from mlx_lattice.models import detection
        >>> net = detection.Detector("pointpillars_kitti")
        >>> net.settings.grid
        (432, 496, 1)
    """

    _integer_part = "backbone_3d."  # the parts that `quantize` turns into integers

    def __init__(
        self,
        config: Mapping[str, Any] | str,
        in_channels: int = 4,
        widths: Sequence[int] | None = None,
        order: str = "sorted",
    ) -> None:
        in_channels = integer(self, "in_channels", in_channels, 3)
        if widths is not None:
            widths = sizes(self, "widths", widths)
        one_of(self, "order", order, ("sorted", "spconv"))
        settings = read_settings(config)
        super().__init__(
            config=settings.as_dict(),
            in_channels=in_channels,
            widths=None if widths is None else list(widths),
            order=order,
        )
        self._settings = settings
        self.backbone_3d: VoxelBackbone | VoxelNeXtBackbone
        model = settings.model
        channels = self._add_sparse_part(in_channels, widths, order)
        if "BACKBONE_2D" in model:
            self.backbone_2d = BevBackbone(channels, model["BACKBONE_2D"])
            channels = self.backbone_2d.out_channels
        head = {
            "AnchorHeadSingle": AnchorHead,
            "CenterHead": DenseCenterHead,
            "VoxelNeXtHead": SparseCenterHead,
        }.get(model["DENSE_HEAD"]["NAME"])
        if head is None:
            raise ValueError(
                f"[Detector] DENSE_HEAD must be AnchorHeadSingle, CenterHead or VoxelNeXtHead, got "
                f"{model['DENSE_HEAD']['NAME']!r}"
            )
        is_sparse = isinstance(self.get("backbone_3d"), VoxelNeXtBackbone)
        if (head is SparseCenterHead) != is_sparse or is_sparse == ("backbone_2d" in self):
            raise ValueError(
                "[Detector] VoxelNeXtHead follows VoxelResBackBone8xVoxelNeXt, and other heads "
                f"follow a BACKBONE_2D; got {model['DENSE_HEAD']['NAME']} with "
                f"{', '.join(k for k in model if k.startswith('BACKBONE')) or 'no backbone'}"
            )
        self.dense_head = head(channels, settings)

    def _add_sparse_part(self, in_channels: int, widths: Sequence[int] | None, order: str) -> int:
        """Pillars or a sparse backbone; the channels of what the next part reads."""
        settings, model = self._settings, self._settings.model
        if model["VFE"]["NAME"] == "PillarVFE":
            self.vfe = PillarFeatures(in_channels, model["VFE"], settings.low, settings.voxel_size)
            return int(model["VFE"]["NUM_FILTERS"][-1])
        config = model["BACKBONE_3D"]
        name = config["NAME"]
        if name not in _WIDTHS:
            raise ValueError(
                f"[Detector] BACKBONE_3D must be one of {', '.join(_WIDTHS)}, got {name!r}"
            )
        if widths is None:
            widths = _WIDTHS[name]
            if "CHANNELS" in config:  # of VoxelNeXt: the last is that of conv5 and conv6
                c = list(config["CHANNELS"])
                widths = [*c, c[-1], config.get("OUT_CHANNEL", c[-1])]
        elif len(widths) != len(_WIDTHS[name]):
            raise ValueError(
                f"[Detector] widths must hold {len(_WIDTHS[name])} numbers of channels for {name}, "
                f"got {len(widths)}"
            )
        if name == "VoxelResBackBone8xVoxelNeXt":
            sizes = config.get("SPCONV_KERNEL_SIZES", (3, 3, 3, 3))
            self.backbone_3d = VoxelNeXtBackbone(in_channels, widths, sizes, order)
            return int(widths[-1])
        bias = bool(config.get("USE_BIAS", True))
        self.backbone_3d = VoxelBackbone(
            in_channels, widths, name == "VoxelResBackBone8x", bias, order
        )
        # conv4 has ceil-like heights without padding in z, conv_out halves once more.
        depth = settings.grid[2] + 1
        for size, stride, pad in ((3, 2, 1), (3, 2, 1), (3, 2, 0), (3, 2, 0)):
            depth = (depth + 2 * pad - size) // stride + 1
        if depth < 1:
            raise ValueError(
                f"[Detector] the grid is too low for four halvings: {settings.grid[2]} cells in z"
            )
        return int(widths[-1]) * depth

    @property
    def settings(self) -> Settings:
        """Classes, grid and parts."""
        return self._settings

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns after x, y, z: those of the configuration, else intensity, time."""
        given = self._settings.columns or ("intensity", "time")
        count = self._config["in_channels"] - 3
        more = tuple(f"column{i}" for i in range(len(given), count))
        return (*given, *more)[:count]

    def voxels(self, frames: Sequence[Points]) -> Voxels:
        """The voxels of frames of points (N, in_channels)."""
        s, columns = self._settings, self._config["in_channels"]
        found = []
        for i, points in enumerate(listed(self, "frames", frames, "a list of points (N, C)")):
            points = array(self, "frames", points)
            if len(points.shape) != 2 or points.shape[1] != columns:
                raise ValueError(
                    f"[Detector] points of frame {i} must have shape (N, {columns}), "
                    f"got {tuple(points.shape)}"
                )
            found.append(
                ops.point_voxels(
                    points,
                    s.low,
                    s.high,
                    s.voxel_size,
                    max_points=s.max_points,
                    max_voxels=s.max_voxels,
                )
            )
        cells = [
            mx.concatenate([mx.zeros_like(f.coords[:, :1]) + i, f.coords], axis=1)
            for i, f in enumerate(found)
        ]
        return Voxels(
            mx.concatenate([f.voxels for f in found]),
            mx.concatenate([f.mean for f in found]),
            mx.concatenate(cells),
            mx.concatenate([f.counts for f in found]),
            tuple(f.dropped for f in found),
        )

    def stages(self, voxels: Voxels) -> dict[str, Any]:
        """The results of each part by its name; the last is "dense_head"."""
        made: dict[str, Any] = {}
        batch = len(voxels.dropped)
        nx, ny, nz = self._settings.grid
        if "vfe" in self:
            made["vfe"] = self.vfe(voxels.slots, voxels.counts, voxels.cells[:, 1:])
            pillars = SparseTensor(voxels.cells, made["vfe"])
            made["bev"] = pillars.to_dense((batch, nz, ny, nx))[:, 0]
        else:
            x = SparseTensor(voxels.cells, voxels.mean)
            made["backbone_3d"] = self.backbone_3d(x.with_bounds(((0, 0, 0), (nz + 1, ny, nx))))
            if "backbone_2d" in self:
                made["bev"] = height_to_channels(made["backbone_3d"]["conv_out"], batch)
        if "backbone_2d" in self:
            made["backbone_2d"] = self.backbone_2d(made["bev"])
            made["dense_head"] = self.dense_head(made["backbone_2d"])
        else:
            made["dense_head"] = self.dense_head(made["backbone_3d"]["shared_conv"])
        return made

    def __call__(self, frames: Sequence[Points]) -> Any:
        """The outputs of the head for frames of points."""
        return self.stages(self.voxels(frames))["dense_head"]

    def detect(self, points: Points) -> Detections:
        """The boxes of a frame of points (N, in_channels).

        A frame without points, or without a voxel in the grid, has no boxes.
        """
        return self.detect_frames([points])[0]

    def detect_frames(self, frames: Sequence[Points]) -> list[Detections]:
        """The boxes of several frames, computed together."""
        if not len(frames):
            return []
        voxels = self.voxels(frames)
        names = self._settings.class_names
        chosen = self.choose(voxels)
        return [detections(found, names, lost) for found, lost in zip(chosen, voxels.dropped)]

    def choose(self, voxels: Voxels) -> list[Candidates]:
        """The boxes of each frame as arrays; classes count from 0. A frame without voxels has none.

        An exported detector computes this function.
        """
        made = self.stages(voxels)
        batch = voxels.cells[:, 0]
        filled = [mx.sum((batch == i).astype(mx.int32)) > 0 for i in range(len(voxels.dropped))]
        outputs, head = made["dense_head"], self.dense_head
        if isinstance(head, AnchorHead):
            return head.choose(outputs, filled)
        if isinstance(head, DenseCenterHead):
            return head.choose(outputs, made["backbone_2d"].shape[1:3], filled)
        return head.choose(outputs, made["backbone_3d"]["shared_conv"], filled)
