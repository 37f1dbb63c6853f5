"""Writes the type stubs of the extension: write_stubs.py <folder of the extension> <output .pyi>.

MLX is imported first, so that its types appear by name. Arguments that are one integer or three get
that type.
"""

import re
import sys

folder, output = sys.argv[1:]
sys.path.insert(0, folder)
import _ext  # noqa: E402
import mlx.core  # noqa: E402, F401
from nanobind.stubgen import StubGen  # noqa: E402

generator = StubGen(_ext)
generator.put(_ext)
text = generator.get()
triples = "kernel_size|stride|padding|dilation|min_coord|max_coord"
text = re.sub(rf"\b({triples}): object\b", r"\1: int | Sequence[int]", text)
text = re.sub(r"\b_ext\.", "", text)
if "from collections.abc import" not in text:
    text = "from collections.abc import Sequence\n" + text
with open(output, "w", encoding="utf-8") as file:
    file.write(text)
