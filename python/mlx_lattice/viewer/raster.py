"""PNG without a graphics card, seen from above at an angle.

Points are squares, drawn from far to near; voxels are cubes. A pixel is shaded by how far it lies
behind its neighbors, so that edges are dark (eye-dome lighting, Boucheny 2009).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ..core._checks import integer, one_of, told
from ..io.atomic_files import atomic_file
from .scene import (
    AZIMUTH,
    BACKGROUND,
    BACKGROUNDS,
    TILT,
    Classes,
    Drawn,
    Layer,
    Panels,
    Scene,
    check_point_size,
    colors,
    ramp,
    scene,
    text,
)

if TYPE_CHECKING:
    import os

SCALE = 2  # drawn at SCALE times the size, then reduced
INKS = {"dark": (223, 230, 240), "light": (30, 34, 42)}
RIGHT = np.array([-np.sin(AZIMUTH), np.cos(AZIMUTH), 0])
UP = np.array([-np.cos(AZIMUTH) * np.sin(TILT), -np.sin(AZIMUTH) * np.sin(TILT), np.cos(TILT)])
TOWARD = np.array([np.cos(AZIMUTH) * np.cos(TILT), np.sin(AZIMUTH) * np.cos(TILT), np.sin(TILT)])


def render(
    panels: Panels,
    *,
    color: str | None = None,
    classes: Classes = None,
    title: str = "",
    limit: int = 5_000_000,
    size: tuple[int, int] = (1600, 900),
    point_size: float | None = None,
    theme: str = "dark",
) -> Image.Image:
    """A Pillow image of panels side by side, with titles and one legend per layer."""
    if not isinstance(size, (list, tuple)) or len(size) != 2:
        raise TypeError(f"[viewer] size: found {told(size)}, expected (width, height) in pixels")
    width, height = (integer("viewer", "size", side, 64, 16384) for side in size)
    one_of("viewer", "theme", theme, tuple(BACKGROUNDS))
    diameter = check_point_size(point_size)
    text("title", title)
    s = scene(panels, color, classes, limit)
    by_name = {x.name: x for x in s.layers}
    n = len(s.panels)
    columns = max(range(1, n + 1), key=lambda c: min(width / c, height / -(-n // c)))
    rows = -(-n // columns)
    image = Image.new("RGB", (width, height), BACKGROUNDS[theme])
    every = np.concatenate([p.points for p in s.panels])
    view = _view(every, width // columns, height // rows)
    corners = [(i % columns * width // columns, i // columns * height // rows) for i in range(n)]
    for corner, panel in zip(corners, s.panels):
        part = _points(
            panel.points,
            colors(by_name[panel.color or s.first], panel),
            view,
            width // columns,
            height // rows,
            diameter,
            BACKGROUNDS[theme],
        )
        _marks(part, panel, view, INKS[theme], BACKGROUNDS[theme])
        image.paste(part, corner)
    _words(image, s, corners, title, INKS[theme])
    return image


def _words(
    image: Image.Image,
    s: Scene,
    corners: list[tuple[int, int]],
    title: str,
    ink: tuple[int, int, int],
) -> None:
    """Writes the title of each panel and one legend per layer."""
    pen = ImageDraw.Draw(image)
    for corner, panel in zip(corners, s.panels):
        shown = (
            f"{len(panel.points):,} points"
            if len(panel.points) + panel.bad >= panel.total
            else f"{len(panel.points):,} of {panel.total:,} points, a random choice"
        )
        name = panel.title or (title if len(s.panels) == 1 else "")
        place = (corner[0] + 16, corner[1] + 12)
        pen.text(place, f"{name}   {shown}".strip(), ink, ImageFont.load_default(18))
    used = list(dict.fromkeys(p.color or s.first for p in s.panels))
    used = [name for name in used if not (name == "truth" and "label" in used)]  # one legend
    by_name = {x.name: x for x in s.layers}
    left = 16
    for name in used:
        left += _legend(pen, by_name[name], left, image.height, ink)


def _marks(
    image: Image.Image,
    panel: Drawn,
    view: tuple[np.ndarray, float],
    ink: tuple[int, int, int],
    back: tuple[int, int, int],
) -> None:
    """Writes the words of a panel at their places."""
    pen, font, (middle, zoom) = ImageDraw.Draw(image), ImageFont.load_default(13), view
    for *place, words in panel.marks:
        x = (np.dot(place, RIGHT) - middle[0]) * zoom / SCALE + image.width / 2
        y = (middle[1] - np.dot(place, UP)) * zoom / SCALE + image.height / 2
        if 0 <= x < image.width and 0 <= y < image.height:
            pen.text((x, y), words, ink, font, "ms", stroke_width=2, stroke_fill=back)


def _view(points: np.ndarray, width: int, height: int) -> tuple[np.ndarray, float]:
    """(middle, pixels a unit) that show 98 of 100 points, at SCALE."""
    if not len(points):
        return np.zeros(2), 1.0
    flat = np.stack([points @ RIGHT, points @ UP], axis=1)
    low, high = np.percentile(flat, [1, 99], axis=0)
    span = np.maximum(high - low, 1e-9)
    return (low + high) / 2, SCALE * 0.9 * min(width / span[0], height / span[1])


def _points(
    points: np.ndarray,
    color: np.ndarray,
    view: tuple[np.ndarray, float],
    width: int,
    height: int,
    point_size: float,
    background: tuple[int, int, int],
) -> Image.Image:
    w, h = width * SCALE, height * SCALE
    middle, zoom = view
    buffer = np.full((h * w, 3), background, np.uint8)
    depth = np.full(h * w, -np.inf, np.float32)
    order = np.argsort(points @ TOWARD, kind="stable")  # far ones first
    points, color = points[order], color[order].astype(np.uint8)
    x = np.rint((points @ RIGHT - middle[0]) * zoom + w / 2)
    y = np.rint(-(points @ UP - middle[1]) * zoom + h / 2)
    near = (points @ TOWARD).astype(np.float32)
    side = max(1, round(point_size * SCALE))
    for dy in range(side):
        for dx in range(side):
            column, row = x + dx - side // 2, y + dy - side // 2
            inside = (column >= 0) & (column < w) & (row >= 0) & (row < h)
            at = row[inside].astype(np.int64) * w + column[inside].astype(np.int64)
            # Where squares of several points meet, a pixel goes to the nearest point. NumPy keeps
            # the last of equal indices, and the last point is the nearest.
            z, shade = near[inside], color[inside]
            nearer = z >= depth[at]
            depth[at[nearer]], buffer[at[nearer]] = z[nearer], shade[nearer]
    picture = buffer.reshape(h, w, 3) * _edges(depth.reshape(h, w), SCALE * 30 / zoom)[..., None]
    image = Image.fromarray(picture.astype(np.uint8))
    return image.resize((width, height), Image.Resampling.LANCZOS)


def _edges(depth: np.ndarray, unit: float) -> np.ndarray:
    """0.35..1: darker the farther a pixel lies behind its four neighbors, in units of `unit`."""
    drop = np.zeros(depth.shape, np.float32)
    lit = np.isfinite(depth)
    for axis in (0, 1):
        for step in (-2, 2):
            other = np.roll(depth, step, axis)
            with np.errstate(invalid="ignore"):
                drop += np.where(lit & np.isfinite(other), np.clip(other - depth, 0, 4 * unit), 0)
    return np.where(lit, np.maximum(np.exp(-drop / (4 * unit)), 0.35), 1)


def _legend(
    pen: ImageDraw.ImageDraw, layer: Layer, left: int, height: int, ink: tuple[int, int, int]
) -> int:
    """Draws the legend of one layer and returns its width."""
    font = ImageFont.load_default(15)
    if layer.kind == "class":
        entries = layer.entries[: max(1, (height - 80) // 20)]
        top = height - 20 * len(entries) - 16
        for i, (_value, name, color) in enumerate(entries):
            pen.rectangle((left, top + 20 * i + 3, left + 12, top + 20 * i + 15), fill=tuple(color))
            pen.text((left + 20, top + 20 * i), name, ink, font)
        return 60 + max((int(font.getlength(e[1])) for e in entries), default=0)
    if layer.kind != "rgb":
        for i, shade in enumerate(ramp(np.linspace(0, 1, 200)).astype(int)):
            pen.line((left + i, height - 44, left + i, height - 32), fill=tuple(shade))
        pen.text((left, height - 66), layer.name, ink, font)
        pen.text((left, height - 28), f"{layer.low:.6g}", ink, font)
        pen.text((left + 200, height - 28), f"{layer.high:.6g}", ink, font, anchor="ra")
        return 240
    return 0


def cubes(
    voxels: np.ndarray,
    voxel_size: float,
    path: str | os.PathLike[str],
    size: tuple[int, int] = (1600, 900),
) -> None:
    """Draws voxels (N, 3), integers, as small cubes colored by height, far cubes first."""
    width, height = size
    image = Image.new("RGB", (width * SCALE, height * SCALE), BACKGROUND)
    if len(voxels):
        _cubes(
            ImageDraw.Draw(image), np.asarray(voxels, float) * voxel_size, voxel_size, width, height
        )
    with atomic_file(path) as file:
        image.resize(size, Image.Resampling.LANCZOS).save(file, "PNG")


def _cubes(
    pen: ImageDraw.ImageDraw, corner: np.ndarray, size: float, width: int, height: int
) -> None:
    flat = np.stack([corner @ RIGHT, corner @ UP], axis=1)
    middle, spread = (
        np.median(flat, axis=0),
        np.percentile(np.abs(flat - np.median(flat, axis=0)), 98, axis=0),
    )
    zoom = SCALE * min(width * 0.47 / max(spread[0], size), height * 0.47 / max(spread[1], size))
    center = np.array([width, height * 1.04]) * SCALE / 2

    def pixels(points: np.ndarray) -> np.ndarray:
        p = np.stack([(points @ RIGHT - middle[0]), -(points @ UP - middle[1])], axis=-1)
        return p * zoom + center

    low, high = np.percentile(corner[:, 2], [2, 99.5])
    color = ramp(np.clip((corner[:, 2] - low) / max(high - low, 1e-9), 0, 1) ** 0.6)
    fade = np.clip(1.15 - np.linalg.norm(corner[:, :2], axis=1) / 110, 0.45, 1)[
        :, None
    ]  # far cubes sink into the dark
    color = color * fade + np.array(BACKGROUND) * (1 - fade)
    e = np.eye(3) * size
    # The three faces that the viewer sees, as corner offsets, and their light.
    faces = [
        (np.array([e[2], e[2] + e[0], e.sum(axis=0), e[2] + e[1]]), 1.0),
        (np.array([e[0], e[0] + e[1], e.sum(axis=0), e[0] + e[2]]), 0.78),
        (np.array([e[1], e[1] + e[0], e.sum(axis=0), e[1] + e[2]]), 0.58),
    ]
    shapes = [
        (pixels(corner[:, None, :] + offsets), (color * light).astype(int))
        for offsets, light in faces
    ]
    for v in np.argsort(corner @ TOWARD, kind="stable"):
        for outline, shade in shapes:
            pen.polygon([tuple(p) for p in outline[v]], fill=tuple(shade[v]))
