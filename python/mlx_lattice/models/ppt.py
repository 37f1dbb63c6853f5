"""Point prompt training: one network for several data sets, each with its norms and classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn

from .. import nn
from ..core._checks import instance, integer, listed, names, one_of, told
from ..nn._conditional import CONTEXT
from ._model import Model
from .ptv3 import PointTransformerV3

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from typing_extensions import Self

    from ..core import SparseTensor


class PointPromptSegmenter(Model):
    """Logits of a `PointTransformerV3` with norms per data set: net(x, condition) -> (N, classes).

    Wu et al., "Towards Large-scale 3D Representation Learning with Multi-dataset Point Prompt
    Training", CVPR 2024. With `head="text"` (PPT-v1m1) the features are projected, divided by
    their length and multiplied with one text vector per class:
    logits = exp(logit_scale) f . class_embedding[valid_index[condition]]. With `head="linear"`
    (PPT-v1m2) each data set has a linear layer.

    Args:
        backbone: The arguments of the `PointTransformerV3`; its `pdnorm_conditions` order the
            norms.
        conditions: The data sets in the order of `classes` and of the embedding table; it may
            differ from that of the norms, and does in the published configuration.
        classes: With "linear" the number of classes of each data set. With "text" the lists of
            rows of the text vectors that each data set uses.
        head: "text" or "linear".
        text_size: The numbers of a text vector, 512 as published.
        text_count: How many text vectors there are, 36 as published.
    """

    def __init__(
        self,
        backbone: Mapping[str, Any],
        conditions: Sequence[str] = ("Structured3D", "ScanNet", "S3DIS"),
        classes: Sequence[int | Sequence[int]] = (25, 20, 13),
        head: str = "linear",
        text_size: int = 512,
        text_count: int = 36,
    ) -> None:
        one_of(self, "head", head, ("text", "linear"))
        instance(self, "backbone", backbone, dict, "the arguments of the backbone")
        conditions = names(self, "conditions", conditions)
        given = listed(self, "classes", classes, "an entry for each condition")
        if len(conditions) != len(given):
            raise ValueError(
                f"[PointPromptSegmenter] classes must have one entry for each of "
                f"{list(conditions)}, found {told(classes)}"
            )
        text_size = integer(self, "text_size", text_size)
        text_count = integer(self, "text_count", text_count)
        net = PointTransformerV3(**backbone)
        kept = [self._class_rows(rows) for rows in given]
        super().__init__(
            backbone=net.config,
            conditions=conditions,
            classes=kept,
            head=head,
            text_size=text_size,
            text_count=text_count,
        )
        self.backbone = net
        self.embedding_table = mlx.nn.Embedding(len(kept), CONTEXT)
        width = net.config["dec_channels"][0]
        if head == "linear":
            if not all(isinstance(c, int) for c in kept):
                raise ValueError("[PointPromptSegmenter] classes of linear heads must be integers")
            self.seg_heads = [nn.Linear(width, c) for c in kept if isinstance(c, int)]
        else:
            self.proj_head = nn.Linear(width, text_size)
            self.class_embedding = mx.random.normal((text_count, text_size))
            self.logit_scale = mx.log(mx.array(1 / 0.07))
            self.freeze(keys=["class_embedding"], recurse=False)

    def _class_rows(self, rows: object) -> int | list[int]:
        """A number of classes, or the rows of the text vectors of a data set."""
        if isinstance(rows, (list, tuple)):
            return [integer(self, "classes", row, 0) for row in rows]
        return integer(self, "classes", rows)

    def unfreeze(
        self, *, recurse: bool = True, keys: str | list[str] | None = None, strict: bool = False
    ) -> Self:
        """As mlx.nn.Module.unfreeze, except that the text vectors stay frozen."""
        super().unfreeze(recurse=recurse, keys=keys, strict=strict)
        if "class_embedding" in self:
            self.freeze(keys=["class_embedding"], recurse=False)
        return self

    def __call__(self, x: SparseTensor, condition: str | None = None) -> SparseTensor:
        """Logits of the classes of a data set, the first of `conditions` by default."""
        names = self._config["conditions"]
        chosen = names[0] if condition is None else one_of(self, "condition", condition, names)
        at = names.index(chosen)
        self.backbone.select(chosen, self.embedding_table.weight[at : at + 1])
        y = self.backbone.features(x)
        if self._config["head"] == "linear":
            return self.seg_heads[at](y)
        f = self.proj_head(y).feats
        f = f / mx.linalg.norm(f, axis=1, keepdims=True)
        vectors = self.class_embedding[mx.array(self._config["classes"][at])]
        return y.with_feats(mx.exp(self.logit_scale) * (f @ vectors.T))
