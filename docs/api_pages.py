"""API reference: mkdocs-gen-files writes one page for each public package, with every public name.

The names come from the installed package, so that no page must be kept by hand.
"""

import importlib
import importlib.util
import inspect
import pkgutil
import types

import mkdocs_gen_files

HIDDEN = {"cli"}  # the page Commands is about it


def packages():
    """Name -> module of the public packages, in alphabetical order."""
    top = importlib.import_module("mlx_lattice")
    for info in pkgutil.iter_modules(top.__path__):
        if not info.name.startswith("_") and info.name not in HIDDEN:
            module = importlib.import_module(f"mlx_lattice.{info.name}")
            if hasattr(module, "__all__"):
                yield info.name, module


def summary(module):
    """The first paragraph of a module's docstring, as one line."""
    return " ".join(module.__doc__.split("\n\n")[0].split())


def names(module):
    """Public functions and classes of a module, in alphabetical order."""

    def is_shown(value):  # an alias such as tuple[int, int, int] can be called too
        return callable(value) and not isinstance(value, types.GenericAlias)

    return [n for n in sorted(module.__all__, key=str.lower) if is_shown(getattr(module, n))]


def entries(module, found):
    """One entry for each name, by the place where mkdocstrings finds it.

    A name that is loaded at its first use, or that a module of the package also has, is shown where
    it is defined.
    """
    package, text = importlib.import_module(module), ""
    for name in found:
        place = f"{module}.{name}"
        clash = hasattr(package, "__path__") and importlib.util.find_spec(place) is not None
        if clash or name not in vars(package):
            place = f"{getattr(package, name).__module__}.{name}"
        text += f"::: {place}\n\n"
    return text


def page(package, module):
    """A package: its own names, then those of the modules that it shows."""
    shown = names(module)
    text = f"# mlx_lattice.{package}\n\n{summary(module)}\n\n{entries(module.__name__, shown)}"
    for name in module.__all__:
        part = getattr(module, name)
        if inspect.ismodule(part) and (rest := [n for n in names(part) if n not in shown]):
            path = f"{module.__name__}.{name}"
            text += f"## {path}\n\n{summary(part)}\n\n{entries(path, rest)}"
    return text


def write(name, text):
    with mkdocs_gen_files.open(f"api/{name}.md", "w") as file:
        file.write(text)


known = dict(packages())
top = importlib.import_module("mlx_lattice")
lines = ["# API reference\n\n`import mlx_lattice as ml`\n\n| package | |\n|---|---|"]
lines += [f"| [`mlx_lattice.{n}`]({n}.md) | {summary(m)} |" for n, m in known.items()]
own = [n for n in names(top) if n not in known["core"].__all__]
write("index", "\n".join(lines) + "\n\n" + entries("mlx_lattice", own))
for package, module in known.items():
    write(package, page(package, module))
