"""MinkUNet-18 for other libraries, from the parameters of ours by their names.

`run(p, x, library)` walks the network. `library` has conv(x, weight, kind, level), norm(x, name,
residual, relu), cat(a, b), features(x). The kind "subm" has an odd size. The kinds "down" and "up"
are 2x2x2 with stride 2. A level counts halvings: those of the output, and for "up" of the input.
"""

from __future__ import annotations

from typing import Any

import numpy as np

BLOCKS = 2  # of each level of MinkUNet-18


def run(p: dict[str, Any], x: Any, library: Any) -> Any:
    def layer(x: Any, name: str, kind: str, level: int, residual: Any = None, relu: bool = True):
        y = library.conv(x, p[f"{name}.conv.weight"], kind, level)
        return library.norm(y, f"{name}.norm", residual, relu)

    def block(x: Any, name: str, level: int) -> Any:
        skip = x
        if f"{name}.project.conv.weight" in p:
            skip = layer(x, f"{name}.project", "subm", level, relu=False)
        y = layer(x, f"{name}.layers.0", "subm", level)
        return layer(y, f"{name}.layers.1", "subm", level, skip)

    levels = [layer(x, "encoder.stem", "subm", 0)]
    for i in range(4):
        x = layer(levels[-1], f"encoder.downs.{i}", "down", i + 1)
        for b in range(BLOCKS):
            x = block(x, f"encoder.stages.{i}.{b}", i + 1)
        levels.append(x)
    x = levels.pop()
    for i, skip in enumerate(reversed(levels)):
        x = library.cat(layer(x, f"ups.{i}", "up", 4 - i), skip)
        for b in range(BLOCKS):
            x = block(x, f"decoders.{i}.{b}", 3 - i)
    return library.features(x) @ p["head.weight"].T + p["head.bias"]


def parameters(data: dict[str, np.ndarray]) -> dict[str, Any]:
    import torch

    return {k[2:]: torch.tensor(v) for k, v in data.items() if k.startswith("p/")}


def features_norm(p: dict[str, Any], training: bool, f: Any, name: str, residual: Any, relu: bool):
    from torch.nn import functional

    mean, var = p[f"{name}.running_mean"].clone(), p[f"{name}.running_var"].clone()
    f = functional.batch_norm(f, mean, var, p[f"{name}.weight"], p[f"{name}.bias"], training)
    f = f if residual is None else f + residual
    return functional.relu(f) if relu else f


def work(data: dict[str, np.ndarray], task: str, library: Any, x: Any) -> Any:
    """Inference ("net"), or forward and backward of the mean square of the logits ("netstep")."""
    import torch

    p = parameters(data)
    step = task == "netstep"
    learned = [v for k, v in p.items() if "running" not in k]
    made = library(p, step)
    if not step:

        def forward() -> Any:
            with torch.no_grad():
                return run(p, made.start(x), made)

        return forward
    for value in learned:
        value.requires_grad_()

    def backward() -> Any:
        for value in learned:
            value.grad = None
        (run(p, made.start(x), made) ** 2).mean().backward()
        return p["head.weight"].grad

    return backward


class Plain:
    """Gather, mm and index_add per offset on coordinates of every level."""

    def __init__(self, coords: np.ndarray) -> None:
        self.coords = [coords.astype(np.int64)]
        for _ in range(4):
            self.coords.append(np.unique(self.coords[-1] // 2, axis=0))
        self.pairs: dict[tuple[str, int, int], list[Any]] = {}

    def __call__(self, p: dict[str, Any], training: bool) -> Plain:
        self.p, self.training = p, training
        return self

    def start(self, x: Any) -> Any:
        return x

    def relation(self, kind: str, size: int, level: int) -> list[Any]:
        """(input rows, output rows) of each offset."""
        key = (kind, size, level)
        if key not in self.pairs:
            self.pairs[key] = self.relate(kind, size, level)
        return self.pairs[key]

    def relate(self, kind: str, size: int, level: int) -> list[Any]:
        import torch

        fine = self.coords[level - (kind != "subm")]
        low = fine.min(0) - size
        span = fine.max(0) + size - low + 1

        def keys(c: np.ndarray) -> np.ndarray:
            c = c - low
            return (c[:, 0] * span[1] + c[:, 1]) * span[2] + c[:, 2]

        order = np.argsort(keys(fine))
        known = keys(fine)[order]
        out = self.coords[level]
        reach = np.arange(size) - (size // 2 if kind == "subm" else 0)
        offsets = np.stack(np.meshgrid(reach, reach, reach, indexing="ij"), -1).reshape(-1, 3)
        pairs = []
        for offset in offsets:
            wanted = keys((out if kind == "subm" else out * 2) + offset)
            at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
            found = np.flatnonzero(known[at] == wanted)
            ends = torch.tensor(order[at[found]]), torch.tensor(found)
            pairs.append(ends[::-1] if kind == "up" else ends)
        return pairs

    def conv(self, x: Any, w: Any, kind: str, level: int) -> Any:
        import torch

        size = w.shape[1]
        w = w.reshape(w.shape[0], -1, w.shape[-1])
        if size == 1:
            return x @ w[:, 0].T
        rows = len(self.coords[level - (kind == "up")])
        y = torch.zeros(rows, w.shape[0])
        for k, (i, o) in enumerate(self.relation(kind, size, level)):
            y = y.index_add(0, o, x[i] @ w[:, k].T)
        return y

    def norm(self, f: Any, name: str, residual: Any, relu: bool) -> Any:
        return features_norm(self.p, self.training, f, name, residual, relu)

    def cat(self, a: Any, b: Any) -> Any:
        import torch

        return torch.cat([a, b], 1)

    def features(self, x: Any) -> Any:
        return x


class Spconv:
    """Layers of spconv that keep their pairs by key."""

    def __init__(self, coords: np.ndarray) -> None:
        import torch

        origin = coords.min(0) // 16 * 16
        moved = coords - origin
        self.shape = ((moved.max(0) // 16 + 1) * 16).tolist()
        self.indices = torch.tensor(np.insert(moved, 0, 0, axis=1).astype(np.int32))
        self.known: dict[Any, Any] = {}
        self.layers: dict[int, Any] = {}

    def __call__(self, p: dict[str, Any], training: bool) -> Spconv:
        self.p, self.training = p, training
        return self

    def start(self, x: Any) -> Any:
        import spconv.pytorch as sp

        t = sp.SparseConvTensor(x, self.indices, self.shape, 1)
        t.indice_dict = self.known  # pairs of the first run
        return t

    def make(self, w: Any, kind: str, level: int) -> Any:
        import spconv.pytorch as sp
        import torch

        size, ends = w.shape[1], (w.shape[-1], w.shape[0])
        if kind == "down":
            layer = sp.SparseConv3d(*ends, 2, 2, bias=False, indice_key=f"down{level}")
        elif kind == "up":
            layer = sp.SparseInverseConv3d(*ends, 2, bias=False, indice_key=f"down{level}")
        else:
            layer = sp.SubMConv3d(*ends, size, bias=False, indice_key=f"subm{size}.{level}")
        with torch.no_grad():
            layer.weight.copy_(w.reshape(layer.weight.shape))
        return layer

    def conv(self, x: Any, w: Any, kind: str, level: int) -> Any:
        if w.shape[1] == 1:
            return x.replace_feature(x.features @ w.reshape(w.shape[0], -1).T)
        if id(w) not in self.layers:
            self.layers[id(w)] = self.make(w, kind, level)
        return self.layers[id(w)](x)

    def norm(self, x: Any, name: str, residual: Any, relu: bool) -> Any:
        rest = None if residual is None else residual.features
        return x.replace_feature(features_norm(self.p, self.training, x.features, name, rest, relu))

    def cat(self, a: Any, b: Any) -> Any:
        import torch

        return a.replace_feature(torch.cat([a.features, b.features], 1))

    def features(self, x: Any) -> Any:
        return x.features
