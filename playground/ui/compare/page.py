"""Builds the compare page and connects its events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import gradio as gr

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


def build(app: App, tabs: gr.Tabs, others: Sequence[str]) -> ComparePage:
    """Build the page; ``tabs`` are those of all pages, ``others`` the ids of the other pages."""
    runs = Runs(app.limits, app.turns)
    return ComparePage(app, build_layout(app, tabs, others), runs)
