"""How settings, strategies and files are written on the command line.

Knows their spelling. Refuses to know commands.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from engine.errors import PlaygroundError
from playground.lab import Choice


def choice(text: str) -> Choice:
    """'beam_search:num_beams=5,length_penalty=0.8' as a strategy with its settings."""
    name, _, rest = text.partition(":")
    settings = re.split(r",(?=\w+=)", rest) if rest else []
    return name, dict(assignment(setting) for setting in settings)


def assignment(text: str) -> tuple[str, Any]:
    """'name=value' with the value as JSON; what is no JSON is a text."""
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
    """The text of a file, - being standard input; bytes that are no characters are shown as �."""
    try:
        if file != "-":
            return Path(file).read_bytes().decode("utf-8", "replace")
        # A test's standard input may have no bytes beneath it.
        beneath = getattr(sys.stdin, "buffer", None)
        text: str = beneath.read().decode("utf-8", "replace") if beneath else sys.stdin.read()
        return text
    except (OSError, ValueError) as error:  # a NUL in a file's name is a ValueError
        raise PlaygroundError(f"cannot read {file}: {error}") from error
