"""The dock below the columns: a tab for each view of the results.

Figures are drawn when their tab is opened, when runs have ended, and when another position is
pinned; only those of the open tab.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import gradio as gr
from gradio.blocks import Block

from playground.ui.compare import views
from playground.ui.compare.charts import Charts, build_charts, build_details, score_all
from playground.ui.compare.export import Export, build_export, connect_export, finished
from playground.ui.compare.form import Actions, Form
from playground.ui.compare.runs import Runs
from playground.ui.shared.comparison import Comparison
from playground.ui.shared.events import (
    EVERY,
    LATEST,
    QUICK,
    Updates,
    View,
    event_data,
    open_view,
    visitor,
)
from playground.ui.shared.figures import FigureTab
from playground.ui.shared.messages import shows_errors
from playground.ui.shared.model_loading import Labs
from playground.ui.shared.pages import COMPARE, App, Pages

_FIRST = "step"


@dataclass(frozen=True)
class Tabs:
    """The tabs of the dock. The browser knows which one is open (``tabs.js``)."""

    each: Mapping[str, gr.Tab]
    details: FigureTab
    charts: Charts
    export: Export

    @property
    def outputs(self) -> list[Block]:
        """The components that `draw` updates."""
        return [*self.details.outputs, *self.charts.outputs, *self.export.outputs]

    def draw(self, comparison: Comparison | None, labs: Labs, view: View | None = None) -> Updates:
        """Draw what the open tab shows of a comparison.

        ``view`` is what was open when a script of the page triggered an event. It counts until a
        tab is opened: that event may have been handled before this one.
        """
        nothing: Updates = {self.export.which: gr.skip()}  # Gradio requires some output
        if comparison is not None and view is not None:
            comparison.tab = comparison.tab or view.tab
        hidden = view is not None and view.page != COMPARE
        if comparison is None or not comparison.traces or hidden:
            return nothing
        with comparison.drawing:
            traces, position = comparison.traces, comparison.position
            if comparison.tab == "strategy":
                return self.details.draw(traces, position)
            if comparison.tab == "charts":
                return self.charts.draw(traces, position)
            if comparison.tab == "export":
                return self.export.draw(comparison, lambda: labs.lab(comparison.model))
            return nothing


def build_tabs() -> Tabs:
    """The dock."""
    each: dict[str, gr.Tab] = {}
    with gr.Tabs(elem_id="tabs", overflow_behavior="wrap"):
        with gr.Tab("Step", id=_FIRST) as each[_FIRST]:
            views.step_inspector()
        with gr.Tab("Tree", id="tree") as each["tree"]:
            views.tree()
        with gr.Tab("Strategy details", id="strategy") as each["strategy"]:
            details = build_details()
        with gr.Tab("Charts", id="charts") as each["charts"]:
            charts = build_charts()
        with gr.Tab("Export", id="export") as each["export"]:
            export = build_export()
    return Tabs(each, details, charts, export)


def connect_tabs(
    tabs: Tabs,
    app: App,
    runs: Runs,
    pages: Pages,
    form: Form,
    actions: Actions,
    cards: gr.HTML,
    live: gr.HTML,
) -> None:
    """Connect the dock, and the tabs of the pages."""
    _connect_figures(tabs, app, runs, actions, live)
    _connect_pages(tabs, app, runs, pages)
    connect_export(tabs.export, app, runs, live, tabs.charts.save)
    tabs.export.configurations.connect(app, cards, form, live.over)


def _connect_pages(tabs: Tabs, app: App, runs: Runs, pages: Pages) -> None:
    def draw(request: gr.Request) -> Updates:
        return tabs.draw(runs.comparison(visitor(request)), app.labs)

    pages.each[COMPARE].select(draw, None, tabs.outputs, **EVERY)


def _connect_figures(tabs: Tabs, app: App, runs: Runs, actions: Actions, live: gr.HTML) -> None:
    def opening(name: str) -> Callable[[gr.Request], Updates]:
        def listener(request: gr.Request) -> Updates:  # Gradio passes no request to a partial
            comparison = runs.comparison(visitor(request))
            if comparison is not None:
                comparison.tab = name
            return tabs.draw(comparison, app.labs)

        return listener

    def finish(event: gr.EventData, request: gr.Request) -> Updates:
        who = visitor(request)
        drawn = tabs.draw(runs.comparison(who), app.labs, open_view(event))
        return {**actions.switch(running=runs.is_running(who)), **drawn}

    def pin(event: gr.EventData, request: gr.Request) -> Updates:
        comparison = runs.comparison(visitor(request))
        position = event_data(event, "at")["at"]
        if comparison is not None:
            valid = type(position) is int and position >= 0
            comparison.position = position if valid else None
        return tabs.draw(comparison, app.labs, open_view(event))

    @shows_errors
    def score(request: gr.Request) -> Updates:
        comparison = finished(runs, request)
        traces = score_all(comparison, app.labs.lab(comparison.model))
        return tabs.charts.scored.draw(traces, comparison.position)

    live.over(finish, None, [*actions.switched, *tabs.outputs], **EVERY)
    live.pinned(pin, None, tabs.outputs, **LATEST)
    for name, tab in tabs.each.items():
        tab.select(opening(name), None, tabs.outputs, **EVERY)
    slow = {**QUICK, "show_progress": "minimal", "show_progress_on": None, "concurrency_limit": 2}
    tabs.charts.score.click(score, None, tabs.charts.scored.outputs, **slow)
