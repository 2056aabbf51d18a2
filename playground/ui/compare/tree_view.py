"""The Tree view: every candidate of the runs that branched, growing while they go on.

Drawn in the browser from what the live view has heard. Knows which files make it. Refuses to know
runs. Its template is constant, because Gradio evaluates templates as scripts.
"""

from __future__ import annotations

import gradio as gr

from playground.ui import web

_SCRIPTS = (
    "store.js",
    "writing.js",
    "tree_layout.js",
    "tree_words.js",
    "tree_draw.js",
    "tree.js",
)


def view() -> gr.HTML:
    """The trees of the columns that the page's store holds."""
    return gr.HTML(
        html_template=web.text("tree.html"),
        css_template=web.text("tools.css", "tree.css"),
        js_on_load=web.text(*_SCRIPTS),
        apply_default_css=False,
        elem_id="tree-view",
    )
