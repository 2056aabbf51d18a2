"""The command line's entry point: parses arguments and runs one command.

Data goes to standard output, progress to standard error. Invalid input prints one line and exits
with status 2.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import transformers

from engine.errors import PlaygroundError
from playground.cli import (
    calibrate,
    compare,
    config,
    detect,
    models,
    race,
    recipe,
    space,
    strategies,
)

COMMANDS = (compare, strategies, models, detect, calibrate, race, recipe, config, space)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    options = _parser().parse_args(arguments)
    logging: Any = transformers.logging  # its functions carry no annotations
    logging.disable_progress_bar()  # those count weights, ours count tokens
    try:
        return int(options.command(options) or 0)
    except PlaygroundError as error:
        print(f"playground: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m playground",
        description="Compare decoding strategies on a language model, and inspect every choice.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_parser(commands)
    return parser
