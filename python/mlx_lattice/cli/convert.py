"""Command `convert`: published weights as a network of this library."""

from __future__ import annotations

import argparse

from ..training.progress import Progress
from .options import Commands, add_parser, printable, size_of
from .published import EXAMPLE_RULE, add_options, opened


def add_command(commands: Commands) -> None:
    parser = add_parser(
        commands,
        "convert",
        "published weights (.pth) as a network of this library (.safetensors)",
        "Reads a checkpoint of Sonata, Concerto, Utonia, LitePT or Point Transformer V3 without\n"
        "PyTorch and without running it, prints what it found, and writes a .safetensors file\n"
        "with its .json; models.load and `features` take it.",
        "examples:\n"
        "  mlx-lattice convert sonata_small.pth sonata_small.safetensors\n"
        "  mlx-lattice convert model_best.pth ptv3.safetensors --conv-input branch\n\n"
        f"{EXAMPLE_RULE}; the wrong rule loads and predicts badly",
    )
    parser.add_argument("input", help="a .pth, .pt or .safetensors file, a folder, or a hub name")
    parser.add_argument("output", help="a .safetensors file to write")
    add_options(parser)
    parser.set_defaults(run=_convert)


def _convert(arguments: argparse.Namespace) -> None:
    if not arguments.output.endswith(".safetensors"):
        raise ValueError(f"output: found {arguments.output}, expected a name with .safetensors")
    with Progress("convert", 2, "steps") as bar:
        bar.advance(0, f"reading {arguments.input}")
        net, found = opened(arguments.input, arguments)
        bar.advance(1, f"writing {arguments.output}")
        net.save(arguments.output)
    print(printable(found))
    print(f"wrote {arguments.output}: {size_of(arguments.output)}")
    print(f"next: mlx-lattice features scan.ply --model {arguments.output} --view features.html")
