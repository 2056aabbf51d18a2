"""Builds the compare page and connects its events."""

from __future__ import annotations

from collections.abc import Sequence

from playground.ui.compare.card_events import render_cards
from playground.ui.compare.events import connect
from playground.ui.compare.layout import build_layout
from playground.ui.compare.runs import Runs
from playground.ui.shared.pages import App, PageSpec


def build(app: App, pages: Sequence[PageSpec]) -> None:
    """The compare page; ``pages`` are tabs below its columns."""
    runs = Runs(app.limits)
    layout = build_layout(app, runs, pages)
    with layout.card_area:
        render_cards(layout, app, runs)
    connect(layout, app, runs)
