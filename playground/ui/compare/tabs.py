"""The tabs below the columns.

Figures are drawn when their tab is opened, when runs have ended, and when another position is
pinned; only those of the open tab.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.blocks import Block

from playground.ui.compare import views
from playground.ui.compare.cards import CardList
from playground.ui.compare.charts import Charts, build_charts, build_details, score_all
from playground.ui.compare.export import Export, build_export, connect_export, finished
from playground.ui.compare.form import Actions, Form
from playground.ui.compare.runs import Runs
from playground.ui.shared import browser
from playground.ui.shared.comparison import Comparison
from playground.ui.shared.events import EVERY, LATEST, QUICK, Updates, Values, visitor
from playground.ui.shared.figures import FigureTab
from playground.ui.shared.gradio_internals import event_payload
from playground.ui.shared.messages import shows_errors
from playground.ui.shared.model_loading import Labs
from playground.ui.shared.pages import App, LinkedForm, Page, PageSpec

_FIRST = "step"


@dataclass(frozen=True)
class Tabs:
    """The tabs; those of other pages are built by these pages."""

    all: gr.Tabs
    open_tab: gr.State  # its id
    each: Mapping[str, gr.Tab]
    details: FigureTab
    charts: Charts
    export: Export
    pages: Mapping[str, Page]

    @property
    def linked_forms(self) -> dict[str, LinkedForm]:
        """The forms of other pages that a link restores."""
        forms = {name: page.linked_form for name, page in self.pages.items()}
        return {name: form for name, form in forms.items() if form is not None}

    @property
    def selection(self) -> list[Block]:
        """The components that `select` updates."""
        return [self.all, self.open_tab]

    def select(self, name: str) -> Updates:
        """Open a tab, or the first one if there is none of this name."""
        name = name if name in self.each else _FIRST
        return {self.all: gr.Tabs(selected=name), self.open_tab: name}

    @property
    def outputs(self) -> list[Block]:
        """The components that `draw` updates."""
        return [*self.details.outputs, *self.charts.outputs, *self.export.outputs]

    def draw(self, comparison: Comparison | None, labs: Labs) -> Updates:
        """Draw what the open tab shows of a comparison."""
        nothing: Updates = {self.export.which: gr.skip()}  # Gradio requires some output
        if comparison is None or not comparison.traces:
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


def build_tabs(app: App, pages: Sequence[PageSpec]) -> Tabs:
    """The tabs; those of other pages stand before Export."""
    each: dict[str, gr.Tab] = {}
    built: dict[str, Page] = {}
    with gr.Tabs(elem_id="tabs", overflow_behavior="wrap") as all_tabs:
        with gr.Tab("Step", id=_FIRST) as each[_FIRST]:
            views.step_inspector()
        with gr.Tab("Tree", id="tree") as each["tree"]:
            views.tree()
        with gr.Tab("Strategy details", id="strategy") as each["strategy"]:
            details = build_details()
        with gr.Tab("Charts", id="charts") as each["charts"]:
            charts = build_charts()
        for page in pages:
            with gr.Tab(page.title, id=page.id) as each[page.id]:
                built[page.id] = page.build(app)
        with gr.Tab("Export", id="export") as each["export"]:
            export = build_export()
    return Tabs(all_tabs, gr.State(_FIRST), each, details, charts, export, built)


def connect_tabs(
    tabs: Tabs,
    app: App,
    runs: Runs,
    form: Form,
    actions: Actions,
    cards: gr.State,
    live: gr.HTML,
) -> None:
    """Connect the tabs, apart from those of other pages."""
    _connect_figures(tabs, app, runs, actions, live)
    connect_export(tabs.export, app, runs, live, tabs.charts.save)

    def read(values: Values) -> tuple[CardList, dict[str, Any]]:
        return values[cards], form.shared_of(values)

    tabs.export.configurations.connect_state(
        cards, form.shared, app.model.loaded, read, app.labs.lab
    )


def _connect_figures(tabs: Tabs, app: App, runs: Runs, actions: Actions, live: gr.HTML) -> None:
    def open_tab(name: str, request: gr.Request) -> Updates:
        comparison = runs.comparison(visitor(request))
        if comparison is not None:
            comparison.tab = name
        return {tabs.open_tab: name, **tabs.draw(comparison, app.labs)}

    def opening(name: str) -> Callable[[gr.Request], Updates]:
        def listener(request: gr.Request) -> Updates:  # Gradio passes no request to a partial
            return open_tab(name, request)

        return listener

    def finish(name: str, request: gr.Request) -> Updates:
        running = runs.is_running(visitor(request))
        return {**actions.switch(running=running), **open_tab(name, request)}

    def pin(event: gr.EventData, request: gr.Request) -> Updates:
        comparison = runs.comparison(visitor(request))
        position = event_payload(event).get("at")
        if comparison is not None:
            valid = type(position) is int and position >= 0
            comparison.position = position if valid else None
        return tabs.draw(comparison, app.labs)

    @shows_errors
    def score(request: gr.Request) -> Updates:
        comparison = finished(runs, request)
        traces = score_all(comparison, app.labs.lab(comparison.model))
        return tabs.charts.scored.draw(traces, comparison.position)

    opened = [tabs.open_tab, *tabs.outputs]
    live.over(finish, tabs.open_tab, [*actions.switched, *opened], **EVERY)
    live.pinned(pin, None, tabs.outputs, **LATEST)
    for name, tab in tabs.each.items():
        tab.select(opening(name), None, opened, js=browser.tab_opened(name), **QUICK)
    slow = {**QUICK, "show_progress": "minimal", "show_progress_on": None, "concurrency_limit": 2}
    tabs.charts.score.click(score, None, tabs.charts.scored.outputs, **slow)
