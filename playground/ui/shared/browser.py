"""What only the browser can do: keep state over a reload, follow a link, save files.

A hidden component of the page does it; this module gives it values.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping

import gradio as gr

from playground.ui import assets
from playground.ui.shared.html import json_value

_SCRIPT = "compare/web/page_state.js"


def component() -> gr.HTML:
    """The hidden component, to be rendered last.

    Its events: ``arrived`` if the browser has stored state or followed a link, ``changed`` if the
    visitor changed the form.
    """
    return gr.HTML(
        value="",
        html_template="",
        js_on_load=assets.mount(_SCRIPT, "arrived", "changed"),
        elem_id="browser",
        elem_classes="signal",
        render=False,
    )


def store(**state: str) -> str:
    """The component's value that stores something in the browser."""
    return json.dumps({"keep": state})


def download(files: Mapping[str, str]) -> str:
    """The component's value that saves texts as files, by name."""
    return json_value({"save": files, "once": uuid.uuid4().hex})
