"""What commands share: the options they have in common, and the syntax of settings and files."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from engine.errors import PlaygroundError
from engine.models import loading
from engine.prompt import Chat


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add ``--model``."""
    parser.add_argument(
        "--model",
        default=loading.DEFAULT,
        help="a name, folder or Hub id; default %(default)s",
    )


def add_settings(parser: argparse.ArgumentParser, help: str = "a setting of every run") -> None:
    """Add ``--set``, which may be repeated."""
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help=help)


def settings(options: argparse.Namespace) -> dict[str, Any]:
    """The settings given with ``--set``."""
    return dict(assignment(text) for text in options.set)


def prompt(options: argparse.Namespace) -> str | Chat:
    """The prompt, as a chat message where ``--chat`` is given."""
    text: str = options.prompt
    return [{"role": "user", "content": text}] if options.chat else text


def strategy(text: str) -> tuple[str, dict[str, Any]]:
    """Parse a strategy with settings, such as ``beam_search:num_beams=5,length_penalty=0.8``."""
    name, _, rest = text.partition(":")
    assignments = re.split(r",(?=\w+=)", rest) if rest else []
    return name, dict(assignment(item) for item in assignments)


def assignment(text: str) -> tuple[str, Any]:
    """Parse ``name=value``. The value is JSON; what does not parse as JSON is a string."""
    name, equals, value = text.partition("=")
    if not equals:
        raise PlaygroundError(f"a setting is written name=value, not {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def write(file: str, text: str) -> None:
    """Write a file; - is standard output."""
    if file == "-":
        sys.stdout.write(text)
        return
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise PlaygroundError(f"cannot write {file}: {error.strerror}") from error


def read(file: str) -> str:
    """Read a file; - is standard input. Bytes that are not UTF-8 become �."""
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode("utf-8", "replace")
    except (OSError, ValueError) as error:  # a NUL in a file's name is a ValueError
        raise PlaygroundError(f"cannot read {file}: {error}") from error
