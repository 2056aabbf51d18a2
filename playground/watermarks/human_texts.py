"""The human-written texts that come with the project, all in the public domain."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

_FILE = Path(__file__).with_name("human_texts.txt")


class Passage(NamedTuple):
    """A text, and its author, work and year or chapter."""

    text: str
    source: str


@cache
def passages() -> tuple[Passage, ...]:
    """All passages in the order of the file: addresses by year, then novels by chapter."""
    blocks = _FILE.read_text(encoding="utf-8").split("\n@ ")[1:]
    parts = (block.strip().partition("\n") for block in blocks)
    return tuple(Passage(text, source) for source, _, text in parts)


@cache
def edition() -> str:
    """A hash of the passages, which changes when they do."""
    return hashlib.sha256(_FILE.read_bytes()).hexdigest()[:16]
