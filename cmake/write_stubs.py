"""Writes the type stubs of the extension: write_stubs.py <folder of the extension> <output .pyi>.

MLX is imported first, so that its types appear by name. Arguments that the extension takes as any
object, and results that it gives as a plain tuple, get the types of `_boundary.py`. So stubs and
`help()` say the same.
"""

import ast
import importlib.util
import re
import sys
from pathlib import Path

folder, output = sys.argv[1:]
sys.path.insert(0, folder)
import _ext  # noqa: E402
import mlx.core  # noqa: E402, F401
from nanobind.stubgen import StubGen  # noqa: E402

HEAD = """import os
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import mlx.core
import mlx.core as mx
import numpy as np

# NumPy arrays and nested lists of numbers become arrays at the edge.
ArrayLike: TypeAlias = mx.array | np.ndarray | list[Any] | tuple[Any, ...]

"""


def boundary():
    """The module `_boundary` of the package, which is not installed yet."""
    place = Path(__file__).parents[1] / "python/mlx_lattice/_boundary.py"
    spec = importlib.util.spec_from_file_location("boundary", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def typed(text, types):
    """The stubs with the types of the tables."""
    tree = ast.parse(text)
    tree.body = [n for n in tree.body if not isinstance(n, (ast.Import, ast.ImportFrom))]
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        for p in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            if p.annotation:
                given = types.argument_type(p.arg, ast.unparse(p.annotation))
                given = re.sub(r"\b(mx|mlx\.core)\.array\b", "ArrayLike", given)
                p.annotation = ast.Name("tuple[Any, ...]" if given == "tuple" else given)
        if node.returns:
            node.returns = ast.Name(types.result_type(node.name, ast.unparse(node.returns)))
        for place, default in enumerate(node.args.defaults):
            if isinstance(default, ast.Dict):
                node.args.defaults[place] = ast.Constant(...)
    return ast.unparse(tree)


generator = StubGen(_ext)
generator.put(_ext)
text = typed(generator.get().replace("_ext.", ""), boundary())
Path(output).write_text(HEAD + text + "\n", encoding="utf-8")
