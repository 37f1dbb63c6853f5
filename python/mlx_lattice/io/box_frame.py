"""A frame with boxes, the item from which detectors learn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core._checks import instance


@dataclass(frozen=True, eq=False)
class BoxFrame:
    """points (N, F) that begin with x, y, z; boxes (M, 7 or 9); labels (M,), counted from 1."""

    points: NDArray[np.float32]
    boxes: NDArray[np.float32]
    labels: NDArray[np.int32]

    def __post_init__(self) -> None:
        for name in ("points", "boxes", "labels"):
            instance(self, name, getattr(self, name), np.ndarray, "a NumPy array")
        if self.points.ndim != 2 or self.points.shape[1] < 3:
            raise ValueError(f"[BoxFrame] points must be (N, F >= 3), got {self.points.shape}")
        if self.boxes.ndim != 2 or self.boxes.shape[1] not in (7, 9):
            raise ValueError(f"[BoxFrame] boxes must be (M, 7 or 9), got {self.boxes.shape}")
        if self.labels.shape != self.boxes.shape[:1]:
            raise ValueError(
                f"[BoxFrame] labels must be ({len(self.boxes)},), got {self.labels.shape}"
            )
        if len(self.labels) and self.labels.min() < 1:
            raise ValueError("[BoxFrame] labels count from 1; 0 is the background")
