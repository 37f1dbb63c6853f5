"""Help of the public names.

One sentence from the source, then arguments, result, errors and an example.

An argument means the same wherever it has the same name, so `words.py` explains each once. Examples
lie in `examples.txt`, and a test executes them all. A docstring that already has a section keeps
its own.
"""

from .compose import complete, install, lacking

__all__ = ["complete", "install", "lacking"]
