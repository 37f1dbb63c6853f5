"""One rank of test_distributed.py.

Python distributed_worker.py FOLDER EPOCHS [die|hang] [resume].
"""

import os
import sys
import time

import mlx.core as mx
import mlx.nn
import mlx.optimizers as optim
import numpy as np
from mlx.utils import tree_flatten
from mlx_lattice import io, nn
from mlx_lattice.training import scans
from mlx_lattice.training.distributed import Ranks
from mlx_lattice.training.trainer import Trainer, TrainingError


class Net(mlx.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.down = (
            nn.SubmConv3d(6, 8),
            nn.BatchNorm(8),
            nn.Conv3d(8, 8, 2, 2),
        )
        self.up, self.head = nn.ConvTranspose3d(8, 8), nn.Linear(8, 3)

    def __call__(self, x):
        y = nn.ReLU()(self.norm(self.conv(x)))
        return self.head(self.up(nn.ReLU()(self.down(y)), y))


def items(count=5):
    recipe = scans.VoxelPipeline(0.5, ((0, "low"), (1, "middle"), (2, "high")))
    made = []
    for i in range(count):
        points = np.random.default_rng(i).uniform(0, 4, (400, 3)).astype(np.float32)
        made.append(
            recipe.scan(io.PointCloud(points, {"label": (points[:, 2] // 1.4).astype(np.int32)}))
        )
    return made, recipe


def train(folder, epochs, ranks, batch=1, resume=False, disturb=None):
    mx.random.seed(100 + ranks.rank)  # ranks begin with rank 0's weights all the same
    trainer = Trainer(
        Net(),
        optim.SGD(0.05, momentum=0.9),
        scans.segmentation_loss(),
        directory=folder,
        batch=batch,
        ranks=ranks,
    )
    if resume:
        trainer.resume()
    made, recipe = items()

    def validate(model, ranks):
        if ranks.rank == 1 and trainer.epoch == 2:
            if disturb == "die":
                os._exit(9)
            if disturb == "hang":
                time.sleep(60)
        return {"mean_iou": scans.evaluate(model, made, recipe.names, ranks).mean_iou}

    trainer.fit(made, epochs, validate)
    return trainer


if __name__ == "__main__":
    words = sys.argv[3:]
    group = Ranks(timeout=3.0 if "hang" in words else 60.0)
    try:
        trainer = train(
            sys.argv[1],
            int(sys.argv[2]),
            group,
            resume="resume" in words,
            disturb=next((w for w in words if w != "resume"), None),
        )
        print(
            {
                name: np.array(value).tolist()
                for name, value in tree_flatten(trainer.model.parameters())
            }
        )
    except TrainingError as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(1)
