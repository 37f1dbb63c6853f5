"""A street for the demo, scanned by one turn of a 64-beam LiDAR: rays against boxes and an uneven ground."""

import numpy as np

BEAMS, STEPS, HEIGHT, REACH = 64, 1800, 1.8, 55.0


def _boxes(rng):
    """(low corner, high corner) of houses along the street, cars, poles and trees' crowns."""
    boxes = []
    for side in (-1, 1):
        x = -60.0
        while x < 60:
            length, depth, tall = rng.uniform(7, 16), rng.uniform(8, 14), rng.uniform(4, 12)
            near = side * rng.uniform(11, 14)
            y = sorted((near, near + side * depth))
            boxes.append(((x, y[0], -1), (x + length, y[1], tall)))
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


def _ground(x, y):
    """Road, kerb at 7 m, a gentle roll."""
    return 0.12 * np.sin(x / 9) + 0.08 * np.sin(y / 5 + 1) + 0.15 * (np.abs(y) > 7)


def sweep(seed):
    """(N, 3) float64 points; the scanner stands at the origin of x and y."""
    rng = np.random.default_rng(seed)
    elevation = np.radians(np.linspace(-24, 12, BEAMS))[:, None]
    azimuth = np.linspace(-np.pi, np.pi, STEPS, endpoint=False)[None, :]
    rays = np.stack(np.broadcast_arrays(np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth),
                                        np.sin(elevation)), axis=-1).reshape(-1, 3)
    origin = np.array([0.0, 0.0, HEIGHT])
    nearest = np.full(len(rays), REACH)
    with np.errstate(divide="ignore"):
        inverse = 1.0 / rays
    for low, high in _boxes(rng):  # slabs: enter after the last near plane, leave before the first far plane
        a, b = (low - origin) * inverse, (high - origin) * inverse
        enter, leave = np.minimum(a, b).max(axis=1), np.maximum(a, b).min(axis=1)
        hit = (enter > 0.5) & (enter < leave)
        nearest[hit] = np.minimum(nearest[hit], enter[hit])
    down = rays[:, 2] < -1e-3
    t = np.where(down, -HEIGHT / np.where(down, rays[:, 2], -1), np.inf)
    for _ in range(6):  # fixed point of t = (ground - height) / z
        t[down] = (_ground(t[down] * rays[down, 0], t[down] * rays[down, 1]) - HEIGHT) / rays[down, 2]
    nearest = np.minimum(nearest, np.where(t > 0.5, t, np.inf))
    kept = nearest < REACH
    ranges = nearest[kept] + rng.normal(0, 0.015, kept.sum())
    return origin + rays[kept] * ranges[:, None]
