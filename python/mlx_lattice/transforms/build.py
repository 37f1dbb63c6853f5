"""Transforms from plain tables, as recipes have them: [{name = "Flip", axes = "xy"}, ...]."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from .base import Compose, OneOf, Sometimes, Transform
from .color import ColorDrop, ColorJitter
from .geometry import Elastic, Flip, Jitter, Normalize, Rotate, Scale, Translate
from .mix import CopyPaste, LaserMix, Mix3D, PolarMix
from .rows import CropBox, CropRange, CropSphere, Dropout, Voxelize

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


def build(tables: Sequence[dict[str, Any]], where: str = "transforms") -> Compose:
    """Compose of tables. The key `chance` makes a transform a Sometimes. Errors name the key."""
    if not isinstance(tables, list | tuple):
        raise ValueError(f"{where}: found {tables!r}, expected a list of tables")
    made: list[Transform] = []
    for i, table in enumerate(tables):
        at = f"{where}[{i}]"
        if not isinstance(table, dict) or "name" not in table:
            raise ValueError(f"{at}: expected a table with the key name, such as name = 'Flip'")
        options: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in table.items()
        }
        name, chance = options.pop("name"), options.pop("chance", None)
        if name not in TRANSFORMS:
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
        except (ValueError, TypeError) as error:
            raise ValueError(f"{at}: {error}") from None
        made.append(transform if chance is None else Sometimes(transform, chance))
    return Compose(made)


__all__ = ["TRANSFORMS", "Compose", "OneOf", "Sometimes", "build"]
