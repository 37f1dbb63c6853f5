"""`mlx-lattice bench`: measures operations on this machine. One module per topic."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

from ..._ext import limit_simd
from ..options import Commands, add_device, say_next
from . import codec, conv, integer, model, program, train, transformer


def _instruction_set(name: str) -> str:
    try:
        limit_simd(name)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return name


def add_command(commands: Commands) -> None:
    parser = commands.add_parser("bench", help="measures operations on this machine")
    parser.add_argument(
        "--simd",
        metavar="NAME",
        type=_instruction_set,
        help="limits kernels to an instruction set, as the variable LATTICE_SIMD does",
    )
    topics = parser.add_subparsers(dest="topic", required=True, metavar="topic")
    for topic in (conv, codec, integer, model, program, train, transformer):
        topic.add_topics(topics)
    add_device(parser)
    names = list(topics.choices)
    for name, one in topics.choices.items():
        add_device(one, argparse.SUPPRESS)  # also behind the topic, where the first one counts on
        after = names[(names.index(name) + 1) % len(names)]
        one.set_defaults(run=partial(_run, one.get_default("run"), after))


def _run(bench: Callable[[argparse.Namespace], None], after: str, own: argparse.Namespace) -> None:
    bench(own)
    say_next("bench", after)
