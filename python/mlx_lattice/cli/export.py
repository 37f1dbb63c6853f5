"""Command `export`: a network that `train` wrote becomes a program for C++ and C."""

from __future__ import annotations

import argparse
import time

from .. import io
from ..programs import Program, export
from ..training.progress import Progress
from .options import Commands, add_format, add_parser, size_of
from .run_folder import RunFolder


def add_command(commands: Commands) -> None:
    parser = add_parser(
        commands,
        "export",
        "writes a trained network as one file that C++ and C run without Python",
        "The program takes raw points and the columns of the training, and gives one label per\n"
        "point. It is run on the cloud and compared with the network before it is written.",
        "examples:\n"
        "  mlx-lattice export run scan.ply net.lattice.safetensors\n"
        "  mlx-lattice info net.lattice.safetensors",
    )
    parser.add_argument("model", help="folder that `train` wrote, or its model.safetensors")
    parser.add_argument("cloud", help="a cloud on which the program is tried")
    parser.add_argument("output", help="file to write, NAME.lattice.safetensors")
    parser.add_argument(
        "--example",
        action="store_true",
        help="keeps the cloud and its labels in the file, for `selftest`",
    )
    add_format(parser)
    parser.set_defaults(run=_export)


def _export(arguments: argparse.Namespace) -> None:
    model, pipeline = RunFolder.of(arguments.model).load()
    cloud = io.read(arguments.cloud, arguments.format)
    begin = time.perf_counter()
    with Progress("export", 2, "steps") as bar:
        bar.advance(0, "running the network and comparing")
        export(
            model.eval(),
            arguments.output,
            cloud,
            pipeline=pipeline,
            keep_example=arguments.example,
        )
        bar.advance(1, "loading the program")
        program = Program.load(arguments.output)
    print(
        f"wrote {arguments.output}, {size_of(arguments.output)}, "
        f"{len(program.text.splitlines())} lines, in {time.perf_counter() - begin:.1f} s; "
        f"labels of {len(cloud):,} points are equal to the network's"
    )
    print(f"next: mlx-lattice predict --program {arguments.output} {arguments.cloud} labeled.ply")
