"""The Share button in the page's header: copies a link that restores the page."""

from __future__ import annotations

import uuid

import gradio as gr

from playground.ui import assets
from playground.ui.shared.html import json_value


def share_button() -> gr.HTML:
    """The button, with a menu of other links.

    Event: ``requested`` when the visitor wants a link; the listener returns `link_state`.
    """
    return gr.HTML(
        html_template=assets.text("compare/web/share.html"),
        css_template=assets.text("compare/web/share.css"),
        js_on_load=assets.mount("compare/web/share.js", "requested"),
        apply_default_css=False,
        elem_id="share",
    )


def link_state(state: str) -> str:
    """The button's value for the state that its link restores. Each value differs from the one
    before, so that the browser notices it."""
    return json_value({"state": state, "once": uuid.uuid4().hex})
