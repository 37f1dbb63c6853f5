"""Writes docs/api: one page per package with every public name.

--check fails when a page is not what it would write.
"""

import importlib
import inspect
import pkgutil
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs/api"
HIDDEN = {"cli", "recipes"}  # the page Commands and the page Training are about them


def packages():
    """Name -> module of the public packages, in alphabetical order."""
    top = importlib.import_module("mlx_lattice")
    for info in pkgutil.iter_modules(top.__path__):
        if not info.name.startswith("_") and info.name not in HIDDEN:
            module = importlib.import_module(f"mlx_lattice.{info.name}")
            if hasattr(module, "__all__"):
                yield info.name, module


def sentence(module):
    """What the first paragraph of a module's text says."""
    return " ".join(module.__doc__.split("\n\n")[0].split())


def names(module):
    """Public functions and classes of a module, each once, in alphabetical order."""
    for name in sorted(module.__all__, key=str.lower):
        value = getattr(module, name)
        if inspect.isclass(value) or callable(value):
            yield name


def inner(module):
    """Modules that a module shows."""
    for name in module.__all__:
        if inspect.ismodule(value := getattr(module, name)):
            yield f"{module.__name__}.{name}", value


def pages():
    """Path -> text of every page."""
    top, known = importlib.import_module("mlx_lattice"), dict(packages())
    head = "<!-- Written by scripts/api_pages.py. -->\n"
    lines = [f"{head}# API reference\n\n`import mlx_lattice as ml`\n\n| package | |\n|---|---|"]
    lines += [f"| [`mlx_lattice.{n}`]({n}.md) | {sentence(m)} |" for n, m in known.items()]
    own = [n for n in names(top) if n not in known["core"].__all__]
    yield FOLDER / "index.md", "\n".join(lines) + "\n\n" + entries("mlx_lattice", own)
    for package, module in known.items():
        shown = set(names(module))
        body = f"{head}# mlx_lattice.{package}\n\n{sentence(module)}\n\n"
        body += entries(module.__name__, sorted(shown, key=str.lower))
        for name, part in inner(module):
            rest = [n for n in names(part) if n not in shown]
            if rest:
                body += f"## {name}\n\n{sentence(part)}\n\n{entries(name, rest)}"
        yield FOLDER / f"{package}.md", body


def entries(module, found):
    """One entry per name; a name that is loaded at its first use is shown where it is defined."""
    package = importlib.import_module(module)
    places = (
        module if name in vars(package) else getattr(package, name).__module__ for name in found
    )
    return "".join(f"::: {place}.{name}\n\n" for place, name in zip(places, found))


def main(check):
    stale = []
    for path, text in pages():
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(path.name)
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if check and stale:
        print(f"stale: {', '.join(stale)}; run: python scripts/api_pages.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))
