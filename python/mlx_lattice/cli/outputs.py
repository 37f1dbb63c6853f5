"""Checks of output paths: the folder must exist, and no command writes over its input."""

from __future__ import annotations

import os
import shlex


def check_output(output: str | os.PathLike[str], *inputs: str | os.PathLike[str]) -> None:
    """ValueError, before the work, if the output is an input or cannot be written.

    An input may also be reached through a link.
    """
    for given in inputs:
        try:
            same = os.path.samefile(output, given)
        except OSError:  # one of the two does not exist
            same = False
        if same:
            raise ValueError(
                f"output: found {os.fspath(output)}, which is the input {os.fspath(given)}; "
                "expected another file, because a command never writes over its input"
            )
    path = os.fspath(output)
    if os.path.isdir(path):
        raise ValueError(f"output: {path} is a folder, expected the name of a file in it")
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        cure = shlex.join(["mkdir", "-p", folder])
        raise ValueError(f"output: there is no folder {folder}; make it with: {cure}")
    if not os.access(os.path.dirname(os.path.realpath(path)), os.W_OK):
        raise ValueError(f"output: the folder {folder} may not be written to")
