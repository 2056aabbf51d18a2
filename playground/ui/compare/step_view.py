"""The Step view: one token looked at closely, what it was chosen from, what each processor did.

Drawn in the browser from what the live view has heard. Knows which files make it. Refuses to know
runs. Its template is constant, because Gradio evaluates templates as scripts.
"""

from __future__ import annotations

import gradio as gr

from playground.ui import assets


def view() -> gr.HTML:
    """The Step view of the place that the page's store points at."""
    return gr.HTML(
        html_template=assets.text("compare/web/step_view.html"),
        css_template=assets.text("shared/web/toolbar.css", "compare/web/step_view.css"),
        js_on_load=assets.mount("compare/web/step_view.js"),
        apply_default_css=False,
        elem_id="step-view",
    )
