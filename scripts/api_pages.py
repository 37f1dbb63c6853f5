"""Writes docs/api: one page per package with every public name.

--check fails when a page is not what it would write.
"""

import importlib
import inspect
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs/api"
PACKAGES = {
    "core": "Values: sparse tensors, coordinate sets, kernels and relations.",
    "ops": "Operations on sparse tensors, coordinates and arrays.",
    "nn": "Modules; each is an `mlx.nn.Module`.",
    "points": "Points as they are: ragged batches, rulebooks, layers, networks.",
    "models": "Networks that are made from a few numbers.",
    "io": "Point-cloud files.",
    "viewer": "Pages, pictures and frames of a notebook.",
    "training": "One training loop, metrics, optimizers, ranks.",
    "samples": "Small data that the package makes itself.",
}


def names(module):
    """Public functions and classes of a module, each once, in alphabetical order."""
    for name in sorted(module.__all__, key=str.lower):
        value = getattr(module, name)
        if inspect.isclass(value) or callable(value):
            yield name


def pages():
    """Path -> text of every page."""
    top = importlib.import_module("mlx_lattice")
    head = "<!-- Written by scripts/api_pages.py. -->\n"
    lines = [f"{head}# API reference\n\n`import mlx_lattice as ml`\n\n| package | |\n|---|---|"]
    lines += [f"| [`mlx_lattice.{name}`]({name}.md) | {text} |" for name, text in PACKAGES.items()]
    own = [n for n in names(top) if n not in importlib.import_module("mlx_lattice.core").__all__]
    yield FOLDER / "index.md", "\n".join(lines) + "\n\n" + entries("mlx_lattice", own)
    for package, text in PACKAGES.items():
        module = importlib.import_module(f"mlx_lattice.{package}")
        body = f"{head}# mlx_lattice.{package}\n\n{text}\n\n"
        yield (
            FOLDER / f"{package}.md",
            body + entries(f"mlx_lattice.{package}", list(names(module))),
        )


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
