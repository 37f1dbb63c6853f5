#!/usr/bin/env python3
"""Draws the pictures of the quick start, of own data and of compression; takes a minute.

yard.png         a scan of the quick start, colored by its labels
prediction.png   what the network of the quick start predicts, the truth, and the errors
voxels.png       the same scan as points, and as voxels of two sizes
"""

from pathlib import Path

from mlx_lattice import io, models, samples, training, viewer
from mlx_lattice.io.downsample import downsample

FOLDER = Path(__file__).resolve().parent
LOOK = {"theme": "light", "color": "label", "classes": samples.CLASSES, "point_size": 3.0}


def draw(name, panels, size):
    """A PNG of 32 colors, which are enough and small."""
    viewer.picture(panels, size=size, **LOOK).quantize(32).save(FOLDER / name, optimize=True)


def main():
    clouds = [samples.scan(i) for i in range(5)]
    unseen = clouds[4]
    draw("yard.png", unseen, (760, 420))
    pipeline = training.VoxelPipeline(0.2, tuple(enumerate(samples.CLASSES)))
    net = models.MinkUNet(pipeline.channels, len(samples.CLASSES), depth=14, width=8)
    trainer = training.Trainer(net, training.adamw(4e-3, 40), training.segmentation_loss())
    trainer.fit([pipeline.scan(cloud) for cloud in clouds[:4]], epochs=10)
    found = training.predict_points(net, pipeline, unseen)
    panels = viewer.compare(unseen, unseen.columns["label"], found)
    draw("prediction.png", panels, (1100, 380))
    sizes = [("points", unseen)]
    for size in (0.1, 0.4):
        small = downsample(unseen, size, "center")[0]
        sizes.append((f"voxels of {size} m: {len(small):,}", small))
    shown = [viewer.Panel(io.PointCloud(c.points, dict(c.columns)), name) for name, c in sizes]
    draw("voxels.png", shown, (1100, 380))


if __name__ == "__main__":
    main()
