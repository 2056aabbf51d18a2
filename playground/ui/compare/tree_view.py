"""The Tree view: every candidate of the runs that branched, growing while they go on.

Drawn in the browser from what the live view has heard. Knows which files make it. Refuses to know
runs. Its template is constant, because Gradio evaluates templates as scripts.
"""

from __future__ import annotations

import gradio as gr

from playground.ui import assets


def view() -> gr.HTML:
    """The trees of the columns that the page's store holds."""
    return gr.HTML(
        html_template=assets.text("shared/web/tree_panel.html"),
        css_template=assets.text("shared/web/toolbar.css", "shared/web/tree_panel.css"),
        js_on_load=assets.mount("compare/web/tree_view.js"),
        apply_default_css=False,
        elem_id="tree-view",
    )
