"""`mlx-lattice bench`: measures operations on this machine. One module per topic."""

from __future__ import annotations

import argparse
from typing import Any

from ..._ext import limit_simd
from ..device import add_device
from . import codec, conv, model, train


def _instruction_set(name: str) -> str:
    try:
        limit_simd(name)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return name


def add_command(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser("bench", help="measures operations on this machine")
    parser.add_argument(
        "--simd",
        metavar="NAME",
        type=_instruction_set,
        help="limits kernels to an instruction set, as the variable LATTICE_SIMD does",
    )
    topics = parser.add_subparsers(dest="topic", required=True, metavar="topic")
    for topic in (conv, codec, model, train):
        topic.add_topics(topics)
    add_device(parser)
    for topic in topics.choices.values():  # also behind the topic, where the first one counts on
        add_device(topic, argparse.SUPPRESS)
