"""Recipes: everything that a run needs except the data, as one TOML file like those beside this.

docs/training.md has a table of the keys.

    recipe = load_recipe("semantickitti-minkunet34")   # by name, or a path that ends in .toml
    data = recipe.dataset("/data/SemanticKITTI", "train")

A wrong key or value is a ValueError that names the file and the key.
"""

from __future__ import annotations

import difflib
import importlib
import math
import os
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from ... import models
from ...core import GeometryPlan
from ...datasets import DATASETS, Cached
from ...datasets.base import Dataset
from ...devices import planning
from ...transforms import Voxelize, build
from .. import losses, schedules
from ..loader import ClassBalanced, Loader, class_counts
from ..recompute import checkpoint_stages
from ..trainer import Trainer
from ..voxel_pipeline import Scan, VoxelPipeline

if TYPE_CHECKING:
    import numpy as np
    from mlx.nn import Module

    from ...io import PointCloud
    from ..distributed import Ranks

NUMBER, WHOLE, TEXT, YES, LIST, TABLE = (int, float), int, str, bool, list, dict

# section -> key -> (type, default, least value or None)
KEYS: dict[str, dict[str, tuple[Any, ...]]] = {
    "data": {
        "name": (TEXT, None, None),
        "options": (TABLE, {}, None),
        "train": (TEXT, "train", None),
        "valid": (TEXT, "valid", None),
        "cache": (TEXT, "", None),
        "cache_gigabytes": (NUMBER, 20, 0),
        "cache_voxel": (NUMBER, 0, 0),
        "workers": (WHOLE, 2, 0),
        "ahead": (WHOLE, 4, 1),
        "balanced": (YES, False, None),
    },
    "voxels": {"size": (NUMBER, None, 0), "columns": (LIST, [], None)},
    "network": {"name": (TEXT, "MinkUNet", None), "options": (TABLE, {}, None)},
    "train": {
        "epochs": (WHOLE, None, 1),
        "batch": (WHOLE, 1, 1),
        "accumulate": (WHOLE, 1, 1),
        "optimizer": (TEXT, "adamw", None),
        "rate": (NUMBER, None, 0),
        "schedule": (TEXT, "one_cycle", None),
        "warm": (NUMBER, 0.1, 0),
        "weight_decay": (NUMBER, 0.01, 0),
        "momentum": (NUMBER, 0.9, 0),
        "clip_norm": (NUMBER, 0, 0),
        "average": (NUMBER, 0, 0),
        "precision": (TEXT, "float32", None),
        "checkpoint_stages": (YES, False, None),
        "sync_batch_norm": (YES, False, None),
        "patience": (WHOLE, 0, 0),
        "checkpoint_seconds": (NUMBER, 60, 0),
        "seed": (WHOLE, 0, 0),
    },
}
WORDS: dict[Any, str] = {
    int: "a whole number",
    str: "a text",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}
LISTS = ("loss", "augment")
BALANCED = "balanced"  # weights of a loss: 1 / sqrt(share of the points)
NETWORKS = {
    kind.__name__: kind
    for kind in (models.LitePT, models.MinkUNet, models.PointTransformerV3, models.WindowUNet)
}


@dataclass(frozen=True)
class Recipe:
    """The tables of a recipe, complete and checked; `text` is the file."""

    name: str
    tables: dict[str, Any]
    text: str

    def __getitem__(self, section: str) -> dict[str, Any]:
        """A section: data, voxels, network or train."""
        return self.tables[section]

    @property
    def loss_tables(self) -> list[dict[str, Any]]:
        """The tables [[loss]]."""
        return self.tables["loss"]

    def about(self, dataset: Dataset) -> dict[str, Any]:
        """The values that a resumed run must share with its beginning."""
        free = (
            *("epochs", "workers", "ahead", "cache", "cache_gigabytes"),
            *("checkpoint_seconds", "patience"),
        )
        tables = {
            f"{section}.{key}": value
            for section in KEYS
            for key, value in self[section].items()
            if key not in free
        }
        lists = {key: self.tables[key] for key in LISTS}
        return {**tables, **lists, "items": len(dataset), "classes": list(dataset.classes)}

    def changed(
        self,
        *,
        voxel: float | None = None,
        network: dict[str, Any] | None = None,
        **train: float | str | bool | None,
    ) -> Recipe:
        """The same recipe with another voxel size or network, or other values in [train].

        None keeps a value.
        """
        kept = {k: v for k, v in train.items() if v is not None}
        size = {} if voxel is None else {"size": voxel}
        tables = {
            **self.tables,
            "train": {**self.tables["train"], **kept},
            "voxels": {**self.tables["voxels"], **size},
            "network": {**self.tables["network"], **(network or {})},
        }
        for section in ("train", "voxels", "network"):
            _section(self.name, section, tables[section])
        return Recipe(self.name, tables, self.text)

    def dataset(self, root: str | os.PathLike[str], split: str) -> Dataset:
        """A split of the data set at `root`, through the cache where the recipe names one."""
        data = self["data"]
        kind = DATASETS[data["name"]]
        try:
            made = kind(root, split, **data["options"])
        except TypeError as error:
            raise ValueError(f"{self.name}: data.options: {error}") from None
        if not data["cache"]:
            return made
        prepare = Voxelize(data["cache_voxel"]) if data["cache_voxel"] else None
        budget = int(data["cache_gigabytes"] * (1 << 30))
        return Cached(made, Path(data["cache"]).expanduser(), prepare, budget)

    def pipeline(self, dataset: Dataset) -> VoxelPipeline:
        """How the clouds of a data set become voxels. Its labels are class indices.

        `VoxelPipeline.of_files` is the same for the files of the data set.
        """
        first, columns = dataset[0], tuple(self["voxels"]["columns"])
        widths = []
        for column in columns:
            if column not in first.columns:
                raise ValueError(
                    f"{self.name}: voxels.columns: {dataset.name(0)} has no column {column!r}; "
                    f"found {', '.join(first.columns) or 'none'}"
                )
            widths.append(math.prod(first.columns[column].shape[1:]))
        classes = tuple(enumerate(dataset.classes))
        return VoxelPipeline(
            float(self["voxels"]["size"]), classes, columns, tuple(widths), ignored=(-1,)
        )

    def network(self, pipeline: VoxelPipeline) -> models.Model:
        """The network, with weights from the seed."""
        network = self["network"]
        mx.random.seed(self["train"]["seed"])
        kind = NETWORKS[network["name"]]
        try:
            return kind(pipeline.channels, len(pipeline.classes), **network["options"])
        except (TypeError, ValueError) as error:
            raise ValueError(f"{self.name}: network.options: {error}") from None

    def counts(self, dataset: Dataset) -> np.ndarray | None:
        """(items, classes) points, where the sampler or a loss needs them; reads every item."""
        wanted = self["data"]["balanced"] or any(
            t.get("weights") == BALANCED for t in self.loss_tables
        )
        return class_counts(dataset) if wanted else None

    def loss(self, classes: int, counts: np.ndarray | None = None) -> losses.Loss:
        """loss(logits, labels): the weighted sum of the recipe's losses. counts: see counts()."""
        parts = []
        for i, table in enumerate(self.loss_tables):
            options = {k: v for k, v in table.items() if k not in ("name", "factor")}
            if options.get("weights") == BALANCED:
                if counts is None:
                    raise ValueError(
                        f"{self.name}: loss[{i}].weights: balanced weights need counts of the "
                        "classes; give counts=recipe.counts(dataset)"
                    )
                options["weights"] = losses.balanced_weights(counts.sum(axis=0)).tolist()
            if isinstance(options.get("weights"), list):
                if len(options["weights"]) != classes:
                    raise ValueError(
                        f"{self.name}: loss[{i}].weights: found {len(options['weights'])} numbers, "
                        f"expected one for each of {classes} classes"
                    )
                options["weights"] = mx.array(options["weights"], dtype=mx.float32)
            try:
                part = losses.LOSSES[table["name"]](**options)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{self.name}: loss[{i}]: {error}") from None
            parts.append((float(table.get("factor", 1.0)), part))
        return losses.combine(parts)

    def loader(
        self,
        dataset: Dataset,
        prepare: Callable[[PointCloud, str], object],
        counts: np.ndarray | None = None,
    ) -> Loader:
        """Loader with this recipe's augmentation and sampler. counts: see counts()."""
        data, seed, augment = self["data"], self["train"]["seed"], self.tables["augment"]
        sampler = None
        if data["balanced"]:
            counts = class_counts(dataset) if counts is None else counts
            sampler = ClassBalanced(counts, seed=seed)
        return Loader(
            dataset,
            prepare,
            transform=build(augment, f"{self.name}: augment") if augment else None,
            seed=seed,
            workers=data["workers"],
            ahead=data["ahead"],
            sampler=sampler,
        )

    def trainer(
        self,
        network: Module,
        classes: int,
        items: int,
        *,
        directory: str | os.PathLike[str] | None = None,
        ranks: Ranks | None = None,
        quiet: bool = False,
        about: dict[str, Any] | None = None,
        counts: np.ndarray | None = None,
    ) -> Trainer:
        """Trainer for `items` items per epoch, with this recipe's optimizer, schedule and loss.

        about: see training.Trainer; counts: see counts().
        """
        train = self["train"]
        size = train["batch"] * train["accumulate"]
        steps = train["epochs"] * -(-items // (size * (ranks.size if ranks else 1)))
        schedule = schedules.SCHEDULES[train["schedule"]](train["rate"], steps, train["warm"])
        optimizer = schedules.make_optimizer(
            train["optimizer"], schedule, train["weight_decay"], train["momentum"]
        )
        if train["checkpoint_stages"]:
            checkpoint_stages(network)
        loss = self.loss(classes, counts)
        return Trainer(
            network,
            optimizer,
            lambda model, scan: loss(model(scan.tensor).feats, scan.labels),
            directory=directory,
            batch=size,
            seed=train["seed"],
            ranks=ranks,
            quiet=quiet,
            clip_norm=train["clip_norm"] or None,
            average=train["average"] or None,
            precision=train["precision"],
            patience=train["patience"] or None,
            sync_batch_norm=train["sync_batch_norm"],
            checkpoint_seconds=train["checkpoint_seconds"],
            about=about,
        )


def planned(network: Module, pipeline: VoxelPipeline) -> Callable[[PointCloud, str], Scan]:
    """prepare(cloud, name) for a Loader: voxels, and every relation of the network built ahead.

    network: one that is not trained; only its shape matters. Its call sees no running statistics.
    """
    network.eval()

    def prepare(cloud: PointCloud, name: str) -> Scan:
        scan = pipeline.scan(cloud, name)
        if scan.labels is None:
            raise ValueError("no column label")
        with planning():
            network(scan.tensor)  # the relations stay with the coordinates
        GeometryPlan.record(scan.tensor, True)
        return scan

    return prepare


def recipe_names() -> list[str]:
    """Names of the recipes that come with the package."""
    folder = resources.files(__name__)
    return sorted(p.name[:-5] for p in folder.iterdir() if p.name.endswith(".toml"))


def load_recipe(name: str | os.PathLike[str]) -> Recipe:
    """The recipe of a name that recipe_names() lists, or of a path that ends in .toml."""
    text = str(name)
    if text.endswith(".toml"):
        return parse_recipe(Path(name).read_text(encoding="utf-8"), text)
    if text not in recipe_names():
        raise ValueError(
            f"recipe {text!r} is unknown; found {', '.join(recipe_names())}, "
            "or give the path of a .toml file"
        )
    path = resources.files(__name__) / f"{text}.toml"
    return parse_recipe(path.read_text(encoding="utf-8"), text)


def parse_recipe(text: str, name: str = "recipe") -> Recipe:
    """A recipe from its text, checked; missing keys get their defaults."""
    try:
        toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    except ImportError:
        raise ImportError("recipes need Python 3.11, or: pip install tomli") from None
    try:
        tables = toml.loads(text)
    except toml.TOMLDecodeError as error:
        raise ValueError(f"{name}: not TOML: {error}") from None
    for section in tables:
        _known(name, section, (*KEYS, *LISTS))
    made: dict[str, Any] = {s: _section(name, s, tables.get(s, {})) for s in KEYS}
    for key, choices in (
        ("data.name", DATASETS),
        ("network.name", NETWORKS),
        ("train.schedule", schedules.SCHEDULES),
        ("train.optimizer", ("adamw", "sgd")),
        ("train.precision", ("float32", "bfloat16", "float16")),
    ):
        section, _, word = key.partition(".")
        if made[section][word] not in choices:
            raise ValueError(
                f"{name}: {key}: found {made[section][word]!r}, expected one of"
                f" {', '.join(choices)}"
            )
    made["augment"] = tables.get("augment", [])
    build(made["augment"], f"{name}: augment")
    made["loss"] = _losses(name, tables.get("loss", [{"name": "cross_entropy"}]))
    return Recipe(name, made, text)


def _section(name: str, section: str, table: object) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise ValueError(f"{name}: {section}: found {table!r}, expected a table [{section}]")
    for key in table:
        _known(name, f"{section}.{key}", [f"{section}.{k}" for k in KEYS[section]])
    made = {}
    for key, (kind, default, least) in KEYS[section].items():
        value = table.get(key, default)
        where = f"{name}: {section}.{key}"
        if value is None:
            raise ValueError(f"{where}: is missing")
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            wanted = WORDS.get(kind, "a number")
            raise ValueError(f"{where}: found {value!r}, expected {wanted}")
        if least is not None and (value < least or (value == least == 0 and default is None)):
            more = "more than" if default is None and least == 0 else "at least"
            raise ValueError(f"{where}: found {value!r}, expected {more} {least}")
        made[key] = value
    return made


def _known(name: str, key: str, choices: Collection[str]) -> None:
    if key not in choices:
        near = difflib.get_close_matches(key, choices, 1)
        hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(choices)}"
        raise ValueError(f"{name}: {key}: unknown key; {hint}")


def _losses(name: str, tables: object) -> list[dict[str, Any]]:
    if not isinstance(tables, list) or not tables:
        raise ValueError(f"{name}: loss: expected tables [[loss]] with the key name")
    for i, table in enumerate(tables):
        if table.get("name") not in losses.LOSSES:
            raise ValueError(
                f"{name}: loss[{i}].name: found {table.get('name')!r}, "
                f"expected one of {', '.join(losses.LOSSES)}"
            )
    return tables
