"""Published weights by their names: OpenPCDet and det3d, all layouts of sparse weights.

Sparse weights are (C_out, k, k, k, C_in) in spconv 2.1 and later, (k, k, k, C_out, C_in) in 2.0 and
native 2.1, (k, k, k, C_in, C_out) in 1.x. One cell is special: spconv multiplies by the MEMORY of
the weight read as (C_in, C_out), whatever its shape says, and networks were trained so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from numpy.typing import NDArray

from ... import nn
from .detector import Detector
from .settings import Settings

Array = NDArray[Any]
State = Mapping[str, Array]
_IGNORED = ("global_step", "num_batches_tracked")


def openpcdet_names(state: State, settings: Settings) -> dict[str, Array]:
    """The state with the names of OpenPCDet, whichever of the two schemes it has."""
    plain = {name.removeprefix("module."): value for name, value in state.items()}
    plain = {k: v for k, v in plain.items() if not k.endswith(_IGNORED)}
    if not any(name.startswith("bbox_head.") for name in plain):
        return plain
    made = {}
    for name, value in plain.items():
        new = _from_det3d(name)
        if new is not None:
            made[new] = value
    ups = settings.model["BACKBONE_2D"]["UPSAMPLE_STRIDES"]
    for i, stride in enumerate(ups):  # at stride 1 det3d has an ordinary convolution
        key = f"backbone_2d.deblocks.{i}.0.weight"
        if stride == 1 and key in made:
            made[key] = np.swapaxes(made[key], 0, 1)
    return made


def _from_det3d(name: str) -> str | None:
    if match := re.fullmatch(r"backbone\.conv([234])\.(\d+)\.(.*)", name):
        level, at, rest = match[1], int(match[2]), match[3]
        where = f"0.{at}" if at < 2 else str(at - 2)
        return f"backbone_3d.conv{level}.{where}.{rest}"
    if name.startswith("backbone.extra_conv."):
        return name.replace("backbone.extra_conv", "backbone_3d.conv_out", 1)
    if name.startswith("backbone."):
        return name.replace("backbone", "backbone_3d", 1)
    if name.startswith("neck."):
        return name.replace("neck", "backbone_2d", 1)
    if match := re.fullmatch(r"bbox_head\.tasks\.(\d+)\.(\w+)\.(\d+)\.(\w+)", name):
        group, output, at, rest = match[1], match[2], int(match[3]), match[4]
        output = {"reg": "center", "height": "center_z"}.get(output, output)
        # conv, norm, ReLU of each layer: only the numbers of the file tell which one is the last.
        return f"dense_head.heads_list.{group}.{output}.{at // 3}:{at % 3}.{rest}"
    if name.startswith("bbox_head.shared_conv."):
        return name.replace("bbox_head", "dense_head", 1)
    return None  # part of a head that exists only in training


def _settle(state: dict[str, Array]) -> dict[str, Array]:
    """Layers "3:0" of det3d get their places: j.0 and j.1 with a norm, j alone at the end."""
    made = {}
    for name, value in state.items():
        if match := re.search(r"\.(\d+):(\d)\.", name):
            j, part = match[1], match[2]
            stem = name[: match.start()]
            has_norm = f"{stem}.{j}:1.running_mean" in state
            place = f"{j}.{part}" if has_norm else j
            name = f"{stem}.{place}.{name[match.end() :]}"
        made[name] = value
    return made


def sparse_widths(state: State) -> list[int] | None:
    """Channels of conv1, conv2, .. and conv_out, from the sizes of their norms."""
    widths = []
    for stage in ("conv_input", *(f"conv{i}.0" for i in range(2, 7)), "conv_out"):
        norm = state.get(f"backbone_3d.{stage}.1.weight")
        if norm is not None:
            widths.append(len(norm))
    return widths or None


def read_options(state: State, settings: Settings) -> None:
    """Reads settings that only the weights tell: shared channels, biases, layers."""
    head, sparse = settings.model["DENSE_HEAD"], settings.model.get("BACKBONE_3D", {})
    shared = state.get("dense_head.shared_conv.1.weight")
    if shared is not None:  # det3d keeps this number in its code
        head.setdefault("SHARED_CONV_CHANNEL", len(shared))
    if "backbone_3d.conv1.0.conv1.weight" in state:
        sparse["USE_BIAS"] = "backbone_3d.conv1.0.conv1.bias" in state
    if settings.family == "det3d":
        layers = {k.split(".")[4].split(":")[0] for k in state if ".heads_list.0.hm." in k}
        head["NUM_HM_CONV"] = len(layers)


def point_columns(state: State, settings: Settings) -> int:
    """The number of columns of a point, from the first layer."""
    first = state.get("vfe.pfn_layers.0.linear.weight")
    if first is not None:
        vfe = settings.model["VFE"]
        more = 6 if vfe.get("USE_ABSLOTE_XYZ", True) else 3
        return int(first.shape[1]) - more - int(bool(vfe.get("WITH_DISTANCE", False)))
    weight = state.get("backbone_3d.conv_input.0.weight")
    if weight is None:
        raise ValueError(
            "[detection.load] the file has neither backbone_3d.conv_input.0.weight nor "
            f"vfe.pfn_layers.0.linear.weight; it has {', '.join(list(state)[:4]) or 'no weights'}"
        )
    norm = len(state["backbone_3d.conv_input.1.weight"])
    volume = 27
    return int(weight.size // (norm * volume))


def _layouts(size: tuple[int, ...]) -> dict[str, Callable[[Array], Array]]:
    n = len(size)
    return {
        "spconv 2.2": lambda w: w,
        "spconv 2.0": lambda w: np.moveaxis(w, n, 0),
        "spconv 1": lambda w: np.moveaxis(w, n + 1, 0),
    }


def _fits(weight: Array, layer: Any, turn: Callable[[Array], Array], flat: bool) -> bool:
    expected = tuple(layer.weight.shape)
    if flat and weight.ndim == 4:
        expected = expected[:1] + expected[2:]
    return weight.ndim == len(expected) and turn(weight).shape == expected


def load_state(net: Detector, state: State) -> None:
    """Puts a state with the names of OpenPCDet into a detector.

    Raises:
        ValueError: A weight is missing, unknown, or of another shape, as with another class list.
    """
    state = _settle(dict(state))
    layers = dict(net.named_modules())
    sparse = {
        name: layer
        for name, layer in layers.items()
        if isinstance(layer, (nn.SubmConv3d, nn.Conv3d))
        and (name.startswith("backbone_3d.") or net.settings.name == "VoxelNeXt")
        and f"{name}.weight" in state
    }
    layout = _layout_of(sparse, state)
    made: dict[str, mx.array] = {}
    expected = dict(tree_flatten(net.parameters()))
    for name, value in state.items():
        if name not in expected:
            raise ValueError(
                f"[detection.load] the file has {name}, which the network of this configuration "
                "lacks; check config against the file"
            )
        owner = name.rpartition(".")[0]
        turned = value
        if name.endswith(".weight") and owner in sparse:
            turned = _sparse_weight(value, sparse[owner], layout)
        elif name.endswith(".weight") and value.ndim == 4:
            turned = _dense_weight(value, layers[owner], owner.startswith("backbone_2d.deblocks."))
        if tuple(turned.shape) != tuple(expected[name].shape):
            raise ValueError(
                f"[detection.load] {name} has shape {tuple(value.shape)}, the network expects "
                f"{tuple(expected[name].shape)}; a head of another size belongs to another class "
                "list: give the config that the file was trained with"
            )
        made[name] = mx.array(np.ascontiguousarray(turned, np.float32))
    missing = sorted(set(expected) - set(made))
    if missing:
        raise ValueError(
            f"[detection.load] the file lacks {', '.join(missing[:3])}"
            f"{' and others' if len(missing) > 3 else ''}; check config against the file"
        )
    net.load_weights(list(made.items()))


def _layout_of(sparse: Mapping[str, Any], state: State) -> str:
    """The layout in which all sparse weights of the file fit."""
    wrong: dict[str, str] = {}
    for layout in ("spconv 2.2", "spconv 2.0", "spconv 1"):
        for name, layer in sparse.items():
            weight = state[f"{name}.weight"]
            turn = _layouts((0,) * (weight.ndim - 2))[layout]
            if layer.spec.volume > 1 and not _fits(weight, layer, turn, True):
                wrong[layout] = f"{name}.weight {weight.shape}, expected {layer.weight.shape}"
                break
        else:
            return layout
    raise ValueError(
        "[detection.load] the sparse weights fit no layout of spconv: "
        + "; ".join(f"{k}: {v}" for k, v in wrong.items())
    )


def _sparse_weight(weight: Array, layer: Any, layout: str) -> Array:
    shape = tuple(layer.weight.shape)
    if layer.spec.volume == 1 and tuple(layer.spec.stride) == (1, 1, 1):
        if weight.size != shape[0] * shape[-1]:
            return weight
        memory = np.ascontiguousarray(weight).reshape(shape[-1], shape[0])
        return memory.T.reshape(shape)
    turned = _layouts((0,) * (weight.ndim - 2))[layout](weight)
    return turned.reshape(shape) if turned.size == np.prod(shape) else turned


def _dense_weight(weight: Array, layer: Any, upsamples: bool) -> Array:
    if isinstance(layer, nn.Linear):
        return weight[:, :, 0, 0]
    if upsamples and not isinstance(layer, nn.Conv3d):  # also at stride 1 a transposed convolution
        return weight.transpose(1, 2, 3, 0)[:, None]
    return weight.transpose(0, 2, 3, 1)[:, None]
