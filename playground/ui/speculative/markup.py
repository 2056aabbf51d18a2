"""Pieces of the tab as HTML that holds nothing but text.

Knows how to escape. Refuses to know runs.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from itertools import zip_longest


def off(name: str, why: str) -> str:
    """A choice that cannot be made, and why."""
    return (
        '<label class="spec-off"><input type="checkbox" disabled>'
        f"<span><b>{html.escape(name)}</b> {html.escape(why)}</span></label>"
    )


def pairs(
    names: tuple[str, str], texts: tuple[Sequence[str], Sequence[str]], differs: int | None
) -> str:
    """Two texts token under token; the first pair that differs is marked, later ones are dimmed."""
    spans = []
    for place, both in enumerate(zip_longest(*texts, fillvalue="")):
        kind = "same" if differs is None or place < differs else "after"
        kind = "differs" if place == differs else kind
        tokens = "".join(f"<span>{html.escape(_visible(text))}</span>" for text in both)
        spans.append(f'<span class="{kind}" title="token {place + 1}">{tokens}</span>')
    titles = "".join(f"<b>{html.escape(name)}</b>" for name in names)
    label = html.escape(" and ".join(names))
    return (
        f'<div class="spec-pairs" tabindex="0" role="group" aria-label="{label}, token by token">'
        f'<span class="names">{titles}</span>{"".join(spans)}</div>'
    )


def _visible(text: str) -> str:
    """A token whose white space can be seen."""
    return text.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥")


def check(right: bool, words: str) -> str:
    """A sentence with a mark that says whether all is well."""
    mark = "✓" if right else "✗"
    kind = "right" if right else "wrong"
    return f'<p class="spec-check {kind}"><b aria-hidden="true">{mark}</b> {html.escape(words)}</p>'


def title(words: str) -> str:
    """The name of what follows."""
    return f'<p class="spec-title">{html.escape(words)}</p>'


def said(words: str) -> str:
    """A quiet sentence."""
    return f'<p class="spec-said">{html.escape(words)}</p>'
