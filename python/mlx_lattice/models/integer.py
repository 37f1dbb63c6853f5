"""Networks in exact integers: from a trained network to one whose bits are equal on every machine.

`quantize(net, scans)` measures the range of every layer on a few scans, folds the batch norms and
rounds the weights. docs/ops/integer.md explains the formats and the rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from mlx.utils import tree_flatten

from ..core._checks import instance, listed, number, one_of, told
from ._integer_layers import KINDS, Form, IntegerConv
from ._integer_ranges import Observed, Watch, evaluate, observe, replace
from ._integer_rounding import Rounding
from ._model import _REGISTRY, Model

if TYPE_CHECKING:
    from typing_extensions import Self


class IntegerNetwork(Model):
    """A network with integer layers, as `quantize` makes it. Input and output are float32.

    Args:
        network: The class of the network that it was made from.
        settings: The configuration of that network.
        forms: Of each layer its kind and the formats of input, output and residual.
    """

    def __init__(self, network: str, settings: dict[str, Any], forms: dict[str, Form]) -> None:
        known = [name for name in _REGISTRY if name != type(self).__name__]
        one_of(self, "network", network, known)
        instance(self, "settings", settings, dict, "the configuration of the network")
        instance(self, "forms", forms, dict, "the formats of each layer")
        super().__init__(network=network, settings=settings, forms=forms)
        try:
            self.network = _REGISTRY[network](**settings)
        except TypeError as error:
            raise TypeError(f"[IntegerNetwork] settings do not fit {network}: {error}") from None
        modules = dict(self.network.named_modules())
        made = []
        for name, form in forms.items():
            if name not in modules or not isinstance(form, dict) or form.get("kind") not in KINDS:
                raise ValueError(
                    f"[IntegerNetwork] forms has {name!r}: {form!r}, expected a layer of {network} "
                    f"and a kind of {sorted(KINDS)}"
                )
            made.append((name, KINDS[form["kind"]](modules[name], form, name)))
        replace(self.network, made)
        self.freeze()

    def __call__(self, x: Any) -> Any:
        return self.network(x)

    def integer_layers(self) -> dict[str, IntegerConv]:
        """The convolutions and linear layers by name."""
        modules = self.network.named_modules()
        return {n: m for n, m in modules if isinstance(m, IntegerConv)}

    def pack(self) -> Self:
        """Proves every layer again: a loaded weight that breaks a rule is a ValueError."""
        super().pack()
        for layer in self.integer_layers().values():
            layer.prove()
        return self

    @property
    def shares(self) -> dict[str, float]:
        """Of each layer the largest part of int32 that a sum can use, for any input."""
        return {n: m.prove().share_of_range for n, m in self.integer_layers().items()}


def quantize(
    net: Model, scans: Iterable[Any], mode: str = "integer", percentile: float = 100
) -> IntegerNetwork:
    """The network in exact integers: bytes as activations, int8 weights, int32 sums.

    Convolutions, linear layers, their batch norms and ReLUs, residuals, poolings, and GELU and
    sigmoid between two linear layers become integers. Attention, LayerNorm and everything else stay
    float32, and so do the tensors between them.

    Args:
        net: A trained network of `models`; it stays as it is.
        scans: A few inputs of the network; a list is read once.
        mode: "integer". `mlx.nn.quantize` packs weights alone.
        percentile: The step of a layer is made from this percentile of its absolute values; larger
            ones are clamped. By default from the largest.

    Raises:
        ValueError: A layer cannot be proven free of overflow, or its input cannot become integers;
            the message names it.
    """
    if not isinstance(mode, str) or mode != "integer":
        raise ValueError(
            f'[models.quantize] mode must be "integer", found {told(mode)}; '
            "mlx.nn.quantize(net, bits=8) packs weights alone"
        )
    who, expected = "models.quantize", "a network of models in floats"
    instance(who, "net", net, Model, expected)
    if isinstance(net, IntegerNetwork):
        raise TypeError(f"[models.quantize] net must be {expected}, found an IntegerNetwork")
    percentile = number(who, "percentile", percentile, 50, 100)
    return rounded(net, listed(who, "scans", scans, "a list of SparseTensors"), percentile)[0]


def rounded(
    net: Model, scans: list[Any], percentile: float = 100
) -> tuple[IntegerNetwork, Rounding]:
    """The network and how it was rounded. It runs once, so that errors show at once."""
    seen = observe(net, scans, percentile)
    rounding = Rounding(net, seen)
    rounding.run()
    made = IntegerNetwork(type(net).__name__, net.config, rounding.forms)
    kept = {f"network.{n}": v for n, v in _parameters(net).items()}
    expected = _parameters(made)
    made.load_weights([(n, rounding.arrays.get(n, kept.get(n, v))) for n, v in expected.items()])
    made.eval()
    evaluate(made(scans[-1]))
    return made, rounding


def layer_errors(
    net: Model, made: IntegerNetwork, rounding: Rounding, scan: Any
) -> dict[str, float]:
    """|integers - floats| / |floats| of each layer's result on a scan, in the L2 norm."""
    floats: dict[str, mx.array] = {}
    codes: dict[str, mx.array] = {}
    observe(net, [scan], values=floats)
    layers = made.integer_layers()
    watch = Watch(made, 100)
    watch.values = codes
    try:
        replace(made.network, [(n, Observed(m, n, watch)) for n, m in layers.items()])
        evaluate(made(scan))
    finally:
        replace(made.network, list(layers.items()))
    errors = {}
    for name, code in codes.items():
        made_by = rounding.table_of(name) or name  # with a table: the result of the activation
        expected = floats[made_by].astype(mx.float32)
        zero = 128.0 if rounding.formats[name] == "int8" else 0.0
        step = rounding.steps.get(made_by, 1.0) if code.dtype != mx.float32 else 1.0
        distance = mx.linalg.norm((code.astype(mx.float32) - zero) * step - expected)
        errors[name] = float(distance / mx.maximum(mx.linalg.norm(expected), 1e-30))
    return errors


def _parameters(net: Model) -> dict[str, Any]:
    return dict(tree_flatten(net.parameters()))
