"""The components of the compare page."""

from __future__ import annotations

from dataclasses import dataclass

import gradio as gr

from playground.ui.compare.cards import card_state, cards_of, catalog_state
from playground.ui.compare.form import Actions, Form, build_bar, build_shared
from playground.ui.compare.presets import FIRST, listing
from playground.ui.compare.tabs import Tabs, build_tabs
from playground.ui.compare.views import dock_handle, live_columns, preset_chips
from playground.ui.shared.pages import App


@dataclass(frozen=True)
class Layout:
    """The components that events connect."""

    presets: gr.HTML
    form: Form
    cards: gr.HTML  # its value is JSON: see `cards.from_json`
    catalog: gr.HTML
    actions: Actions
    live: gr.HTML
    tabs: Tabs


def build_layout(app: App) -> Layout:
    """Build the page: the bar, the columns, and the dock below them."""
    form, actions = build_bar(FIRST.prompt, app.limits)
    with gr.Row(elem_id="below-bar", equal_height=False):
        presets = preset_chips(listing(None, app.limits))
        form = build_shared(form, app.limits)
    live = live_columns()
    with gr.Column(elem_id="dock"):
        dock_handle()
        tabs = build_tabs()
    return Layout(
        presets=presets,
        form=form,
        cards=card_state(cards_of(FIRST.cards, app.limits)),
        catalog=catalog_state(),
        actions=actions,
        live=live,
        tabs=tabs,
    )
