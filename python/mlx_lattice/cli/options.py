"""Options, checks and tables that several commands share."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

import mlx.core as mx

from .. import io
from .._ext import backend_info
from ..datasets.folder import clouds_below
from ..devices import on

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

HELP = "where features are computed (default: MLX's default device)"
FORMATS = (
    "formats: .ply .pcd .las .laz .npy .npz .mlat .xyz .txt .csv .e57, .bin and .label (kitti,\n"
    "nuscenes), meshes .off .obj .stl, whose surface is sampled; --format names the format if the\n"
    "extension does not"
)

CLASSES_HELP = (
    "names of the classes: label=name pairs such as 2=road,6=car; or names only, of the labels "
    "0, 1, 2, ..., or of the labels found, ascending, where these are others"
)


def add_parser(
    commands: Commands, name: str, help: str, description: str = "", epilog: str = ""
) -> argparse.ArgumentParser:
    """The parser of a command; its texts keep their line breaks."""
    raw = argparse.RawDescriptionHelpFormatter
    return commands.add_parser(
        name, help=help, formatter_class=raw, description=description or None, epilog=epilog or None
    )


def add_device(
    parser: argparse.ArgumentParser, default: str | None = None, text: str = HELP
) -> None:
    """Adds --device to the parser of a command."""
    parser.add_argument("--device", choices=("cpu", "gpu"), default=default, help=text)


def add_format(
    parser: argparse.ArgumentParser, what: str = "the input where its extension does"
) -> None:
    """Adds --format to the parser of a command that reads clouds."""
    parser.add_argument("--format", metavar="F", help=f"format of {what} not tell")


def on_device(name: str | None) -> contextlib.AbstractContextManager[object]:
    """A context with this device, or with the default one for None. ValueError if it is missing."""
    if name is None:
        return contextlib.nullcontext()
    if name == "gpu" and not mx.is_available(mx.gpu):
        kernels = backend_info()["capabilities"]
        if kernels["metal"] or kernels["cuda"]:  # tests emulate a GPU: arrays stay on the CPU
            return contextlib.nullcontext()
        raise ValueError(
            "found no GPU that MLX can use, expected one; without it give --device cpu"
        )
    return on(mx.gpu if name == "gpu" else mx.cpu)


def check_positive(arguments: argparse.Namespace, *names: str) -> None:
    """ValueError unless these options, or all their values, are positive and finite."""
    for name in names:
        found = getattr(arguments, name)
        for value in found if isinstance(found, (list, tuple)) else [found]:
            if not 0 < value < float("inf"):
                option = "--" + name.replace("_", "-")
                raise ValueError(f"{option}: found {value}, expected a positive number")


def check_input(path: str) -> None:
    """ValueError if a folder is given where a file is expected."""
    if os.path.isdir(path):
        inside = clouds_below(Path(path))
        such = f"; it holds {len(inside)} clouds, such as {inside[0]}" if inside else ""
        raise ValueError(f"{path} is a folder, expected a file{such}")


def read_cloud(path: str, format: str | None = None) -> io.PointCloud:
    """The cloud of a file, as io.read gives it; ValueError if it is a folder."""
    check_input(path)
    return io.read(path, format)


def parse_classes(text: str | None) -> list[str] | dict[int, str] | None:
    """The names of --classes: a list, or names by label for A=NAME,B=NAME."""
    if not text:
        return None
    words = text.split(",")
    if not any("=" in word for word in words):
        return words
    try:
        pairs = [word.split("=", 1) for word in words]
        return {int(value): name for value, name in pairs}
    except ValueError:
        raise ValueError(
            f"--classes: found {text!r}, expected names A,B,... or labels with names 2=A,6=B,..."
        ) from None


def classes_option(classes: Iterable[tuple[int, str]]) -> list[str]:
    """The arguments that pass these classes to another command; none if names are only numbers."""
    pairs = [(value, name) for value, name in classes if name != str(value)]
    usable = pairs and not any("," in name for _, name in pairs)
    return ["--classes", ",".join(f"{v}={name}" for v, name in pairs)] if usable else []


def say_next(*words: object) -> None:
    """The last line of a command: what to type next."""
    print("next: " + shlex.join(["mlx-lattice", *map(str, words)]))


def printable(text: object) -> str:
    """Without control characters: names inside a file must not reach the terminal as commands."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in str(text))


def table(rows: Iterable[tuple[object, object]]) -> str:
    """Lines of a two-column table."""
    texts = [(printable(name), printable(value)) for name, value in rows]
    width = max(len(name) for name, _ in texts)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in texts)


def size_of(path: str | os.PathLike[str]) -> str:
    """The size of a file, in words."""
    return f"{os.path.getsize(path):,} bytes"
