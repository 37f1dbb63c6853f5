#!/usr/bin/env python3
"""The pictures of docs/transforms.md: a street from above before and after each transform.

    python docs/figures/transforms.py docs/figures/transforms

Points are colored by their label; pale points in mixes are those of the second scan. The same seed
gives the same files. Needs Pillow.
"""

import argparse
from pathlib import Path

import numpy as np
from mlx_lattice import transforms as tf
from mlx_lattice.io import PointCloud
from mlx_lattice.samples import streets
from PIL import Image

SIZE, REACH = 220, 28.0
COLORS = np.array(
    [[150, 150, 150], [196, 110, 70], [40, 90, 200], [220, 170, 0], [60, 150, 70], [200, 30, 90]]
)


def cloud_of(seed: int, second: bool) -> PointCloud:
    points, labels = streets.street(seed)
    points, labels = points[::3], labels[::3].astype(np.int32)
    number = np.cumsum(np.r_[0, np.abs(np.diff(labels)) > 0]).astype(np.int32) % 97 + 1
    return PointCloud(
        points,
        {
            "label": labels,
            "instance": number,
            "color": COLORS[labels].astype(np.uint8),
            "second": np.full(len(points), second, np.int32),
        },
    )


def picture(cloud: PointCloud, reach: float, middle: np.ndarray) -> np.ndarray:
    """(SIZE, SIZE, 3): the points from above, higher ones on top."""
    image = np.full((SIZE, SIZE, 3), 255, np.uint8)
    at = np.rint((cloud.points[:, :2] - middle) / reach * SIZE / 2 + SIZE / 2).astype(int)
    order = np.argsort(cloud.points[:, 2], kind="stable")
    seen = order[((at[order] >= 0) & (at[order] < SIZE)).all(axis=1)]
    color = cloud.columns["color"].astype(float)
    pale = cloud.columns["second"][:, None] > 0
    color = np.where(pale, 255 - (255 - color) * 0.45, color).astype(np.uint8)
    image[SIZE - 1 - at[seen, 1], at[seen, 0]] = color[seen]
    return image


EXAMPLES = {
    "Flip": tf.Flip("y", 1.0),
    "Rotate": tf.Rotate("z", 35, 35),
    "Scale": tf.Scale(0.6, 0.6),
    "Translate": tf.Translate((8, 8, 0)),
    "Jitter": tf.Jitter(0.5, 1.0),
    "Elastic": tf.Elastic(6.0, 6.0),
    "Normalize": tf.Normalize("box"),
    "Dropout": tf.Dropout(0.9),
    "CropBox": tf.CropBox((20, 20, 50)),
    "CropSphere": tf.CropSphere(6000),
    "CropRange": tf.CropRange((-15, -10, -5), (15, 10, 10)),
    "Voxelize": tf.Voxelize(0.8),
    "ColorJitter": tf.ColorJitter(0.3, 0.5, 0.1),
    "ColorDrop": tf.ColorDrop(1.0),
    "Mix3D": tf.Mix3D(),
    "PolarMix": tf.PolarMix(),
    "LaserMix": tf.LaserMix((6,)),
    "CopyPaste": tf.CopyPaste(classes=(2,), count=12),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    folder = Path(parser.parse_args().folder)
    folder.mkdir(parents=True, exist_ok=True)
    cloud, other = cloud_of(1, False), cloud_of(5, True)
    assert set(EXAMPLES) == set(tf.TRANSFORMS)
    for name, transform in EXAMPLES.items():
        made = transform(cloud, tf.rng_of(4, 0, 0), lambda rng: other)
        reach = 1.1 if name == "Normalize" else REACH
        sides = [picture(cloud, REACH, np.zeros(2)), np.full((SIZE, 6, 3), 220, np.uint8)]
        sides.append(picture(made, reach, np.zeros(2)))
        image = Image.fromarray(np.concatenate(sides, axis=1)).quantize(32)
        image.save(folder / f"{name}.png", optimize=True)
    print(f"{len(EXAMPLES)} pictures in {folder}")


if __name__ == "__main__":
    main()
