"""Networks that `train` and `demo` know by name, with the sizes that they have by default.

| name | class | by default |
|---|---|---|
| minkunet | models.MinkUNet | depth 14, width 16 |
| ptv3 | models.PointTransformerV3 | four levels of 32 to 128 channels, patches of 128 rows |
| window-unet | models.WindowUNet | three levels of 32, 64, 128 channels, windows of 8 voxels |
"""

import inspect
import json
import math
from pathlib import Path
from typing import Any, TypeAlias

from .. import models
from ..training.recipes import load_recipe

Network: TypeAlias = (
    type[models.MinkUNet] | type[models.PointTransformerV3] | type[models.WindowUNet]
)
RECIPES = {"minkunet": "streets-minkunet14", "ptv3": "streets-ptv3"}  # of the demo


def _of_recipe(name: str) -> dict[str, Any]:
    return load_recipe(RECIPES[name])["network"]["options"]


NETWORKS: dict[str, tuple[Network, dict[str, Any]]] = {
    "minkunet": (models.MinkUNet, _of_recipe("minkunet")),
    "ptv3": (models.PointTransformerV3, _of_recipe("ptv3")),
    "window-unet": (models.WindowUNet, {"channels": [32, 64, 128], "depths": [1, 1, 2]}),
}

# Highest learning rates. Attention needs a lower one: with 0.003 its loss rises again.
RATES = {"minkunet": 4e-3, "ptv3": 1e-3, "window-unet": 4e-3}


def sizes_of(name: str, path: str | None) -> dict[str, Any]:
    """The arguments of a network besides its channels: by default, or from a JSON file."""
    network, defaults = NETWORKS[name]
    if path is None:
        return defaults
    try:
        text = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"--config {path}: not JSON: {error}") from None
    known = set(inspect.signature(network).parameters) - {"in_channels", "out_channels"}
    if not isinstance(text, dict) or set(text) - known:
        raise ValueError(
            f"--config {path}: expected an object with keys of {sorted(known)}, found {text!r}"
        )
    return {**defaults, **text}


def coarsest(name: str, sizes: dict[str, Any]) -> int:
    """Voxels per side of a cell at the coarsest level that has a norm over rows."""
    return {"minkunet": 16, "ptv3": math.prod(sizes.get("stride", [1])), "window-unet": 1}[name]
