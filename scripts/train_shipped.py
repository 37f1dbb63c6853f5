"""Trains the network that ships with the package: python scripts/train_shipped.py [--scenes 48].

Streets come from `samples.streets`, so that no data is needed. The weights go to
python/mlx_lattice/weights/streets in float16. It takes about five minutes of CPU time.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import mlx.core as mx
from mlx_lattice.cli import training_run
from mlx_lattice.cli.demo import Streets
from mlx_lattice.nn._arrays import named_arrays, save_arrays
from mlx_lattice.training import evaluate_voxels
from mlx_lattice.training.distributed import Ranks
from mlx_lattice.training.recipes import load_recipe

FOLDER = Path(__file__).parent.parent / "python/mlx_lattice/weights/streets"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scenes", type=int, default=24)
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--output", type=Path, default=FOLDER)
    given = parser.parse_args()
    recipe = load_recipe("streets-litept").changed(epochs=given.epochs, seed=7)
    seeds = [70_000 + i for i in range(given.scenes + 6)]
    run = training_run.run_by_recipe(recipe, Streets(seeds[:-6]), None, Ranks())
    run.fit(given.epochs)
    model = run.trainer.model
    if run.trainer.average is not None:
        model.update(run.trainer.average.values)
    model.eval()
    test = Streets(seeds[-6:])
    made = [run.pipeline.scan(test[i], test.name(i)) for i in range(6)]
    print(evaluate_voxels(model, made, run.pipeline.names))
    given.output.mkdir(parents=True, exist_ok=True)
    path = given.output / "model.safetensors"
    model.save(path)
    save_arrays(path, {n: a.astype(mx.float16) for n, a in named_arrays(model.parameters())})
    run.pipeline.save(given.output / "pipeline.json")
    print(json.dumps({"parameters": sum(a.size for _, a in named_arrays(model.parameters()))}))
    print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
