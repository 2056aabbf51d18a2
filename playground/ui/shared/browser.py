"""What only the visitor's browser can do: keep the state over a reload, follow a link, save files.

Knows the hidden component that does it. Refuses to know what a state or a file holds.
"""

from __future__ import annotations

import json
import uuid
from urllib.parse import quote

import gradio as gr
from gradio.processing_utils import save_bytes_to_cache
from gradio.utils import get_upload_folder

from playground.ui import assets

_SCRIPT = "compare/web/page_state.js"

# Turns a state into a link to this page, with the token marks and the tab the visitor sees.
LINK = assets.listener(_SCRIPT, "pageLink")

# The strategy cards are about to be rendered: until they are, Python does not know their events, so
# the two buttons that start runs are disabled. Renderings are counted, as one may still be on its
# way when the next one is requested.
DRAWING = assets.listener(_SCRIPT, "requestCards")


def drawn(count: int) -> str:
    """The script of cards that answer the rendering request with this number."""
    return assets.call(_SCRIPT, "cardsRendered", count)


def turned(tab: str) -> str:
    """The script that reports the open tab, for a listener without inputs."""
    return assets.listener(_SCRIPT, "openTab", tab)


def background(measure: str) -> str:
    """The script that shows a measure as the background of the tokens."""
    return assets.listener(_SCRIPT, "markBackground", measure)


def component() -> gr.HTML:
    """The hidden component; ``arrived`` fires when the browser has kept something or came by a
    link, ``changed`` when the visitor has done something to the form, ``drawn`` when the cards that
    were wanted last are there."""
    return gr.HTML(
        value="",
        html_template="",
        js_on_load=assets.mount(_SCRIPT, "arrived", "changed", "drawn"),
        elem_id="browser",
        elem_classes="signal",
    )


def keeps(**what: str) -> str:
    """The component's value that has the browser keep something."""
    return json.dumps({"keep": what})


def saves(text: str, name: str) -> str:
    """The component's value that has the browser save a text as a file."""
    # In Gradio's own folder a file is handed out, and cleared away, from where it lies.
    path = save_bytes_to_cache(text.encode(), name, get_upload_folder())
    address = f"gradio_api/file={quote(str(path))}"
    return json.dumps({"save": {"url": address, "name": name}, "once": uuid.uuid4().hex})
