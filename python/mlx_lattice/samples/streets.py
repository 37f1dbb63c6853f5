"""Streets for the demo and the benchmarks, scanned by one turn of a 64-beam LiDAR.

Rays are cast against boxes and an uneven ground.

sweep(seed)   the points of one fixed kind of street, for timing
street(seed)  points and labels of a street of its own for every seed, for training
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

BEAMS, STEPS, HEIGHT, REACH = 64, 1800, 1.8, 55.0
CLASSES = ("ground", "building", "car", "pole", "vegetation", "pedestrian")
GROUND, BUILDING, CAR, POLE, VEGETATION, PEDESTRIAN = range(6)
Corner: TypeAlias = tuple[float, float, float]


def _boxes(rng: np.random.Generator) -> np.ndarray:
    """(low corner, high corner) of houses along the street, cars, poles and trees' crowns."""
    boxes: list[tuple[Corner, Corner]] = []
    for side in (-1, 1):
        x = -60.0
        while x < 60:
            length, depth, tall = rng.uniform(7, 16), rng.uniform(8, 14), rng.uniform(4, 12)
            near = side * rng.uniform(11, 14)
            low, high = sorted((near, near + side * depth))
            boxes.append(((x, low, -1), (x + length, high, tall)))
            x += length + rng.choice([0.0, 0.0, 3.5])
        for x in np.arange(-45, 46, 15.0) + rng.uniform(-3, 3):  # lamps and trees
            y = side * 8.6
            boxes.append(((x, y - 0.12, -1), (x + 0.24, y + 0.12, 6.0)))
            t = x + 6.5
            boxes.append(((t - 0.2, y - 0.2, -1), (t + 0.2, y + 0.2, 2.6)))
            for _ in range(7):
                c, r = rng.normal((t, y, 3.9), (0.7, 0.7, 0.6)), rng.uniform(0.4, 0.9, 3)
                boxes.append((tuple(c - r), tuple(c + r)))
        for x in np.arange(-42, 43, 7.0) + rng.uniform(-1, 1):  # parked cars: body and cabin
            if abs(x) > 4 and rng.random() < 0.7:
                y = side * 5.6
                boxes.append(((x - 2.2, y - 0.9, 0.25), (x + 2.2, y + 0.9, 0.95)))
                boxes.append(((x - 1.2, y - 0.8, 0.95), (x + 1.0, y + 0.8, 1.5)))
    for x, y in ((14.0, -2.0), (-19.0, 2.0)):  # on the road
        boxes.append(((x - 2.3, y - 0.95, 0.25), (x + 2.3, y + 0.95, 1.0)))
        boxes.append(((x - 1.3, y - 0.85, 1.0), (x + 1.1, y + 0.85, 1.55)))
    return np.array(boxes)


class _Street:
    """Labeled boxes of one street along x; the scanner stands at the origin."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.boxes: list[tuple[Corner, Corner]] = []
        self.labels: list[int] = []
        self.objects: list[tuple[int, Corner, Corner]] = []  # whole cars and people
        self._rng = rng
        half = rng.uniform(5.5, 8.0)  # of the road
        for side in (-1, 1):
            self._houses(side, half)
            self._pavement(side, half)
        for x in rng.uniform(-40, 40, rng.integers(2, 5)):  # driving
            if abs(x) > 6:
                self._car(x, rng.choice([-1, 1]) * rng.uniform(1.5, 2.5))

    def _add(self, label: int, low: Corner, high: Corner) -> None:
        self.boxes.append((low, high))
        self.labels.append(label)

    def _houses(self, side: int, half: float) -> None:
        rng, x = self._rng, -62.0
        while x < 60:
            length, near = rng.uniform(7, 16), side * (half + rng.uniform(5, 8))
            y = sorted((near, near + side * rng.uniform(8, 14)))
            self._add(BUILDING, (x, y[0], -1), (x + length, y[1], rng.uniform(4, 12)))
            x += length
            if rng.random() < 0.4:  # a gap with a hedge
                self._leaves((x + 2, near + side, 0.7), (0.8, 0.8, 0.4), 8)
                x += rng.uniform(3, 5)

    def _pavement(self, side: int, half: float) -> None:
        """Fills slots of about 6 m along the kerb: a lamp, a sign, a tree or nothing.

        Adds parked cars and people who walk.
        """
        rng = self._rng
        for x in np.arange(-48, 49, 6.0) + rng.uniform(-1.5, 1.5, 17):
            y, what = side * (half + rng.uniform(0.8, 1.6)), rng.random()
            if what < 0.3:
                self._add(POLE, (x - 0.12, y - 0.12, -1), (x + 0.12, y + 0.12, rng.uniform(4.5, 7)))
            elif what < 0.45:
                self._add(POLE, (x - 0.07, y - 0.07, -1), (x + 0.07, y + 0.07, 2.6))
                self._add(POLE, (x - 0.05, y - 0.4, 2.0), (x + 0.05, y + 0.4, 2.8))
            elif what < 0.75:
                top = rng.uniform(2.0, 3.0)
                self._add(VEGETATION, (x - 0.2, y - 0.2, -1), (x + 0.2, y + 0.2, top))
                self._leaves((x, y, top + 1.2), (0.8, 0.8, 0.6), 9)
        for x in np.arange(-45, 46, 6.5) + rng.uniform(-0.8, 0.8, 14):
            if abs(x) > 4 and rng.random() < 0.5:
                self._car(x, side * (half - 1.2))
        for x in rng.uniform(-30, 30, rng.integers(5, 9)):
            self._person(x, side * (half + rng.uniform(2.2, 4.2)))

    def _leaves(self, center: Corner, spread: Corner, count: int) -> None:
        for _ in range(count):
            c, r = self._rng.normal(center, spread), self._rng.uniform(0.3, 0.8, 3)
            self._add(VEGETATION, tuple(c - r), tuple(c + r))

    def _car(self, x: float, y: float) -> None:
        rng = self._rng
        long, wide, tall = rng.uniform(1.9, 2.5), rng.uniform(0.8, 0.95), rng.uniform(0.85, 1.05)
        self._add(CAR, (x - long, y - wide, 0.25), (x + long, y + wide, tall))
        roof = tall + rng.uniform(0.5, 0.9)
        self._add(
            CAR,
            (x - 0.6 * long, y - 0.9 * wide, tall),
            (x + 0.5 * long, y + 0.9 * wide, roof),
        )
        self.objects.append((CAR, (x - long, y - wide, 0.0), (x + long, y + wide, roof)))

    def _person(self, x: float, y: float) -> None:
        tall = self._rng.uniform(1.5, 1.9)
        self._add(PEDESTRIAN, (x - 0.15, y - 0.2, 0.05), (x + 0.15, y + 0.2, 0.8))
        self._add(PEDESTRIAN, (x - 0.2, y - 0.28, 0.8), (x + 0.2, y + 0.28, tall - 0.25))
        self._add(PEDESTRIAN, (x - 0.12, y - 0.12, tall - 0.25), (x + 0.12, y + 0.12, tall))
        self.objects.append((PEDESTRIAN, (x - 0.2, y - 0.28, 0.0), (x + 0.2, y + 0.28, tall)))


def _ground(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Road, kerb at 7 m, a gentle roll."""
    return 0.12 * np.sin(x / 9) + 0.08 * np.sin(y / 5 + 1) + 0.15 * (np.abs(y) > 7)


def _cast(boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(rays (beams * steps, 3), distance, index of the box that was hit).

    The index is -1 for the ground; the distance is REACH where nothing was hit.
    """
    elevation = np.radians(np.linspace(-24, 12, BEAMS))[:, None]
    azimuth = np.linspace(-np.pi, np.pi, STEPS, endpoint=False)[None, :]
    rays = np.stack(
        np.broadcast_arrays(
            np.cos(elevation) * np.cos(azimuth),
            np.cos(elevation) * np.sin(azimuth),
            np.sin(elevation),
        ),
        axis=-1,
    )
    origin = np.array([0.0, 0.0, HEIGHT])
    nearest: np.ndarray = np.full(rays.shape[:2], REACH)
    hit: np.ndarray = np.full(rays.shape[:2], -1)
    with np.errstate(divide="ignore"):
        inverse = 1.0 / rays
    # Slabs: a ray enters after the last near plane and leaves before the first far plane.
    for i, (low, high) in enumerate(boxes):
        columns = _columns(low, high, azimuth[0])
        a, b = (low - origin) * inverse[:, columns], (high - origin) * inverse[:, columns]
        enter, leave = np.minimum(a, b).max(axis=2), np.maximum(a, b).min(axis=2)
        first = (enter > 0.5) & (enter < leave) & (enter < nearest[:, columns])
        nearest[:, columns] = np.where(first, enter, nearest[:, columns])
        hit[:, columns] = np.where(first, i, hit[:, columns])
    rays, nearest, hit = rays.reshape(-1, 3), nearest.reshape(-1), hit.reshape(-1)
    down = rays[:, 2] < -1e-3
    t = np.where(down, -HEIGHT / np.where(down, rays[:, 2], -1), np.inf)
    for _ in range(6):  # fixed point of t = (ground - height) / z
        t[down] = (_ground(t[down] * rays[down, 0], t[down] * rays[down, 1]) - HEIGHT) / rays[
            down, 2
        ]
    t = np.where(t > 0.5, t, np.inf)
    return rays, np.minimum(nearest, t), np.where(t <= nearest, -1, hit)


def _columns(low: np.ndarray, high: np.ndarray, azimuth: np.ndarray) -> np.ndarray:
    """Indices of the azimuths that can meet a box.

    They lie between the corners of the box as seen from the scanner, one step wider.
    """
    x, y = (
        np.array([low[i], low[i], high[i], high[i]])[order]
        for i, order in ((0, [0, 1, 2, 3]), (1, [0, 2, 0, 2]))
    )
    middle = np.arctan2(y.mean(), x.mean())
    turn = (np.arctan2(y, x) - middle + np.pi) % (2 * np.pi) - np.pi
    if np.ptp(turn) > np.pi or (low[0] <= 0 <= high[0] and low[1] <= 0 <= high[1]):
        return np.arange(len(azimuth))
    step = 2 * np.pi / len(azimuth)
    first = int(np.floor((middle + turn.min() + np.pi) / step)) - 1
    return np.arange(first, first + int(np.ceil(np.ptp(turn) / step)) + 3) % len(azimuth)


def sweep(seed: int) -> np.ndarray:
    """(N, 3) float64 points; the scanner stands at the origin of x and y."""
    rng = np.random.default_rng(seed)
    rays, nearest, _ = _cast(_boxes(rng))
    kept = nearest < REACH
    ranges = nearest[kept] + rng.normal(0, 0.015, kept.sum())
    return np.array([0.0, 0.0, HEIGHT]) + rays[kept] * ranges[:, None]


def street(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(points (N, 3) float32, labels (N,) int32 into CLASSES); `street_objects` has boxes too."""
    points, labels, _, _ = street_objects(seed)
    return points, labels


def street_objects(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Points, labels, boxes (M, 7) of whole cars and people, and their classes (M,) into CLASSES.

    Every seed has its own houses, trees, cars, people and heading. Ranges have 1.5 cm of noise,
    10 cm in leaves; one ray in fifty is lost. Beams spread, so that far things have few points.
    """
    rng = np.random.default_rng([seed, 7])
    scene = _Street(rng)
    rays, nearest, hit = _cast(np.array(scene.boxes))
    kept = (nearest < REACH) & (rng.random(len(nearest)) > 0.02)
    labels = np.append(scene.labels, GROUND)[hit[kept]].astype(np.int32)  # -1 is the last
    spread = np.where(labels == VEGETATION, 0.1, 0.015)
    points = rays[kept] * (nearest[kept] + rng.normal(0, 1, kept.sum()) * spread)[:, None]
    points[:, 2] += HEIGHT
    turn = rng.uniform(-0.25, 0.25)
    c, s = np.cos(turn), np.sin(turn)
    about_z = np.array([[c, s, 0], [-s, c, 0], [0, 0, 1]])
    corners = np.array([(low, high) for _, low, high in scene.objects])
    boxes = np.zeros((len(corners), 7), np.float32)
    boxes[:, :3] = corners.mean(1) @ about_z
    boxes[:, 3:6], boxes[:, 6] = corners[:, 1] - corners[:, 0], turn
    kinds = np.array([kind for kind, _, _ in scene.objects], np.int32)
    return (points @ about_z).astype(np.float32), labels, boxes, kinds
