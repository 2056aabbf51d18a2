"""Fragments of HTML, rendered with Jinja2. Autoescape is on: text never becomes markup."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader

_ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True
)
_MACROS: Any = _ENVIRONMENT.get_template("fragments.html").module
_VISIBLE = str.maketrans({" ": "␣", "\n": "⏎", "\t": "⇥"})


def table(name: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column names the rows; it can be scrolled by keyboard."""
    return str(_MACROS.table(name, head, rows))


def hint(id: str, name: str, text: str) -> str:
    """An "i" that shows a text on hover and focus; ``name`` is for screen readers."""
    return str(_MACROS.hint(id, name, text))


def remarks(texts: Sequence[str]) -> str:
    """A paragraph for each text."""
    return str(_MACROS.remarks(texts))


def progress(text: str, done: int = 0, total: int = 0) -> str:
    """A progress line, with a bar if the total is known."""
    return str(_MACROS.progress(text, done, total))


def sentence(text: str) -> str:
    """A sentence that screen readers announce."""
    return str(_MACROS.sentence(text))


def tokens(name: str, tokens: Sequence[tuple[str, str]]) -> str:
    """A text with each token in the colour of its verdict."""
    return str(_MACROS.tokens(name, tokens))


def title(text: str) -> str:
    """A small heading."""
    return str(_MACROS.title(text))


def note(text: str) -> str:
    """An explanation in small print."""
    return str(_MACROS.note(text))


def check(passed: bool, text: str) -> str:
    """A sentence with a check mark or a cross."""
    return str(_MACROS.check(passed, text))


def disabled_choice(name: str, reason: str) -> str:
    """A checkbox that cannot be used, and why."""
    return str(_MACROS.disabled_choice(name, reason))


def aligned(
    names: tuple[str, str], texts: tuple[Sequence[str], Sequence[str]], differs: int | None
) -> str:
    """Two texts, token under token, with the first difference highlighted and the rest dimmed."""
    pairs = []
    for place, both in enumerate(zip_longest(*texts, fillvalue="")):
        kind = "same" if differs is None or place < differs else "after"
        kind = "differs" if place == differs else kind
        pairs.append((kind, [text.translate(_VISIBLE) for text in both]))
    return str(_MACROS.aligned(names, pairs))


def probability(p: float) -> str:
    """A probability as text; very small ones keep their magnitude."""
    return f"{p:.3f}" if p >= 0.001 else f"{p:.1e}"


def json_value(data: Any) -> str:
    """Data for a script of the page, as the value of a `gr.HTML` component."""
    # Gradio logs a warning for a value with a script tag; in JSON, \\u003c is the same character.
    return json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
