"""Words, bars and tables as HTML that holds nothing but text.

Knows how to escape. Refuses to know what stands in a table.
"""

from __future__ import annotations

import html
from collections.abc import Sequence


def table(name: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose rows begin with their names; on a narrow screen keys scroll it too."""
    top = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in head)
    lines = "".join(
        f'<tr><th scope="row">{html.escape(first)}</th>'
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for first, *cells in rows
    )
    return (
        f'<div class="lab-frame" tabindex="0" role="group" aria-label="{html.escape(name)}">'
        f'<table class="lab-table"><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table>'
        "</div>"
    )


def bar(words: str, done: int = 0, total: int = 0) -> str:
    """How far something is, in words and, where that is known, as a bar."""
    shown = f'<progress max="{total}" value="{done}"></progress>' if total else ""
    return f'<p class="lab-progress" role="status">{shown}<span>{html.escape(words)}</span></p>'


def probability(p: float) -> str:
    """A probability; very small ones keep their magnitude."""
    return f"{p:.3f}" if p >= 0.001 else f"{p:.1e}"


def words(text: str) -> str:
    """A sentence that matters."""
    return f'<p class="lab-words" role="status">{html.escape(text)}</p>'


def coloured(name: str, tokens: Sequence[tuple[str, str]]) -> str:
    """A text whose tokens have the colour of their verdicts."""
    spans = "".join(
        f'<span class="{html.escape(verdict)}">{html.escape(text)}</span>'
        for text, verdict in tokens
    )
    return f'<p class="lab-tokens"><b>{html.escape(name)}</b> {spans}</p>'
