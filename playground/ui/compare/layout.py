"""The components of the compare page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import gradio as gr

from playground.ui.compare.cards import CardList
from playground.ui.compare.form import Actions, Form, build_actions, build_form
from playground.ui.compare.presets import FIRST, PRESETS
from playground.ui.compare.runs import Runs
from playground.ui.compare.tabs import Tabs, build_tabs
from playground.ui.compare.views import live_columns
from playground.ui.shared.pages import App, PageSpec

_NO_CARDS = "The strategies appear here once the model is loaded."


@dataclass(frozen=True)
class Layout:
    """The components that events connect."""

    presets: list[gr.Button]
    preset_text: gr.Markdown
    form: Form
    card_area: gr.Column
    cards: gr.State  # a `CardList`
    actions: Actions
    live: gr.HTML
    tabs: Tabs


def build_layout(app: App, runs: Runs, pages: Sequence[PageSpec]) -> Layout:
    """Build the page; other pages are tabs below its columns."""
    with gr.Row(elem_id="presets"):
        gr.Markdown("Examples")
        presets = [gr.Button(preset.title, size="sm", scale=0, min_width=0) for preset in PRESETS]
    preset_text = gr.Markdown(elem_id="point")
    form = build_form(FIRST.prompt, app.limits)
    with gr.Column() as card_area:
        gr.Markdown(_NO_CARDS, elem_id="to-come")
    return Layout(
        presets=presets,
        preset_text=preset_text,
        form=form,
        card_area=card_area,
        cards=gr.State(CardList().replaced(FIRST.cards[: app.limits.strategies])),
        actions=build_actions(),
        live=live_columns(runs.lines),
        tabs=build_tabs(app, pages),
    )
