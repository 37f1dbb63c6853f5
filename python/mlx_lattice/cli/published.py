"""Options that name published weights, shared by `convert` and `features`."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ..models._model import Model
from ..models.published import Found, open_pretrained

EXAMPLE_RULE = "a released PTv3 file needs --conv-input branch"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `models.pretrained` besides the file."""
    add = parser.add_argument
    add("--file", metavar="NAME", help="the file of a name of the Hugging Face hub, or of a folder")
    add("--head", metavar="FILE", help="a file with a linear head for the encoder")
    add(
        "--part",
        choices=("student", "teacher"),
        default="student",
        help="of a file of self-supervised training (default: %(default)s)",
    )
    add(
        "--conv-input",
        choices=("sum", "branch"),
        help="which block rule a Point Transformer V3 was trained with; released weights: branch",
    )
    add(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an argument of the network, as JSON: --set enable_flash=false",
    )


def opened(source: str, arguments: argparse.Namespace) -> tuple[Model, Found]:
    """The network that the options name, and what was found."""
    config: dict[str, Any] = {}
    for text in arguments.set:
        key, equals, value = text.partition("=")
        try:
            config[key] = json.loads(value)
        except ValueError:
            equals = ""
        if not equals:
            raise ValueError(f"--set: found {text!r}, expected KEY=VALUE with a value of JSON")
    if arguments.conv_input is not None:
        config["conv_input"] = arguments.conv_input
    return open_pretrained(
        source, arguments.file, head=arguments.head, part=arguments.part, **config
    )
