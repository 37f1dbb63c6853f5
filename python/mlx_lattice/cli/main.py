"""The command line: `mlx-lattice COMMAND`, or `python -m mlx_lattice COMMAND`.

A command is a module with `add_command(commands)`. This function adds the parser of the command
and sets `run=` to a function of the parsed arguments. COMMANDS lists the modules; they are
imported when the command line starts.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Sequence

from .. import __version__
from ..devices import keep_memory
from .options import on_device, printable

COMMANDS = (
    "info",
    "demo",
    "scans",
    "train",
    "predict",
    "detect",
    "evaluate",
    "bench",
    "routes",
    "voxelize",
    "view",
    "compress",
    "quantize",
    "convert",
    "features",
    "export",
)

EXAMPLES = """examples:
  mlx-lattice info scan.ply                            what a file holds
  mlx-lattice voxelize scan.ply --voxel 0.05 small.ply one point per voxel
  mlx-lattice view small.ply small.html                a page that opens offline
  mlx-lattice compress scan.ply scan.mlat --voxel 0.01 lossless voxels; decompress gives points
  mlx-lattice train scans/ --voxel 0.1 --output run    a network that labels points; predict uses it
  mlx-lattice features scan.ply --view                 what an encoder sees, a page to click in
  mlx-lattice export run scan.ply net.lattice.safetensors  one file that C++ and C run
  mlx-lattice selftest                                 every kernel against a float64 oracle

`mlx-lattice COMMAND --help` explains a command.
Exit status: 0 on success, 1 on an error that is printed, 2 on wrong usage.
"""


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="mlx_lattice",
        description="Sparse tensors and point clouds on MLX.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"mlx_lattice {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for module in COMMANDS:
        importlib.import_module(f"mlx_lattice.cli.{module}").add_command(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command, such as `mlx-lattice info scan.ply`.

    Args:
        argv: The words after the name of the program; by default those of this process.

    Returns:
        The exit status: 0 on success, 1 on a mistake of the user, which is printed, 130 if it was
        interrupted.

    Raises:
        SystemExit: The words are no command; argparse prints the usage.
    """
    arguments = build_parser().parse_args(argv)
    arguments.words = list(sys.argv[1:] if argv is None else argv)
    keep_memory()
    try:
        with on_device(getattr(arguments, "device", None)):
            status = arguments.run(arguments) or 0
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough. Python must not flush into the pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except MemoryError:
        print(f"mlx_lattice {arguments.command}: not enough memory", file=sys.stderr)
        return 1
    except (ValueError, TypeError, OverflowError, OSError, RuntimeError, ImportError) as error:
        # ImportError: an optional package is missing; the message says how to install it.
        text = str(error)
        if isinstance(error, OSError) and error.filename and error.strerror:
            text = f"{error.filename}: {error.strerror}"
        print(f"mlx_lattice {arguments.command}: {printable(text)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as stop:
        kept = str(stop) or "no file was changed; the same command begins again"
        print(f"\nmlx_lattice {arguments.command}: interrupted; {kept}", file=sys.stderr)
        return 130
