"""Draws voxels as small cubes seen from above at an angle, coloured by height (painter's algorithm, far cubes first)."""

import numpy as np
from PIL import Image, ImageDraw

WIDTH, HEIGHT, SCALE = 1600, 900, 2  # drawn at SCALE times the size, then reduced
BACKGROUND = (13, 17, 27)
# Height from low to high.
STOPS = np.array([(38, 52, 97), (45, 105, 153), (52, 160, 164), (122, 199, 125), (235, 205, 92), (242, 131, 68),
                  (214, 61, 84)], float)
AZIMUTH, TILT = np.radians(32), np.radians(36)  # where the viewer stands


def _colours(height, low, high):
    t = np.clip((height - low) / max(high - low, 1e-9), 0, 1) ** 0.6 * (len(STOPS) - 1)
    i = np.minimum(t.astype(int), len(STOPS) - 2)
    return STOPS[i] + (STOPS[i + 1] - STOPS[i]) * (t - i)[:, None]


def draw(voxels, size, path):
    """voxels (N, 3) integers, size in metres."""
    image = Image.new("RGB", (WIDTH * SCALE, HEIGHT * SCALE), BACKGROUND)
    if len(voxels):
        _cubes(ImageDraw.Draw(image), np.asarray(voxels, float) * size, size)
    image.resize((WIDTH, HEIGHT), Image.LANCZOS).save(path)


def _cubes(pen, corner, size):
    right = np.array([-np.sin(AZIMUTH), np.cos(AZIMUTH), 0])
    up = np.array([-np.cos(AZIMUTH) * np.sin(TILT), -np.sin(AZIMUTH) * np.sin(TILT), np.cos(TILT)])
    toward = np.array([np.cos(AZIMUTH) * np.cos(TILT), np.sin(AZIMUTH) * np.cos(TILT), np.sin(TILT)])
    flat = np.stack([corner @ right, corner @ up], axis=1)
    middle, spread = np.median(flat, axis=0), np.percentile(np.abs(flat - np.median(flat, axis=0)), 98, axis=0)
    zoom = SCALE * min(WIDTH * 0.47 / max(spread[0], size), HEIGHT * 0.47 / max(spread[1], size))
    centre = np.array([WIDTH, HEIGHT * 1.04]) * SCALE / 2

    def pixels(points):
        p = np.stack([(points @ right - middle[0]), -(points @ up - middle[1])], axis=-1)
        return p * zoom + centre

    low, high = np.percentile(corner[:, 2], [2, 99.5])
    colour = _colours(corner[:, 2], low, high)
    fade = np.clip(1.15 - np.linalg.norm(corner[:, :2], axis=1) / 110, 0.45, 1)[:, None]  # far cubes sink into the dark
    colour = colour * fade + np.array(BACKGROUND) * (1 - fade)
    e = np.eye(3) * size
    # The three faces that the viewer sees, as corner offsets, and their light.
    faces = [
        (np.array([e[2], e[2] + e[0], e.sum(axis=0), e[2] + e[1]]), 1.0),
        (np.array([e[0], e[0] + e[1], e.sum(axis=0), e[0] + e[2]]), 0.78),
        (np.array([e[1], e[1] + e[0], e.sum(axis=0), e[1] + e[2]]), 0.58),
    ]
    shapes = [(pixels(corner[:, None, :] + offsets), (colour * light).astype(int)) for offsets, light in faces]
    for v in np.argsort(corner @ toward, kind="stable"):
        for outline, shade in shapes:
            pen.polygon([tuple(p) for p in outline[v]], fill=tuple(shade[v]))
