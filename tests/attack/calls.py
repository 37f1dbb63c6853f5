"""Every public callable, found by introspection, and one hostile call of it per seed."""

import inspect
import random
import re
from enum import Enum

import mlx.core as mx
import mlx.nn
import mlx_lattice as ml
from mlx_lattice import core, models, nn, ops, points, training
from values import hostile, usual

MODULES = {
    "ml": ml,
    "core": core,
    "ops": ops,
    "nn": nn,
    "points": points,
    "models": models,
    "training": training,
}
# They run for long, change the whole process, or read files; other tests attack them.
LEFT_OUT = re.compile(
    r"selftest|set_thread_count|limit_simd|set_metal_host|explain|supported_on|load|save|cli|"
    r"notebook|"
    r"training\.(?!classification_loss|warm_cosine)|"  # networks, functions and data sets
    r"train_pointcnn|points\.(evaluate|conv_with_stride)|"
    r"MinkUNet|SECOND|Second|ResNet|PointUNet|PointNet|DGCNN"
)
METHODS_LEFT_OUT = ("save", "load", "resume", "fit", "clear", "set_budget")


def public():
    """[(name, callable)], sorted: functions and classes of the public modules."""
    found = {}
    for prefix, module in MODULES.items():
        for name in getattr(module, "__all__", [n for n in dir(module) if not n.startswith("_")]):
            value = getattr(module, name)
            full = f"{prefix}.{name}"
            error = inspect.isclass(value) and issubclass(value, (BaseException, Enum))
            if callable(value) and not LEFT_OUT.search(full) and not error:
                found[full] = value
    return sorted(found.items())


def parameters(function) -> list[tuple[str, bool, bool]]:
    """[(name, by keyword only, has a default)]; extensions tell it in their signature's text."""
    texts = getattr(function, "__nb_signature__", None)
    if texts is None and inspect.isclass(function):
        made = function.__init__ if function.__init__ is not object.__init__ else function
        texts = getattr(made, "__nb_signature__", None)
        if texts is None and hasattr(function, "__nb_signature__") is False:
            new = getattr(function, "__new__", None)
            texts = getattr(new, "__nb_signature__", None)
    if texts:
        text = texts[0][0]
        inside = text[text.find("(") + 1 : text.rfind(")")]
        found, keyword = [], False
        for part in re.split(r",\s*(?![^\[\(]*[\]\)])", inside):
            name = re.match(r"\s*\**(\w*)", part)[1]
            if part.strip().startswith("*") and not name:
                keyword = True
            elif name and name not in ("self", "arg", "cls"):
                found.append((name, keyword, "=" in part))
        return found
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return []
    return [
        (p.name, p.kind is p.KEYWORD_ONLY, p.default is not p.empty)
        for p in signature.parameters.values()
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name != "self"
    ]


def arguments(function, r: random.Random):
    """(positional, by name): usual values, with up to three hostile ones among them."""
    wanted = [p for p in parameters(function) if not p[2] or r.random() < 0.4]
    broken = set(r.sample(range(len(wanted)), min(len(wanted), r.choice([0, 1, 1, 1, 2, 3]))))
    args, kwargs = [], {}
    for i, (name, keyword, _) in enumerate(wanted):
        if name == "stream":
            continue
        value = hostile(r) if i in broken else usual(name, r)
        if keyword or kwargs or r.random() < 0.3:
            kwargs[name] = value
        else:
            args.append(value)
    # Arguments after one that was left out must be named.
    order = [p[0] for p in parameters(function) if not p[1]]
    used = [p[0] for p in wanted if p[0] != "stream" and p[0] not in kwargs]
    if order[: len(used)] != used:
        kwargs = {**dict(zip(used, args)), **kwargs}
        args = []
    return args, kwargs


def follow(value, r: random.Random):
    """Calls for what a call gave back: arrays are evaluated, methods and layers called."""
    if isinstance(value, mx.array):
        return [("eval", lambda: mx.eval(value))]
    if isinstance(value, (list, tuple)):
        arrays = [v for v in value if isinstance(v, mx.array)]
        return [("eval", lambda: mx.eval(arrays))]
    if isinstance(value, mlx.nn.Module):
        x = r.choice([usual("x", r), hostile(r)])
        return [("__call__", lambda: _evaluated(value(x)))]
    steps = []
    for name in sorted(
        n for n in dir(value) if not n.startswith("_") and n not in METHODS_LEFT_OUT
    ):
        if r.random() < 0.25 and type(value).__module__.startswith("mlx_lattice"):
            steps.append((name, lambda name=name: _touch(value, name, r)))
    return steps


def _touch(value, name, r):
    found = getattr(value, name)
    if callable(found) and not inspect.isclass(found):
        args, kwargs = arguments(found, r)
        found = found(*args, **kwargs)
    return _evaluated(found)


def _evaluated(value):
    feats = getattr(value, "feats", None)
    for array in (value, feats, *(value if isinstance(value, (tuple, list)) else ())):
        if isinstance(array, mx.array):
            mx.eval(array)
    return value
