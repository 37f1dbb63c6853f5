"""The command line: `mlx-lattice COMMAND`, or `python -m mlx_lattice COMMAND`.

A command is a module with `add_command(commands)`. This function adds the parser of the command
and sets `run=` to a function of the parsed arguments. COMMANDS lists the modules; they are
imported when the command line starts.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from .. import __version__, backend_info
from .device import on_device

COMMANDS = (
    "demo",
    "scans",
    "train",
    "predict",
    "evaluate",
    "bench",
    "routes",
    "files",
    "codec",
    "quantize",
)

EXAMPLES = """examples:
  mlx-lattice info scan.ply                            what a file holds
  mlx-lattice voxelize scan.ply --voxel 0.05 small.ply one point per voxel
  mlx-lattice view small.ply small.html                a page that opens offline
  mlx-lattice compress scan.ply scan.mlat --voxel 0.01 lossless voxels; decompress gives points
  mlx-lattice train scans/ --voxel 0.1 --output run    a network that labels points; predict uses it
  mlx-lattice selftest                                 every kernel against a float64 oracle

`mlx-lattice COMMAND --help` explains a command.
Exit status: 0 on success, 1 on an error that is printed, 2 on wrong usage.
"""


def _rows(values: Any, prefix: str = "") -> Iterator[Any]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _rows(value, f"{prefix}{key}.")
        else:
            yield prefix + key, str(value)


def info(arguments: argparse.Namespace) -> None:
    """says what this build can do on this machine, or what a point-cloud file holds"""
    if arguments.file:
        from .files import info_file

        info_file(arguments.file, arguments.format)
        return
    rows = list(_rows(backend_info()))
    width = max(len(key) for key, _ in rows)
    for key, value in rows:
        print(f"{key:<{width}}  {value}")


def printable(text: Any) -> str:
    """Without control characters: names inside a file must not reach the terminal as commands."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in str(text))


def build_parser() -> Any:
    parser = argparse.ArgumentParser(
        prog="mlx_lattice",
        description="Sparse tensors and point clouds on MLX.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"mlx_lattice {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    about = commands.add_parser(
        "info",
        help=info.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="examples:\n  mlx-lattice info\n  mlx-lattice info scan.laz",
    )
    about.add_argument("file", nargs="?", help="a point-cloud file; without it, this build")
    about.add_argument("--format", metavar="F", help="its format where the extension does not tell")
    about.set_defaults(run=info)
    for module in COMMANDS:
        importlib.import_module(f"mlx_lattice.cli.{module}").add_command(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 success, 1 the user's mistake, 130 interrupted."""
    arguments = build_parser().parse_args(argv)
    try:
        with on_device(getattr(arguments, "device", None)):
            return arguments.run(arguments) or 0
    except MemoryError:
        print(f"mlx_lattice {arguments.command}: not enough memory", file=sys.stderr)
        return 1
    except (ValueError, TypeError, OverflowError, OSError, RuntimeError) as error:
        print(f"mlx_lattice {arguments.command}: {printable(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
