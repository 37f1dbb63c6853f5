"""Every public callable, found by introspection, and one hostile call of it per seed."""

import importlib
import inspect
import pkgutil
import random
import re
from enum import Enum

import mlx.core as mx
import mlx.nn
import mlx_lattice as ml
from values import hostile, usual


def modules():
    """{name: module}: the package and its public modules that say what they show."""
    found = {"ml": ml}
    for info in pkgutil.walk_packages(ml.__path__, "mlx_lattice."):
        name = info.name.partition(".")[2]
        if "_" in (part[0] for part in name.split(".")) or name.split(".")[0] in NO_MODULES:
            continue
        module = importlib.import_module(info.name)
        if hasattr(module, "__all__"):
            found[name] = module
    return dict(sorted(found.items(), key=lambda item: item[0].count(".")))


NO_MODULES = ("cli",)  # commands, which have a fuzz of their own
# Why a callable is left out; everything else is called.
LEFT_OUT = {
    "ml.selftest": "runs for minutes",
    "ml.explain": "prints what another call does",
    "core.set_thread_count": "changes the whole process",
    "points.train_pointcnn": "trains for minutes",
    "training.Ranks": "joins a group of processes",
    "training.AdamW": "made by MLX",
    "datasets.Dataset": "abstract; its subclasses are called",
    "training.detection.learn_streets": "trains for minutes",
    "training.detection.overfit": "trains for minutes",
}
METHODS_LEFT_OUT = ("save", "load", "resume", "fit", "clear", "set_budget")


def public():
    """[(name, callable)], sorted: functions and classes of the public modules, each once."""
    found, seen = {}, set()
    for prefix, module in modules().items():
        for name in module.__all__:
            value, full = getattr(module, name), f"{prefix}.{name}"
            error = inspect.isclass(value) and issubclass(value, (BaseException, Enum))
            type_ = not inspect.isclass(value) and getattr(value, "__module__", "") == "typing"
            if callable(value) and not error and not type_ and id(value) not in seen:
                seen.add(id(value))
                if full not in LEFT_OUT:
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
    """[(name, call, arguments)] for what a call gave back.

    Arrays are evaluated, layers, transforms and functions called, attributes and methods touched.
    """
    if isinstance(value, mx.array):
        return [("eval", lambda: mx.eval(value), ())]
    if isinstance(value, (list, tuple)):
        arrays = [v for v in value if isinstance(v, mx.array)]
        return [("eval", lambda: mx.eval(arrays), ())]
    if getattr(value, "__module__", "").endswith("schedules"):
        return []  # an optimizer calls it
    if callable(value) and not inspect.isclass(value):
        if isinstance(value, mlx.nn.Module) and r.random() < 0.5:
            args, kwargs = [r.choice([usual("x", r), hostile(r)])], {}
        else:
            args, kwargs = arguments(value, r)
        call = lambda: _evaluated(value(*args, **kwargs))
        return [("__call__", call, (*args, *kwargs.values()))]
    steps = []
    for name in sorted(
        n for n in dir(value) if _ours(type(value), n) and n not in METHODS_LEFT_OUT
    ):
        if r.random() < 0.25:
            found = getattr(type(value), name, None)
            args, kwargs = arguments(found, r) if inspect.isfunction(found) else ([], {})
            seen = [*args, *kwargs.values()]  # the caller looks whether they are finite
            call = lambda n=name, a=args, k=kwargs, s=seen: _touch(value, n, a, k, s, r)
            steps.append((name, call, seen))
    return steps


def _ours(kind: type, name: str) -> bool:
    """Whether a class of this library has the public name, not one that it stands on."""
    own = [base for base in kind.__mro__ if name in vars(base)]
    return bool(own) and own[0].__module__.startswith("mlx_lattice") and name[0] != "_"


def changed(function, args, kwargs, r: random.Random):
    """The call under a function transformation of MLX by its first array of floats, or None."""
    places = [i for i, a in enumerate(args) if is_floats(a)]
    if not places or kwargs or inspect.isclass(function):
        return None
    at, form = places[0], r.choice(["grad", "jvp", "vmap", "compile"])
    given = args[at]
    if given.ndim > 1 and r.random() < 0.2:
        given = given[..., :0]  # MLX divides by the number of channels, or never returns

    def one(a):
        found = function(*args[:at], a, *args[at + 1 :])
        found = getattr(found, "feats", found)
        found = found[0] if isinstance(found, (tuple, list)) and found else found
        if not is_floats(found):
            raise ValueError("[attack] no array of floats came back")
        return found

    def run():
        a = given
        if form == "grad":
            return mx.grad(lambda a: one(a).sum())(a)
        if form == "jvp":
            return mx.jvp(one, [a], [mx.ones_like(a)])[1][0]
        if form == "vmap":
            return mx.vmap(one)(mx.stack([a, a]))
        return mx.compile(one)(a)

    return form, lambda: _evaluated(run())


def is_floats(value) -> bool:
    return isinstance(value, mx.array) and mx.issubdtype(value.dtype, mx.floating)


def _touch(value, name, args, kwargs, seen, r):
    found = getattr(value, name)
    if callable(found) and not inspect.isclass(found):
        if not args and not kwargs:
            args, kwargs = arguments(found, r)
            seen += [*args, *kwargs.values()]
        found = found(*args, **kwargs)
    return _evaluated(found)


def _evaluated(value):
    feats = getattr(value, "feats", None)
    for array in (value, feats, *(value if isinstance(value, (tuple, list)) else ())):
        if isinstance(array, mx.array):
            mx.eval(array)
    return value
