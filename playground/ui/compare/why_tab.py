"""The tab Why: what only one family of strategies has to tell about its choices.

Knows the place of those figures. Refuses to know any strategy: the views say whom they need.
"""

from __future__ import annotations

from playground.ui.shared import figures

_EMPTY = (
    "Some strategies have reasons of their own for a token. Run contrastive search, DoLa, diverse "
    "or constrained beam search to see them here."
)


def tab() -> figures.Figures:
    """The tab's figures."""
    return figures.places("strategy", _EMPTY)
