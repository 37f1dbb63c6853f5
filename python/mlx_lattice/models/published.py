"""Published weights: from a file, a folder or a name of the Hugging Face hub to a network.

    net = models.pretrained("sonata_small.pth")
    net = models.pretrained("facebook/sonata", file="sonata_small.pth")

Files are read without PyTorch and without running them (`io.read_checkpoint`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from ..core._checks import one_of, told
from ..core._checks import path as check_path
from ..nn._arrays import named_arrays
from ._model import FORMAT, Model, load
from .hub import hub_file
from .pointcept import build, plain_name, translate
from .ppt import PointPromptSegmenter

if TYPE_CHECKING:
    import numpy as np

    from ..core.types import FilePath

WHO = "models.pretrained"
# What the publishers say about their weights; docs/encoders.md has the sources.
LICENSES = {
    "v3m2": "CC-BY-NC 4.0 for the published weights of Sonata and Concerto: no commercial use",
    "v3m3": "CC-BY-NC 4.0 for the published weights of Utonia: no commercial use",
    "v3m1": "not stated for the published weights (code: MIT)",
    "litept": "not stated for the published weights (code: MIT)",
    "own": "as whoever made the file says",
}
TITLES = {
    "v3m1": "Point Transformer V3",
    "v3m2": "Sonata / Concerto",
    "v3m3": "Utonia",
    "litept": "LitePT",
}
# The classes of PPT-v1m1 that each data set of the published configuration uses, of 36.
PROMPT_CLASSES = {
    "Structured3D": [*range(9), 11, *range(13, 22), 23, 25, 26, 33, 34, 35],
    "ScanNet": [*range(10), 11, 12, 13, 15, 20, 22, 24, 25, 27, 34],
    "S3DIS": [0, 1, 4, 5, 6, 7, 8, 10, 19, 29, 30, 31, 32],
}
_NOT_OURS = ("type", "_target_", "name")  # keys of configurations that choose a class elsewhere


@dataclass(frozen=True)
class Found:
    """A description of a checkpoint that was loaded.

    Attributes:
        path: The file.
        title: The family, such as "Sonata / Concerto".
        parameters: How many numbers its network has.
        classes: Classes of its head, or None.
        license: What the publishers say about the weights.
        left_over: Names in the file that no part of the network uses.
    """

    path: Path
    title: str
    parameters: int
    classes: int | None
    license: str
    left_over: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        head = f", {self.classes} classes" if self.classes else ""
        left = ""
        if self.left_over:
            some = ", ".join(self.left_over[:5]) + (" ..." if len(self.left_over) > 5 else "")
            left = f"\n  not used: {len(self.left_over)} arrays: {some}"
        return (
            f"{self.path.name}: {self.title}, {self.parameters:,} parameters{head}\n"
            f"  license: {self.license}{left}"
        )


def pretrained(
    source: FilePath,
    file: str | None = None,
    *,
    head: FilePath | None = None,
    part: str = "student",
    quiet: bool = False,
    **config: Any,
) -> Model:
    """The network of a published checkpoint, in evaluation mode.

    Args:
        source: A .pth, .pt or .safetensors file; a folder with config.json and model.safetensors; a
            file of `Model.save`; or a name of the Hugging Face hub such as "facebook/sonata". A
            hub name needs `pip install 'lattice-mlx[hub]'`, or the file in the hub's cache.
        file: The file of a hub name or of a folder; by default model.safetensors.
        head: A file with a linear head, such as sonata_linear_prob_head_sc.pth.
        part: "student" or "teacher", for files of self-supervised training that hold both.
        quiet: Whether the family, the size and the license are not written to standard error.
        **config: Arguments of the network that go before those of the file, such as
            enable_flash=False; of Point Transformer V3 also conv_input.

    Raises:
        FileNotFoundError: There is no such file, and no hub to ask; the message says what to
            download and where to put it.
        ValueError: The file is not a checkpoint of a known network, or weights are missing, left
            over or of other shapes; the message lists them by name.
    """
    net, found = open_pretrained(source, file, head=head, part=part, **config)
    if not quiet:
        print(found, file=sys.stderr)
    return net


def open_pretrained(
    source: FilePath,
    file: str | None = None,
    *,
    head: FilePath | None = None,
    part: str = "student",
    **config: Any,
) -> tuple[Model, Found]:
    """The network as `pretrained` returns it, and what was found."""
    from ..io.checkpoint import (
        read_checkpoint,  # it needs NumPy, which a plain import does not load
    )

    one_of(WHO, "part", part, ("student", "teacher"))
    path, beside = _located(source, file)
    if beside.get("format") == FORMAT:
        if config or head is not None:
            raise ValueError(f"[{WHO}] {path} is a saved network: it takes no further arguments")
        saved = load(path)
        return saved, _found(path, type(saved).__name__, saved, "own", [])
    checkpoint = read_checkpoint(path)
    own = checkpoint.meta.get("config", {}) or beside
    if not isinstance(own, Mapping):
        raise ValueError(f"[{WHO}] {path}: config must be a dictionary, found {told(own)}")
    given = {str(k): v for k, v in own.items() if k not in _NOT_OURS} | config
    arrays = dict(checkpoint.arrays)
    if head is not None:
        arrays |= read_checkpoint(head).arrays
    try:
        family, weights, frequencies, left = translate(arrays, part)
        if family == "v3m2" and "rope_base" in given:
            family = "v3m3"
        left = [n for n in left if not n.startswith(("student.", "teacher."))]  # the other part
        unexpected = [n for n in left if n.startswith(("enc.", "dec.", "embedding."))]
        if unexpected:
            raise ValueError(f"[{WHO}] unknown names: {', '.join(unexpected[:20])}")
        body = {n: w for n, w in weights.items() if not n.startswith("head.")}
        prompts = _prompts(arrays, left)
        net: Model = build(
            family, body if prompts else weights, frequencies, _accepted(family, given), WHO
        )
        if prompts:
            net, left = _prompted(net, prompts), [n for n in left if n not in prompts]
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    return net, _found(path, TITLES[family], net, family, left)


def _found(path: Path, title: str, net: Model, family: str, left: list[str]) -> Found:
    numbers = [v.size for n, v in named_arrays(net.parameters()) if "running_" not in n]
    classes = net.config.get("out_channels")
    return Found(path, title, sum(numbers), classes, LICENSES[family], left)


def _located(source: FilePath, file: str | None) -> tuple[Path, dict[str, Any]]:
    """The file with the weights, and the configuration that lies beside it as JSON."""
    from ..io.checkpoint import SUFFIXES

    check_path(WHO, source)
    path = Path(source)
    if path.is_dir():
        path = path / (file or "model.safetensors")
    elif file is not None or not (path.exists() or path.suffix in SUFFIXES):
        path = hub_file(str(source), file or "model.safetensors")
    if not path.is_file():
        raise FileNotFoundError(f"[{WHO}] {path} does not exist")
    for name in (path.with_suffix(".json"), path.with_name("config.json")):
        if name.is_file():
            try:
                beside = json.loads(name.read_text(encoding="utf-8"))
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{name}: not JSON: {error}") from None
            if isinstance(beside, dict):
                return path, beside
    return path, {}


def _accepted(family: str, given: dict[str, Any]) -> dict[str, Any]:
    """The configuration, if the network of the family has all of its keys."""
    import inspect

    from .pointcept import FAMILIES

    known = set(inspect.signature(FAMILIES[family].__init__).parameters) - {"self"}
    if unknown := sorted(set(given) - known):
        raise ValueError(
            f"[{WHO}] config has {', '.join(unknown)}, which {FAMILIES[family].__name__} does not "
            "have"
        )
    return given


def _prompts(arrays: Mapping[str, np.ndarray], left: list[str]) -> dict[str, np.ndarray]:
    """The arrays of the heads of point prompt training, by their plain names."""
    starts = ("seg_heads.", "proj_head.", "class_embedding", "logit_scale", "embedding_table.")
    wanted = {name for name in left if name.startswith(starts)}
    if not any(name.startswith(("seg_heads.", "class_embedding")) for name in wanted):
        return {}
    return {plain_name(n): a for n, a in arrays.items() if plain_name(n) in wanted}


def _prompted(net: Model, prompts: Mapping[str, np.ndarray]) -> PointPromptSegmenter:
    """The network with the heads of point prompt training."""
    names = list(PROMPT_CLASSES)
    if "class_embedding" in prompts:
        count, size = prompts["class_embedding"].shape
        classes: list[Any] = list(PROMPT_CLASSES.values())
        made = PointPromptSegmenter(net.config, names, classes, "text", size, count)
    else:
        heads = sorted(n for n in prompts if n.startswith("seg_heads.") and n.endswith("weight"))
        sizes = [prompts[n].shape[0] for n in heads]
        if len(sizes) != len(names):
            names = [str(i) for i in range(len(sizes))]
        made = PointPromptSegmenter(net.config, names, sizes, "linear")
    weights = [(f"backbone.{n}", w) for n, w in named_arrays(net.parameters())]
    weights += [(n, mx.array(a).astype(mx.float32)) for n, a in prompts.items()]
    made.load_weights(weights)
    made.eval()
    return made
