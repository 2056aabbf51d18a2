"""Builds the compare page and connects its events."""

from __future__ import annotations

from dataclasses import dataclass

from playground.ui.compare.events import connect
from playground.ui.compare.layout import Layout, build_layout
from playground.ui.compare.runs import Runs
from playground.ui.shared.pages import App, Pages


@dataclass(frozen=True)
class ComparePage:
    """The page with the columns. Other pages use its comparison."""

    app: App
    layout: Layout
    runs: Runs

    def connect(self, pages: Pages) -> None:
        """Connect all pages."""
        connect(self.layout, self.app, self.runs, pages)


def build(app: App) -> ComparePage:
    """Build the page."""
    runs = Runs(app.limits, app.queue, app.monitoring)
    return ComparePage(app, build_layout(app), runs)
