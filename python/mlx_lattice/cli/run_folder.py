"""The folder that `train` writes and the other commands read.

model.safetensors, model.json  the network of the best epoch
pipeline.json                  how clouds become voxels: a VoxelPipeline
recipe.toml                    of `train --recipe`: everything but the data
checkpoint.safetensors where --resume continues history.csv one row per epoch
"""

from __future__ import annotations

import fcntl
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import mlx.core as mx

from .. import models
from ..datasets import Dataset, DatasetError, Folder
from ..datasets.folder import clouds_below
from ..io.atomic_files import write_bytes
from ..training import VoxelPipeline, checkpoint
from ..training.callbacks import HISTORY
from ..training.recipes import Recipe, load_recipe

SHIPPED = "streets"  # the network of the package: weights/streets
WEIGHTS = Path(__file__).parent.parent / "weights"
MODEL, PIPELINE, RECIPE = "model.safetensors", "pipeline.json", "recipe.toml"
OLDER_PIPELINE = "recipe.json"  # what pipeline.json was called before version 0.2


class RunFolder:
    """The files of one training. Paths of files that do not exist yet are those to write."""

    def __init__(self, folder: str | os.PathLike[str], model: str = MODEL) -> None:
        self.path = Path(folder)
        self.model = self.path / model
        self.recipe_path, self.history = self.path / RECIPE, self.path / HISTORY

    @classmethod
    def of(cls, given: str | os.PathLike[str]) -> RunFolder:
        """The folder itself, or that of one of its networks: a path that ends in .safetensors.

        The name of a network that ships with the package stands for its folder.
        """
        path = Path(given)
        if given == SHIPPED and not path.exists():
            path = WEIGHTS / SHIPPED
        return cls(path) if path.is_dir() else cls(path.parent, path.name)

    @property
    def pipeline_path(self) -> Path:
        new, older = self.path / PIPELINE, self.path / OLDER_PIPELINE
        return older if older.is_file() and not new.is_file() else new

    def check_free(self, resume: bool) -> None:
        """ValueError if the path is a file, or holds a training that would be overwritten."""
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"--output: {self.path} is a file, expected a folder")
        begun = (self.path / checkpoint.NAME).exists()
        if begun and not resume:
            raise ValueError(
                f"{self.path} holds a checkpoint: --resume goes on from it, "
                "another --output begins anew"
            )
        if resume and not begun:
            raise ValueError(
                f"--resume: {self.path} holds no checkpoint to go on from; leave --resume out to "
                "begin a training there"
            )
        there = next(p for p in (self.path, *self.path.absolute().parents) if p.exists())
        if not there.is_dir() or not os.access(there, os.W_OK):
            raise ValueError(f"--output: the folder {self.path} cannot be made in {there}")

    def kept(self, words: list[str]) -> str:
        """What an interrupted training left, and how to continue it. words: its command line."""
        if not (self.path / checkpoint.NAME).exists():
            return "no checkpoint was written yet; the same command begins again"
        again = [*words, *([] if "--resume" in words else ["--resume"])]
        return (
            f"the training is kept as of its last checkpoint in {self.path}; to go on, type\n"
            f"  {shlex.join(['mlx-lattice', *again])}"
        )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Refuses a second training here; the system frees the lock of a killed process."""
        self.path.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path, os.O_RDONLY)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ValueError(
                    f"--output: another training is writing into {self.path}; "
                    "wait until it ends, or name another folder"
                ) from None
            yield
        finally:
            os.close(handle)

    def begin(self, pipeline: VoxelPipeline, recipe: Recipe | None) -> None:
        """Writes the files that do not change during a training."""
        self.path.mkdir(parents=True, exist_ok=True)
        pipeline.save(self.pipeline_path)
        if recipe is not None:
            write_bytes(self.recipe_path, recipe.text.encode())

    def pipeline(self) -> VoxelPipeline:
        """How the network sees clouds."""
        if not self.pipeline_path.is_file():
            raise ValueError(
                f"{self.path / PIPELINE} is missing: "
                "expected a folder that `mlx-lattice train` wrote, or its model.safetensors"
            )
        return VoxelPipeline.load(self.pipeline_path)

    def load(self) -> tuple[models.Model, VoxelPipeline]:
        """The network and its pipeline; ValueError if they do not belong together."""
        pipeline = self.pipeline()
        model = models.load(self.model)
        if self.path.parent == WEIGHTS:  # float16 in the package, float32 at work
            model.set_dtype(mx.float32)
            model.eval()
        sizes = (model.config["in_channels"], model.config["out_channels"])
        if sizes != (pipeline.channels, len(pipeline.classes)):
            raise ValueError(f"{self.model} and {self.pipeline_path.name} do not belong together")
        return model, pipeline

    def dataset(self, root: str, split: str | None) -> Dataset:
        """The data set to measure on: that of the recipe, or the labeled clouds of a folder.

        A run by a recipe also takes a folder of clouds that is not the data set of the recipe.
        """
        if self.recipe_path.is_file():
            recipe = load_recipe(self.recipe_path)
            try:
                return recipe.dataset(root, split or recipe["data"]["valid"])
            except DatasetError:
                if split is not None or not clouds_below(Path(root)):
                    raise
        pipeline = self.pipeline()
        table = pipeline.table(strict=False)
        return Folder(root, split or "all", label=pipeline.label, classes=table)
