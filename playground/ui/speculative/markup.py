"""Pieces of the tab as HTML that holds nothing but text.

Knows how to escape. Refuses to know runs.
"""

from __future__ import annotations

import html
from collections.abc import Sequence


def off(name: str, why: str) -> str:
    """A choice that cannot be made, and why."""
    return (
        '<label class="spec-off"><input type="checkbox" disabled>'
        f"<span><b>{html.escape(name)}</b> {html.escape(why)}</span></label>"
    )


def line(name: str, tokens: Sequence[str], differs: int | None) -> str:
    """A text token by token; the one at ``differs`` is marked, and what follows it is dimmed."""
    spans = []
    for place, text in enumerate(tokens):
        kind = "same" if differs is None or place < differs else "after"
        kind = "differs" if place == differs else kind
        spans.append(f'<span class="{kind}">{html.escape(text)}</span>')
    return f'<p class="spec-line"><b>{html.escape(name)}</b> {"".join(spans)}</p>'


def check(right: bool, words: str) -> str:
    """A sentence with a mark that says whether all is well."""
    mark = "✓" if right else "✗"
    kind = "right" if right else "wrong"
    return f'<p class="spec-check {kind}"><b aria-hidden="true">{mark}</b> {html.escape(words)}</p>'
