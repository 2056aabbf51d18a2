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

from playground.ui import web

# Turns a state into a link to this page, with the colours and the view the visitor had before them.
LINK = """(state) => {
  const { look, view } = globalThis.decodingPlayground;
  const told = { s: state, look: `${look.background}.${look.underline}`, tab: view };
  return `${location.origin}${location.pathname}#${new URLSearchParams(told)}`;
}"""

# The cards are to be drawn anew: until they are, Python would not know their events, and the two
# buttons that begin runs are not usable. The drawings that are wanted are counted, as one of them
# may still be on its way when the next one is.
DRAWING = """() => {
  const wanted = ++globalThis.decodingPlayground.drawing.wanted;
  return [wanted, ...[0, 1].map(() => ({ __type__: "update", interactive: false }))];
}"""


def drawn(count: int) -> str:
    """The script of cards that answer so many wishes to draw them."""
    return f"globalThis.decodingPlayground.drew({count:d});"


def turned(tab: str) -> str:
    """The script that tells the browser which tab is open, for a listener without inputs."""
    return f"() => {{ globalThis.decodingPlayground.turn({json.dumps(tab)}); return []; }}"


def component() -> gr.HTML:
    """The hidden component; ``arrived`` fires when the browser has kept something or came by a
    link, ``changed`` when the visitor has done something to the form, ``drawn`` when the cards that
    were wanted last are there."""
    return gr.HTML(
        value="",
        html_template="",
        js_on_load=web.text("store.js", "browser.js", "presses.js"),
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
