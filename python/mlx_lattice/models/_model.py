"""The base of all networks: a checked configuration, saving and loading.

`save("net.safetensors")` writes the weights and, beside them, `net.json`:

    {"format": "mlx-lattice-model", "version": 1, "model": "MinkUNet", "config": {...}}

A network that `mlx.nn.quantize` packed also has "quantization":
{layer: {"group_size": 64, "bits": 4}}.

Loading checks everything: an unknown key, a missing weight or a wrong shape is a ValueError that
    names it.
"""

from __future__ import annotations

import inspect
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import mlx.core as mx
import mlx.nn

from ..core import GeometryPlan, QuantizedWeight
from ..core._checks import flag
from ..core._checks import path as check_path
from ..devices import planning
from ..nn import pack
from ..nn._arrays import load_arrays, named_arrays, save_arrays
from ..nn._quantized import _Quantized

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlx.nn import Module
    from typing_extensions import Self

    from ..core import SparseTensor
    from ..programs.tiles import ReceptiveField
    from ..training import VoxelPipeline

FORMAT, VERSION = "mlx-lattice-model", 1
_REGISTRY: dict[str, type[Model]] = {}


class Model(mlx.nn.Module):
    """Base class of the networks: `config`, `plan`, `save` and `load`.

    The keyword arguments of a constructor are the configuration. A class of your own that passes
    them on with `super().__init__(depth=depth, ...)` is saved and loaded like the others:

    Examples:
        >>> import tempfile
        >>> from mlx_lattice import models, nn
        >>> class Small(models.Model):
        ...     def __init__(self, channels: int = 4) -> None:
        ...         super().__init__(channels=channels)
        ...         self.layer = nn.SubmConv3d(channels, channels)
        >>> Small(channels=8).save(tempfile.gettempdir() + "/small.safetensors")
        >>> models.load(tempfile.gettempdir() + "/small.safetensors").config
        {'channels': 8}
    """

    _integer_part = ""  # layers whose names begin so become integers: see models.quantize

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        _REGISTRY[cls.__name__] = cls

    def __init__(self, **config: Any) -> None:
        super().__init__()
        self._config = config

    @property
    def config(self) -> dict[str, Any]:
        """The arguments that make this network again: `type(model)(**model.config)`."""
        return dict(self._config)

    def plan(self, x: SparseTensor, gradients: bool = True) -> GeometryPlan:
        """All relations that this network needs on x's coordinates, as a GeometryPlan.

        The relations stay with the coordinate manager of x. Afterwards the network builds nothing
        on x and on `plan.bind(feats)`. `gradients=False` leaves out what only training reads. No
        feature is computed, so that a thread that prepares the next scan may plan it.
        """
        modes = [(module, module.training) for module in self.modules()]
        super().train(False)  # running statistics stay
        try:
            with planning():
                self(x)
        finally:
            for module, mode in modes:
                module._training = mode
        return GeometryPlan.record(x, gradients)

    def pack(self) -> Self:
        """Arranges all weights for many calls on the CPU; returns the network (`nn.pack`).

        `eval()` does it, so that only weights that come later need it: load, then pack.
        """
        return pack(self)

    def train(self, mode: bool = True) -> Self:
        """As mlx.nn.Module.train; evaluation mode also packs the weights."""
        mode = flag(self, "mode", mode)
        super().train(mode)
        return self if mode else self.pack()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the weights to `path` (.safetensors) and the configuration beside it (.json).

        Another ending is a ValueError. If writing fails, the previous file stays as it was.
        """
        path = _weights_path(path)
        weights = dict(named_arrays(self.parameters()))
        layers, forms = packed_layers(self)
        save_parts(path, weights, type(self).__name__, self._config, layers, forms)

    def export(
        self,
        path: str | os.PathLike[str],
        example: Any,
        *,
        pipeline: VoxelPipeline | None = None,
        classes: Sequence[tuple[int, str]] | None = None,
        keep_example: bool = False,
    ) -> None:
        """Writes the network as a program that C++ and C run; see `mlx_lattice.export`."""
        from ..programs import export

        export(self, path, example, pipeline=pipeline, classes=classes, keep_example=keep_example)

    def receptive_field(self) -> ReceptiveField:
        """How far a row of the output looks, from the recorded graph of the network.

        Raises:
            ValueError: Some operation is not local, such as global pooling or attention; the
                message names it.

        Examples:
            >>> from mlx_lattice import models
            >>> models.MinkUNet(4, 3, depth=14, width=4).eval().receptive_field().before
            (94, 94, 94)
        """
        from ..programs.tiles import receptive_field, tile_program

        if "in_channels" not in self._config:
            raise ValueError(
                f"[{type(self).__name__}.receptive_field] the settings of this network hold no "
                "in_channels, so it cannot be recorded; use a network of models"
            )
        return receptive_field(tile_program(self, self._config["in_channels"]))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The network of this class that `save` wrote, in evaluation mode; see `models.load`."""
        model = load(path)
        if not isinstance(model, cls):
            raise ValueError(
                f"[{cls.__name__}.load] {path} holds a {type(model).__name__}, "
                f"expected a {cls.__name__}"
            )
        return model


def load(path: str | os.PathLike[str]) -> Model:
    """A network that `Model.save` wrote, of any class, in evaluation mode.

    Args:
        path: The file with the weights, which ends in .safetensors; its .json lies beside it.

    Raises:
        FileNotFoundError: One of the two files is missing.
        ValueError: A file is not what it should be, or its class, configuration and weights do not
            belong together; the message names what is wrong.
    """
    weights = _weights_path(path)
    beside = weights.with_suffix(".json")
    for file in (weights, beside):
        if not file.is_file():
            raise FileNotFoundError(
                f"[models.load] {file} does not exist; `model.save({str(weights)!r})` writes "
                f"both {weights.name} and {beside.name}"
            )
    name, config, packed = _read_config(beside, _read_json(beside))
    arrays = _read_weights(weights)
    try:
        model = _REGISTRY[name](**config)
    except (TypeError, ValueError) as error:
        raise ValueError(f"[models.load] {beside}: {error}") from None
    if packed:
        _pack(model, packed, beside)
    _set_weights(model, weights, arrays)
    model.eval()
    return model


def _weights_path(path: str | os.PathLike[str]) -> Path:
    check_path("models", path)
    path = Path(path)
    if path.suffix != ".safetensors":
        raise ValueError(f"[models] path must end in .safetensors, found {path.name!r}")
    return path


def save_parts(
    path: Path,
    weights: dict[str, mx.array],
    name: str,
    config: dict[str, Any],
    packed: dict[str, dict[str, int]],
    forms: dict[str, str],
) -> None:
    """Both files of a network: weights by name, its class, configuration and packed layers.

    forms: of each packed weight what `lattice::load_weights` needs, in the header of the weights.
    """

    from ..io.atomic_files import write_bytes

    text = {"format": FORMAT, "version": VERSION, "model": name, "config": config}
    if packed:
        text["quantization"] = packed
    save_arrays(path, weights, forms)
    write_bytes(path.with_suffix(".json"), (json.dumps(text, indent=2) + "\n").encode())


def packed_layers(model: Module) -> tuple[dict[str, dict[str, int]], dict[str, str]]:
    """The layers that mlx.nn.quantize packed.

    First {layer: {"group_size", "bits"}}, then {name of the weight: its form}.
    """
    layers, forms = {}, {}
    for name, module in model.named_modules():
        if not isinstance(module, (_Quantized, mlx.nn.QuantizedLinear)):
            continue
        layers[name] = {"group_size": module.group_size, "bits": module.bits}
        forms[f"{name}.weight"] = _packed(module).form
    return layers, forms


def _packed(module: Module) -> QuantizedWeight:
    if isinstance(module, _Quantized):
        return module._weight()
    out_channels, words = module.weight.shape  # of mlx.nn.QuantizedLinear: no axis of offsets
    weight, scales, biases = (module[name][None] for name in ("weight", "scales", "biases"))
    sizes = (module.group_size, module.bits, words * 32 // module.bits, out_channels)
    return QuantizedWeight(weight, scales, biases, *sizes, 1, "linear")


def _pack(model: Module, packed: dict[str, dict[str, int]], path: str | os.PathLike[str]) -> None:
    """Packs the layers that the file says were packed.

    Their values come from the file afterwards.
    """
    known = {n for n, m in model.named_modules() if hasattr(m, "to_quantized")}
    for layer, form in packed.items():
        if layer not in known:
            raise ValueError(
                f"[models.load] {path}: quantization names {layer!r}, which is no layer that can be"
                " packed"
            )
        if not isinstance(form, dict) or set(form) != {"group_size", "bits"}:
            raise ValueError(
                f"[models.load] {path}: quantization of {layer!r} must have group_size and bits,"
                f" found {form!r}"
            )
    try:
        mlx.nn.quantize(model, class_predicate=lambda name, _: packed.get(name, False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"[models.load] {path}: quantization: {error}") from None


def _read_json(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"[models.load] {path}: not JSON: {error}") from None


def _read_config(path: Path, text: object) -> tuple[str, dict[str, Any], dict[str, dict[str, int]]]:
    """Name, configuration and packed layers."""

    def fail(what: str) -> NoReturn:
        raise ValueError(f"[models.load] {path}: {what}")

    if not isinstance(text, dict) or text.get("format") != FORMAT:
        fail(f'expected an object with "format": "{FORMAT}"')
    if text.get("version") != VERSION:
        fail(f"version must be {VERSION}, found {text.get('version')!r}")
    if unknown := sorted(set(text) - {"format", "version", "model", "config", "quantization"}):
        fail(f"unknown keys {unknown}")
    name, config = text.get("model"), text.get("config")
    if name not in list(_REGISTRY):
        fail(f"model must be one of {sorted(_REGISTRY)}, found {name!r}")
    if not isinstance(config, dict):
        fail(f"config must be an object, found {config!r}")
    known = set(inspect.signature(_REGISTRY[name].__init__).parameters) - {"self"}
    if unknown := sorted(set(config) - known):
        fail(f"unknown keys {unknown} in config; {name} has {sorted(known)}")
    packed = text.get("quantization", {})
    if not isinstance(packed, dict):
        fail(f"quantization must be an object, found {packed!r}")
    return name, config, packed


def _read_weights(path: Path) -> dict[str, mx.array]:
    if not path.is_file():
        raise FileNotFoundError(f"[models.load] {path} does not exist")
    try:
        return load_arrays(path)[0]
    except Exception as error:  # MLX raises RuntimeError and others for broken files
        raise ValueError(f"[models.load] {path}: not a safetensors file: {error}") from None


def _set_weights(model: Module, path: str | os.PathLike[str], found: dict[str, mx.array]) -> None:
    def fail(what: str) -> NoReturn:
        raise ValueError(f"[models.load] {path}: {what}")

    expected = dict(named_arrays(model.parameters()))
    if missing := sorted(set(expected) - set(found)):
        fail(f"lacks {len(missing)} weights, the first {missing[0]!r}")
    if unknown := sorted(set(found) - set(expected)):
        fail(f"has {len(unknown)} unknown weights, the first {unknown[0]!r}")
    for name, value in found.items():
        if value.shape != expected[name].shape:
            fail(f"{name} has shape {value.shape}, expected {expected[name].shape}")
        dtype = expected[name].dtype
        whole = mx.issubdtype(dtype, mx.integer)  # codes of packed weights, or integer layers
        if whole and value.dtype != dtype:
            what = "packed codes, uint32" if dtype == mx.uint32 else f"{dtype}"
            fail(f"{name} has dtype {value.dtype}, expected {what}")
        if not whole and value.dtype not in (mx.float32, mx.float16, mx.bfloat16):
            fail(f"{name} has dtype {value.dtype}, expected a float of 16 or 32 bits")
    model.load_weights(list(found.items()))
