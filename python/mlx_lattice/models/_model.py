"""What all networks share: a checked configuration, saving and loading.

`save("net.safetensors")` writes the weights and, beside them, `net.json`:

    {"format": "mlx-lattice-model", "version": 1, "model": "MinkUNet", "config": {...}}

Loading checks everything: an unknown key, a missing weight or a wrong shape is a ValueError that
names the culprit.
"""

import inspect
import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn
from mlx.utils import tree_flatten

from ..core import GeometryPlan

FORMAT, VERSION = "mlx-lattice-model", 1
_REGISTRY: dict[str, Any] = {}


class Model(mlx.nn.Module):
    """Base class of the networks. The keyword arguments of a constructor are the configuration."""

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        _REGISTRY[cls.__name__] = cls

    def __init__(self, **config):
        super().__init__()
        self._config = config

    @property
    def config(self):
        """The arguments that make this network again: `type(model)(**model.config)`."""
        return dict(self._config)

    def plan(self, x, gradients=True):
        """All relations that this network needs on x's coordinates, as a GeometryPlan.

        The relations stay with the coordinate manager of x. Afterwards the network builds nothing
        on x and on `plan.bind(feats)`.
        `gradients=False` leaves out what only training reads.
        """
        modes = [(module, module.training) for module in self.modules()]
        self.eval()  # nothing is evaluated, and running statistics stay
        try:
            self(x)
        finally:
            for module, mode in modes:
                module._training = mode
        return GeometryPlan.record(x, gradients)

    def save(self, path):
        """Writes the weights to `path` (.safetensors) and the configuration beside it (.json)."""
        path = _weights_path(path)
        mx.save_safetensors(str(path), dict(tree_flatten(self.parameters())))
        text = {
            "format": FORMAT,
            "version": VERSION,
            "model": type(self).__name__,
            "config": self._config,
        }
        path.with_suffix(".json").write_text(json.dumps(text, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path):
        """The network that `save` wrote, in evaluation mode."""
        model = load(path)
        if not isinstance(model, cls):
            raise ValueError(
                f"[{cls.__name__}.load] {path} holds a {type(model).__name__}, "
                f"expected a {cls.__name__}"
            )
        return model


def load(path):
    """A saved network of any class, in evaluation mode."""
    path = _weights_path(path)
    name, config = _read_config(path.with_suffix(".json"))
    try:
        model = _REGISTRY[name](**config)
    except (TypeError, ValueError) as error:
        raise ValueError(f"[models.load] {path.with_suffix('.json')}: {error}") from None
    _set_weights(model, path)
    model.eval()
    return model


def _weights_path(path):
    path = Path(path)
    if path.suffix != ".safetensors":
        raise ValueError(f"[models] path must end in .safetensors, got {path.name!r}")
    return path


def _read_config(path):
    """Name and configuration from the JSON file."""

    def fail(what):
        raise ValueError(f"[models.load] {path}: {what}")

    try:
        text = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        fail(f"not JSON: {error}")
    if not isinstance(text, dict) or text.get("format") != FORMAT:
        fail(f'expected an object with "format": "{FORMAT}"')
    if text.get("version") != VERSION:
        fail(f"version must be {VERSION}, found {text.get('version')!r}")
    if unknown := sorted(set(text) - {"format", "version", "model", "config"}):
        fail(f"unknown keys {unknown}")
    name, config = text.get("model"), text.get("config")
    if name not in list(_REGISTRY):
        fail(f"model must be one of {sorted(_REGISTRY)}, found {name!r}")
    if not isinstance(config, dict):
        fail(f"config must be an object, found {config!r}")
    known = set(inspect.signature(_REGISTRY[name].__init__).parameters) - {"self"}
    if unknown := sorted(set(config) - known):
        fail(f"unknown keys {unknown} in config; {name} has {sorted(known)}")
    return name, config


def _set_weights(model, path):
    def fail(what):
        raise ValueError(f"[models.load] {path}: {what}")

    expected = dict(tree_flatten(model.parameters()))
    if not path.is_file():
        raise FileNotFoundError(f"[models.load] {path} does not exist")
    try:
        found = mx.load(str(path))
    except Exception as error:  # MLX raises RuntimeError and others for broken files
        fail(f"not a safetensors file: {error}")
    if missing := sorted(set(expected) - set(found)):
        fail(f"lacks {len(missing)} weights, the first {missing[0]!r}")
    if unknown := sorted(set(found) - set(expected)):
        fail(f"has {len(unknown)} unknown weights, the first {unknown[0]!r}")
    for name, value in found.items():
        if value.shape != expected[name].shape:
            fail(f"{name} has shape {value.shape}, expected {expected[name].shape}")
        if value.dtype not in (mx.float32, mx.float16, mx.bfloat16):
            fail(f"{name} has dtype {value.dtype}, expected a float of 16 or 32 bits")
    model.load_weights(list(found.items()))
