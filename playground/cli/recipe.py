"""The command ``recipe``: writes a strategy as a ``custom_generate`` folder for transformers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from playground.export import recipe


def add_parser(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "recipe", help="write a strategy as a custom_generate folder for transformers"
    )
    parser.set_defaults(command=run)
    parser.add_argument("strategy", metavar="STRATEGY")
    parser.add_argument("folder", metavar="FOLDER")


def run(options: argparse.Namespace) -> None:
    """Write the folder; print the files."""
    for path in recipe.write(options.strategy, Path(options.folder)):
        print(path)
