"""Transforms from the tables of a recipe: [{name = "Flip", axes = "xy"}, ...]."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from ..core._checks import told
from .base import Compose, OneOf, Sometimes, Transform
from .color import ColorDrop, ColorJitter
from .geometry import Elastic, Flip, Jitter, Normalize, Rotate, Scale, Translate
from .mix import CopyPaste, LaserMix, Mix3D, PolarMix
from .selection import CropBox, CropRange, CropSphere, Dropout, Voxelize

if TYPE_CHECKING:
    from collections.abc import Sequence

TRANSFORMS: dict[str, type[Transform]] = {
    kind.__name__: kind
    for kind in (
        Flip,
        Rotate,
        Scale,
        Translate,
        Jitter,
        Elastic,
        Normalize,
        Dropout,
        CropBox,
        CropSphere,
        CropRange,
        Voxelize,
        ColorJitter,
        ColorDrop,
        Mix3D,
        PolarMix,
        LaserMix,
        CopyPaste,
    )
}


def build(tables: Sequence[dict[str, Any]], where: str = "[build] tables") -> Compose:
    """A Compose from tables: the name of a transform and its settings.

    The key `chance` makes a transform a Sometimes. `where` is what messages call the list; they
    also name the number of the table and the key, and all of them are ValueErrors.

    Examples:
        >>> from mlx_lattice import transforms
        >>> transforms.build([{"name": "Flip", "axes": "x", "chance": 0.5}])
        Compose(transforms=(Sometimes(transform=Flip(axes='x', p=0.5), p=0.5),))
    """
    if not isinstance(where, str):
        raise TypeError(f"[build] where must be a text, found {told(where)}")
    if not isinstance(tables, list | tuple):
        raise ValueError(f"{where}: found {told(tables)}, expected a list of tables")
    made: list[Transform] = []
    for i, table in enumerate(tables):
        at = f"{where}[{i}]"
        if not isinstance(table, dict) or "name" not in table:
            raise ValueError(f"{at}: expected a table with the key name, such as name = 'Flip'")
        options: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in table.items()
        }
        name, chance = options.pop("name"), options.pop("chance", None)
        if not isinstance(name, str) or name not in TRANSFORMS:
            raise ValueError(f"{at}.name: found {name!r}, expected one of {', '.join(TRANSFORMS)}")
        kind = TRANSFORMS[name]
        known: list[str] = [f.name for f in fields(kind)] if is_dataclass(kind) else []
        for key in options:
            if key not in known:
                raise ValueError(
                    f"{at}.{key}: unknown; {name} has {', '.join(known) or 'no keys'} and chance"
                )
        try:
            transform = kind(**options)
            made.append(transform if chance is None else Sometimes(transform, chance))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{at}: {error}") from None
    return Compose(made)


__all__ = ["TRANSFORMS", "Compose", "OneOf", "Sometimes", "build"]
